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
    parts: Any = SimpleNamespace(
        pods=SimpleNamespace(synced=True, views=lambda: [view]),
        grants=SimpleNamespace(
            all=lambda: [grant("train", ("GPU-1", 8_000, 50), share_class="low", pod_uid=UID)]
        ),
        node=SimpleNamespace(say_suspension=lambda _text: None),
        wall=SimpleNamespace(last=Look()),
    )
    facts = cast("FactsOf", SimpleNamespace(forget=lambda _living: None))
    world = NodeWorld(cast("Parts", parts), facts)
    assert world.pods() is None
    parts.wall.last = Look(number=0)
    assert set(world.pods() or ()) == {UID}
    parts.pods.synced = False
    assert world.pods() is None
