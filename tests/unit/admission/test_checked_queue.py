"""Which queue a gang counts to: the one its PodGroup names, if it was checked for any of its pods."""

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, let_go, node, pod
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.books.state import index_of
from vc_egpu.core.check.recount import use_by_queue
from vc_egpu.volcano.words import names


def checked_for(queue: str, index: int = 0) -> Json:
    return pod(f"g-w-{index}", index=index, annotations={names.QUEUE_NAME: queue})


def in_queue(queue: str, uid: str = "") -> Json:
    document = group(uid=uid)
    document["spec"]["queue"] = queue
    return document


def queue_of(mirror: Mirror) -> str:
    return mirror.snapshot().gangs["default/g"].queue


def shares_used(mirror: Mirror) -> dict[str, int]:
    """Shares of h20 by queue: as decisions count them, and alike as the plain recount has them."""
    snapshot, resource = mirror.snapshot(), names.shared_resource("h20")
    quick = {queue: use[resource] for queue, use in index_of(snapshot).uses.total.items() if resource in use}
    assert quick == {queue: use[resource] for queue, use in use_by_queue(snapshot).items()}
    return {str(queue): shares for queue, shares in quick.items()}


def test_a_podgroup_made_anew_under_its_pods_moves_them_to_no_other_cap() -> None:
    mirror = Mirror(TABLE)
    mirror.apply("podgroups", added(in_queue("mine", "first")))
    mirror.apply("pods", added(checked_for("mine")))
    mirror.apply("podgroups", deleted(in_queue("mine", "first")))
    mirror.apply("podgroups", added(in_queue("theirs", "second")))
    assert queue_of(mirror) == "mine"


@pytest.mark.parametrize("first", ["pods", "podgroups"])
def test_nor_does_one_that_came_before_its_controllers(first: str) -> None:
    mirror = Mirror(TABLE)
    events = [("pods", added(checked_for("mine"))), ("podgroups", added(in_queue("theirs")))]
    for plural, change in sorted(events, key=lambda event: event[0] != first):
        mirror.apply(plural, change)
    assert queue_of(mirror) == "mine"


def test_a_gang_that_moved_counts_to_its_new_queue_from_the_first_pod_that_was_checked_for_it() -> None:
    mirror = Mirror(TABLE)
    mirror.apply("podgroups", added(in_queue("old")))
    mirror.apply("pods", added(checked_for("old")))
    mirror.apply("podgroups", added(in_queue("new")))
    assert queue_of(mirror) == "old"
    mirror.apply("pods", added(checked_for("new", 1)))
    assert queue_of(mirror) == "new"


def test_pods_that_say_nothing_follow_their_podgroup() -> None:
    mirror = Mirror(TABLE)
    mirror.apply("podgroups", added(in_queue("team")))
    mirror.apply("pods", added(pod()))
    assert queue_of(mirror) == "team"


@pytest.mark.parametrize("ends", [{}, {"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}}])
def test_what_holds_cards_counts_to_its_queue_while_it_has_no_podgroup(ends: Json) -> None:
    """Whoever deletes one would else make room below its cap, as would a Job whose pods take long to end."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("podgroups", added(in_queue("mine", "first")))
    runs = let_go(checked_for("mine"), "1-1", bound=True, phase="Running")
    runs["metadata"] |= ends.get("metadata", {})
    mirror.apply("pods", added(runs))
    assert shares_used(mirror) == {"mine": 1}
    mirror.apply("podgroups", deleted(in_queue("mine", "first")))
    assert shares_used(mirror) == {"mine": 1}
    mirror.apply("podgroups", added(in_queue("theirs", "second")))
    assert shares_used(mirror) == {"mine": 1}
    mirror.apply("pods", deleted(runs))
    assert shares_used(mirror) == {}


def test_what_waits_counts_nowhere_while_it_has_no_podgroup() -> None:
    mirror = Mirror(TABLE)
    mirror.apply("pods", added(checked_for("mine")))
    assert shares_used(mirror) == {}
