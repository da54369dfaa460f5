"""Fair shares on a real API server, with simulated nodes: what queues deserve, are guaranteed and claim."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest
from rigs.admission import Rig, StandInController
from rigs.gangs import Gang, admitted
from stack.kit import cards_of, is_gated
from vc_egpu.kube.resources import CORE_EVENTS, POD_GROUPS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]
H20: Final = names.shared_resource("h20")
LOW: Final = f"{H20}{names.LOW_SUFFIX}"
ALL_CARDS: Final = 8
LONG: Final = {"activeDeadlineSeconds": 7200}
SHORT: Final = {"activeDeadlineSeconds": 600}


def whole(name: str, members: int = 1, *, queue: str = "team", priority: str = "", **more: Any) -> Gang:
    """A gang of whole cards."""
    return Gang(name, members, whole=True, queue=queue, priority=priority, **more)


@contextmanager
def made_again(rig: Rig, *gangs: Gang) -> Iterator[dict[str, set[str]]]:
    """These gangs, one after the other, bound; a controller makes their pods again. Their uids by name."""
    with ExitStack() as stack:
        stack.enter_context(StandInController(rig, *gangs))
        uids = {}
        for gang in gangs:
            rig.submit(gang)
            uids[gang.name] = {found["metadata"]["uid"] for found in rig.until_bound(gang).values()}
        yield uids


def stayed(rig: Rig, gang: Gang, before: dict[str, set[str]]) -> bool:
    return {found["metadata"]["uid"] for found in rig.pods_of(gang)} == before[gang.name]


def until_told(rig: Rig, text: str) -> None:
    """Some pod has an event that says so."""
    rig.kit.until(
        f"an event says: {text}",
        CORE_EVENTS,
        lambda events: any(text in (event.get("message") or "") for event in events.values()) or None,
        namespace="default",
    )


def until_says(rig: Rig, gang: Gang, text: str) -> None:
    """The sentence of the gang has this in it: it changes while others leave."""

    def says(groups: dict[str, Json]) -> bool | None:
        return text in ((admitted(groups.get(gang.name) or {}) or {}).get("message") or "") or None

    rig.kit.until(f"{gang.name}: {text}", POD_GROUPS, says, namespace=gang.namespace)


def used(rig: Rig, *gangs: Gang) -> set[str]:
    return {card for gang in gangs for found in rig.pods_of(gang) for card in cards_of(found)}


def test_a_queue_takes_back_what_it_deserves_and_no_more(managed: Rig) -> None:
    for name in ("research", "serving"):
        managed.queue_with(name, {"spec": {"deserved": {H20: "4"}}})
    borrowed = [whole(f"borrow-{number}", queue="serving") for number in range(ALL_CARDS)]
    own, more = whole("own", 4, queue="research"), whole("more", queue="research")
    with made_again(managed, *borrowed) as before:
        managed.submit(own)
        managed.until_bound(own)
        gone = [gang for gang in borrowed if not stayed(managed, gang, before)]
        assert len(gone) == 4
        until_told(managed, "research has 0 of 4 h20")
        for gang in gone:
            until_says(managed, gang, "with it serving would have 5 of 4 h20")
        managed.submit(more)
        until_says(managed, more, "with it research would have 5 of 4 h20")
        managed.check()
        assert len(used(managed, own)) == 4
        assert all(stayed(managed, gang, before) for gang in borrowed if gang not in gone)
        managed.end(own)
        managed.until_bound(more)
        managed.end(more)
        for gang in gone:
            managed.until_bound(gang)


def test_a_guarantee_is_lent_to_low_gangs_and_taken_back_at_once(managed: Rig) -> None:
    managed.queue_with("research", {"spec": {"guarantee": {"resource": {H20: "4"}}}})
    managed.queue("other")
    rigid = whole("rigid", 5, queue="other")
    lent = whole("lent", ALL_CARDS, queue="other", priority="low")
    own = whole("own", 3, queue="research")
    managed.submit(rigid)
    until_says(managed, rigid, "kept for research")
    managed.end(rigid)
    with made_again(managed, lent) as before:
        managed.submit(own)
        managed.until_bound(own)
        assert not stayed(managed, lent, before)
        until_told(managed, "whose queue is guaranteed these cards")
        until_says(managed, lent, "5 of 8")
        managed.check()
        managed.end(own)
        managed.until_bound(lent)


def test_high_work_makes_room_in_the_cap_by_low_work_of_its_own_queue(managed: Rig) -> None:
    managed.queue("mixed", **{H20: 2})
    managed.queue_with("strict", {"annotations": {names.PREEMPT_WITHIN_QUEUE: "false"}}, **{H20: 1})
    trainings = [Gang(f"train-{number}", 1, queue="mixed", priority="low") for number in range(2)]
    kept = Gang("kept", 1, queue="strict", priority="low")
    infer = Gang("infer", 1, memory_mib=10_000, cores=10, queue="mixed", priority="high")
    barred = Gang("barred", 1, memory_mib=10_000, cores=10, queue="strict", priority="high")
    with made_again(managed, *trainings, kept) as before:
        managed.submit(infer)
        managed.until_bound(infer)
        gone = [gang for gang in trainings if not stayed(managed, gang, before)]
        assert len(gone) == 1, "five cards are free, and its cap is full"
        until_says(managed, gone[0], "mixed has 0 of 2 left")
        managed.submit(barred)
        managed.until_reason(barred, "WaitingForQuota")
        managed.check()
        assert stayed(managed, kept, before)
        managed.end(infer)
        managed.until_bound(gone[0])


def test_low_work_counts_in_keys_of_its_own(managed: Rig) -> None:
    managed.queue("team-low", **{H20: 2, LOW: 2, f"{H20}-cores": 200, f"{LOW}-cores": 200})
    managed.queue("plain", **{H20: 1})
    train = Gang("train", 2, memory_mib=60_000, cores=100, queue="team-low", priority="low")
    infer = Gang("infer", 2, memory_mib=30_000, cores=50, queue="team-low", priority="high")
    more = Gang("more", 1, memory_mib=1_000, queue="team-low", priority="low")
    alone, second = (Gang(f"plain-{n}", 1, memory_mib=1_000, queue="plain", priority="low") for n in "ab")
    with made_again(managed, train, infer) as before:
        assert len(used(managed, train)) == 2
        managed.submit(more)
        until_says(managed, more, "low h20")
        managed.submit(alone)
        managed.until_bound(alone)
        managed.submit(second)
        managed.until_reason(second, "WaitingForQuota")
        managed.check()
        assert stayed(managed, train, before)
        managed.end(infer)
        assert managed.until_reason(more, "WaitingForQuota"), "what inference left is not for low work"


def test_a_claim_keeps_cards_for_a_large_gang_and_lends_them_to_short_ones(simulated: Rig) -> None:
    with simulated.story():
        simulated.controller("patient", "--reserve-after-s", "3").start()
        runs = [whole(f"runs-{number}", extra=LONG) for number in range(ALL_CARDS)]
        large = whole("large", ALL_CARDS)
        unknown, short = whole("unknown"), whole("short", extra=SHORT)
        for gang in runs:
            simulated.submit(gang)
            simulated.until_bound(gang)
        simulated.submit(large)
        until_claimed(simulated, large)
        simulated.end(runs[0])
        simulated.submit(unknown)
        until_says(simulated, unknown, "claimed for default/large")
        simulated.submit(short)
        simulated.until_bound(short)
        restarted(simulated)  # the claim is on the PodGroup, and holds
        simulated.end(short)
        simulated.until_reason(unknown, "WaitingForTurn")
        simulated.check()
        for gang in runs[1:]:
            simulated.end(gang)
        simulated.until_bound(large)
        assert all(map(is_gated, simulated.pods_of(unknown)))
        simulated.end(large)
        simulated.until_bound(unknown)


def until_claimed(rig: Rig, gang: Gang) -> None:
    def claims(groups: dict[str, Json]) -> bool | None:
        return bool((groups[gang.name]["metadata"].get("annotations") or {}).get(names.RESERVED)) or None

    rig.kit.until(f"{gang.name} has a claim", POD_GROUPS, claims, namespace=gang.namespace)


def restarted(rig: Rig) -> None:
    """The controller is killed, and another one takes over, for which five minutes are not over."""
    rig.processes["patient"].kill()
    rig.controller("heir").start()


def test_a_gang_that_has_just_begun_goes_only_if_nothing_else_helps(managed: Rig) -> None:
    managed.queue_with("settled", {"annotations": {names.MIN_RUNTIME: "0s"}})
    managed.queue("young")
    old = whole("old", 5, queue="settled", priority="low")
    fresh = whole("fresh", 3, queue="young", priority="low")
    first, second = whole("first", 3, priority="high"), whole("second", 4, priority="high")
    with made_again(managed, old, fresh) as before:
        managed.submit(first)
        managed.until_bound(first)
        assert stayed(managed, fresh, before), "it holds fewer cards, and has just begun"
        assert not stayed(managed, old, before)
        managed.submit(second)
        managed.until_bound(second)
        assert not stayed(managed, fresh, before), "nothing else helps"
        managed.check()
