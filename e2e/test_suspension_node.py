"""A node carries out orders to suspend: the program's memory leaves the card, and the program goes on later.

Orders are written here by hand, as the admission controller's identity: what decides on them is elsewhere.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from localcluster.api import wait_until
from rigs.suspension import TEAM, Here, Json, pod, suspending
from stack.identity import bound_token_kubeconfig
from stack.install import NAMESPACE
from stack.kit import running
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import EVENTS, POD_TEMPLATES, PODS
from vc_egpu.kube.wire.errors import Refused
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    with suspending("suspend-node") as found:
        yield found


def test_memory_leaves_the_card_and_the_steps_go_on_where_they_were(here: Here) -> None:
    uid = here.train("away")
    before = here.used_mib()
    assert before > 4_000
    began = time.monotonic()
    order = here.order("away", uid)
    said = here.until(uid, "suspended")
    took = time.monotonic() - began
    assert (said.plan_id, said.host_mib) == (order, before)
    wait_until("the driver sees nothing of it", lambda: here.used_mib() == 0, 30)
    stood = here.steps("away")
    wait_until("no helper is left", lambda: here.helpers() == [], 60)
    assert here.metrics()[f'egpu_node_pod_suspended_bytes{{namespace="{TEAM}",pod="away"}}'] == before
    began = time.monotonic()
    here.take_back("away")
    here.until(uid, "running")
    back = time.monotonic() - began
    print(json.dumps({"suspend_s": round(took, 2), "resume_s": round(back, 2)}))
    went_on = here.steps_after("away", stood[-1])
    assert went_on == sorted(set(went_on)), "the counter lies in device memory: it came back whole"
    assert went_on[: len(stood)] == stood
    status = here.kit.api.get(PODS, "away", TEAM)["status"]
    assert [one["restartCount"] for one in status["containerStatuses"]] == [0]
    wait_until("no helper is left", lambda: here.helpers() == [], 60)
    here.gone("away")


def test_an_agent_that_ends_in_the_middle_is_followed_by_one_that_finishes(here: Here) -> None:
    uid = here.train("followed")
    here.order("followed", uid)
    here.until(uid, "suspending")
    here.kit.api.delete(PODS, here.agent(), NAMESPACE, grace_period_s=0)
    here.until(uid, "suspended", timeout_s=180)
    stood = here.steps("followed")[-1]
    here.kit.api.delete(PODS, here.agent(), NAMESPACE, grace_period_s=0)
    here.take_back("followed")
    here.until(uid, "running", timeout_s=180)
    here.steps_after("followed", stood)
    wait_until("no helper is left", lambda: here.helpers() == [], 60)
    here.gone("followed")


def test_a_pod_deleted_while_suspended_leaves_nothing_behind(here: Here) -> None:
    uid = here.train("deleted")
    here.order("deleted", uid)
    here.until(uid, "suspended")
    here.gone("deleted")
    wait_until("the node has forgotten it", lambda: here.said(uid) is None, 60)
    real = here.stack.cluster.nodes[0]
    assert real.run(["find", "/var/lib/vc-egpu/suspensions", "-type", "f"]).stdout == ""
    wait_until("nothing is used", lambda: here.used_mib() == 0, 30)


def test_what_cannot_be_suspended_says_why(here: Here) -> None:
    name = "managed"
    code = (
        "import sys; sys.path.insert(0, '/opt/egpu'); import ctypes, time, probe; c = probe.Cuda();"
        "at = ctypes.c_uint64(); size = ctypes.c_size_t(4 << 20);"
        "print(c.call('cuMemAllocManaged', ctypes.byref(at), size, 1), flush=True);"
        "time.sleep(3600)"
    )
    here.run(pod(name, ("/usr/bin/python3", "-c", code)))
    uid = str(here.kit.api.get(PODS, name, TEAM)["metadata"]["uid"])
    wait_until("the verdict", lambda: (s := here.said(uid)) is not None and "managed" in s.reason, 60)
    order = here.order(name, uid)
    wait_until("the order is refused", lambda: (s := here.said(uid)) is not None and s.plan_id == order, 60)
    said = here.said(uid)
    assert said is not None
    assert (said.state, said.suspendable) == ("running", False)
    assert "4 MiB of managed memory" in said.reason

    def told(events: dict[str, Json]) -> bool | None:
        return any(one.get("reason") == "NotSuspended" for one in events.values()) or None

    here.kit.until("the pod's event", EVENTS, told, namespace=TEAM)
    here.gone(name)


def away_for_inference(here: Here) -> str:
    """Training that was suspended for inference, which runs now; its UID. With the controller."""
    here.controllers(1)
    uid = here.train_on_both_cards()
    began = time.monotonic()
    here.ask_for_inference()
    here.until_inference_runs()
    print(json.dumps({"room_s": round(time.monotonic() - began, 2)}))
    said = here.said(uid)
    assert said is not None
    assert said.state == "suspended"
    here.steps_after("infer", 0)
    here.stack.check_invariants()
    return uid


def test_inference_takes_the_cards_and_training_comes_back(here: Here) -> None:
    """The whole of it, with the controller: who does not fit beside training has it suspended."""
    uid = away_for_inference(here)
    stood = here.steps("train-0")
    here.kit.api.delete(PODS, "infer", TEAM, grace_period_s=0)
    began = time.monotonic()
    here.until(uid, "running")
    print(json.dumps({"back_s": round(time.monotonic() - began, 2)}))
    assert here.steps_after("train-0", stood[-1])[: len(stood)] == stood
    status = here.kit.api.get(PODS, "train-0", TEAM)["status"]
    assert [one["restartCount"] for one in status["containerStatuses"]] == [0]
    here.end_training()


def test_training_that_cannot_come_back_is_ended_and_begins_anew(here: Here) -> None:
    uid = away_for_inference(here)
    fault = {"name": "FAKE_CUDA_FAULTS", "value": "cuCheckpointProcessRestore:1:1:2"}
    path = "/template/spec/containers/0/env/-"
    api = here.kit.api
    patch: Any = [{"op": "add", "path": path, "value": fault}]
    before = api.get(POD_TEMPLATES, "vc-egpu-checkpoint", NAMESPACE)["template"]["spec"]
    api.patch(POD_TEMPLATES, "vc-egpu-checkpoint", patch, NAMESPACE, kind="json")
    api.delete(PODS, "infer", TEAM, grace_period_s=0)

    def anew(pods: dict[str, Json]) -> bool | None:
        there = "train-0" in running(pods)
        return (there and pods["train-0"]["metadata"]["uid"] != uid) or None

    here.kit.pods_until("another pod in its place", TEAM, anew, timeout_s=120)
    patch = [{"op": "replace", "path": "/template/spec/containers", "value": before["containers"]}]
    api.patch(POD_TEMPLATES, "vc-egpu-checkpoint", patch, NAMESPACE, kind="json")
    assert here.steps_after("train-0", 0)[0] == 1
    wait_until("the node has forgotten the first", lambda: here.said(uid) is None, 60)
    here.stack.check_invariants()
    here.end_training()


def _set(**fields: Any) -> Any:
    return lambda body: body["spec"].update(fields)


def _container(**fields: Any) -> Any:
    return lambda body: body["spec"]["containers"][0].update(fields)


def _words(text: str) -> Any:
    return lambda body: body["metadata"].update(annotations={names.CHECKPOINT: text})


FORBIDDEN: dict[str, tuple[Any, str]] = {
    "another node": (_set(nodeName="other"), "spec.nodeName"),
    "no node": (lambda body: body["spec"].pop("nodeName"), "spec.nodeName"),
    "another image": (_container(image="evil"), "spec.containers"),
    "another command": (_container(command=["sh"]), "spec.containers"),
    "arguments": (_container(args=["-c"]), "spec.containers"),
    "more environment": (
        lambda body: body["spec"]["containers"][0]["env"].append({"name": "LD_PRELOAD", "value": "/x"}),
        "spec.containers",
    ),
    "a second container": (
        lambda body: body["spec"]["containers"].append({"name": "x", "image": "y"}),
        "spec.containers",
    ),
    "an init container": (
        _set(initContainers=[{"name": "x", "image": "y"}]),
        "containers of the PodTemplate",
    ),
    "another volume": (
        lambda body: body["spec"]["volumes"].append({"name": "r", "hostPath": {"path": "/"}}),
        "spec.volumes",
    ),
    "the host's network": (_set(hostNetwork=True), "namespaces"),
    "another account": (_set(serviceAccountName="vc-egpu-admission"), "spec.serviceAccountName"),
    "for ever": (lambda body: body["spec"].pop("activeDeadlineSeconds"), "as in PodTemplate"),
    "another user": (_set(securityContext={"runAsUser": 1}), "as in PodTemplate"),
    "other labels": (lambda body: body["metadata"].update(labels={"app": "x"}), "namespace and labels"),
    "no words": (lambda body: body["metadata"].pop("annotations"), "metadata.annotations"),
    "flags": (_words("suspend --library /x --lock-ms 1 1:1"), "metadata.annotations"),
    "no such verb": (_words("kill --lock-ms 1 1:1"), "metadata.annotations"),
    "a signal that ends": (
        _words("suspend --lock-ms 1 --signal KILL --drain-ms 1 1:1"),
        "metadata.annotations",
    ),
    "no start time": (_words("suspend --lock-ms 1 1"), "metadata.annotations"),
    "more annotations": (
        lambda body: body["metadata"]["annotations"].update(other="x"),
        "metadata.annotations",
    ),
}


def test_an_agent_makes_its_helper_and_nothing_else(here: Here) -> None:
    agent, good = as_agent(here), helper(here)
    assert agent.create(PODS, good, dry_run=True)["spec"]["nodeName"] == here.node
    for what, (change, about) in FORBIDDEN.items():
        body = json.loads(json.dumps(good))
        change(body)
        with pytest.raises(Refused) as error:
            agent.create(PODS, body, dry_run=True)
        assert about in str(error.value), what
    elsewhere = json.loads(json.dumps(good))
    elsewhere["metadata"]["namespace"] = TEAM
    with pytest.raises(Refused):
        agent.create(PODS, elsewhere, dry_run=True)
    with pytest.raises(Refused, match="helper's pods"):
        agent.delete(PODS, here.agent(), NAMESPACE)
    assert "vc-egpu-system-pods" in here.kit.refused(good), "nobody else makes such a pod"


def helper(here: Here) -> Json:
    """A helper's pod as the agent makes it."""
    template = here.kit.api.get(POD_TEMPLATES, "vc-egpu-checkpoint", NAMESPACE)["template"]
    metadata = {
        "name": "helper",
        "namespace": NAMESPACE,
        "labels": template["metadata"]["labels"],
        "annotations": {names.CHECKPOINT: "state --lock-ms 1000 1:1"},
    }
    spec = {**template["spec"], "nodeName": here.node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def as_agent(here: Here) -> ApiConnection:
    """With a token bound to the agent's own pod."""
    return ApiConnection.connect(
        bound_token_kubeconfig(here.stack.cluster, NAMESPACE, "vc-egpu-node-agent", here.agent())
    )
