"""Volcano's objects in types: exact round trips, and refusals that name the path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.volcano.api.command import Command, CommandAction
from vc_egpu.volcano.api.job import Job, JobAction, JobEvent, JobPhase, LifecyclePolicy, PodTemplate, Task
from vc_egpu.volcano.api.meta import ModelError, ObjectMeta
from vc_egpu.volcano.api.podgroup import PodGroup
from vc_egpu.volcano.api.queue import Queue

JOB: dict[str, Any] = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team", "managedFields": [{"manager": "kubectl"}]},
    "spec": {
        "minAvailable": 1,
        "queue": "default",
        "newField": {"of": ["a", "later", "version"]},
        "plugins": {"svc": []},
        "tasks": [
            {
                "name": "w",
                "replicas": 0,
                "policies": [{"event": "PodFailed", "action": "RestartJob", "timeout": "1m30s"}],
                "template": {
                    "metadata": {"labels": {}},
                    "spec": {"containers": [{"name": "c", "image": None}]},
                },
            }
        ],
    },
    "status": {"state": {"phase": "Running"}, "taskStatusCount": {"w": {"phase": {"Running": 1}}}},
}
QUEUE: dict[str, Any] = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"weight": 1, "capability": {"volcano.sh/vgpu-h20": 6, "cpu": "500m"}, "reclaimable": False},
}


@pytest.mark.parametrize(("model", "document"), [(Job, JOB), (Queue, QUEUE)])
def test_round_trip_is_exact(model: type[Job] | type[Queue], document: dict[str, Any]) -> None:
    assert model.parse(document).document() == document


def test_null_is_the_same_as_absent() -> None:
    document = {**JOB, "metadata": {"name": "x", "creationTimestamp": None, "labels": None}, "status": None}
    written = Job.parse(document).document()
    assert written["metadata"] == {"name": "x"}
    assert "status" not in written


@pytest.mark.parametrize(
    ("change", "path", "text"),
    [
        ({"spec": {"tasks": [{"replicas": "2"}]}}, "spec.tasks[0].replicas", "integer"),
        ({"spec": {"tasks": [{"replicas": -1}]}}, "spec.tasks[0].replicas", "greater than or equal to 0"),
        ({"spec": {"tasks": [{"replicas": 2**31}]}}, "spec.tasks[0].replicas", "less than or equal"),
        ({"spec": {"tasks": []}}, "spec.tasks", "at least 1 item"),
        ({"spec": {"queue": "Not_A_Name"}}, "spec.queue", "pattern"),
        ({"spec": {"policies": [{"event": "PodSneezed"}]}}, "spec.policies[0].event", "PodSneezed"),
        ({"spec": {"policies": [{"timeout": "soon"}]}}, "spec.policies[0].timeout", "soon"),
        ({"spec": {"tasks": [{"name": "x" * 64}]}}, "spec.tasks[0].name", "63"),
        ({"spec": {"volumes": [{}]}}, "spec.volumes[0].mountPath", "required"),
        ({"spec": []}, "spec", "dictionary"),
        ({"kind": "Queue"}, "kind", "Job"),
    ],
)
def test_wrong_fields_are_refused_with_their_path(change: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(ModelError) as caught:
        Job.parse({**JOB, **change})
    assert caught.value.problems[0][0] == path
    assert text in str(caught.value)


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(ModelError) as caught:
        Job.parse({**JOB, "spec": {"minAvailable": -1, "maxRetry": "x"}})
    assert {path for path, _ in caught.value.problems} == {"spec.minAvailable", "spec.maxRetry"}
    assert "and 1 more" in str(caught.value)


@pytest.mark.parametrize("quantity", ["4Gi", "500m", 6, "1e3", ".5", "+2"])
def test_quantities_stay_as_they_are_written(quantity: str | int) -> None:
    queue = Queue.parse({**QUEUE, "spec": {"capability": {"cpu": quantity}}})
    assert queue.document()["spec"]["capability"]["cpu"] == quantity


@pytest.mark.parametrize("quantity", ["4GB", "", "lots", 1.5, True, "1e", "--1"])
def test_what_is_no_quantity_is_refused(quantity: Any) -> None:
    with pytest.raises(ModelError) as caught:
        Queue.parse({**QUEUE, "spec": {"capability": {"cpu": quantity}}})
    assert caught.value.problems[0][0] == "spec.capability.cpu"


def test_a_long_value_is_cut_in_the_refusal() -> None:
    with pytest.raises(ModelError) as caught:
        Job.parse({**JOB, "spec": {"queue": "X" * 10_000}})
    assert len(str(caught.value)) < 500


def test_built_in_python_and_changed_in_place() -> None:
    job = Job(metadata=ObjectMeta(name="train", namespace="team"))
    job.spec.queue = "team-a"
    job.spec.tasks.append(Task(name="w", replicas=2, template=PodTemplate(spec={"containers": []})))
    job.spec.policies = [LifecyclePolicy(event=JobEvent.POD_EVICTED, action=JobAction.RESTART_JOB)]
    assert job.document() == {
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {
            "queue": "team-a",
            "tasks": [{"name": "w", "replicas": 2, "template": {"spec": {"containers": []}}}],
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        },
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
    }


def test_assignments_are_checked_and_harm_nothing_else() -> None:
    job = Job.parse(JOB)
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        job.spec.min_available = -1
    assert job.spec.min_success is None
    job.spec.min_available = 2
    assert (job.spec.min_available, job.spec.min_success) == (2, None)


def test_sums_over_tasks() -> None:
    job = Job.parse({**JOB, "spec": {"tasks": [{"replicas": 4, "minAvailable": 1}, {"replicas": 3}]}})
    assert (job.total_replicas(), job.total_min_available()) == (7, 4)


def test_a_command_knows_and_belongs_to_its_target() -> None:
    job = Job.parse({**JOB, "metadata": {"name": "train", "namespace": "team", "uid": "u"}})
    command = Command.to(job, CommandAction.ABORT_JOB, namespace="team").document()
    assert command["target"] == command["metadata"]["ownerReferences"][0]
    assert command["target"]["uid"] == "u"
    assert command["action"] == "AbortJob"


def test_enums_are_texts() -> None:
    assert Job.parse(JOB).status.state.phase is JobPhase.RUNNING


json_values: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(unknown=st.dictionaries(st.from_regex(r"\Ax[A-Za-z]{0,8}\Z"), json_values, max_size=4))
def test_whatever_a_later_version_adds_is_kept(unknown: dict[str, Any]) -> None:
    document = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", **unknown},
        "spec": {"minMember": 1, **unknown},
        "status": {"conditions": [{"type": "t", **unknown}], **unknown},
        **unknown,
    }
    assert PodGroup.parse(document).document() == document


@given(garbage=json_values)
def test_garbage_is_refused_never_a_crash(garbage: Any) -> None:
    for where in (
        {"spec": garbage},
        {"status": garbage},
        {"metadata": garbage},
        {"spec": {"tasks": [garbage]}},
    ):
        try:
            Job.parse({**JOB, **where})
        except ModelError as error:
            assert error.problems
