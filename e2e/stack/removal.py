"""Removing the stack as an operator does, and what is left of it."""

import json
import os
import subprocess
from pathlib import Path

from vc_egpu.kube.resources import PODS

from stack.install import Stack
from stack.kit import is_gated

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = ("egpu", "vgpu")
CLUSTER_WIDE = (
    "clusterroles,clusterrolebindings,priorityclasses,flowschemas,mutatingwebhookconfigurations,"
    "validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings"
)


def remove(stack: Stack, overlay: str) -> subprocess.CompletedProcess[str]:
    """`manifests/remove OVERLAY` as the administrator."""
    kubectl = f"{stack.cluster.bin('kubectl')} --kubeconfig {stack.cluster.kubeconfig}"
    return subprocess.run(
        [REPOSITORY / "manifests/remove", overlay],
        env={**os.environ, "KUBECTL": kubectl},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def listed(stack: Stack, kinds: str) -> set[str]:
    """``kind/name`` of everything of these kinds, cluster-wide."""
    done = stack.kit.kubectl("get", kinds, "--all-namespaces", "-o", "json")
    return {f"{d['kind']}/{d['metadata']['name']}" for d in json.loads(done.stdout)["items"]}


def of_ours(found: set[str]) -> set[str]:
    """Names of the stack; ``vc-egpu:...`` are the local cluster's own roles."""
    return {name for name in found if any(word in name for word in OURS) and "vc-egpu:" not in name}


def left_on_hosts(stack: Stack) -> list[str]:
    """``node: path`` of every file of ours. The agent's folders themselves stay, empty: they were mounts."""
    folders = "/var/run/cdi /var/lib/vc-egpu /run/vc-egpu /var/lib/kubelet/device-plugins"
    return [
        f"{node.name}: {path}"
        for node in stack.cluster.nodes
        for path in node.run(["sh", "-c", f"find {folders} -mindepth 1"]).stdout.splitlines()
        if any(word in path for word in OURS)
    ]


def gated(stack: Stack) -> list[str]:
    """Pods that wait at our gate."""
    return [pod["metadata"]["name"] for pod in stack.kit.api.list(PODS).items if is_gated(pod)]
