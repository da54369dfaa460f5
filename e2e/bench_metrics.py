"""What a scrape of a big leader costs, and what it costs the decisions. Prints one JSON object at its end.

    python e2e/bench_metrics.py [--nodes 5000] [--cards 8] [--shares 140000] [--waiting 1000]
                                [--seconds 60] [--every 15] [--rate 5]

One thread decides for gangs of 8 that come and go, ``--rate`` times a second, and answers requests for a view
between two decisions, as the controller's loop does. It does so for ``--seconds`` without scrapes, and for as
long while another process fetches all pages each ``--every`` seconds. No cluster is used.

``first_s`` are the first scrapes, which render everything. ``page_s`` are the slowest of the later ones, with
transfer. ``first_cpu_ms`` and ``cpu_ms`` are the processor's time of the same. ``decide_*`` are times of
decisions. ``more_mib`` is what the pages and what they follow add to the memory of the process.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue

from bench_decide import GANG, H20_MIB, carry_out, percentile, shape, submit
from vc_egpu import threads
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.admission.serving.metrics import Level1
from vc_egpu.admission.view import View, ViewRequest
from vc_egpu.core.books.state import ClusterState, index_of
from vc_egpu.core.model.cluster import (
    Card,
    CardId,
    Gang,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    Resources,
    Share,
    ShareClass,
)
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.kube.server import Answer, GetServer, Request

QUEUES = 50
SHARE_MIB, SHARE_CORES = 16384, 15
MIXED = (ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH)

CLIENT = """
import gzip, http.client, io, json, sys, time
port, every_s = int(sys.argv[1]), float(sys.argv[2])
while True:
    for path in sys.argv[3:]:
        began = time.perf_counter()
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        link.request("GET", path, headers={"Accept-Encoding": "gzip"})
        answer = link.getresponse()
        body = answer.read()
        took = time.perf_counter() - began
        packed = answer.getheader("Content-Encoding") == "gzip"
        text = gzip.GzipFile(fileobj=io.BytesIO(body)).read() if packed else body
        series = text.count(b"\\n") - text.count(b"\\n# ") - 1
        print(json.dumps([path, took, len(body), len(text), series]), flush=True)
    time.sleep(every_s)
"""


def rss_mib() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


def uid_of(number: int) -> str:
    return f"GPU-{number:08x}-5d1c-4f0a-9b7e-{number:012x}"


def fill(state: ClusterState, nodes: int, cards: int, shares: int) -> None:
    """Nodes, queues, and gangs of 8 whose members hold one share each."""
    for number in range(QUEUES):
        amounts = {"volcano.sh/vgpu-h20": 10**6, "volcano.sh/vgpu-h20-memory": 10**12, "cpu": 10**9}
        state.put_queue(Queue(QueueName(f"team-{number}"), capability=amounts, deserved=amounts))
    state.put_queue(Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": 10**9}))
    for number in range(nodes):
        name = NodeName(f"gpu-node-{number:05d}.example")
        cards_of = tuple(
            Card(CardId(uid_of(number * cards + index)), index, "h20", H20_MIB) for index in range(cards)
        )
        state.put_node(Node(name, Resources(256_000, 2 << 40, 0, 250), cards=cards_of))
    asks = shape(SHARE_MIB, SHARE_CORES)
    for number in range(shares):
        gang = number // GANG
        key = f"team-{gang % QUEUES}/training-{gang}"
        if number % GANG == 0:
            queue = QueueName(f"team-{gang % QUEUES}")
            state.put_gang(Gang(key, key, queue, MIXED[gang % 3], 0, GANG, float(number)))
        card = number % (nodes * cards)
        share = Share(CardId(uid_of(card)), SHARE_MIB, SHARE_CORES)
        where = NodeName(f"gpu-node-{card // cards:05d}.example")
        called = f"training-{gang}-worker-{number % GANG}"
        pod = Pod(PodUid(f"uid-{number}"), key.partition("/")[0], called, asks, PodPhase.PLACED, where, key)
        state.put_pod(replace(pod, task="worker", index=number % GANG, shares=(("main", share),)))


@dataclass(slots=True)
class Leader:
    """Decides and answers, on the thread that calls :meth:`run`."""

    state: ClusterState
    verdicts: dict[str, Verdict]
    collector: Collector
    requests: SimpleQueue[ViewRequest] = field(default_factory=SimpleQueue)
    turn: int = 0
    resting: threading.Event = field(default_factory=threading.Event)

    def view(self) -> View | None:
        """For other threads."""
        request = ViewRequest()
        self.requests.put(request)
        request.answered.wait(60)
        return request.view

    def run(self, seconds: float, rate: float) -> list[float]:
        """Times of the decisions, in seconds."""
        times, draw, end = list[float](), random.Random(self.turn), time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            times.append(self.decide(draw))
            self._answer_until(now + 1 / rate)
        return times

    def decide(self, draw: random.Random) -> float:
        """One gang of 8 comes and one goes; seconds of the decision."""
        self.turn += 1
        key = f"ask/{self.turn}"
        memory_mib, cores = draw.choice([(2048, 1), (4096, 2), (8192, 5)])
        submit(self.state, key, shape(memory_mib, cores), draw.choice(MIXED), created=1e6 + self.turn)
        self.resting.clear()
        took = carry_out(self.state, key, self.turn, self.collector)
        self._end(self.turn - 200)
        return took

    def _end(self, turn: int) -> None:
        for index in range(GANG if turn > 0 else 0):
            self.state.remove_pod(PodUid(f"ask/{turn}-{index}"))
        self.state.remove_gang(f"ask/{turn}")

    def _answer_until(self, at: float) -> None:
        """At least what is asked already: the loop takes in all that came before it decides again."""
        while True:
            self.resting.set()
            try:
                request = self.requests.get(timeout=max(1e-6, at - time.monotonic()))
            except Empty:
                return
            snapshot = self.state.snapshot(self.turn)
            used = {name: dict(of) for name, of in index_of(snapshot).uses.total.items()}
            request.view = View(snapshot, self.verdicts, {}, 1, admitting=True, used=used)
            request.answered.set()


def scrapes(lines: Iterator[str]) -> dict[str, list[list[float]]]:
    """(seconds, bytes, bytes of text, series) of each scrape, by page."""
    found: dict[str, list[list[float]]] = {}
    for line in lines:
        path, *figures = json.loads(line)
        found.setdefault(path, []).append(figures)
    return found


def later(times: list[list[float]], percent: float) -> float | None:
    """Seconds of the scrapes after the first; None: there were none."""
    seconds = [one[0] for one in times[1:]]
    return round(percentile(seconds, percent), 3) if seconds else None


def with_sizes(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The flags of :func:`busy`."""
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--shares", type=int, default=140_000)
    parser.add_argument("--waiting", type=int, default=1000)
    return parser


def parsed() -> argparse.Namespace:
    """The flags."""
    parser = with_sizes(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=5.0)
    return parser.parse_args()


def busy(
    arguments: argparse.Namespace, collector: Collector, name: Callable[[int], str]
) -> tuple[ClusterState, dict[str, Verdict], "Leader"]:
    """A full cluster, its waiting gangs of these names, what is said of them, and its leader."""
    state = ClusterState({"h20": H20_MIB})
    collector.begin()
    fill(state, arguments.nodes, arguments.cards, arguments.shares)
    verdicts = {}
    for number in range(arguments.waiting):
        submit(state, name(number), shape(H20_MIB, 100, 8), ShareClass.UNSET, created=1e5 + number)
        verdicts[name(number)] = Verdict(Reason.WAITING_FOR_CARDS, "no card is free")
    return state, verdicts, Leader(state, verdicts, collector)


def main() -> None:
    arguments, collector = parsed(), Collector()
    threads.take_short_turns()
    _, _, leader = busy(arguments, collector, lambda number: f"wait/{number}")
    leader.run(2.0, arguments.rate)
    collector.loaded(time.monotonic())
    alone = leader.run(arguments.seconds, arguments.rate)

    before_mib = rss_mib()
    level1 = Level1(leader.view, rests=leader.resting.wait)
    level1.start()

    cpu_s: dict[str, list[float]] = {}

    def answer(request: Request) -> Answer:
        packed, began_s = request.path != "/metrics", time.thread_time()
        body = level1.answer(request.path, gzip=packed)
        cpu_s.setdefault(request.path, []).append(time.thread_time() - began_s)
        return Answer(200, body, encoding="gzip" if packed else "")

    server = GetServer(("127.0.0.1", 0), answer).start()
    argv = [sys.executable, "-c", CLIENT, str(server.port), str(arguments.every), *level1.paths]
    client = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(client.stdout or ()), daemon=True)
    reader.start()
    first = list[float]()
    while len(scrapes(iter(lines))) < len(level1.paths):
        first += leader.run(1.0, arguments.rate)
    scraped = leader.run(arguments.seconds, arguments.rate)
    client.terminate()
    client.wait()
    reader.join(5)
    server.stop()
    level1.stop()
    found = scrapes(iter(lines))
    print(
        json.dumps(
            {
                "nodes": arguments.nodes,
                "cards": arguments.nodes * arguments.cards,
                "shares": arguments.shares,
                "waiting": arguments.waiting,
                "scrapes": {path: len(times) for path, times in found.items()},
                "first_s": {path: round(times[0][0], 3) for path, times in found.items()},
                "page_s": {path: later(times, 100) for path, times in found.items()},
                "page_median_s": {path: later(times, 50) for path, times in found.items()},
                "first_cpu_ms": {path: round(1000 * taken[0], 1) for path, taken in cpu_s.items()},
                "cpu_ms": {path: round(1000 * max(taken[1:] or taken), 1) for path, taken in cpu_s.items()},
                "sent_mib": {path: round(times[-1][1] / (1 << 20), 2) for path, times in found.items()},
                "text_mib": {path: round(times[-1][2] / (1 << 20), 2) for path, times in found.items()},
                "series": {path: int(times[-1][3]) for path, times in found.items()},
                "decide_p50_ms": round(1000 * percentile(alone, 50), 3),
                "decide_p99_ms": round(1000 * percentile(alone, 99), 3),
                "decide_first_p99_ms": round(1000 * percentile(first, 99), 3),
                "decide_scraped_p50_ms": round(1000 * percentile(scraped, 50), 3),
                "decide_scraped_p99_ms": round(1000 * percentile(scraped, 99), 3),
                "decisions": [len(alone), len(scraped)],
                "more_mib": round(rss_mib() - before_mib, 1),
                "rss_mib": round(rss_mib(), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
