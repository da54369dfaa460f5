"""Which candidates are tried last."""

from dataclasses import replace

import pytest
from unit.core import make
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.model.cluster import Instant, QueueName, ShareClass
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.room.lateness import Lateness, lateness, once_more
from vc_egpu.core.trial.trial import Trial

NOW = 10_000.0


def stage(
    *started: float | None,
    spans: tuple[float | None, float | None] = (None, None),
    victim_at: tuple[Instant, ...] = (),
) -> Lateness:
    """Of a gang whose members started then. ``spans``: what its queue says, and the queue above."""
    gang = make.gang("ns/low", share_class=ShareClass.LOW, queue="team", victim_at=victim_at)
    waiting = make.pods("ns/low", len(started), make.shape(100))
    pods = [replace(make.placed(pod, "n1/0"), started=at) for pod, at in zip(waiting, started, strict=True)]
    team = make.queue("team", parent=QueueName("org"), min_runtime_s=spans[0])
    org = make.queue("org", min_runtime_s=spans[1])
    index = fresh_index(make.snapshot([make.node()], [gang], pods, [team, org]))
    return lateness(Trial(index, Policy(), NOW), index.view("ns/low"))


def test_two_minutes_after_its_first_member_a_gang_is_like_any_other() -> None:
    assert stage(NOW - 119.0) is Lateness.FRESH
    assert stage(NOW - 120.0) is Lateness.USUAL


def test_a_replacement_begins_nothing() -> None:
    assert stage(NOW - 500.0, NOW - 1.0, None) is Lateness.USUAL


def test_a_gang_that_is_only_about_to_start_has_just_begun() -> None:
    assert stage(None, None) is Lateness.FRESH


@pytest.mark.parametrize(
    ("team", "org", "found"),
    [
        (600.0, None, Lateness.FRESH),
        (None, 600.0, Lateness.FRESH),
        (0.0, 600.0, Lateness.USUAL),
        (None, None, Lateness.USUAL),
    ],
)
def test_the_nearest_queue_that_says_something_counts(
    team: float | None, org: float | None, found: Lateness
) -> None:
    assert stage(NOW - 300.0, spans=(team, org)) is found


def test_a_start_far_in_the_future_is_not_believed() -> None:
    assert stage(NOW + 30.0) is Lateness.FRESH
    assert stage(NOW + 1000.0) is Lateness.USUAL


def test_three_times_within_an_hour_is_often() -> None:
    ago = NOW - 5000.0
    assert stage(ago, victim_at=(NOW - 3500.0, NOW - 1000.0, NOW - 500.0)) is Lateness.OFTEN
    assert stage(ago, victim_at=(NOW - 3700.0, NOW - 1000.0, NOW - 500.0)) is Lateness.USUAL
    assert stage(ago, victim_at=(NOW - 1000.0, NOW - 500.0)) is Lateness.USUAL
    assert stage(NOW - 1.0, victim_at=(NOW - 3.0, NOW - 2.0, NOW - 2.0)) is Lateness.OFTEN


def test_no_more_is_noted_than_the_rule_needs() -> None:
    assert once_more((), NOW) == (NOW,)
    assert once_more((NOW - 9999.0, NOW - 50.0), NOW) == (NOW - 50.0, NOW)
    assert once_more((NOW - 3.0, NOW - 2.0, NOW - 1.0), NOW) == (NOW - 2.0, NOW - 1.0, NOW)
