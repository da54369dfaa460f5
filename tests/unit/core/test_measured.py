"""Nodes that were measured to be busy come later, for work to which it matters. They refuse nothing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HALF, ask
from vc_egpu.core.books.state import fresh_index, index_of
from vc_egpu.core.decide import decide
from vc_egpu.core.measured.use import OLD_AFTER_S, CardUse, NodeUse
from vc_egpu.core.model.cluster import NodeName, PodShape, ShareClass, Snapshot
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import CLOCK_SKEW_S, Policy
from vc_egpu.core.profiles.table import Traits

NOW = 10_000.0
SHARE = make.shape(8192)
"""Without guaranteed cores."""


def use(name: str, *compute: int, at: float = NOW, cpu: int = 0) -> NodeUse:
    """How busy each card of a node is."""
    cards = {f"{name}/{number}": CardUse(points, 0) for number, points in enumerate(compute)}
    return NodeUse(at, cpu, 0, cards)


def seen(
    uses: Mapping[str, NodeUse],
    members: int = 1,
    what: PodShape = SHARE,
    cards: int = 1,
    **more: Any,
) -> Snapshot:
    """Two nodes that are alike but for a share that another gang has on n1: binpack goes there."""
    other = make.pods("other", 1, make.shape(8192, 10))
    gang = make.gang("g", least=members, **more)
    return replace(
        make.snapshot(
            [make.node("n1", cards), make.node("n2", cards)],
            [make.gang("other"), gang],
            [make.placed(other[0], "n1/0"), *make.pods("g", members, what)],
        ),
        measured={NodeName(name): one for name, one in uses.items()},
    )


def cards_of(plan: Plan) -> list[str]:
    """The cards that members of the only admission got."""
    (admission,) = plan.admissions
    places = admission.members.values()
    return sorted(str(share.card) for place in places for _, share in place.shares)


BUSY: Mapping[str, NodeUse] = {"n1": use("n1", 90), "n2": use("n2", 0)}


def test_a_share_without_cores_goes_where_its_compute_is_idle() -> None:
    assert cards_of(ask(seen({}), NOW)) == ["n1/0"], "nobody measures"
    assert cards_of(ask(seen(BUSY), NOW)) == ["n2/0"]


def test_a_share_with_guaranteed_cores_goes_as_ever() -> None:
    assert cards_of(ask(seen(BUSY, what=make.shape(8192, 10)), NOW)) == ["n1/0"]
    whole = make.shape(make.H20_MIB, 100)
    assert cards_of(
        ask(seen({"n1": use("n1", 90, 0), "n2": use("n2", 0, 90)}, what=whole, cards=2), NOW)
    ) == ["n1/1"]


@pytest.mark.parametrize("at", [NOW - OLD_AFTER_S - 1, NOW + CLOCK_SKEW_S + 1])
def test_old_figures_and_those_from_the_future_do_not_count(at: float) -> None:
    uses = {"n1": use("n1", 90, at=at), "n2": use("n2", 0, at=at)}
    assert cards_of(ask(seen(uses), NOW)) == ["n1/0"]


def test_the_operator_may_turn_it_off() -> None:
    assert cards_of(ask(seen(BUSY), NOW, heeds_measured=False)) == ["n1/0"]


def test_what_takes_no_compute_from_it_does_not_matter() -> None:
    """A card that is busy to a half has the other half for work that is taken to use as much."""
    uses = {"n1": use("n1", 50), "n2": use("n2", 0)}
    assert cards_of(ask(seen(uses), NOW)) == ["n1/0"]
    assert cards_of(ask(seen({"n1": use("n1", 60), "n2": use("n2", 0)}), NOW)) == ["n2/0"]


@pytest.mark.parametrize(("points", "card"), [(0, "n1/0"), (10, "n1/0"), (20, "n2/0"), (90, "n2/0")])
def test_earlier_runs_of_its_job_say_how_much_it_will_use(points: int, card: str) -> None:
    assert cards_of(ask(seen(BUSY, traits=Traits(uses_points=points)), NOW)) == [card]


def test_a_busy_node_is_better_than_none() -> None:
    """The idle one has no room: nothing is refused."""
    full = make.pods("full", 1, make.shape(make.H20_MIB, 100))
    snapshot = seen(BUSY)
    pods = {**snapshot.pods, full[0].uid: make.placed(full[0], "n2/0")}
    gangs = {**snapshot.gangs, "full": make.gang("full")}
    assert cards_of(ask(replace(snapshot, pods=pods, gangs=gangs), NOW)) == ["n1/0"]


def test_a_node_that_does_not_tell_counts_as_idle() -> None:
    assert cards_of(ask(seen({"n1": use("n1", 90)}), NOW)) == ["n2/0"]
    assert cards_of(ask(seen({"n2": use("n2", 90)}), NOW)) == ["n1/0"]


def test_on_a_node_the_idle_card_is_taken() -> None:
    """The tightest card is the first, which others use."""
    uses = {"n1": use("n1", 100, 0), "n2": use("n2", 100, 100)}
    assert cards_of(ask(seen(uses, cards=2), NOW)) == ["n1/1"]
    assert cards_of(ask(seen({}, cards=2), NOW)) == ["n1/0"]


def test_members_of_one_gang_do_not_all_take_the_same_idle_card() -> None:
    uses = {"n1": use("n1", 0, 0, 0), "n2": use("n2", 100, 100, 100)}
    assert cards_of(ask(seen(uses, 3, cards=3, traits=Traits(uses_points=100)), NOW)) == [
        "n1/0",
        "n1/1",
        "n1/2",
    ]
    assert cards_of(ask(seen({}, 3, cards=3), NOW)) == ["n1/0", "n1/0", "n1/0"]


def test_spread_goes_where_the_node_is_calm() -> None:
    """It goes to the emptier node, n2, while nobody measures."""
    calm = {"n1": use("n1", 0), "n2": use("n2", 100)}
    spread = make.shape(8192, 10, node_policy="spread")
    assert cards_of(ask(seen({}, what=spread), NOW)) == ["n2/0"]
    assert cards_of(ask(seen(calm, what=spread), NOW)) == ["n1/0"]
    hosts = {"n1": use("n1", 0, cpu=0), "n2": use("n2", 0, cpu=100)}
    assert cards_of(ask(seen(hosts, what=spread), NOW)) == ["n1/0"], "cpu counts, too"


def test_spread_still_gives_each_node_one_member() -> None:
    spread = make.shape(8192, node_policy="spread")
    assert cards_of(ask(seen(BUSY, 2, what=spread), NOW)) == ["n1/0", "n2/0"]


def test_a_gang_of_several_shapes_is_placed_where_only_another_order_finds_room() -> None:
    """By use the small share would take the card that the large one needs."""
    snapshot = seen({"n1": use("n1", 90, 90), "n2": use("n2", 0, 0)}, cards=2)
    large, small = make.pods("m", 2, make.shape(make.H20_MIB)), make.pods("m", 3, make.shape(HALF), "small")
    pods = {**snapshot.pods, **{pod.uid: pod for pod in (*large, *small)}}
    gangs = {**snapshot.gangs, "m": make.gang("m", least=5)}
    asked = replace(snapshot, pods=pods, gangs=gangs)
    with_use = decide(asked, Policy(), NOW, only=["m"])
    without = decide(asked, Policy(heeds_measured=False), NOW, only=["m"])
    assert bool(with_use.admissions) == bool(without.admissions)


def test_books_that_live_on_say_the_same_as_those_that_are_counted_again() -> None:
    """While nodes come, change their cards and go."""
    state = make.state(seen(BUSY))
    for name, one in BUSY.items():
        state.set_measured(NodeName(name), one)
    state.put_node(make.node("n2", 3))
    state.set_measured(NodeName("n2"), use("n2", 0, 80, 70))
    state.remove_node(NodeName("n1"))
    state.put_node(make.node("n1", 2))
    state.set_measured(NodeName("gone"), use("gone", 10))
    for number in range(30):
        state.put_node(make.node(f"more{number}", 10))
        state.set_measured(NodeName(f"more{number}"), use(f"more{number}", *range(0, 100, 10)))
    snapshot = state.snapshot(1)
    assert NodeName("n1") not in snapshot.measured, "it went with its figures"
    assert NodeName("gone") not in snapshot.measured, "there is no such node"
    assert index_of(snapshot) is not None
    kept = decide(snapshot, Policy(), NOW)
    counted = decide(replace(snapshot, index=None), Policy(), NOW)
    assert kept == counted
    assert fresh_index(snapshot).measured == dict(snapshot.measured)


def test_high_replicas_are_spread_by_it_by_default() -> None:
    high = seen(
        {"n1": use("n1", 0), "n2": use("n2", 100)},
        what=make.shape(8192, 10),
        share_class=ShareClass.HIGH,
        single=True,
    )
    assert cards_of(ask(high, NOW)) == ["n1/0"]
    assert cards_of(ask(replace(high, measured={}), NOW)) == ["n2/0"]
