"""MIG instances that are made for containers: where the plan says, removed behind them, and no other one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.node.collecting import Cgroups, collector
from contract.node.cut_node import TABLE, CutNode, cut_mig
from contract.node.node_world import World
from fakes.nvml_state import FakeInstance
from mortal import KilledError
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.cards.sliced import SliceOwners, placed_on
from vc_egpu_node.vendors.slices import HeldSlice
from vendor_nodes import MigNode

OPERATORS = FakeInstance("MIG-operator", 1, 2, 4, 40448)
"""A 3g at the upper half."""
HALF = -1
PROFILE = {"1g.10gb": 0, "2g.20gb": 1, "3g.40gb": 2}


@pytest.fixture
def rig(
    world: World, fake_nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[CutNode, MigNode]]:
    with cut_mig(world, tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def migs(rig: tuple[CutNode, MigNode]) -> CutNode:
    return rig[0]


@pytest.fixture
def node(rig: tuple[CutNode, MigNode]) -> MigNode:
    return rig[1]


def ids(node: MigNode, card: int = 0) -> set[str]:
    node.node.take_in()
    return {one.uuid for one in node.node.cards[card].instances}


def places(node: MigNode, card: int = 0) -> dict[int, int]:
    """Profile's number by start."""
    node.node.take_in()
    return {one.start: one.profile for one in node.node.cards[card].instances}


def test_an_instance_is_made_where_the_plan_says_and_removed_behind_its_container(
    migs: CutNode, node: MigNode
) -> None:
    card, _ = migs.look()
    assert (card.offered, card.reason, card.stack, card.isolation) == (True, "", False, "hardware")
    assert card.layout is not None and (card.layout.made, card.layout.whole) == (True, False)
    assert len(migs.run("a", "3g.40gb")) == 2
    assert places(node) == {4: 2}
    (one,) = migs.look()[0].slices
    assert (one.template, one.start, one.owner) == ("3g.40gb", 4, "uid-a")
    migs.gone("a")
    collector(migs.world, Cgroups()).collect()
    assert migs.lying() == 0 and not migs.look()[0].slices


def test_sizes_lie_where_the_core_puts_them(migs: CutNode, node: MigNode) -> None:
    sizes = ("3g.40gb", "1g.10gb", "2g.20gb", "1g.10gb")
    caps = [migs.run(f"p{number}", size) for number, size in enumerate(sizes)]
    assert places(node) == {held.start: PROFILE[held.template] for _, held in migs.planned.values()}
    assert migs.lying() == 4 and len({cap for pair in caps for cap in pair}) == 8
    assert {one.owner for one in migs.look()[0].slices} == {f"uid-p{number}" for number in range(4)}


def test_what_the_operator_made_takes_its_place_and_is_never_removed(migs: CutNode, node: MigNode) -> None:
    node.say(0, instances=[OPERATORS])
    first, second = migs.look()
    assert first.offered and second.offered
    assert [(one.template, one.start, one.owner) for one in first.slices] == [("3g.40gb", 4, "")]
    migs.run("a", "3g.40gb", start=0)
    migs.pod("b", "2g.20gb", start=4)
    assert "(no-room)" in migs.refused("b")
    for name in ("a", "b"):
        migs.gone(name)
    migs.restart()
    assert ids(node) == {"MIG-operator"}


def test_an_instance_at_the_place_of_the_plan_is_not_taken_over(migs: CutNode, node: MigNode) -> None:
    migs.pod("a", "3g.40gb", start=4)
    node.say(0, instances=[OPERATORS])
    assert "has another 3g.40gb at 4 (no-room)" in migs.refused("a")
    migs.gone("a")
    migs.restart()
    assert ids(node) == {"MIG-operator"}


def test_sizes_that_the_driver_does_not_reach_are_not_offered(migs: CutNode, node: MigNode) -> None:
    node.say(0, made_mib=1000)
    first, second = migs.look()
    assert first.reason == "its driver has none of the sizes of the model table" and second.offered


def test_a_card_with_an_instance_of_no_known_size_offers_nothing(migs: CutNode) -> None:
    card = migs.readings.scan().cards[0]
    strange = SliceOwners(strange={card.uuid: (HeldSlice("MIG-parted", "", 0),)})
    cut = placed_on(card, TABLE.get("h100"), TABLE, strange)
    assert cut.problem == "slices of no size of the model table lie on it: MIG-parted (of no known size)"
    assert cut.layout is None and [one.id for one in cut.slices] == ["MIG-parted"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"make_hang_s": 60}, "NotNow: card GPU-h100-0 did not answer within 5 s (no-answer)"),
        (
            {"make_error": 19},
            "NotNow: making 3g.40gb at 4 on card GPU-h100-0: NVML answers 19: ",
        ),
        (
            {"make_error": 4},
            "Slice: making 3g.40gb at 4 on card GPU-h100-0: NVML answers 4: Insufficient Perm",
        ),
        ({"make_error": 999}, "Unknown Error (failed)"),
        (
            {"make_ci_error": 3},
            "making a compute instance of 3 slices on card GPU-h100-0: NVML answers 3: Not Sup",
        ),
        ({"made_mib": 8192}, "gave 3g.40gb of 8192 MiB, and 3g.40gb of 36672 MiB was asked for (other-size)"),
    ],
)
def test_a_driver_that_refuses_says_so_and_the_node_goes_on(
    migs: CutNode, node: MigNode, said: dict[str, int], told: str
) -> None:
    migs.pod("a", "3g.40gb")
    node.say(0, **said)
    assert told in migs.refused("a")
    assert migs.lying() == 0
    assert migs.run("b", "3g.40gb", card=1)
    node.say(0, **dict.fromkeys(said, 0))
    assert migs.start("a") and migs.lying() == 2


@pytest.mark.parametrize("stays", [True, False], ids=["its pod stays", "its pod goes"])
def test_one_that_was_half_made_is_removed(migs: CutNode, node: MigNode, *, stays: bool) -> None:
    migs.pod("a", "3g.40gb")
    node.say(0, make_ci_error=999, destroy_error=19)
    assert "removing a half-made 3g.40gb" in migs.refused("a")
    assert [one.start for one in migs.look()[0].slices] == [4]
    node.say(0, make_ci_error=0, destroy_error=0)
    if not stays:
        migs.gone("a")
    migs.restart()
    if stays:
        assert migs.start("a")
    assert migs.lying() == (1 if stays else 0)


@pytest.mark.parametrize("stays", [True, False], ids=["its pod stays", "its pod goes"])
def test_an_agent_that_dies_between_the_two_calls_of_making_one_leaks_nothing(
    migs: CutNode, node: MigNode, *, stays: bool
) -> None:
    node.say(0, instances=[FakeInstance("MIG-operator", 1, 0, 0, 9728, HALF)])
    migs.look()
    migs.pod("a", "3g.40gb", start=4)
    migs.mortal.dies = "intended"
    with pytest.raises(KilledError):
        migs.world.identity.admit(migs.resource, frozenset({"s-a"}))
    node.say(0, instances=[*node.node.cards[0].instances, FakeInstance("MIG-a", 2, 2, 4, 40448, HALF)])
    if not stays:
        migs.gone("a")
    migs.restart()
    if stays:
        assert migs.start("a")
    assert places(node) == ({0: 0, 4: 2} if stays else {0: 0})


def test_one_that_a_program_uses_stays_until_it_ends(migs: CutNode, node: MigNode) -> None:
    migs.run("a", "3g.40gb")
    node.node.take_in()
    (made,) = node.node.cards[0].instances
    node.say(0, processes=[(4242, 100, 0)], homes={4242: made.gi})
    migs.gone("a")
    collector(migs.world, Cgroups()).collect()
    assert migs.lying() == 1 and [one.pod for one in migs.world.grants.all()] == ["a"]
    node.say(0, processes=[])
    collector(migs.world, Cgroups()).collect()
    assert migs.lying() == 0 and not migs.world.grants.all()


def test_one_that_was_half_removed_is_removed_later(migs: CutNode, node: MigNode) -> None:
    migs.run("a", "3g.40gb")
    node.say(0, destroy_error=19)
    migs.gone("a")
    collector(migs.world, Cgroups()).collect()
    node.node.take_in()
    assert [one.ci for one in node.node.cards[0].instances] == [HALF]
    assert [(one.start, one.template) for one in migs.look()[0].slices] == [(4, "3g.40gb")]
    node.say(0, destroy_error=0)
    migs.restart()
    assert migs.lying() == 0


def test_without_the_switch_none_is_made_and_what_was_made_is_still_removed(
    migs: CutNode, node: MigNode
) -> None:
    migs.run("a", "3g.40gb")
    migs.policy = Policy()
    card = migs.look()[0]
    assert card.layout is not None and not card.layout.made
    migs.pod("b", "3g.40gb", start=4)
    assert "no slices are made on it, and the plan says where one begins" in migs.refused("b")
    for name in ("a", "b"):
        migs.gone(name)
    migs.restart()
    assert migs.lying() == 0


def test_a_driver_without_places_is_told(migs: CutNode, node: MigNode) -> None:
    node.say(0, mig_slices=0)
    first, second = migs.look()
    assert first.reason == "its driver does not tell where slices may lie, so none are made on it"
    assert second.offered


def test_the_mode_of_a_card_is_not_changed(migs: CutNode, node: MigNode) -> None:
    node.say(0, mig=0)
    first, second = migs.look()
    assert first.reason == "it is not cut into slices, and its node offers slices: turn MIG mode on"
    assert second.offered and node.node.path.read_text().count("mig=0") == 1
