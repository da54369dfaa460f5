"""What is kept of objects in memory says all that anybody reads of them: each field of full ones changes."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.admission.build import GIVEN, TABLE, Json, added
from unit.admission.build import node as plain_node
from vc_egpu.admission.execution import writes
from vc_egpu.admission.inqueue import enqueue
from vc_egpu.admission.state import answers
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling import suspension_words as words
from vc_egpu.volcano.codec import cluster_codec, pod_codec, trim
from vc_egpu.volcano.codec.suspension import SuspendOrder
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare, ContainerRequest, Request

Path = tuple[str | int, ...]

ASK = ContainerRequest(model="h20", cards=1, memory_mib=30000, cores_percent=30, whole=False)
UID = "11111111-2222-3333-4444-555555555555"
TIME = re.compile(r"\d{4}-\d\d-\d\dT.*Z")
AMOUNT = re.compile(r"\d+(m|Mi|Gi)?")


def amounts(cpu: str) -> Json:
    both = {"cpu": cpu, "memory": "3Gi", "ephemeral-storage": "5Gi", "hugepages-2Mi": "6Mi"}
    return {"requests": dict(both), "limits": {**both, "volcano.sh/vgpu-h20": "1"}}


def container(name: str, port: int, **more: Any) -> Json:
    return {
        "name": name,
        "image": f"registry.example/{name}:1",
        "args": ["--a", "--b"],
        "env": [{"name": f"VARIABLE_{i}", "value": f"value {i}"} for i in range(12)],
        "ports": [
            {"containerPort": 80},
            {"containerPort": port, "hostPort": port, "hostIP": "10.0.0.7", "protocol": "UDP"},
        ],
        "resources": amounts("2"),
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "livenessProbe": {"httpGet": {"path": "/live", "port": 80}, "periodSeconds": 10},
        **more,
    }


def affinity(zone: str) -> Json:
    term = {
        "matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    }
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def pod(*, managed: bool, phase: str = "Running", resized: bool = False) -> Json:
    """With everything in it that the codecs know, and a good deal that they do not."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod_metadata(managed=managed),
        "spec": pod_spec(managed=managed),
        "status": pod_status(phase, resized=resized),
    }


def pod_metadata(*, managed: bool) -> Json:
    share = CardShare(uuid="GPU-n1-0", memory_mib=30000, cores=30)
    cards = Cards(pod_uid=UID, node="n1", plan_id="p1", containers={"main": (share,)})
    order = SuspendOrder(plan_id="1-1", pod_uid=UID, since=7)
    ours = {
        names.REQUEST: Request(containers={"main": ASK}).encode(),
        names.CARDS: cards.encode(),
        names.GROUP_NAME: "g",
        names.TASK_SPEC: "w",
        names.TASK_INDEX: "3",
        names.PRIORITY: "low",
        names.PAUSE: "true",
        names.SUSPEND: order.encode(),
        names.QUEUE_NAME: "team",
        names.OUT_OF_SYNC: "true",
        names.USE_CARDS: "GPU-a",
        names.AVOID_CARDS: "GPU-b",
        names.USE_MODELS: "h20",
        names.AVOID_MODELS: "h100",
        names.CARD_POLICY: "spread",
        names.NODE_POLICY: "binpack",
        "kubernetes.io/config.mirror": "abc",
    }
    return {
        "name": "g-w-3",
        "namespace": "default",
        "uid": UID,
        "resourceVersion": "77",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:10:00Z",
        "labels": {"app": "train", **({names.MANAGED_LABEL: "true"} if managed else {})},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "x" * 500,
            **(ours if managed else {"checksum": "y"}),
        },
        "ownerReferences": [
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "name": "g",
                "uid": "j",
                "controller": True,
            }
        ],
    }


def pod_spec(*, managed: bool) -> Json:
    return {
        "schedulingGates": [{"name": "somebody.else/gate"}, *([{"name": names.GATE}] if managed else [])],
        "nodeName": "n1",
        "schedulerName": "volcano",
        "priority": 5,
        "nodeSelector": {"pool": "a"},
        "affinity": affinity("z1"),
        "topologySpreadConstraints": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "maxSkew": 2,
                "minDomains": 1,
                "labelSelector": {"matchExpressions": [{"key": "no-such-label", "operator": "DoesNotExist"}]},
            }
        ],
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        "overhead": {"cpu": "1"},
        "resources": {"requests": {"memory": "9Gi"}, "limits": {"memory": "10Gi"}},
        "containers": [container("main", 5000), container("second", 5001)],
        "initContainers": [
            container("side", 5002, restartPolicy="Always"),
            container("first", 5003, resources=amounts("40")),
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "large", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "local"}}}},
        ],
    }


def pod_status(phase: str, *, resized: bool = False) -> Json:
    return {
        "phase": phase,
        "reason": "OutOfcpu",
        "message": "Pod was rejected",
        "startTime": "2026-01-01T00:00:01Z",
        "podIP": "10.1.2.3",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:20:05Z"},
            said(names.CONDITION_ADMITTED, "Admitted"),
            said(names.CONDITION_SUSPENDED, words.SUSPEND_FAILED),
            *([said("PodResizePending", "Infeasible")] if resized else ()),
        ],
        **(GIVEN if resized else {}),
        "initContainerStatuses": [
            {
                "name": "side",
                "state": {
                    "waiting": {"reason": "CreateContainerError", "message": "CDI device of a sidecar"},
                    "terminated": {"finishedAt": "2026-01-01T00:22:09Z"},
                },
                **(GIVEN if resized else {}),
            }
        ],
        "containerStatuses": [
            {
                "name": "main",
                "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}},
                "imageID": "x" * 90,
                **(GIVEN if resized else {}),
            },
            {
                "name": "second",
                "state": {
                    "waiting": {
                        "reason": "CreateContainerError",
                        "message": "PreStartContainer: not yet",
                    },
                    "terminated": {"finishedAt": "2026-01-01T00:21:07Z"},
                },
            },
        ],
    }


def said(kind: str, reason: str) -> Json:
    return {
        "type": kind,
        "status": "False",
        "reason": reason,
        "message": "words",
        "lastTransitionTime": "2026-01-01T00:00:09Z",
    }


def node() -> Json:
    document = plain_node("n1", spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]})
    document["spec"] |= {"unschedulable": True, "providerID": "cloud://1"}
    document["metadata"]["annotations"] |= {names.CORDONED_CARDS: "GPU-n1-1", "other.example/heartbeat": "7"}
    document["status"] |= {
        "images": [{"names": [f"registry.example/{i}@sha256:{'c' * 64}"], "sizeBytes": i} for i in range(50)],
        "nodeInfo": {"kernelVersion": "6.1", "osImage": "Debian"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    document["status"]["conditions"].append({"type": "DiskPressure", "status": "False", "message": "fine"})
    return document


def job() -> Json:
    template = {
        "metadata": {
            "labels": {names.MANAGED_LABEL: "true"},
            "annotations": {names.PRIORITY: "high", names.OVERSUBSCRIBE: "true"},
        },
        "spec": {
            key: value
            for key, value in pod(managed=True)["spec"].items()
            if key not in {"nodeName", "schedulingGates", "initContainers"}
        },
    }
    for number, one in enumerate(template["spec"]["containers"]):
        limits = {"volcano.sh/vgpu-h20": "1", names.LIMIT_MEMORY: str(30000 + number), "memory": "3Gi"}
        one["resources"] = {"limits": limits, "requests": {"cpu": "1"}}
    return {
        "metadata": {"name": "g", "namespace": "default", "uid": "j", "resourceVersion": "5"},
        "spec": {
            "queue": "team",
            "minAvailable": 2,
            "tasks": [{"name": "w", "replicas": 2, "template": template}],
            "plugins": {"svc": []},
        },
        "status": {"state": {"phase": "Pending"}},
    }


# --- what is read of them --------------------------------------------------------------------------


def pod_read(document: Json) -> Any:
    """Everything that the admission controller takes from a pod."""
    decoded = pod_codec.pod(document, TABLE, lambda namespace, claim: ((),) if claim == "claim" else ())
    if not decoded.managed:
        return decoded
    return (
        decoded,
        writes.is_bound_by_volcano(decoded),
        words.stands(decoded),
        words.failed_at(decoded),
        *(read(decoded) for read in (answers.order_of, answers.is_paused, answers.bears_order)),
        pod_codec.claims_of(document),
    )


def node_read(document: Json) -> Any:
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(document))
    return dict(mirror.nodes), cluster_codec.held_by_agent(document)


def job_read(document: Json) -> Any:
    key = Mirror(TABLE).around.put_job(document, deleted=False)
    return key, enqueue.is_managed(document), enqueue.template(document, TABLE)


def claim_read(document: Json) -> Any:
    mirror = Mirror(TABLE)
    mirror.apply("persistentvolumeclaims", added(document))
    return vars(mirror.around)


def volume_read(document: Json) -> Any:
    mirror = Mirror(TABLE)
    mirror.apply("persistentvolumes", added(document))
    return vars(mirror.around)


CLAIM = {
    "metadata": {"name": "claim", "namespace": "default", "uid": "c", "resourceVersion": "4"},
    "spec": {"volumeName": "v1", "storageClassName": "fast"},
}
VOLUME = {
    "metadata": {"name": "v1", "uid": "v", "resourceVersion": "4"},
    "spec": {
        "nodeAffinity": {
            "required": affinity("z")["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        },
        "capacity": {"storage": "1Ti"},
    },
}
KINDS: dict[str, tuple[str, Json, Callable[[Json], Any], int]] = {
    "a member": ("pods", pod(managed=True), pod_read, 60),
    "a member that is over": ("pods", pod(managed=True, phase="Failed"), pod_read, 60),
    "a member that is resized": ("pods", pod(managed=True, resized=True), pod_read, 70),
    "a resized one that is over": ("pods", pod(managed=True, phase="Failed", resized=True), pod_read, 60),
    "somebody else's pod that is resized": ("pods", pod(managed=False, resized=True), pod_read, 40),
    "somebody else's pod": ("pods", pod(managed=False), pod_read, 30),
    "somebody else's pod that is over": ("pods", pod(managed=False, phase="Succeeded"), pod_read, 20),
    "a node": ("nodes", node(), node_read, 10),
    "a Job": ("jobs", job(), job_read, 25),
    "a claim": ("persistentvolumeclaims", CLAIM, claim_read, 3),
    "a volume": ("persistentvolumes", VOLUME, volume_read, 5),
}
"""By name: plural, document, what is read of it, and how many of its fields say something, at the least."""


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths to everything in a document, inner nodes too."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))


def other(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str() if TIME.fullmatch(value):
            return "2027-02-02T02:02:02Z"
        case str() if AMOUNT.fullmatch(value):
            return f"1{value}"
        case str():
            return f"{value}x"
        case _:
            return type(value)()


def changed(document: Json, path: Path, *, removed: bool) -> Json:
    result = copy.deepcopy(document)
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    if removed:
        del place[path[-1]]
    else:
        place[path[-1]] = other(place[path[-1]])
    return result


def outcome(read: Callable[[Json], Any], document: Json) -> Any:
    try:
        return json.dumps(read(document), default=repr, sort_keys=True)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return repr(error)


@pytest.mark.parametrize("name", KINDS)
def test_whatever_changes_what_is_read_is_kept(name: str) -> None:
    plural, document, read, least = KINDS[name]
    before = outcome(read, document)
    telling = 0
    for path in leaves(document):
        for removed in (False, True):
            version = changed(document, path, removed=removed)
            now = outcome(read, version)
            telling += now != before
            assert outcome(read, trim.of(plural, copy.deepcopy(version))) == now, (path, removed)
    assert telling >= least  # or the documents above are too poor to show anything


@pytest.mark.parametrize("name", KINDS)
def test_what_is_kept_may_be_kept_again(name: str) -> None:
    plural, document, _, _ = KINDS[name]
    once = trim.of(plural, copy.deepcopy(document))
    assert trim.of(plural, once) == once


@pytest.mark.parametrize("name", ["somebody else's pod", "a node", "a member"])
def test_most_of_an_object_is_not_kept(name: str) -> None:
    plural, document, _, _ = KINDS[name]
    assert len(orjson.dumps(trim.of(plural, document))) < 0.6 * len(orjson.dumps(document))


def test_what_pods_have_in_common_is_kept_once() -> None:
    first, second = pod(managed=False), pod(managed=False)
    second["metadata"]["uid"] = "another"
    specs = [trim.pod(document)["spec"]["containers"] for document in (first, second)]
    assert specs[0] is specs[1]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data(), name=st.sampled_from(sorted(KINDS)), wrong=ANYTHING)
def test_no_object_is_too_odd_to_be_kept(data: st.DataObject, name: str, wrong: Any) -> None:
    """The watch would break off at it, for everybody."""
    plural, document, _, _ = KINDS[name]
    path = data.draw(st.sampled_from(sorted(leaves(document), key=str)))
    odd = copy.deepcopy(document)
    place: Any = odd
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    trim.of(plural, odd)
