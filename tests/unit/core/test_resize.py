"""A running pod's share gets another size, or the wish is refused with the numbers."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import ask
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import (
    CardAsk,
    CardId,
    MemberPlacement,
    Move,
    Node,
    NodeName,
    Pod,
    Queue,
    QueueName,
    Share,
    ShareClass,
    Snapshot,
    SuspensionState,
)
from vc_egpu.core.model.plan import Resize

LARGEST = make.H20_MIB
SIZE = make.shape(20_000, 20)


def runs(key: str, *cards: str, what: Any = SIZE, **more: Any) -> list[Pod]:
    """A member on each of these cards."""
    members = make.pods(key, len(cards), what)
    return [make.placed(pod, card, **more) for pod, card in zip(members, cards, strict=True)]


def wishing(pod: Pod, memory_mib: int | None = None, cores: int | None = None, name: str = "main") -> Pod:
    return replace(pod, resize=((name, memory_mib, cores),))


def world(
    *pods: Pod, node: Node | None = None, queues: tuple[Queue, ...] = (), low: frozenset[str] = frozenset()
) -> Snapshot:
    keys = dict.fromkeys(str(pod.gang) for pod in pods)
    gangs = [make.gang(key, share_class=ShareClass.LOW if key in low else ShareClass.UNSET) for key in keys]
    return make.snapshot([node or make.node()], gangs, pods, queues)


def judged(*pods: Pod, **more: Any) -> Resize:
    (found,) = ask(world(*pods, **more)).resizes
    return found


def sizes(shares: Any) -> list[tuple[int, int]]:
    return [(share.memory_mib, share.cores_percent) for _, share in shares]


def test_a_share_grows_into_what_is_free() -> None:
    pod, other = *runs("a", "n1/0"), *runs("b", "n1/0")
    found = judged(wishing(pod, LARGEST - 20_000, 80), other)
    assert (found.why, found.gang, found.pod) == ("", "a", pod.uid)
    assert sizes(found.meanwhile) == sizes(found.then) == [(LARGEST - 20_000, 80)]


def test_what_is_not_named_stays() -> None:
    found = judged(wishing(runs("a", "n1/0")[0], cores=35))
    assert sizes(found.then) == [(20_000, 35)]


def test_a_share_that_shrinks_counts_in_full_until_its_node_has_lowered_it() -> None:
    found = judged(wishing(runs("a", "n1/0")[0], 4_000, 90))
    assert sizes(found.meanwhile) == [(20_000, 90)]
    assert sizes(found.then) == [(4_000, 90)]


@pytest.mark.parametrize(
    ("memory_mib", "cores", "why"),
    [
        (LARGEST - 19_999, None, "card n1/0 of node n1 has 58304 MiB left, and 58305 more are asked for"),
        (None, 81, "card n1/0 of node n1 has 60 cores left, and 61 more are asked for"),
        (LARGEST + 1, None, "98305 MiB are asked for, and a card of model h20 has 98304 MiB"),
        (20_000, 20, "it has that size already"),
        (0, None, "container main: 0 MiB and None cores is no size of a share"),
        (1, 101, "container main: 1 MiB and 101 cores is no size of a share"),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(memory_mib: int, cores: int, why: str) -> None:
    pod, other = *runs("a", "n1/0"), *runs("b", "n1/0")
    snapshot = replace(world(wishing(pod, memory_mib, cores), other), models={"h20": LARGEST})
    (found,) = ask(snapshot).resizes
    assert (found.why, found.meanwhile, found.then) == (why, (), ())


def test_another_container_is_named() -> None:
    found = judged(wishing(runs("a", "n1/0")[0], 1, name="side"))
    assert found.why == "container side has no share; those that have one: main"


def test_two_wishes_in_one_decision_do_not_get_the_same_room() -> None:
    one, two = *runs("a", "n1/0"), *runs("b", "n1/0")
    found = ask(world(wishing(one, 60_000), wishing(two, 60_000))).resizes
    assert [bool(each.why) for each in found] == [False, True]
    assert "has 18304 MiB left, and 40000 more are asked for" in found[1].why


def test_a_gang_that_is_placed_in_the_same_decision_goes_first() -> None:
    pod = wishing(runs("a", "n1/0")[0], LARGEST)
    waiting = make.pods("b", 1, make.shape(70_000, 10))
    plan = ask(world(pod, *waiting, node=make.node(cards=1)))
    assert [admission.gang for admission in plan.admissions] == ["b"]
    assert "has 8304 MiB left" in plan.resizes[0].why


def test_the_caps_of_the_queue_and_of_those_above_it_hold() -> None:
    above = Queue(QueueName("above"), capability={"volcano.sh/vgpu-h20-memory": 50_000})
    own = make.queue("all", parent=above.name)
    pod, other = *runs("a", "n1/0"), *runs("b", "n1/1")
    assert judged(wishing(pod, 30_000), other, queues=(own, above)).why == ""
    found = judged(wishing(pod, 30_001), other, queues=(own, above))
    assert found.why == (
        "queue above allows 50000 of volcano.sh/vgpu-h20-memory, 40000 are used, and 10001 more are asked for"
    )


def test_a_wish_for_less_passes_a_cap_that_was_lowered_below_the_use() -> None:
    full = make.queue("all", capability={"volcano.sh/vgpu-h20": 9, "volcano.sh/vgpu-h20-memory": 1})
    assert judged(wishing(runs("a", "n1/0")[0], 10_000), queues=(full,)).why == ""
    closed = make.queue("all", open=False)
    assert judged(wishing(runs("a", "n1/0")[0], 10_000), queues=(closed,)).why == ""
    assert "queue all is closed" in judged(wishing(runs("a", "n1/0")[0], 30_000), queues=(closed,)).why


def test_the_limit_of_one_share_holds() -> None:
    limited = make.queue("all", most_mib=24_000)
    assert judged(wishing(runs("a", "n1/0")[0], 24_000), queues=(limited,)).why == ""
    assert judged(wishing(runs("a", "n1/0")[0], 24_001), queues=(limited,)).why == (
        "queue all allows 24000 MiB for one share, 24001 MiB are asked for"
    )


def test_high_grows_over_low_and_not_over_others() -> None:
    low = runs("low", "n1/0", what=make.shape(20_000, 60))
    high = wishing(runs("high", "n1/0", what=make.shape(20_000, 40))[0], cores=100)
    gangs = [make.gang("low", share_class=ShareClass.LOW), make.gang("high", share_class=ShareClass.HIGH)]
    (found,) = ask(make.snapshot([make.node()], gangs, [*low, high])).resizes
    assert found.why == ""
    gangs[0] = make.gang("low")
    (found,) = ask(make.snapshot([make.node()], gangs, [*low, high])).resizes
    assert "has 0 cores left, and 60 more are asked for" in found.why


def test_oversold_memory_grows_as_the_node_promises_and_its_host_allows() -> None:
    spills = make.shape(asks=(CardAsk("main", "h20", 1, 40_000, 0, spill=True),))
    node = make.node(cards=1, memory_ratio=2.0, host_memory_mib=30_000)
    (pod,) = runs("a", "n1/0", what=spills)
    pod = replace(pod, shares=(("main", replace(pod.shares[0][1], physical_mib=20_000)),))
    found = judged(wishing(pod, 60_000), node=node)
    assert [(s.memory_mib, s.on_card_mib) for _, s in found.then] == [(60_000, 30_000)]
    found = judged(wishing(pod, 60_002), node=node)
    assert found.why == "node n1 lacks 1 MiB of host memory for what may spill"
    small = replace(spills.asks[0], host_limit_mib=29_999)
    pod = replace(pod, shape=replace(pod.shape, asks=(small,)))
    assert "has a memory limit of 29999 MiB" in judged(wishing(pod, 60_000), node=node).why


def test_a_whole_card_becomes_a_part_of_it() -> None:
    whole = make.shape(asks=(CardAsk("main", "h20", 1, LARGEST, 100, whole=True),))
    found = judged(wishing(runs("a", "n1/0", what=whole)[0], 40_000, 50))
    assert [share.whole for _, share in found.meanwhile] == [True]
    assert [(share.whole, share.memory_mib) for _, share in found.then] == [(False, 40_000)]


def test_several_cards_grow_together_or_not_at_all() -> None:
    two = make.shape(20_000, 20, cards=2)
    (member,) = make.pods("a", 1, two)
    pod = wishing(make.placed(member, "n1/0", "n1/1"), 90_000)
    assert sizes(judged(pod).then) == [(90_000, 20)] * 2
    assert "card n1/1" in judged(pod, *runs("b", "n1/1")).why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"suspend_ordered": True}, "resume it first"),
        ({"pause_wished": True}, "resume it first"),
        ({"suspension": SuspensionState.RESUMING}, "resume it first"),
        ({"started": None}, "it has not started yet"),
        ({"shares": ()}, "it has no cards"),
    ],
)
def test_pods_that_are_not_on_their_cards_are_refused(changes: dict[str, Any], why: str) -> None:
    assert why in judged(wishing(replace(runs("a", "n1/0")[0], **changes), 1_000)).why


def test_what_has_no_size_to_change_is_refused_by_name() -> None:
    (pod,) = runs("a", "n1/0")

    def with_share(**changes: Any) -> Pod:
        return wishing(replace(pod, shares=(("main", replace(pod.shares[0][1], **changes)),)), 1_000)

    assert "whole native cards" in judged(with_share(native=True)).why
    assert "a slice of fixed size (1g.12gb)" in judged(with_share(slice="1g.12gb")).why
    node = make.node()
    for word in ("hardware", "vendor-file", "none"):
        other = replace(node, cards=tuple(replace(card, isolation=word) for card in node.cards))
        assert f"keeps containers apart by {word!r}" in judged(wishing(pod, 1_000), node=other).why
    driver = replace(node, cards=tuple(replace(card, isolation="driver") for card in node.cards))
    assert judged(wishing(pod, 10_000), node=driver).why == ""


def test_nothing_grows_on_an_ill_card_or_a_silent_node() -> None:
    (pod,) = runs("a", "n1/0")
    node = make.node()
    ill = replace(node, cards=tuple(replace(card, usable=False) for card in node.cards))
    assert "takes nothing new now" in judged(wishing(pod, 30_000), node=ill).why
    assert judged(wishing(pod, 10_000), node=ill).why == ""
    assert "its node n1 does not answer" in judged(wishing(pod, 10_000), node=replace(node, ready=False)).why


def test_a_gang_that_is_to_move_keeps_its_size() -> None:
    (pod,) = runs("a", "n1/0")
    place = MemberPlacement(NodeName("n1"), (("main", Share(CardId("n1/1"), 20_000, 20)),))
    move = Move(1.0, {"w/0": place}, frozenset({pod.uid}))
    snapshot = make.snapshot([make.node()], [make.gang("a", move=move)], [wishing(pod, 30_000)])
    (found,) = ask(snapshot).resizes
    assert "about to move" in found.why


def test_the_books_are_as_before_once_it_is_judged() -> None:
    """A wish changes nothing but what the plan says."""
    snapshot = world(wishing(runs("a", "n1/0")[0], 60_000), *runs("b", "n1/0"))
    before = index_of(snapshot).ledger.memory_used.copy()
    ask(snapshot)
    assert (index_of(snapshot).ledger.memory_used == before).all()
