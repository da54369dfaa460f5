"""Small things below the Job controller: durations, sums of requests, the cache, states of queues."""

from fractions import Fraction
from typing import Any

import pytest
from unit.jobs.worlds import job, world
from vc_egpu.jobs.known.latest import Latest
from vc_egpu.jobs.known.pods import CachedPod, trim
from vc_egpu.jobs.objects import requests
from vc_egpu.jobs.rules.policies import judge
from vc_egpu.jobs.rules.times import duration, duration_s
from vc_egpu.jobs.rules.views import PodPhase
from vc_egpu.jobs.workers.queueworker import next_state, queue_status
from vc_egpu.kube import Change, ChangeKind, Json
from vc_egpu.volcano.api.job import JobAction
from vc_egpu.volcano.api.queue import QueueState


@pytest.mark.parametrize(
    ("text", "value_s"),
    [("90s", 90), ("1h30m", 5400), ("1.5m", 90), ("250ms", 0.25), ("0", 0), ("-1m", -60), ("1h0", 3600)],
)
def test_durations_are_gos(text: str, value_s: float) -> None:
    assert duration_s(text) == pytest.approx(value_s)


@pytest.mark.parametrize(("value_s", "text"), [(0, "0s"), (59.6, "1m0s"), (3723, "1h2m3s"), (-5, "0s")])
def test_durations_are_written_as_go_does(value_s: float, text: str) -> None:
    assert duration(value_s) == text


def _container(**quantities: str) -> Json:
    return {"resources": {"requests": quantities}}


def test_requests_follow_the_scheduler() -> None:
    spec = {
        "containers": [
            _container(cpu="500m"),
            {"resources": {"limits": {"cpu": "1", "volcano.sh/vgpu-h20": "2"}}},
        ],
        "initContainers": [
            _container(cpu="4"),
            {**_container(cpu="250m"), "restartPolicy": "Always"},
            _container(cpu="3800m"),
        ],
        "overhead": {"cpu": "10m"},
    }
    amounts = requests.of_pod(spec)
    assert amounts["cpu"] == Fraction(4060, 1000), "the last init step beside its sidecar, plus overhead"
    assert requests.render(amounts) == {"cpu": "4060m", "pods": "1", "volcano.sh/vgpu-h20": "2"}


def test_requests_that_cannot_be_read_count_as_nothing() -> None:
    assert requests.of_pod({"containers": [_container(cpu="lots", memory="-1")]}) == {"memory": 0, "pods": 1}


def _document(version: int, uid: str = "u", name: str = "a", **more: Any) -> Json:
    return {"metadata": {"namespace": "n", "name": name, "uid": uid, "resourceVersion": str(version)}, **more}


def _latest() -> Latest[Json]:
    return Latest(lambda document: document, {"x": lambda value: value.get("x")})


def _change(kind: ChangeKind, document: Json) -> Change:
    return Change(kind, document)


def test_an_own_write_is_known_before_the_watch_tells() -> None:
    cache = _latest()
    cache.watch(_change(ChangeKind.ADDED, _document(1, x=1)))
    cache.put(_document(3, x=2))
    cache.watch(_change(ChangeKind.MODIFIED, _document(2, x=1)))
    assert cache.get(("n", "a")) == _document(3, x=2)
    assert (cache.by("x", 1), len(cache.by("x", 2))) == ([], 1)
    cache.watch(_change(ChangeKind.MODIFIED, _document(4, x=3)))
    assert len(cache.by("x", 3)) == 1


def test_what_others_did_before_our_own_write_is_still_a_change() -> None:
    """The pod ran just before our patch: no later change tells it, so the watch's own has to."""
    cache, made = _latest(), _document(1, phase="Pending")
    cache.watch(_change(ChangeKind.ADDED, made))
    patched = _document(3, phase="Running", group="g")
    cache.put(patched)
    ran = _document(2, phase="Running")
    assert cache.watch(Change(ChangeKind.MODIFIED, ran, made)) == (made, ran)
    assert cache.watch(Change(ChangeKind.MODIFIED, patched, ran)) == (ran, patched)
    assert cache.get(("n", "a")) == patched


def test_the_answer_to_a_delete_does_not_bring_the_object_back() -> None:
    cache = _latest()
    cache.watch(_change(ChangeKind.ADDED, _document(1)))
    cache.watch(_change(ChangeKind.DELETED, _document(2)))
    cache.put(_document(1))
    assert cache.get(("n", "a")) is None


def test_what_we_deleted_is_gone_before_the_watch_tells() -> None:
    """A Command that was obeyed and taken down must not be obeyed again because the watch is slow."""
    cache = _latest()
    cache.watch(_change(ChangeKind.ADDED, _document(1, x=1)))
    cache.gone(("n", "a"), "u")
    assert (cache.get(("n", "a")), cache.by("x", 1)) == (None, [])
    cache.watch(_change(ChangeKind.MODIFIED, _document(2, x=1)))
    assert cache.get(("n", "a")) is None, "the watch tells what was before"
    cache.watch(_change(ChangeKind.DELETED, _document(3)))
    newer = _document(4, uid="another", x=1)
    cache.watch(_change(ChangeKind.ADDED, newer))
    cache.gone(("n", "a"), "u")
    assert cache.get(("n", "a")) == newer, "of that name, and not that one"


def test_the_end_of_an_older_object_of_that_name_leaves_the_newer_one() -> None:
    cache = _latest()
    cache.put(_document(5, uid="new"))
    cache.watch(_change(ChangeKind.DELETED, _document(4, uid="old")))
    assert cache.get(("n", "a")) is not None


def _pod() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-w-1",
            "namespace": "n",
            "uid": "u",
            "labels": {"egpu.volcano.sh/managed": "true"},
            "annotations": {
                "volcano.sh/job-version": "2",
                "volcano.sh/task-spec": "w",
                "scheduling.k8s.io/group-name": "g",
                "egpu.volcano.sh/cards": "x" * 1000,
            },
            "creationTimestamp": "2025-06-15T15:00:00Z",
            "ownerReferences": [
                {
                    "apiVersion": "batch.volcano.sh/v1alpha1",
                    "kind": "Job",
                    "name": "train",
                    "uid": "j",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "env": [{"name": "A"}], **_container(cpu="1")}],
        },
        "status": {
            "phase": "Failed",
            "containerStatuses": [
                {
                    "ready": False,
                    "restartCount": 2,
                    "state": {
                        "terminated": {"exitCode": 137, "finishedAt": "2025-06-15T15:06:40Z", "reason": "OOM"}
                    },
                }
            ],
        },
    }


def test_what_is_kept_of_a_pod() -> None:
    pod = CachedPod.of(trim(_pod()))
    assert pod.view is not None
    assert (pod.view.task, pod.view.version, pod.view.phase) == ("w", 2, PodPhase.FAILED)
    assert (sorted(pod.view.exit_codes), pod.view.restarts, pod.view.ended_at) == ([137], 2, 1_750_000_000.0)
    assert (pod.job, pod.group_key, pod.managed) == (("n", "train", "j"), ("n", "g"), True)
    assert (pod.member.bound, pod.occupies) == (True, False)
    assert pod.requested == {"cpu": 1, "pods": 1}
    assert "egpu.volcano.sh/cards" not in str(pod.document)


def test_a_pod_ends_with_its_last_container_or_with_one_that_comes_before_all() -> None:
    document = _pod()
    status = document["status"]
    later = {"state": {"terminated": {"exitCode": 1, "finishedAt": "2025-06-15T15:06:50Z"}}}
    status["containerStatuses"].append(later)
    view = CachedPod.of(trim(document)).view
    assert view is not None
    assert (view.ended_at, sorted(view.exit_codes)) == (1_750_000_010.0, [1, 137])
    waiting = {"state": {"waiting": {"reason": "PodInitializing"}}}
    document["status"] = {**status, "containerStatuses": [waiting], "initContainerStatuses": [later]}
    view = CachedPod.of(trim(document)).view
    assert view is not None
    assert (view.ended_at, sorted(view.exit_codes)) == (1_750_000_010.0, [1])


def _ended(name: str, code: int) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code}}}


@pytest.mark.parametrize(
    ("containers", "before_all"),
    [
        ([_ended("log-agent", 0), _ended("trainer", 42)], []),
        ([_ended("trainer", 42), _ended("web-agent", 0)], []),
        ([{"name": "trainer", "state": {"waiting": {}}}], [_ended("fetch", 0), _ended("check", 42)]),
        ([_ended("trainer", 0)], [_ended("proxy", 42)]),
    ],
    ids=["the second by name", "the first by name", "an init container", "a native sidecar"],
)
def test_the_code_of_any_container_that_failed_chooses_the_action(
    containers: list[dict[str, Any]], before_all: list[dict[str, Any]]
) -> None:
    """The kubelet sorts the statuses by name, so the first of them is whichever name comes first."""
    document = _pod()
    document["status"] = {
        "phase": "Failed",
        "containerStatuses": containers,
        "initContainerStatuses": before_all,
    }
    view = CachedPod.of(trim(document)).view
    assert view is not None
    policies = [{"exitCode": 42, "action": "RestartJob"}, {"event": "PodFailed", "action": "AbortJob"}]
    subject = job(policies=policies, status={"version": 2})
    answer = judge(world(subject, view)).answer
    assert answer is not None
    assert answer.action is JobAction.RESTART_JOB


def test_a_pod_is_ready_once_its_sidecars_are() -> None:
    document = _pod()
    side = {"name": "proxy", "ready": False, "restartCount": 3, "state": {"running": {}}}
    main = {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}
    for ready in (False, True):
        side["ready"] = ready
        document["status"] = {
            "phase": "Running",
            "containerStatuses": [main],
            "initContainerStatuses": [side],
        }
        view = CachedPod.of(trim(document)).view
        assert view is not None
        assert (view.ready, view.restarts) == (ready, 3)


@pytest.mark.parametrize("version", [None, "", "-1", "x", "\u00b2"])
def test_a_pod_with_a_garbled_version_is_no_pod_of_a_job(version: str | None) -> None:
    document = _pod()
    document["metadata"]["annotations"]["volcano.sh/job-version"] = version
    assert CachedPod.of(trim(document)).view is None


def test_a_batch_job_of_kubernetes_is_no_volcano_job() -> None:
    document = _pod()
    document["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    assert CachedPod.of(trim(document)).job is None


@pytest.mark.parametrize(
    ("present", "action", "gangs", "expected"),
    [
        (None, None, 0, QueueState.OPEN),
        ("Open", None, 3, QueueState.OPEN),
        ("Open", "CloseQueue", 3, QueueState.CLOSING),
        ("Open", "CloseQueue", 0, QueueState.CLOSED),
        ("Closing", None, 1, QueueState.CLOSING),
        ("Closing", None, 0, QueueState.CLOSED),
        ("Closing", "OpenQueue", 1, QueueState.OPEN),
        ("Closed", "OpenQueue", 0, QueueState.OPEN),
        ("Closed", None, 0, QueueState.CLOSED),
        ("Open", "AbortJob", 0, QueueState.OPEN),
    ],
)
def test_states_of_a_queue(present: str | None, action: str | None, gangs: int, expected: QueueState) -> None:
    assert next_state(present, action, gangs) is expected


def test_status_of_a_queue() -> None:
    groups = [{"status": {"phase": phase}} for phase in ("Running", "Running", "Inqueue")] + [{}]
    used = {"cpu": Fraction(3, 2), "memory": Fraction(0)}
    status = queue_status({"state": "Open", "extra": 1}, QueueState.OPEN, groups, used)
    assert status == {
        "state": "Open",
        "extra": 1,
        "running": 2,
        "inqueue": 1,
        "pending": 1,
        "unknown": 0,
        "completed": 0,
        "allocated": {"cpu": "1500m"},
    }
