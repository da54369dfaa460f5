"""The isolation library as an operator installs it: our image, the component, pods through the webhook."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from isolation.installed import installed, pod_on_one_card
from isolation.probe import MIB
from isolation.world import PAST_THE_PRELOAD, c_program, program
from localcluster.api import wait_until
from stack.install import REPOSITORY, Stack
from stack.kit import running
from stack.removal import left_on_hosts
from vc_egpu.kube.resources import EVENTS
from vc_egpu.volcano.words.names import PRIORITY

NAMESPACE = "isolated"
pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with installed(NAMESPACE, cards=2) as stack:
        yield stack


def pod(name: str, memory_mib: int, command: tuple[str, ...], **spec: Any) -> dict[str, Any]:
    return pod_on_one_card(NAMESPACE, name, memory_mib, command, **spec)


def test_limits_hold_and_who_goes_past_them_is_told_of(stack: Stack) -> None:
    rogue = ("/usr/bin/python3", "-c", PAST_THE_PRELOAD.replace("{mib}", "9000"))
    stack.kit.apply(pod("honest", 5_000, program("hold", 4_000)), pod("rogue", 4_000, rogue))
    stack.kit.pods_until("both run", NAMESPACE, lambda pods: len(running(pods)) == 2 or None)

    def held() -> bool:
        return '{"code": 0}' in stack.kit.api.pod_log("honest", NAMESPACE)

    wait_until("memory is held", held, 60)
    said = stack.kit.kubectl("exec", "-n", NAMESPACE, "honest", "--", *program("memory")).stdout
    told = json.loads(said.splitlines()[-1])
    assert told["total"] == 5_000 * MIB
    assert told["free"] <= 1_000 * MIB
    assert told["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"

    def accused(events: dict[str, Any]) -> set[str] | None:
        notes = {"past the isolation library", "granted are 4000"}
        found = [
            str((event.get("regarding") or {}).get("name"))
            for event in events.values()
            if any(note in (event.get("note") or "") for note in notes)
        ]
        return set(found) if len(found) >= len(notes) else None

    assert stack.kit.until("it is told of", EVENTS, accused, namespace=NAMESPACE, timeout_s=30) == {"rogue"}
    stack.check_invariants()


def test_pods_that_nothing_could_limit_are_refused(stack: Stack) -> None:
    command = program("memory")
    assert "spec.hostPID" in stack.kit.refused(pod("host", 1_000, command, hostPID=True))
    privileged = pod("privileged", 1_000, command)
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert "securityContext.privileged" in stack.kit.refused(privileged)
    over = pod("over", 1_000, command, volumes=[{"name": "v", "emptyDir": {}}])
    over["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/etc/egpu"}]
    assert "volumeMounts[0].mountPath" in stack.kit.refused(over)


def steps(stack: Stack, name: str) -> list[int]:
    """What a training program has said so far."""
    lines = stack.kit.api.pod_log(name, NAMESPACE).splitlines()
    return [int(line.split()[-1]) for line in lines if line.startswith("step")]


def remove(stack: Stack, **environment: str) -> subprocess.CompletedProcess[str]:
    """`manifests/remove` as the administrator."""
    kubectl = f"{stack.cluster.bin('kubectl')} --kubeconfig {stack.cluster.kubeconfig}"
    return subprocess.run(
        [REPOSITORY / "manifests/remove", "local-isolated"],
        env={**os.environ, "KUBECTL": kubectl, **environment},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def test_removal_first_brings_back_who_is_suspended(stack: Stack) -> None:
    """Without agents nobody could: their programs would stand still for ever. The last test of this file."""
    training = c_program("train", **{"memory-mib": 1024, "kernels": 1, "ns": 2_000_000, "every": 50})
    stack.kit.apply(pod("away", 57_344, training, annotations={PRIORITY: "low"}))
    stack.kit.pods_until("it runs", NAMESPACE, lambda pods: running(pods, "away") or None)
    wait_until("it trains", lambda: bool(steps(stack, "away")), 60)
    stack.egpu("suspend", "away", "-n", NAMESPACE)
    before = steps(stack, "away")
    told = json.loads(stack.kit.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in told["items"] if "suspend" in str(item["metadata"])]

    whole = pod("whole", 98_304, program("hold", 10))
    others = [{**whole, "metadata": {**whole["metadata"], "name": f"whole-{i}"}} for i in range(2)]
    stack.kit.pods_until("others are gone", NAMESPACE, lambda pods: _cleared(stack, pods), timeout_s=60)
    stack.kit.apply(*others)
    stack.kit.pods_until(
        "others have its card", NAMESPACE, lambda pods: len(running(pods, "whole")) == 2 or None
    )
    refused = remove(stack, WAIT_S="5")
    assert refused.returncode == 1
    assert f"{NAMESPACE}/away" in refused.stderr
    assert "node-agent" not in refused.stdout, "nothing has been ended yet"

    stack.kit.kubectl("delete", "pod", "-n", NAMESPACE, "whole-0", "whole-1")
    done = remove(stack)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    wait_until("it goes on where it was", lambda: steps(stack, "away")[-1] > before[-1], 60)
    assert left_on_hosts(stack) == []
    assert steps(stack, "away")[: len(before) + 1] == [50 * (i + 1) for i in range(len(before) + 1)]


def _cleared(stack: Stack, pods: dict[str, Any]) -> bool:
    """Only ``away`` is left; the others are asked to go."""
    for name in pods:
        if name != "away" and not pods[name]["metadata"].get("deletionTimestamp"):
            stack.kit.kubectl("delete", "pod", "-n", NAMESPACE, name, "--wait=false", "--ignore-not-found")
    return set(pods) == {"away"}
