"""Configurations of vc-scheduler: the one that we ship, the stock one, and one with Volcano's own vGPUs."""

from pathlib import Path
from typing import Any, Final, Literal

import yaml

ConfName = Literal["own", "stock", "bench-vgpu"]

_OWN: Final = (
    Path(__file__).resolve().parents[2]
    / "manifests" / "overlays" / "volcano" / "scheduler" / "volcano-scheduler.conf"
)  # fmt: skip
_GANG: Final = {"name": "gang", "enablePreemptable": False}
_DRF: Final = {"name": "drf", "enablePreemptable": False}
_DEVICE_SHARE: Final = {
    "name": "deviceshare",
    "arguments": {
        "deviceshare.VGPUEnable": True,
        "deviceshare.SchedulePolicy": "binpack",
        "deviceshare.ScheduleWeight": 10,
    },
}


def scheduler_conf(name: ConfName) -> str:
    """The text of ``volcano-scheduler.conf``."""
    return _OWN.read_text() if name == "own" else str(yaml.safe_dump(_stock(with_vgpu=name == "bench-vgpu")))


def _named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def _stock(*, with_vgpu: bool) -> dict[str, Any]:
    """What Volcano's chart installs; with its own vGPU scheduling on top for comparisons."""
    vgpu = [_DEVICE_SHARE] if with_vgpu else []
    return {
        "actions": "enqueue, allocate, backfill",
        "tiers": [
            {"plugins": [{"name": "priority"}, dict(_GANG), {"name": "conformance"}]},
            {
                "plugins": [
                    {"name": "overcommit"},
                    dict(_DRF),
                    *vgpu,
                    *_named("predicates", "proportion", "nodeorder", "binpack"),
                ]
            },
        ],
    }
