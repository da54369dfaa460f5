"""How long the admission controller takes to take over a large cluster, and how much memory it needs.

    python e2e/bench_takeover.py [--nodes 5000] [--foreign-per-node 20] [--managed 40000]

The controller is the product's own process; the API server is a stand-in that lists the cluster page by page
and keeps quiet afterwards (a real one would take the machine's memory). Prints one JSON object as its last
line: ``takeover_s`` from the process's start until it leads with everything read, of which the stand-in took
``api_server_cpu_s``; ``rss_mib`` afterwards and ``rss_most_mib`` on the way; ``idle_cpu_percent`` of one core
while nothing happens then.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from bench.big_cluster import MODELS, BigCluster

LEADS = re.compile(r"epoch \d+: (\d+) pods, (\d+) gangs")
LIMIT_S = 600.0
SETTLE_S, IDLE_S = 5.0, 20.0


def handler_for(cluster: BigCluster, over: threading.Event) -> type[BaseHTTPRequestHandler]:
    """Lists by ``limit`` and ``continue``; watches that say nothing; no other request is known."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            if query.get("watch") == "true":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                over.wait()
                return
            plural = url.path.rsplit("/", 1)[1]
            first, limit = int(query.get("continue", 0)), int(query.get("limit", 1 << 40))
            left = cluster.counts().get(plural, 0) - first - limit
            more = f',"continue":"{first + limit}"' if left > 0 else ""
            head = f'{{"metadata":{{"resourceVersion":"9"{more}}},"items":['.encode()
            self._answer(head + b",".join(cluster.page(plural, first, limit)) + b"]}")

        def do_PATCH(self) -> None:  # of any pod: for bench.informers
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(cluster.object("pods", 0))

        def do_POST(self) -> None:  # events
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(b"{}")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def status_of(pid: int) -> tuple[float, float]:
    """(memory now, the most so far) of a process in MiB."""
    fields = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M))
    return int(fields["VmRSS"]) / 1024, int(fields["VmHWM"]) / 1024


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_percent(pid: int) -> float:
    """Of one core, once what taking over left behind is done."""
    time.sleep(SETTLE_S)
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(IDLE_S)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    return path


@contextmanager
def stand_in(cluster: BigCluster) -> Iterator[str]:
    """The URL of a server that lists the cluster."""
    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(cluster, over))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()


def clients(cluster: BigCluster, folder: Path) -> list[dict[str, float | int | str]]:
    """What listing all pods, and patching one, costs our client and the official package's."""
    found = []
    with stand_in(cluster) as url:
        for side in ("ours", "official"):
            command = [sys.executable, "-m", "bench.informers", side, str(kubeconfig(folder, url))]
            told = subprocess.run(
                [*command, str(cluster.counts()["pods"])],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            found.append(json.loads(told.stdout))
            print(f"{side}: {told.stdout.strip()}", file=sys.stderr)
    return found


def measure(cluster: BigCluster, folder: Path, url: str) -> dict[str, float | int]:
    models = folder / "models.yaml"
    models.write_text(MODELS)
    own_cpu_s = time.process_time()
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "vc_egpu.cli.main", "admission", "--no-leader-elect", "--port", "-1",
         "--models", str(models), "--kubeconfig", str(kubeconfig(folder, url))],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    stop = threading.Timer(LIMIT_S, process.kill)
    stop.start()
    try:
        assert process.stderr is not None
        found = None
        for line in process.stderr:
            if found := LEADS.search(line):
                break
            print(line, end="", file=sys.stderr)
        took_s = time.monotonic() - began
        if found is None:
            raise SystemExit(f"it did not take over within {LIMIT_S:.0f} s")
        pods, gangs = map(int, found.groups())
        if (pods, gangs) != (cluster.counts()["pods"], cluster.counts()["podgroups"]):
            raise SystemExit(f"it read {pods} pods and {gangs} gangs of {cluster.counts()}")
        idle = idle_percent(process.pid)
        rss_mib, most_mib = status_of(process.pid)
    finally:
        stop.cancel()
        process.terminate()
        process.wait()
    return {
        "takeover_s": round(took_s, 1),
        "api_server_cpu_s": round(time.process_time() - own_cpu_s, 1),
        "rss_mib": round(rss_mib),
        "rss_most_mib": round(most_mib),
        "idle_cpu_percent": round(idle, 1),
        "pods": pods,
        "gangs": gangs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--foreign-per-node", type=int, default=20)
    parser.add_argument("--managed", type=int, default=40_000)
    parser.add_argument(
        "--clients", action="store_true", help="compare our client with the official one instead"
    )
    arguments = parser.parse_args()
    cluster = BigCluster(arguments.nodes, arguments.foreign_per_node, arguments.managed)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.clients:
            print(
                json.dumps({"clients": clients(cluster, Path(folder)), "python": platform.python_version()})
            )
            return
        with stand_in(cluster) as url:
            result = measure(cluster, Path(folder), url)
    result |= {"nodes": arguments.nodes, "cores": os.cpu_count() or 0}
    print(json.dumps({**result, "python": platform.python_version()}))


if __name__ == "__main__":
    main()
