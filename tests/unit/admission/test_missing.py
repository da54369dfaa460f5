"""When PodGroups that nobody told of are asked for."""

from unit.admission.build import TABLE, added, let_go, pod
from vc_egpu.admission.intake.watch_gaps import AGAIN_AFTER_S, ASK_AFTER_S, MOST_AT_ONCE, MissingGroups
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.verdicts import without_group


def test_each_is_asked_for_after_a_while_and_then_now_and_again() -> None:
    missing = MissingGroups()
    assert missing.due(["a"], 0.0) == []
    assert missing.due(["a", "b"], ASK_AFTER_S) == ["a"]
    assert missing.due(["a", "b"], ASK_AFTER_S + 1) == []
    assert missing.due(["a", "b"], 2 * ASK_AFTER_S) == ["b"]
    assert missing.due(["a"], ASK_AFTER_S + AGAIN_AFTER_S) == ["a"]


def test_one_that_came_begins_anew_if_it_goes() -> None:
    missing = MissingGroups()
    missing.due(["a"], 0.0)
    assert missing.due([], 5.0) == []
    assert missing.due(["a"], 100.0) == []
    assert missing.due(["a"], 100.0 + ASK_AFTER_S) == ["a"]


def test_thousands_are_asked_for_in_turns() -> None:
    missing, names = MissingGroups(), [f"gang-{number:04d}" for number in range(3 * MOST_AT_ONCE)]
    missing.due(names, 0.0)
    asked: list[str] = []
    for look in range(3):
        found = missing.due(names, ASK_AFTER_S + look)
        assert len(found) == MOST_AT_ONCE
        asked += found
    assert sorted(asked) == names


def test_who_ended_waits_for_no_podgroup() -> None:
    """A controller takes the PodGroup of a Job that is over, and its pods stay for days."""
    mirror = Mirror(TABLE)
    for name, status in (("ended", {"phase": "Succeeded"}), ("runs", {"phase": "Running"})):
        mirror.apply("pods", added(let_go(pod(f"{name}-0", gang=name), "5-1", bound=True, **status)))
    mirror.apply("pods", added(pod("waits-0", gang="waits")))
    assert without_group(mirror).keys() == {"default/runs", "default/waits"}
