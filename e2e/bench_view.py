"""What one answer of ``/v1/view`` takes on a big cluster. Prints one JSON object at its end.

    python e2e/bench_view.py [--nodes 5000] [--cards 8] [--shares 140000] [--waiting 1000]
                             [--views 10] [--gangs 50]

Readers ask by turns: one that sees everything, and one that sees the work of one namespace and numbers of
others. Between two answers to the same reader ``--gangs`` gangs of 8 have come and as many have gone. No
cluster is used, and the API server is not asked what the reader may see.

``first_s`` is the first answer of all, which looks at every pod. ``view_s`` and ``cpu_s`` are the median and
the longest of the later ones, by the clock and by the processor's time of the thread. ``mib`` is the answer's
size, before and after it is packed.
"""

import argparse
import gzip
import json
import random
import time
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from bench_metrics import busy, rss_mib, with_sizes
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.admission.serving.callers import Callers, Operator, Reader
from vc_egpu.admission.serving.redacted.edge import ViewEdge
from vc_egpu.admission.view import View
from vc_egpu.core.books.state import index_of
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.server import Request
from vc_egpu.kube.wire.limits import TokenBucket

TEAM: Final = "team-3"


@dataclass(slots=True)
class OneTeam:
    """Sees its own namespace, and the names of nodes."""

    name: str = ""
    """Readers without a name may ask as often as they like."""
    is_short: bool = False

    def sees(self, namespace: str) -> bool:
        return namespace == TEAM

    def may_submit(self, namespace: str) -> bool:
        return namespace == TEAM

    def lists(self, _resource: Resource) -> bool:
        return True


class Known(Callers):
    """Readers that no API server has to be asked about."""

    def __init__(self) -> None:
        pass

    def reader(self, request: Request) -> Reader | None:
        return OneTeam() if request.authorization else Operator()


def request(authorization: str) -> Request:
    query = f"namespaces={TEAM}" if authorization else ""
    return Request("/v1/view", "127.0.0.1", authorization, query=query, takes_gzip=True)


def rounded(times: list[float]) -> list[float]:
    return [round(median(times), 3), round(max(times), 3)]


def parsed() -> argparse.Namespace:
    parser = with_sizes(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--views", type=int, default=10)
    parser.add_argument("--gangs", type=int, default=50)
    return parser.parse_args()


def main() -> None:
    arguments, collector = parsed(), Collector()
    state, verdicts, leader = busy(arguments, collector, lambda number: f"team-{number % 50}/wait-{number}")
    collector.loaded(time.monotonic())

    def view() -> View:
        snapshot = state.snapshot(leader.turn)
        used = {name: dict(of) for name, of in index_of(snapshot).uses.total.items()}
        return View(snapshot, verdicts, {}, 1, admitting=True, used=used)

    now, draw = list[View](), random.Random(3)
    edge = ViewEdge(Known(), lambda: now[-1], views=TokenBucket(1e6, 1_000_000), limit_s=600)
    found: dict[str, list[tuple[float, float, int, int]]] = {"everything": [], "one_namespace": []}
    for _ in range(arguments.views + 1):
        for name, authorization in (("everything", ""), ("one_namespace", "Bearer one")):
            for _ in range(arguments.gangs // 2):
                leader.decide(draw)
            now[:] = [view()]
            began, began_cpu = time.perf_counter(), time.thread_time()
            answer = edge.answer(request(authorization))
            took = time.perf_counter() - began, time.thread_time() - began_cpu
            assert answer.status == 200, answer.body
            size = len(gzip.decompress(answer.body))
            found[name].append((*took, size, len(answer.body)))
    report: dict[str, Any] = {
        "nodes": arguments.nodes,
        "cards": arguments.nodes * arguments.cards,
        "shares": arguments.shares,
        "waiting": arguments.waiting,
        "first_s": round(found["everything"][0][0], 3),
        "first_cpu_s": round(found["everything"][0][1], 3),
        "rss_mib": round(rss_mib(), 1),
    }
    for name, answers in found.items():
        later = answers[1:]
        mib = [round(size / (1 << 20), 2) for size in later[-1][2:]]
        report[name] = {
            "view_s": rounded([one[0] for one in later]),
            "cpu_s": rounded([one[1] for one in later]),
            "mib": mib,
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
