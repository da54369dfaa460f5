"""Configurations of vc-scheduler, as values: ours, the stock one, and one with Volcano's own vGPUs."""

from typing import Any, Final, Literal

import yaml

ConfName = Literal["own", "stock", "bench-vgpu"]

_NO_ERROR_CACHE: Final = {"predicateErrorCacheEnable": False}
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
    return str(yaml.safe_dump(_own() if name == "own" else _stock(with_vgpu=name == "bench-vgpu")))


def _named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def _own() -> dict[str, Any]:
    """What goes with our admission layer: it owns the cards, capacity stays a second wall for the caps.

    Members of one task are pinned to different nodes, which the cache of fit errors per task would refuse.
    """
    return {
        "actions": "allocate, backfill",
        "configurations": [
            {"name": "allocate", "arguments": dict(_NO_ERROR_CACHE)},
            {"name": "backfill", "arguments": dict(_NO_ERROR_CACHE)},
        ],
        "tiers": [
            {"plugins": [{"name": "priority"}, dict(_GANG), {"name": "conformance"}]},
            {"plugins": _named("predicates", "capacity", "nodeorder")},
        ],
    }


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
