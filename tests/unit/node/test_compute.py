"""What shares the time of a node's cards, as its operator wants it: cards, pages, grants."""

from dataclasses import replace
from pathlib import Path

import pytest
from unit.node.granted import grant, page_of
from unit.node.test_inventory import TABLE, card
from vc_egpu.volcano.words.node_policy import Policy, PolicyError, parse_policy
from vc_egpu_node.cards.inventory import Holding, Inventory, NodeFacts, take_stock
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.containers.servers import why_not
from vc_egpu_node.isolation import abi
from vc_egpu_node.mps.words import numbers
from vc_egpu_node.vendors.base import Edits, NodeReading
from vc_egpu_node.vendors.nvidia.words import FACTS

MPS = Policy(compute="mps", mps_namespace="a")
SLICES = Policy(compute="timeslice")


def stock(
    policy: Policy,
    *,
    no_mps: str = "",
    holdings: dict[str, Holding] | None = None,
    mode: str = "",
    isolated: bool = True,
) -> Inventory:
    return take_stock(
        NodeReading(cards=(card(0),)),
        table=TABLE,
        policy=policy,
        facts=NodeFacts(mode_label=mode),
        ill={},
        holdings=holdings or {},
        previous=None,
        vendor=FACTS,
        isolated=isolated,
        no_mps=no_mps,
    )


def test_the_policy_names_what_shares_time_and_whose_programs_run_under_mps() -> None:
    text = "pools: [{name: b, labels: {p: b}, settings: {compute: mps, mpsNamespace: a}}]"
    assert parse_policy(text, "n", {"p": "b"}) == MPS
    assert parse_policy(text, "n", {}).compute == "library"
    assert parse_policy("defaults: {compute: timeslice}", "n") == SLICES


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("compute: mps", "go together"),
        ("mpsNamespace: a", "go together"),
        ("compute: timeslice, mpsNamespace: a", "go together"),
        ("compute: timeslice, isolation: none", "nothing is limited there"),
        ("compute: wood", "compute"),
    ],
)
def test_a_policy_that_says_two_things_is_refused(settings: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        parse_policy(f"defaults: {{{settings}}}", "n")


@pytest.mark.parametrize(
    ("policy", "told"), [(Policy(), ("library", "", True)), (SLICES, ("timeslice", "", False))]
)
def test_a_node_tells_what_shares_its_time(policy: Policy, told: tuple[str, str, bool]) -> None:
    node = stock(policy).node_cards
    (one,) = node.cards
    assert (node.compute, node.mps_namespace, one.stack) == told
    assert one.offered


def test_a_node_with_a_keeper_gives_its_cards_to_one_namespace() -> None:
    node = stock(MPS).node_cards
    assert (node.compute, node.mps_namespace, node.cards[0].offered) == ("mps", "a", True)
    assert not node.cards[0].stack, "nobody holds launches there"


@pytest.mark.parametrize("mode", ["native", "mig"])
def test_whole_cards_and_slices_are_never_under_mps(mode: str) -> None:
    node = stock(MPS, mode=mode).node_cards
    assert (node.compute, node.mps_namespace) == ("library", "")


def test_a_node_that_cannot_says_why_and_offers_nothing() -> None:
    (one,) = stock(MPS, no_mps="no MPS keeper answers").node_cards.cards
    assert (one.offered, one.reason) == (
        False,
        "the node's policy wants compute: mps, and no MPS keeper answers",
    )
    (bare,) = stock(SLICES, isolated=False).node_cards.cards
    assert bare.reason == ("the node's policy wants compute: timeslice, and the agent runs without --library")


@pytest.mark.parametrize(
    ("policy", "mps", "reason"),
    [
        (MPS, {"a"}, ""),
        (MPS, set(), "still held by pods that run without MPS, the node is for pods of a under MPS now"),
        (MPS, {"b"}, "still held under MPS by pods of b, the node is for pods of a under MPS now"),
        (Policy(), {"b"}, "still held under MPS by pods of b, the node is without MPS now"),
        (Policy(), set(), ""),
        (SLICES, set(), ""),
    ],
)
def test_two_kinds_are_never_on_one_card(policy: Policy, mps: set[str], reason: str) -> None:
    held = {"GPU-0": Holding(("u",), containers=1, mps=frozenset(mps))}
    (one,) = stock(policy, holdings=held).node_cards.cards
    assert (one.reason, one.offered) == (reason, not reason)


@pytest.mark.parametrize("compute", ["mps", "timeslice"])
def test_the_library_keeps_its_hands_off_time_that_others_share(compute: str) -> None:
    high = grant("high", ("GPU-1", 1000, 50), share_class="high")
    low = grant("low", ("GPU-1", 1000, 30), share_class="low")
    kept = page_of([high, low], "low")
    assert (kept.own_class, kept.limits[0].cores_percent, len(kept.peers)) == (abi.CLASS_LOW, 30, 1)
    free = page_of([high, replace(low, compute=compute)], "low")
    assert (free.own_class, free.peers) == (abi.CLASS_UNSET, ())
    (limit,) = free.limits
    assert (limit.cores_percent, limit.core_policy, limit.flags) == (100, abi.CORES_FREE, 0)
    assert limit.memory_bytes == kept.limits[0].memory_bytes, "memory is held all the same"


@pytest.mark.parametrize("compute", ["library", "mps", "timeslice"])
def test_an_agent_after_this_one_knows_it(tmp_path: Path, compute: str) -> None:
    folder = GrantFolder(tmp_path / "cdi", tmp_path / "containers")
    one = grant("p", ("GPU-1", 1000, 30), compute=compute)
    folder.write(one, Edits(), {})
    assert GrantFolder(tmp_path / "cdi", tmp_path / "containers").all() == [one]


@pytest.mark.parametrize(
    ("changes", "asked", "said"),
    [
        ({}, "mps", ""),
        ({"namespace": "b"}, "mps", "the pod is of b"),
        ({}, "", "did not ask for it"),
        ({}, "library", "did not ask for it"),
        ({"share_class": "low"}, "mps", "class low is never under MPS"),
        ({"share_class": "high"}, "mps", "class high is never under MPS"),
    ],
)
def test_who_may_run_under_a_server(changes: dict[str, str], asked: str, said: str) -> None:
    one = grant("p", ("GPU-1", 1000, 30), **{"namespace": "a", **changes})
    found = why_not(one, "a", asked)
    assert found.endswith(said)
    assert bool(found) == bool(said)


def test_more_than_one_card_and_memory_on_the_host_are_refused_by_name() -> None:
    two = grant("p", ("GPU-1", 1000, 30), ("GPU-2", 1000, 30), namespace="a")
    assert "the server of one card, not of 2" in why_not(two, "a", "mps")
    (share,) = grant("p", ("GPU-1", 1000, 30)).shares
    spilt = grant("p", namespace="a", shares=(share.model_copy(update={"physical_mib": 500}),))
    assert "memory that moves to the host" in why_not(spilt, "a", "mps")


def test_pids_are_read_and_words_are_not() -> None:
    assert numbers("71\n 72 \nServer is idle\n\n-3\n٣\n") == (71, 72)
