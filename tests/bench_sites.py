"""How soon the page of many clusters opens, and what it takes: in a real Chromium, with stand-in APIs.

All clusters serve the same generated snapshot, from processes of their own. The last line is one JSON object:

- ``first_ms``: the link is opened → the page names every cluster, and says which it has heard of
- ``open_ms``: the link is opened → the cards of all clusters are there. The command was started just before
- ``read_ms``: the link is opened → what is used is known of all clusters, too
- ``warm_ms``: the same for a tab that is opened when the command has read all clusters
- ``server_mib``: the most memory of the command; ``server_cpu_s``: its CPU until all were read
"""

import argparse
import json
import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml
from bench_page import cpu_s, peak_mib
from unit.page import synthetic
from unit.page.browser import Browser, Page, chromium
from unit.page.cluster_api import ClusterApi, cluster_api

CARDS = 8
PATIENCE_S = 300.0
PROCESSES = 2
READ = "fetch('/api/sites').then(a => a.json()).then(a => a.clusters.every(one => one.read))"
AT = "document.documentElement.dataset.sites"


def stand_ins(pipe: Connection, folder: str, count: int, nodes: int, sharers: float) -> None:
    """Some API servers with one snapshot; tells their kubeconfigs and how many pods each has."""
    with ExitStack() as stack:
        whole = ClusterApi()
        pods = synthetic.fill(whole, nodes=nodes, cards=CARDS, sharers=sharers)
        found = []
        for number in range(count):
            api = stack.enter_context(cluster_api())
            api.kinds, api.version = whole.kinds, whole.version
            place = Path(folder) / f"{os.getpid()}-{number}"
            place.mkdir()
            found.append(str(api.kubeconfig(place)))
        pipe.send((found, pods))
        pipe.recv()


def opened(page: Page, link: str, clusters: int) -> tuple[float, float]:
    """Until all are named, and until all have answered, in milliseconds."""
    began = time.monotonic()
    page.open(link)
    page.until(f"document.querySelectorAll('.site').length === {clusters}", PATIENCE_S)
    first = time.monotonic() - began
    page.until(f"{AT} === '{clusters}/{clusters}'", PATIENCE_S)
    return round(first * 1000), round((time.monotonic() - began) * 1000)


def measure(browser: Browser, kubeconfigs: list[str], timeout_s: float, folder: Path) -> dict[str, Any]:
    """One run of the command."""
    file = folder / "clusters.yaml"
    sites = [
        {"name": f"c{i}", "city": f"City {i // 2}", "kubeconfig": path} for i, path in enumerate(kubeconfigs)
    ]
    file.write_text(yaml.safe_dump({"clusters": sites}))
    words = ["ui", "--clusters", str(file), "--cluster-timeout", f"{timeout_s:g}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "vc_egpu.cli.kubectl", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        link = re.search(r"http://\S+", process.stdout.readline())
        assert link is not None
        with browser.page() as page:
            first_ms, open_ms = opened(page, link[0], len(sites))
            began = time.monotonic()
            page.until(READ, PATIENCE_S)
            read_ms = open_ms + round((time.monotonic() - began) * 1000)
        spent_s = cpu_s(process.pid)
        with browser.page() as page:
            _, warm_ms = opened(page, link[0], len(sites))
        memory_mib = peak_mib(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
    return {
        "first_ms": first_ms,
        "open_ms": open_ms,
        "read_ms": read_ms,
        "warm_ms": warm_ms,
        "server_cpu_s": round(spent_s, 1),
        "server_mib": round(memory_mib, 1),
    }


def main() -> None:
    """Measure one size."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--clusters", type=int, default=20)
    flags.add_argument("--nodes", type=int, default=500)
    flags.add_argument("--sharers", type=float, default=4.5, help="mean number of pods that ask for a card")
    flags.add_argument("--timeout-s", type=float, default=60.0, help="the command's --cluster-timeout")
    options = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        servers, kubeconfigs, pods = [], [], 0
        for _ in range(PROCESSES):
            here, there = multiprocessing.Pipe()
            size = (options.clusters // PROCESSES, options.nodes, options.sharers)
            server = multiprocessing.Process(target=stand_ins, args=(there, folder, *size), daemon=True)
            server.start()
            servers.append((server, here))
        for _, here in servers:
            found, pods = here.recv()
            kubeconfigs += found
        figures = measure(browser, kubeconfigs, options.timeout_s, Path(folder))
        for server, here in servers:
            here.send(None)
            server.join(10)
    load, _, _ = os.getloadavg()
    print(
        json.dumps(
            {
                "bench": "sites",
                "date": str(datetime.now(UTC).date()),
                "machine": {
                    "cores": os.cpu_count(),
                    "load": round(load, 1),
                    "python": platform.python_version(),
                },
                "clusters": len(kubeconfigs),
                "nodes": options.nodes,
                "pods": pods,
                **figures,
            }
        )
    )


if __name__ == "__main__":
    main()
