"""A pod that is read against an earlier reading of it says what it says when it is read by itself."""

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.core.model.cluster import PodPhase, Requirement
from vc_egpu.volcano.codec import pod_codec
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare, ContainerRequest, Request
from vc_egpu.volcano.words.model_table import ModelTable

Json = dict[str, Any]
TABLE = ModelTable.from_yaml("models: [{name: h20, products: [NVIDIA H20], memoryMiB: 98304}]")
UID = "0a8f3b1e-0000-4000-8000-000000000001"
PIN = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
NODE_TERM = ((Requirement("zone", "In", ("a",)),),)


def ask(memory_mib: int, **changes: Any) -> str:
    container = ContainerRequest(model="h20", cards=1, memory_mib=memory_mib, cores_percent=25)
    return Request(containers={"main": container}, **changes).encode()


def cards(uid: str = UID, node: str = "n1", **containers: tuple[CardShare, ...]) -> str:
    return Cards(pod_uid=uid, node=node, plan_id="5-1", containers=containers).encode()


ANNOTATIONS = {
    names.REQUEST: [ask(24000), ask(12000, core_policy="soft"), ask(9000, oversubscribe=True), "{"],
    names.CARDS: [
        cards(main=(CardShare(uuid="GPU-1", memory_mib=24000, cores=25),)),
        cards("another-pod"),
        cards(node="n2"),
        "nonsense",
    ],
    names.GROUP_NAME: ["g"],
    names.TASK_SPEC: ["w"],
    names.TASK_INDEX: ["3", "x"],
    names.PRIORITY: ["high", "low"],
    names.USE_CARDS: ["GPU-1,GPU-2"],
    names.HAMI_USE_GPU_TYPE: ["H20"],
    names.QUEUE_NAME: ["team"],
    names.OUT_OF_SYNC: ["true"],
    names.SUSPEND: ["{}"],
    "kubernetes.io/config.mirror": ["x"],
}
LABELS = {names.MANAGED_LABEL: ["true", "false"], names.JOB_QUEUE_NAME: ["other"]}
SPEC: dict[str, list[Any]] = {
    "schedulingGates": [[{"name": names.GATE}], [{"name": "b"}], [{"name": names.GATE}, {"name": "b"}]],
    "nodeName": ["n1", "n2"],
    "nodeSelector": [{"zone": "a"}],
    "affinity": [
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": PIN}}}
    ],
    "tolerations": [[{"key": "gpu", "operator": "Exists"}]],
    "volumes": [[CLAIM], [{"name": "tmp", "emptyDir": {}}]],
    "initContainers": [[{"name": "side", "restartPolicy": "Always", "ports": [{"hostPort": 9}]}]],
    "resources": [{"requests": {"cpu": "3"}, "limits": {"memory": "1Gi"}}],
    "overhead": [{"cpu": "100m"}],
    "priority": [1000],
}
STATUS: dict[str, list[Any]] = {
    "phase": ["Pending", "Running", "Succeeded", "Failed"],
    "startTime": ["2026-01-01T00:00:00Z"],
    "reason": ["OutOfcpu"],
    "conditions": [
        [{"type": names.CONDITION_ADMITTED, "status": "False", "reason": "WaitingForCards"}],
        [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    ],
    "initContainerStatuses": [[{"state": {"waiting": {"message": "PreStartContainer failed"}}}]],
    "containerStatuses": [
        [{"state": {"waiting": {"message": "PreStartContainer failed"}}}],
        [{"name": "main", "resources": {"requests": {"cpu": "7"}}, "allocatedResources": {"cpu": "8"}}],
    ],
}
OWNERS = [
    [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r-1", "controller": True}],
    [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "g", "uid": "j", "controller": True}],
]
CONTAINERS = [
    [{"name": "main"}],
    [{"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}}],
    [{"name": "main", "ports": [{"hostPort": 80}]}],
]


def some(table: dict[str, list[Any]]) -> st.SearchStrategy[Json]:
    """Any of these keys, each with one of its values."""
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in table.items()})


@st.composite
def documents(draw: st.DrawFn) -> Json:
    metadata: Json = {"name": "a", "namespace": "ml", "uid": UID}
    metadata["resourceVersion"] = draw(st.sampled_from(["1", "2"]))
    metadata["annotations"] = draw(some(ANNOTATIONS))
    metadata["labels"] = draw(some(LABELS))
    metadata |= draw(some({"ownerReferences": OWNERS, "deletionTimestamp": ["2026-01-01T00:00:00Z"]}))
    spec = {"containers": draw(st.sampled_from(CONTAINERS)), **draw(some(SPEC))}
    return {"metadata": metadata, "spec": spec, "status": draw(some(STATUS))}


@given(documents(), documents())
def test_an_earlier_reading_changes_nothing(first: Json, second: Json) -> None:
    before = pod_codec.pod(first, TABLE)
    assert pod_codec.pod(second, TABLE, before=before) == pod_codec.pod(copy.deepcopy(second), TABLE)


PLACES: list[tuple[str, dict[str, list[Any]]]] = [
    ("metadata/annotations", ANNOTATIONS),
    ("metadata/labels", LABELS),
    ("metadata", {"ownerReferences": OWNERS, "deletionTimestamp": ["2026-01-01T00:00:00Z"]}),
    ("spec", {**SPEC, "containers": CONTAINERS}),
    ("status", STATUS),
]


@pytest.mark.parametrize(("place", "key"), [(place, key) for place, keys in PLACES for key in keys])
@pytest.mark.parametrize("is_ours", [True, False])
def test_one_change_is_seen_whatever_it_is(place: str, key: str, is_ours: bool) -> None:
    def version(value: Any) -> Json:
        made = document()
        made["metadata"]["annotations"] = {names.REQUEST: ask(24000, oversubscribe=True)} if is_ours else {}
        made["metadata"]["labels"] = {}
        part = made
        for step in place.split("/"):
            part = part[step]
        if value is not None:
            part[key] = value
        return made

    values = [None, *dict(PLACES)[place][key]] if key != "containers" else CONTAINERS
    for first, second in itertools.permutations(values, 2):
        before = pod_codec.pod(version(first), TABLE)
        alone = pod_codec.pod(version(second), TABLE)
        assert pod_codec.pod(version(second), TABLE, before=before) == alone, (first, second)


def document(**spec: Any) -> Json:
    """A managed pod whose label, and nothing else, makes it ours."""
    labels = {names.MANAGED_LABEL: "true"}
    metadata = {"name": "a", "namespace": "ml", "uid": UID, "resourceVersion": "1", "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [], **spec}, "status": {}}


@pytest.mark.parametrize("becomes_ours", [True, False])
def test_a_pod_that_becomes_ours_or_ceases_to_be_is_read_anew(becomes_ours: bool) -> None:
    ours = document(tolerations=[{"key": "gpu", "operator": "Exists"}])
    theirs = copy.deepcopy(ours)
    theirs["metadata"]["labels"] = {}
    first, second = (theirs, ours) if becomes_ours else (ours, theirs)
    again = pod_codec.pod(second, TABLE, before=pod_codec.pod(first, TABLE))
    assert again == pod_codec.pod(second, TABLE)
    assert len(again.pod.shape.tolerations) == becomes_ours


def test_what_other_objects_say_of_a_pod_is_not_taken_over() -> None:
    """The mirror adds it to a reading (a budget, a suspension, the plan of a member without cards)."""
    before = pod_codec.pod(document(), TABLE)
    added = replace(before.pod, protected=True, overdue=True, plan_id="5-1")
    again = pod_codec.pod(document(), TABLE, before=replace(before, pod=added))
    assert again == before


def test_a_claim_that_was_bound_meanwhile_is_asked_about_again() -> None:
    claimant = document(volumes=[CLAIM])
    before = pod_codec.pod(claimant, TABLE, lambda _namespace, _claim: ())
    again = pod_codec.pod(claimant, TABLE, lambda _namespace, _claim: NODE_TERM, before)
    assert again.pod.shape.affinity_terms == NODE_TERM


def test_a_change_of_the_status_alone_keeps_what_was_read() -> None:
    before = pod_codec.pod(document(), TABLE)
    runs = {**document(nodeName="n1"), "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
    again = pod_codec.pod(runs, TABLE, before=before)
    assert again.words is before.words
    assert (again.pod.phase, again.pod.node, again.bound) == (PodPhase.PLACED, "n1", True)
