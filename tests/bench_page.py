"""How soon the page opens and follows changes, and what it takes: in a real Chromium, with a stand-in API.

The stand-in is a process of its own. The last line is one JSON object. Times are in milliseconds:

- ``start_ms``: the command is started → it prints its link
- ``open_ms``: the link is opened → all cards are painted; the command was started a moment before
- ``read_ms``: the link is opened → the names of all pods are there, too
- ``server_cpu_s``: CPU of the command until then, which a busy machine changes less than the times
- ``update_ms``: a pod changes at the API server → the page has painted it
- ``server_mib``: the most memory of the command; ``browser_mib``: the page's JavaScript heap
"""

import argparse
import json
import multiprocessing
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from unit.page import synthetic
from unit.page.browser import Browser, Page, chromium
from unit.page.cluster_api import cluster_api

CARDS = 8
UPDATES = 20
PATIENCE_S = 300.0
READ = "document.documentElement.dataset.read === 'yes'"
PAINTED = """new Promise((resolve) => {
  const watch = new MutationObserver(() => {
    watch.disconnect();
    resolve(performance.timeOrigin + performance.now());
  });
  watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-painted"] });
})"""


def stand_in(pipe: Connection, folder: str, nodes: int, sharers: float) -> None:
    """The API server: tells its kubeconfig and how many pods it has, then changes a pod whenever asked."""
    with cluster_api() as api:
        pods = synthetic.fill(api, nodes=nodes, cards=CARDS, sharers=sharers)
        pipe.send((str(api.kubeconfig(Path(folder))), pods))
        node = next(iter(api.kinds["nodes"].values())).name
        model = node.partition("-")[0]
        while (number := pipe.recv()) is not None:
            share = (model, 1024 + number, 1, "low")
            document = synthetic.pod("bench-0", ("research", "research"), (node, f"GPU-{node}-0"), share)
            pipe.send(time.time() * 1000)
            api.put("pods", document)


def measure(browser: Browser, nodes: int, sharers: float) -> dict[str, Any]:
    """One size."""
    here, there = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        server = multiprocessing.Process(target=stand_in, args=(there, folder, nodes, sharers), daemon=True)
        server.start()
        kubeconfig, pods = here.recv()
        began = time.monotonic()
        command = [sys.executable, "-m", "vc_egpu.cli.kubectl", "ui", "--kubeconfig", kubeconfig]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            link = re.search(r"http://\S+", process.stdout.readline())
            assert link is not None
            start_ms = (time.monotonic() - began) * 1000
            with browser.page() as page:
                found = looked_at(page, link[0], nodes, here, process.pid)
                found["browser_mib"] = round(page.run("performance.memory.usedJSHeapSize / 1048576"), 1)
            found["server_mib"] = round(peak_mib(process.pid), 1)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            here.send(None)
            server.join(10)
    return {"nodes": nodes, "cards": nodes * CARDS, "pods": pods, "start_ms": round(start_ms), **found}


def looked_at(page: Page, link: str, nodes: int, api: Connection, pid: int) -> dict[str, Any]:
    label = "document.querySelector('canvas')?.getAttribute('aria-label')"
    wanted = f"'{nodes * CARDS:,} cards on {nodes:,} nodes'"
    began = time.monotonic()
    page.open(link)
    page.until(f"{label}?.startsWith({wanted}) && document.documentElement.dataset.painted", PATIENCE_S)
    open_ms = (time.monotonic() - began) * 1000
    page.until(READ, PATIENCE_S)
    read_ms = (time.monotonic() - began) * 1000
    server_cpu_s = cpu_s(pid)
    time.sleep(3.0)  # nothing else is painted meanwhile
    updates = []
    for number in range(UPDATES):
        page.run(f"window.painted = {PAINTED}; 0")
        api.send(number)
        put_at = api.recv()
        updates.append(page.run("window.painted") - put_at)
        time.sleep(0.5)
    return {
        "open_ms": round(open_ms),
        "read_ms": round(read_ms),
        "server_cpu_s": round(server_cpu_s, 1),
        "update_ms": {"p50": round(statistics.median(updates)), "most": round(max(updates))},
    }


def cpu_s(pid: int) -> float:
    """What it has used so far, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    """Measure each size."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    flags.add_argument("--sharers", type=float, default=4.5, help="mean number of pods that ask for a card")
    options = flags.parse_args()
    with chromium() as browser:
        sizes = [measure(browser, nodes, options.sharers) for nodes in options.nodes]
    load, _, _ = os.getloadavg()
    machine = {"cores": os.cpu_count(), "load": round(load, 1), "python": platform.python_version()}
    print(
        json.dumps(
            {"bench": "page", "date": str(datetime.now(UTC).date()), "machine": machine, "sizes": sizes}
        )
    )


if __name__ == "__main__":
    main()
