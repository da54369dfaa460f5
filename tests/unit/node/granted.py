"""Grants, and the pages that follow from them, for tests."""

from typing import Any

from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation.control import Control, Timings, controls


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


def page_of(grants: list[Grant], name: str, **changes: Any) -> Control:
    """The page of one of them, as its neighbours make it."""
    paged = changes.pop("paged", frozenset(one.name for one in grants))
    facts = changes.pop("facts", {})
    return controls(grants, [name], paged=paged, facts=facts, timings=Timings(), **changes)[name]
