"""Grants for tests of what follows from them."""

from typing import Any

from vc_egpu.volcano.annotations import CardShare
from vc_egpu_node.cdi import Grant


def grant(name: str, *cards: tuple[str, int, int], **changes: Any) -> Grant:
    """A container's grant; ``cards``: (UUID, MiB, cores in percent) of each."""
    values: dict[str, Any] = {
        "name": name,
        "resource": "volcano.sh/vgpu-h20",
        "ids": ("s1",),
        "pod_uid": f"uid-{name}",
        "namespace": "ns",
        "pod": name,
        "container": "main",
        "plan_id": "1-1",
        "epoch": 1,
        "share_class": "unset",
        "core_policy": "hard",
        "native": False,
        "shares": tuple(CardShare(uuid=uuid, memory_mib=mib, cores=cores) for uuid, mib, cores in cards),
        "granted_at_s": 0.0,
    }
    return Grant(**{**values, **changes})
