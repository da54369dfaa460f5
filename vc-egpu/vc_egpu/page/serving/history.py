"""The past of a card, a queue or a job's pods, from Prometheus: fixed questions, for what the user may see.

Prometheus is asked with no rights of the user. So the past of a card is for users that may list nodes. That
of a queue is for users that may list queues, and that of a pod for users that may list pods in its namespace.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from vc_egpu.page.cluster.live import LiveCluster
from vc_egpu.page.cluster.scope import Scope
from vc_egpu.volcano.api.paths import problem_of

HOURS: Final = frozenset({1, 6, 24, 168})
POINTS: Final = 240
TIMEOUT_S: Final = 10.0
MOST_BYTES: Final = 4 * 1024 * 1024
MOST_SERIES: Final = 20

Answer = tuple[int, Any]
"""HTTP status, and the document or what is wrong."""

_CARD: Final = {
    "memory": (
        'max(egpu_card_memory_allocated_bytes{{node="{node}",index="{index}"}})'
        ' / max(egpu_card_memory_bytes{{node="{node}",index="{index}"}})'
    ),
    "cores": 'max(egpu_card_cores_allocated_ratio{{node="{node}",index="{index}"}})',
    "sharers": 'max(egpu_card_sharers{{node="{node}",index="{index}"}})',
}
_QUEUE: Final = {
    "used": 'max by (resource) (egpu_queue_used{{queue="{queue}"}})',
    "waiting": 'sum(max by (reason, class) (egpu_queue_waiting_gangs{{queue="{queue}"}}))',
}
_POD: Final = {
    "memory": 'sum(egpu_node_container_memory_used_bytes{{namespace="{namespace}",pod="{pod}"}})',
    "cores": (
        'sum(rate(egpu_node_container_compute_used_seconds_total{{namespace="{namespace}",pod="{pod}"}}[5m]))'
    ),
}


class History:
    """Asks one Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query_range"
        self._pool = urllib3.PoolManager(maxsize=4, block=True, timeout=TIMEOUT_S, retries=False)

    def answer(self, live: LiveCluster, query: Mapping[str, str]) -> Answer:
        """What the page asks for: ``of`` is card, queue or pod."""
        scope = live.scope
        if scope is None:
            return 503, "what you may see is not known yet"
        status, found = questions(scope, query)
        if status != 200:
            return status, found
        hours = int(query.get("hours", "6"))
        try:
            return 200, {name: self._series(text, hours) for name, text in found.items()}
        except (HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            return 502, f"Prometheus did not answer: {type(error).__name__}"

    def _series(self, text: str, hours: int) -> list[Any]:
        end_s = int(time.time())
        step_s = max(15, hours * 3600 // POINTS)
        fields = {
            "query": text,
            "start": str(end_s - hours * 3600),
            "end": str(end_s),
            "step": str(step_s),
            "timeout": f"{TIMEOUT_S:.0f}s",
        }
        answer = self._pool.request("GET", self._url, fields=fields, redirect=False, preload_content=False)
        try:
            data = answer.read(MOST_BYTES + 1)
        finally:
            answer.release_conn()
        if answer.status != 200 or len(data) > MOST_BYTES:
            raise ValueError(f"status {answer.status}, {len(data)} bytes")
        result = orjson.loads(data)["data"]["result"]
        return [
            {
                "labels": {str(key): str(value)[:128] for key, value in one["metric"].items()},
                "points": [[float(at), _number(value)] for at, value in one["values"][: 2 * POINTS]],
            }
            for one in result[:MOST_SERIES]
        ]


def questions(scope: Scope, query: Mapping[str, str]) -> Answer:
    """Status 200 and PromQL by name; or a refusal. No text of the user becomes more than a label's value."""
    if query.get("hours", "6") not in {str(hours) for hours in HOURS}:
        return 400, "hours may be 1, 6, 24 or 168"
    match query.get("of"):
        case "card":
            may = bool(scope.places["nodes"])
            return _asked(_CARD, query, ("node", "index"), may=may)
        case "queue":
            return _asked(_QUEUE, query, ("queue",), may=bool(scope.places["queues"]))
        case "pod":
            may = scope.is_whole("pods") or query.get("namespace") in scope.places["pods"]
            return _asked(_POD, query, ("namespace", "pod"), may=may)
        case _:
            return 400, "of what?"


def _asked(
    texts: Mapping[str, str], query: Mapping[str, str], wanted: tuple[str, ...], *, may: bool
) -> Answer:
    values = {name: query.get(name, "") for name in wanted}
    if any(map(_is_bad, values.values())):
        return 400, f"{' and '.join(wanted)} are wanted"
    if not may:
        return 403, "you may not see that"
    return 200, {name: text.format(**values) for name, text in texts.items()}


def _is_bad(name: str) -> bool:
    """Names of objects have no quotes and no backslashes; what might have is not asked for."""
    return bool(problem_of(name)) or not all(letter.isalnum() or letter in "-._" for letter in name)


def _number(text: str) -> float | None:
    """NaN and infinities cannot stand in JSON."""
    value = float(text)
    return value if value - value == 0 else None
