"""What suspension knows of its node before anybody has looked."""

from types import SimpleNamespace
from typing import Any, cast

from unit.node.granted import grant
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.suspension.facts import FactsOf
from vc_egpu_node.suspension.world import NodeWorld, Parts
from vc_egpu_node.wall.wall import Look

UID = "uid-train"


def test_nobody_is_judged_before_the_first_look_at_the_cards() -> None:
    """An order that came while no agent was there would be refused, as what the pod holds is not known yet,
    and the pod evicted instead."""
    view = PodView(UID, "ns", "train", "n", "Running", "{}", running=frozenset({"main"}))
    pods: Any = SimpleNamespace(synced=True, views=lambda: [view])
    own = grant("train", ("GPU-1", 8_000, 50), share_class="low", pod_uid=UID)
    grants: Any = SimpleNamespace(all=lambda: [own])
    node: Any = SimpleNamespace(say_suspension=lambda _text: None)
    wall: Any = SimpleNamespace(last=Look())
    none: Any = None
    parts = Parts(
        settings=none, api=none, grants=grants, pods=pods, node=node, isolation=none, wall=wall, hosts=none,
        events=none, policy=none, observation=none, stock=none,
    )  # fmt: skip
    facts = cast("FactsOf", SimpleNamespace(forget=lambda _living: None))
    world = NodeWorld(parts, facts)
    assert world.pods() is None
    wall.last = Look(number=0)
    assert set(world.pods() or ()) == {UID}
    pods.synced = False
    assert world.pods() is None
