"""The isolation library as an operator installs it: our image, the component, pods through the webhook."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from isolation.installed import installed, pod_on_one_card
from isolation.probe import MIB
from isolation.world import PAST_THE_PRELOAD, program
from localcluster.api import wait_until
from stack.install import Stack
from stack.kit import running
from vc_egpu.kube.resources import EVENTS

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
