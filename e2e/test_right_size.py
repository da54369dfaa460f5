"""Two services hold a card each and need little of it: after `right-size --apply` they share one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack.install import Stack
from stack.kit import phase
from vc_egpu.volcano.words import names

EXAMPLE = Path(__file__).resolve().parents[1] / "manifests" / "examples" / "cap-waits"
PLACE = "ex-cap-waits"
MEMORY = names.memory_total_resource("h20")
"""The webhook counts here what a pod asks for."""
ROLE = "ex-right-size"
SERVICES = ("chat", "search")
MIB = 1 << 20
GRANTED_MIB, PROPOSED_MIB = 98304, 40960
pytestmark = pytest.mark.cluster


def container(name: str, limits: dict[str, int]) -> dict[str, Any]:
    return {
        "name": name,
        "image": "vc-egpu.local/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "trap exit TERM; while :; do sleep 1; done"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": limits},
    }


def deployment(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": PLACE},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {
                    "labels": {"app": name},
                    "annotations": {"scheduling.volcano.sh/queue-name": f"{PLACE}-research"},
                },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        container("main", {"volcano.sh/vgpu-h20": 1}),
                        container("proxy", {}),
                    ],
                },
            },
        },
    }


def may_use_the_queue() -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    use = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["use"]}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": [use]}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": PLACE}],
    }
    return [role, binding]


def row(service: str) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "namespace": PLACE,
        "service": service,
        "container": "main",
        "model": "h20",
        "advice": "shrink",
        "memory_granted_bytes": GRANTED_MIB * MIB,
        "memory_used_max_bytes": 35000 * MIB,
        "memory_proposed_bytes": PROPOSED_MIB * MIB,
        "cores_proposed_ratio": 0.4,
        "hours_seen": 100.0,
    }


@pytest.fixture
def services(stack: Stack) -> Iterator[Stack]:
    """Both run, on a card each."""
    stack.kit.kubectl("apply", "-k", str(EXAMPLE), "-l", "egpu-example/step=0")
    try:
        # The ReplicaSet controller makes the pods, so their account needs the queue.
        stack.kit.apply(*may_use_the_queue())
        for name in SERVICES:
            stack.kit.apply(deployment(name))
        yield stack
    finally:
        for name in SERVICES:
            stack.kit.kubectl("delete", "deployment", name, "-n", PLACE, "--ignore-not-found", check=False)
        stack.kit.kubectl("delete", "clusterrole,clusterrolebinding", ROLE, "--ignore-not-found", check=False)
        stack.kit.kubectl("delete", "-k", str(EXAMPLE), "--ignore-not-found", "--timeout=90s", check=False)


def wait_for(stack: Stack, memory_mib: int) -> None:
    """Until one pod of each service runs, and all of them ask for this."""

    def settled(pods: dict[str, Any]) -> bool | None:
        asked = {pod["spec"]["containers"][0]["resources"]["limits"].get(MEMORY) for pod in pods.values()}
        return (
            [phase(pod) for pod in pods.values()] == ["Running"] * len(SERVICES)
            and asked == {str(memory_mib)}
        ) or None

    stack.kit.pods_until(f"all run with {memory_mib} MiB", PLACE, settled, timeout_s=120)


def test_two_services_share_one_card_after_their_sizes_were_put_right(
    services: Stack, tmp_path: Path
) -> None:
    wait_for(services, GRANTED_MIB)
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"tables": {"right_sizes": [row(name) for name in SERVICES]}}))
    before = json.loads(services.egpu("cards", "-o", "json"))["cards"]
    flags = ("right-size", "-n", PLACE, "--report", str(report))
    assert "nothing was written" in services.egpu(*flags)
    services.egpu(*flags, "--apply")
    wait_for(services, PROPOSED_MIB)
    after = json.loads(services.egpu("cards", "-o", "json"))["cards"]

    def held(cards: list[dict[str, Any]]) -> int:
        return sum(1 for card in cards if any(one["pod"].startswith(f"{PLACE}/") for one in card["sharers"]))

    assert (held(before), held(after)) == (2, 1)
    # A second run has nothing to do: the report's sizes are not those that were measured any more.
    told = json.loads(services.egpu(*flags, "--apply", "-o", "json"))["sizes"]
    assert {one["state"] for one in told} == {"nothing"}
