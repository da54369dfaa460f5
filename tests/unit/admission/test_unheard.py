"""Jobs whose controller did not hear that it should make the pods."""

from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, pod, queue, version
from unit.admission.stage import GROUPS, loop_on
from vc_egpu.admission.execution.outcomes import GroupReport, GroupWrite
from vc_egpu.admission.inqueue.retry_enqueue import FIRST_S, MOST_S, Unheard
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.volcano.codec import trim
from vc_egpu.volcano.words import names

KEY = "default/g"


def job(phase: str = "Pending", *, managed: bool = True) -> Json:
    labels = {names.MANAGED_LABEL: "true"} if managed else {}
    container = {"name": "main", "resources": {"limits": {"volcano.sh/vgpu-h20": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "g", "namespace": "default", "uid": "job-g", "resourceVersion": version()},
        "spec": {"tasks": [{"name": "w", "replicas": 2, "template": template}]},
        "status": {"state": {"phase": phase}},
    }


def world(phase: str = "Inqueue", *, of: Json | None = None) -> tuple[Unheard, Mirror]:
    mirror, unheard = Mirror(TABLE), Unheard()
    mirror.apply("queues", added(queue()))
    mirror.apply("jobs", added(trim.job(of if of is not None else job())))
    mirror.apply("podgroups", added(group(phase=phase)))
    unheard.look(KEY, mirror, 0.0)
    return unheard, mirror


def test_it_is_told_again_after_a_minute_and_then_ever_more_rarely() -> None:
    unheard, mirror = world()
    said, clock = [], 0.0
    while clock < 4500:
        clock += 1.0
        unheard.look(KEY, mirror, clock)
        said += [clock] if unheard.due(mirror, clock) else []
    waits = [after - before for before, after in zip([0.0, *said], said, strict=False)]
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 960.0, 960.0]
    assert (waits[0], waits[-1]) == (FIRST_S, MOST_S)


def test_nobody_is_told_that_was_not_told_yet() -> None:
    """Pending: it stands in line, or vc-scheduler has no room for it."""
    unheard, mirror = world("Pending")
    assert unheard.due(mirror, 10 * FIRST_S) == []


def test_a_pod_that_comes_ends_it() -> None:
    unheard, mirror = world()
    mirror.apply("pods", added(pod()))
    unheard.look(KEY, mirror, 10.0)
    assert not unheard
    mirror.apply("pods", deleted(pod()))
    unheard.look(KEY, mirror, 20.0)
    assert unheard.due(mirror, 20.0 + FIRST_S - 1) == [], "pods that are made anew have their own minute"
    assert unheard.due(mirror, 20.0 + FIRST_S) == [KEY]


@pytest.mark.parametrize("of", [job("Aborted"), job("Completed"), job("Restarting"), job(managed=False)])
def test_whose_jobs_are_over_or_not_ours_are_left_alone(of: Json) -> None:
    unheard, mirror = world(of=of)
    assert unheard.due(mirror, 10 * FIRST_S) == []


def test_a_group_that_is_gone_is_forgotten() -> None:
    unheard, mirror = world()
    mirror.apply("podgroups", deleted(group()))
    assert unheard.due(mirror, FIRST_S) == []
    unheard.look(KEY, mirror, FIRST_S)
    assert not unheard


def test_the_phase_goes_back_and_forth_once(tmp_path: Path) -> None:
    """What a Job controller sees that watches by then."""
    with loop_on(tmp_path) as stage:
        for index in range(2):
            stage.mirror.apply("pods", deleted(pod(f"g-w-{index}", index=index, uid=f"pod-{index}")))
        stage.mirror.apply("jobs", added(trim.job(job())))
        stage.arrives("podgroups", group(phase="Inqueue"))
        stage.turn()
        stage.later(FIRST_S / 2)
        stage.idle_turn()
        (told,) = stage.outcomes(GroupReport, 1)  # that members are missing: it meets no write of the phase
        stage.inbox.put(told)
        stage.turn()
        stage.server.requests.clear()
        stage.later(FIRST_S / 2)
        for phase in ("Pending", "Inqueue"):
            stage.turn()
            (done,) = stage.outcomes(GroupWrite, 1)
            assert stage.server.objects[f"{GROUPS}/g"]["status"]["phase"] == phase
            stage.inbox.put(done)
