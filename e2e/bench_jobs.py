"""How much memory a large Job takes in the Job controller, and how long it keeps another tenant's waiting.

    python e2e/bench_jobs.py [--pods 10000] [--kib 12] [--large 8] [--seconds 20]

The controller is the product's own process; the API server is a stand-in that takes all pods. Prints one JSON
object as its last line. For one Job of many large pods: ``made_s`` until all are made, ``rss_mib`` then and
``rss_most_mib`` on the way. Then one tenant has large Jobs, at the bounds of what is taken and beyond.
``alone_s`` is the time to the first pod of another tenant's Job without them. ``beside_most_s`` is the
longest next to them, of ``beside`` Jobs, one a second.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.jobs_api import JobsApi, Json, serving
from bench_takeover import cpu_s, kubeconfig, status_of

LIMIT_S = 300.0
BEFORE_S = 5.0
"""So long the large Jobs are at work before the first small one comes."""


def task(name: str, replicas: int, kib: int = 0, **more: object) -> Json:
    """A task whose template has so many KiB of variables, 64 bytes each."""
    variables = [{"name": f"V{number:04}", "value": "x" * 39} for number in range(16 * kib)]
    container = {"name": "c", "image": "i", "env": variables, "resources": {"requests": {"cpu": "1"}}}
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": [container]}}, **more}


def at_the_bounds() -> Json:
    """What a Job may have most of: pods, policies, host lists."""
    codes = [{"exitCode": code, "action": "RestartJob"} for code in range(1, 129)]
    return {
        "minAvailable": 1,
        "tasks": [
            task("w", 9_000, 2, policies=codes[64:]),
            *(task(f"t{n}", 10, policies=codes[64:], dependsOn={"name": ["w"]}) for n in range(99)),
        ],
        "policies": codes[:64],
        "plugins": {"svc": [], "env": []},
    }


def beyond_the_bounds() -> Json:
    """Many small parts, each of which cost time by the number of all others."""
    names = [f"t{number}" for number in range(600)]
    policies = [{"exitCode": code, "action": "RestartJob", "timeout": "1h"} for code in range(1, 800)]
    return {
        "minAvailable": 1,
        "tasks": [task(name, 10, dependsOn={"name": names[:20]}) for name in names],
        "policies": policies,
        "plugins": {"svc": ["--disable-network-policy"] * 1000},
    }


@contextmanager
def controller(api: JobsApi, folder: Path) -> Iterator[int]:
    """The product's process; its process id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vc_egpu.cli.main", "jobs", "--no-leader-elect", "--metrics-port", "0",
         "--log-level", "warning", "--kubeconfig", str(kubeconfig(folder, api.url))]
    )  # fmt: skip
    try:
        wait_for(lambda: api.watched >= 7, "the controller to watch")
        time.sleep(1)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def wait_for(happened: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not happened():
        if time.monotonic() > end:
            raise SystemExit(f"waited {LIMIT_S:.0f} s for {what}")
        time.sleep(0.005)


def memory_of(pods: int, kib: int, folder: Path) -> dict[str, float]:
    """One Job of so many pods with so large a template."""
    with serving() as api, controller(api, folder) as pid:
        before, _ = status_of(pid)
        began = time.monotonic()
        api.add_job("large", "train", {"minAvailable": 1, "tasks": [task("w", pods, kib)]})
        wait_for(lambda: api.pods_of("large", "train") == pods, f"{pods} pods")
        made_s = time.monotonic() - began
        time.sleep(3)  # the watch catches up
        rss, most = status_of(pid)
        return {
            "made_s": round(made_s, 1),
            "cpu_s": round(cpu_s(pid), 1),
            "rss_before_mib": round(before),
            "rss_mib": round(rss),
            "rss_most_mib": round(most),
        }


def first_pod_s(api: JobsApi, name: str) -> float:
    """From a small Job of another tenant to its first pod."""
    began = time.monotonic()
    api.add_job("small", name, {"minAvailable": 1, "tasks": [task("w", 1)]})
    wait_for(lambda: api.pods_of("small", name) == 1, "the first pod")
    return time.monotonic() - began


def delay_by(large: int, seconds: int, folder: Path) -> dict[str, float]:
    """Small Jobs, one a second, next to large ones of another tenant."""
    with serving() as api, controller(api, folder) as pid:
        alone = [first_pod_s(api, f"alone-{number}") for number in range(5)]
        for number in range(large):
            api.add_job("large", f"bound-{number}", {**at_the_bounds()})
            api.add_job("large", f"beyond-{number}", {**beyond_the_bounds()})
        time.sleep(BEFORE_S)
        beside = []
        for number in range(seconds):
            beside.append(first_pod_s(api, f"beside-{number}"))
            time.sleep(1)
        busy = sum(api.pods_of("large", f"bound-{number}") for number in range(large))
        _, most = status_of(pid)
        return {
            "alone_s": round(statistics.median(alone), 3),
            "beside": len(beside),
            "beside_s": round(statistics.median(beside), 3),
            "beside_most_s": round(max(beside), 3),
            "pods_of_the_large": busy,
            "rss_most_beside_mib": round(most),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--kib", type=int, default=12, help="size of a pod's template")
    parser.add_argument("--large", type=int, default=8, help="large Jobs, and as many that are refused")
    parser.add_argument("--seconds", type=int, default=20, help="small Jobs next to the large ones")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = memory_of(arguments.pods, arguments.kib, Path(folder))
        print(json.dumps(result), file=sys.stderr)
        result |= delay_by(arguments.large, arguments.seconds, Path(folder))
    result |= {"pods": arguments.pods, "kib": arguments.kib, "cores": os.cpu_count() or 0}
    print(json.dumps({**result, "python": platform.python_version()}))


if __name__ == "__main__":
    main()
