"""Starts and their steps, from documents in the order in which watches tell of them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.traces.documents import DAY, KEY, group, pod
from vc_egpu.traces.facts import group_facts, moment, pod_facts
from vc_egpu.traces.spans import MOST_PODS, Span, spans_of
from vc_egpu.traces.starts import Start, Starts


class Watch:
    """What came in, and the starts that were over."""

    def __init__(self, jobs: Mapping[str, float] | None = None) -> None:
        self.starts = Starts(jobs if jobs is not None else {"research/train": DAY - 1.0})
        self.over: list[Start] = []

    def __call__(self, at: float, document: dict[str, object]) -> None:
        is_group = "minMember" in document["spec"]  # type: ignore[operator]
        start = (
            self.starts.group(group_facts(document, DAY + at), DAY + at)
            if is_group
            else self.starts.pod(pod_facts(document, DAY + at), DAY + at)
        )
        self.over += [start] if start is not None else []

    def gone(self, at: float, document: dict[str, object]) -> None:
        if "minMember" in document["spec"]:  # type: ignore[operator]
            start = self.starts.group_gone(group_facts(document, DAY + at), DAY + at)
            self.over += [start] if start is not None else []
        else:
            self.starts.pod_gone(pod_facts(document, DAY + at), DAY + at)


def told(spans: list[Span]) -> list[tuple[str, float, float]]:
    """Names and times after the begin of the story, to a tenth of a second."""
    return [(span.name, round(span.began - DAY, 1), round(span.ended - DAY, 1)) for span in spans]


def usual(watch: Watch) -> None:
    """A Job of two pods waits 40 s for cards and 5 s for its queue, is bound and comes up."""
    watch(0.2, group(DAY))
    watch(0.3, pod(0))
    watch(0.6, pod(1))
    watch(0.7, group(DAY, waits_for="WaitingForCards", said=DAY + 0.7))
    watch(40.7, group(DAY, waits_for="QueueCapReached", said=DAY + 0.7))
    watch(45.7, group(DAY, waits_for="QueueCapReached", said=DAY + 0.7, plan="3-17"))
    watch(45.8, pod(0, bound=DAY + 45.8))
    watch(45.9, pod(1, bound=DAY + 45.9))
    watch(47.0, pod(0, bound=DAY + 45.8, sandbox=DAY + 47))
    watch(47.1, pod(1, bound=DAY + 45.9, sandbox=DAY + 47))
    watch(48.0, pod(0, bound=DAY + 45.8, sandbox=DAY + 47, running=DAY + 48))
    watch(58.0, pod(1, bound=DAY + 45.9, sandbox=DAY + 47, running=DAY + 58))


def test_each_step_of_a_start_has_its_time() -> None:
    watch = Watch()
    usual(watch)
    (start,) = watch.over
    spans = spans_of(start)
    assert told(spans) == [
        ("start", -1.0, 58.0),
        ("made", -1.0, 0.6),
        ("waits", 0.6, 45.7),
        ("waits for", 0.7, 40.7),
        ("waits for", 40.7, 45.7),
        ("bound", 45.7, 45.9),
        ("pod", 45.8, 48.0),
        ("sandbox", 45.8, 47.0),
        ("containers", 47.0, 48.0),
        ("pod", 45.9, 58.0),
        ("sandbox", 45.9, 47.1),
        ("containers", 47.1, 58.0),
    ]
    assert [span.parent for span in spans] == [None, 0, 0, 2, 2, 0, 0, 6, 6, 0, 9, 9]
    assert spans[0].attributes == {
        "k8s.namespace.name": "research",
        "egpu.gang": KEY,
        "egpu.job": "train",
        "egpu.queue": "team",
        "egpu.class": "low",
        "egpu.members": 2,
        "egpu.members_needed": 2,
        "egpu.start": 1,
        "egpu.plan_id": "3-17",
    }
    assert spans[3].attributes == {
        "egpu.reason": "WaitingForCards",
        "egpu.message": "it waits for WaitingForCards",
    }


def test_a_start_is_told_once() -> None:
    watch = Watch()
    usual(watch)
    watch(60.0, pod(0, bound=DAY + 45.8, sandbox=DAY + 47, running=DAY + 48))
    watch(61.0, group(DAY, admitted=True, said=DAY + 46))
    watch(62.0, pod(2, bound=DAY + 61))
    assert len(watch.over) == 1


def test_an_evicted_gang_starts_once_more_when_its_last_pod_is_gone() -> None:
    watch = Watch()
    usual(watch)
    for number in (0, 1):
        watch.gone(100.0 + number, pod(number, bound=DAY + 45.8, running=DAY + 48))
    watch(101.5, pod(3, DAY + 101.5))
    watch(101.6, pod(4, DAY + 101.6))
    watch(102.0, group(DAY, waits_for="WaitingForCards", said=DAY + 102))
    watch(110.0, group(DAY, admitted=True, said=DAY + 110, plan="3-18"))
    for number in (3, 4):
        watch(111.0, pod(number, bound=DAY + 111, running=DAY + 111))
    _, second = watch.over
    assert second.number == 2
    assert told(spans_of(second))[:5] == [
        ("start", 101.0, 111.0),
        ("made", 101.0, 101.6),
        ("waits", 101.6, 110.0),
        ("waits for", 102.0, 110.0),
        ("bound", 110.0, 111.0),
    ]


def test_a_gang_that_is_removed_before_it_runs_says_so() -> None:
    watch = Watch()
    watch(0.2, group(DAY))
    for number in (0, 1):
        watch(0.3, pod(number))
    watch(1.0, group(DAY, waits_for="WaitingForCards", said=DAY + 1))
    watch.gone(30.0, group(DAY, waits_for="WaitingForCards", said=DAY + 1))
    (start,) = watch.over
    whole, *_, wait = spans_of(start)
    assert whole.trouble == "removed before it ran"
    assert told([wait]) == [("waits for", 1.0, 30.0)]
    assert len(watch.starts) == 0


def test_a_plan_that_was_taken_back_is_no_end_of_waiting() -> None:
    watch = Watch()
    watch(0.2, group(DAY, needed=1))
    watch(0.3, pod(0))
    watch(1.0, group(DAY, needed=1, waits_for="WaitingForCards", said=DAY + 1))
    watch(5.0, group(DAY, needed=1, waits_for="WaitingForCards", said=DAY + 1, plan="3-1"))
    watch(6.0, group(DAY, needed=1, waits_for="RolledBack", said=DAY + 1))
    watch(9.0, group(DAY, needed=1, admitted=True, said=DAY + 9, plan="3-2"))
    watch(9.5, pod(0, bound=DAY + 9, running=DAY + 9))
    spans = spans_of(watch.over[0])
    assert told([span for span in spans if span.name.startswith("waits")]) == [
        ("waits", 0.3, 9.0),
        ("waits for", 1.0, 5.0),
        ("waits for", 6.0, 9.0),
    ]


def test_a_group_made_again_under_its_name_begins_from_its_begin() -> None:
    watch = Watch(jobs={})
    usual(watch)
    watch(200.0, group(DAY + 200, needed=1, uid="group-2"))
    watch(201.0, pod(9, DAY + 201, bound=DAY + 201, running=DAY + 201))
    assert [start.group.uid for start in watch.over] == ["group-1", "group-2"]


def test_only_the_slowest_pods_of_a_large_gang_have_spans() -> None:
    watch, members = Watch(), 200
    watch(0.0, group(DAY, needed=members))
    for number in range(members):
        watch(0.1, pod(number))
    watch(1.0, group(DAY, needed=members, admitted=True, said=DAY + 1, plan="3-1"))
    for number in range(members):
        watch(2.0, pod(number, bound=DAY + 2))
    for number in range(members):
        watch(10.0 + number, pod(number, bound=DAY + 2, running=DAY + 10 + number))
    spans = spans_of(watch.over[0])
    pods = [span for span in spans if span.name == "pod"]
    assert len(pods) == MOST_PODS
    assert min(span.ended for span in pods) == DAY + 10 + members - MOST_PODS
    assert spans[0].attributes["egpu.members"] == members


@pytest.mark.parametrize(
    ("at", "said", "found"),
    [(10.7, 10.0, 10.7), (10.7, 2.0, 2.0), (10.7, 30.0, 10.7), (10.7, 0.0, 10.7), (10.7, None, 10.7)],
)
def test_the_object_is_believed_where_the_watch_came_late(
    at: float, said: float | None, found: float
) -> None:
    assert moment(at, said) == found


MOMENTS = st.floats(0, 300, allow_nan=False)


@given(st.lists(st.tuples(MOMENTS, st.integers(0, 7)), max_size=60), st.integers(1, 3))
def test_steps_lie_in_their_order_whatever_comes_in(story: list[tuple[float, int]], needed: int) -> None:
    """Steps belong to one before them, none ends before it begins, and the whole has the longest time."""
    watch = Watch()
    for at, what in sorted(story):
        match what:
            case 0:
                watch(at, group(DAY, needed=needed))
            case 1:
                watch(at, group(DAY, needed=needed, waits_for="WaitingForCards", said=DAY + at))
            case 2:
                watch(at, group(DAY, needed=needed, admitted=True, said=DAY + at, plan="1-1"))
            case 3:
                watch.gone(at, group(DAY, needed=needed))
            case _:
                number = what % 2
                moments = [DAY + at if int(at) % 4 >= step else None for step in (1, 2, 3)]
                document = pod(number, DAY, bound=moments[0], sandbox=moments[1], running=moments[2])
                watch.gone(at, document) if what > 6 else watch(at, document)
    for start in watch.over:
        whole, *steps = spans = spans_of(start)
        assert start.ran == (not whole.trouble)
        assert whole.began <= whole.ended
        for number, span in enumerate(steps, 1):
            assert span.began <= span.ended
            assert span.parent is not None
            assert span.parent < number
            assert spans[span.parent].began <= span.began
