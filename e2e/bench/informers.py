"""One list of all pods, by our client or by the official one, in a process of its own that can be weighed.

    python -m bench.informers ours|official KUBECONFIG PODS

Prints its CPU seconds and its memory once all pods are there, then what 2,000 patches of a pod cost it.
"""

import json
import resource
import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

from kubernetes import client, config
from kubernetes.informer import SharedInformer
from vc_egpu.kube import ApiConnection, Reflector
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano.codec import trim

PATCHES = 2_000
BODY = {"metadata": {"annotations": {"egpu.volcano.sh/cards": "x" * 300}}}
NAME, NAMESPACE = "pod-0", "default"


def cpu_s() -> float:
    """Seconds of CPU that this process has used."""
    return time.process_time()


def ours(kubeconfig: Path, pods: int) -> tuple[float, float]:
    """CPU seconds for the list, and for the patches, with ``vc_egpu.kube``."""
    api = ApiConnection.connect(kubeconfig)
    there, count = Event(), [0]

    def heard(_: Any) -> None:
        count[0] += 1
        if count[0] >= pods:
            there.set()

    began = cpu_s()
    reflector = Reflector(api, PODS, heard, transform=lambda document: trim.of("pods", document))
    reflector.start()
    there.wait(600)
    listed_s = cpu_s() - began
    began = cpu_s()
    for _ in range(PATCHES):
        api.patch(PODS, NAME, BODY, NAMESPACE)
    return listed_s, cpu_s() - began


def official(kubeconfig: Path, pods: int) -> tuple[float, float]:
    """The same with the official package's informer and typed calls."""
    config.load_kube_config(str(kubeconfig))
    core = client.CoreV1Api()
    there = Event()
    began = cpu_s()
    informer = SharedInformer(core.list_pod_for_all_namespaces)
    informer.start()
    while len(informer.cache.list_keys()) < pods and cpu_s() - began < 600:
        there.wait(0.05)
    listed_s = cpu_s() - began
    began = cpu_s()
    for _ in range(PATCHES):
        core.patch_namespaced_pod(NAME, NAMESPACE, BODY)
    return listed_s, cpu_s() - began


def main() -> None:
    """Print one JSON object."""
    side, kubeconfig, pods = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    listed_s, patched_s = (ours if side == "ours" else official)(kubeconfig, pods)
    print(
        json.dumps(
            {
                "side": side,
                "pods": pods,
                "list_cpu_s": round(listed_s, 2),
                "patch_cpu_us": round(1e6 * patched_s / PATCHES),
                "rss_most_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
