"""A live copy of what one user sees: watches with the user's own rights, and what changed for its tabs.

Nodes are read first, so that cards are there at once; then queues, gangs and pods. One thread makes the rows
and tells the change to all subscribers as one message. Each message has a number, and a state has the number
of the last change in it. A subscriber that missed one takes a fresh state.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

import orjson

from vc_egpu.cli.views.cards import model_table
from vc_egpu.kube import ApiConnection, Backoff, Change, ChangeKind, Json, Reflector
from vc_egpu.kube.wire.errors import Forbidden, KubeError, Unauthorized
from vc_egpu.page.cluster import light
from vc_egpu.page.cluster.others import AskOthers
from vc_egpu.page.cluster.pieces import CardFigures, NodePiece, Pieces
from vc_egpu.page.cluster.scope import KINDS, Scope, scope_of
from vc_egpu.report.shares import ShareRow
from vc_egpu.volcano.words import names

COMPONENT: Final = "vc-egpu-admission"
"""The source of events that tell decisions."""
MOST_DECISIONS: Final = 300
MOST_WAITING: Final = 1000
"""More are counted and not shown."""
MOST_FOUND: Final = 5000
AT_ONCE_S: Final = 0.2
"""So long are rows of nodes made before they are told: at first there are thousands."""
GATHER_S: Final = 0.05
"""So long are changes gathered before they are told as one."""
LOOK_S: Final = 1.0
"""So often is looked whether the watches are well."""
LISTS_SHARE: Final = 10.0
"""Lists of queues and gangs are made at most a tenth of the time."""
FIRST_S: Final = 20.0

_TRANSFORMS: Final = {
    "nodes": light.node,
    "queues": light.queue,
    "groups": light.group,
    "pods": light.pod,
    "events": light.event,
}
_SELECTORS: Final = {
    "pods": (f"{names.MANAGED_LABEL}=true", "status.phase!=Succeeded,status.phase!=Failed"),
    "events": (None, f"reportingComponent={COMPONENT}"),
}
"""By kind, the selectors of labels and of fields."""

OTHERS_S: Final = 15.0
"""So often is asked what others hold, while somebody looks."""

Message = bytes
Subscriber = Callable[[Message], None]
"""Called on a thread of the copy; it must not wait."""

_FIGURES: Final = attrgetter(*(field.name for field in fields(CardFigures)))

logger = logging.getLogger(__name__)


class LiveCluster:
    """What one user sees. ``namespaces`` are looked at where the user may not list all of them.

    ``others`` tells what pods hold that this user may not see; None: nothing does.
    """

    def __init__(
        self, api: ApiConnection, namespaces: tuple[str, ...] = (), others: AskOthers | None = None
    ) -> None:
        self._api = api
        self._others = others
        self._namespaces = namespaces
        self._lock = threading.Lock()
        self._woken = threading.Condition(self._lock)
        self._pending: deque[tuple[str, Change]] = deque()
        self._subscribers: dict[int, Subscriber] = {}
        self._numbers = 0
        self._stopping = threading.Event()
        self._reflectors: dict[str, list[Reflector]] = {}
        self._rows = threading.RLock()
        """Held while rows are made or read."""
        self._pieces: Pieces | None = None
        self._nodes: dict[str, bytes] = {}
        self._lists: dict[str, bytes] = {}
        self._decisions: dict[str, Json] = {}
        self._health: dict[str, Any] = {"ended": "", "kinds": {}, "error": ""}
        self._scope: Scope | None = None
        self._lists_at = float("-inf")
        self._lists_took_s = 0.0
        self._lists_due = self._more = False
        self.revision = 0
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def start(self) -> "LiveCluster":
        """Begin to read."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all watches."""
        self._stopping.set()
        with self._woken:
            self._woken.notify_all()
        if self._thread.is_alive():
            self._thread.join(10.0)
        for reflector in (one for some in self._reflectors.values() for one in some):
            reflector.stop()

    @property
    def ended(self) -> str:
        """Why this copy tells nothing any more: ``signed-out`` or ``rights``; empty while it does."""
        return str(self._health["ended"])

    @property
    def scope(self) -> Scope | None:
        """What the user may list; None until that is known."""
        return self._scope

    def subscribe(self, subscriber: Subscriber) -> int:
        """Tell this one every change from now on; returns what :meth:`unsubscribe` takes."""
        with self._lock:
            self._numbers += 1
            self._subscribers[self._numbers] = subscriber
            return self._numbers

    def unsubscribe(self, number: int) -> None:
        """Tell it no more."""
        with self._lock:
            self._subscribers.pop(number, None)

    def subscribers(self) -> int:
        """How many are told."""
        with self._lock:
            return len(self._subscribers)

    # --- what is read of it --------------------------------------------------------------------------

    def state(self) -> bytes:
        """All rows as one JSON document."""
        with self._rows:
            nodes = b",".join(self._nodes.values())
            return b"".join(
                (
                    b'{"rev":%d,"nodes":[' % self.revision,
                    nodes,
                    b'],"lists":',
                    orjson.dumps({name: orjson.Fragment(data) for name, data in self._lists.items()}),
                    b',"health":',
                    orjson.dumps(self._health),
                    b',"scope":',
                    orjson.dumps(self._scope),
                    b"}",
                )
            )

    def card(self, node: str, index: int) -> Json | None:
        """One card with the shares on it; None where there is none."""
        with self._rows:
            if self._pieces is None:
                return None
            found = self._pieces.sharers(node, index)
            if found is None:
                return None
            uuid, rows = found
            state = self._pieces.state_of(node, index)
        sharers = [_sharer(row) for row in sorted(rows, key=lambda row: (row.namespace, row.pod))]
        return {"node": node, "index": index, "uuid": uuid, "state": state, "sharers": sharers}

    def find(self, text: str) -> Json:
        """Cards on which a share has that text in its pod's, gang's or queue's name."""
        with self._rows:
            found, pods = self._pieces.find(text) if self._pieces is not None and text else ([], 0)
        return {"cards": found[:MOST_FOUND], "pods": pods}

    # --- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff = Backoff(0.5, 10.0)
        while not self._stopping.is_set():
            try:
                self._begin()
                break
            except KubeError as error:
                self._tell_health(error=str(error), ended=_end_of(error))
                if self.ended:
                    return
                self._stopping.wait(backoff.next_s())
            except Exception:
                logger.exception("the page's copy could not begin")
                self._stopping.wait(backoff.next_s())
        while not self._stopping.is_set():
            try:
                self._turn()
            except Exception:
                logger.exception("the page's copy failed at a change")
                self._stopping.wait(LOOK_S)

    def _begin(self) -> None:
        scope = scope_of(self._api, self._namespaces)
        table = model_table(self._api)
        with self._rows:
            self._scope = scope
            self._pieces = Pieces(table)
        self._publish({"scope": scope})
        if self._others is not None and not scope.is_whole("pods"):
            threading.Thread(target=self._follow_others, args=(self._others, scope), daemon=True).start()
        for kind in KINDS:
            self._watch(kind, scope)
            if kind == "nodes":
                self._first(kind)

    def _follow_others(self, ask: AskOthers, scope: Scope) -> None:
        """Ask again and again, first at once. What could not be asked is not known any more."""
        places = tuple(filter(None, scope.places["pods"]))
        while not self._stopping.is_set():
            found = ask(places)
            with self._rows:
                if self._pieces is not None:
                    self._pieces.put_others(found)
            with self._woken:
                self._more = True
                self._woken.notify()
            self._stopping.wait(OTHERS_S)
            while not self.subscribers() and not self._stopping.wait(LOOK_S):
                pass

    def _first(self, kind: str) -> None:
        """Show what is there of a kind before others are read."""
        until = time.monotonic() + FIRST_S
        while not self._stopping.is_set() and time.monotonic() < until:
            if all(one.synced.is_set() or one.failure() for one in self._reflectors[kind]):
                break
            self._turn()
        self._turn()

    def _watch(self, kind: str, scope: Scope) -> None:
        api = self._api.metadata_only() if kind == "pods" else self._api
        labels, chosen = _SELECTORS.get(kind, (None, None))

        def told(change: Change) -> None:
            with self._woken:
                self._pending.append((kind, change))
                self._woken.notify()

        self._reflectors[kind] = [
            Reflector(
                api,
                KINDS[kind],
                told,
                namespace=place,
                transform=_TRANSFORMS[kind],
                backoff=Backoff(0.2, 5.0),
                label_selector=labels,
                field_selector=chosen,
            ).start()
            for place in scope.places[kind]
        ]

    def _turn(self) -> None:
        """Wait for a change, gather what comes with it, and tell it."""
        with self._woken:
            if not (self._pending or self._more):
                self._woken.wait(self._pause_s())
            some = bool(self._pending)
        if some:
            self._stopping.wait(GATHER_S)
        health = self._fresh_health()  # what it calls read is among the changes then
        with self._lock:
            changes, self._pending = self._pending, deque()
        told: dict[str, Any] = {}
        with self._rows:
            for kind, change in changes:
                self._apply(kind, change)
            if nodes := self._changed_nodes():
                told["nodes"] = nodes
            told |= self._changed_lists()
            if health != self._health and not self._more:
                self._health = told["health"] = health
        if told:
            self._publish(told)

    def _pause_s(self) -> float:
        return min(LOOK_S, max(0.0, self._lists_again_at() - time.monotonic())) if self._lists_due else LOOK_S

    def _lists_again_at(self) -> float:
        return self._lists_at + LISTS_SHARE * self._lists_took_s

    def _apply(self, kind: str, change: Change) -> None:
        pieces, document = self._pieces, change.object
        if pieces is None:
            return
        gone = change.kind is ChangeKind.DELETED
        metadata = document["metadata"]
        match kind:
            case "nodes":
                pieces.drop_node(metadata["name"]) if gone else pieces.put_node(document)
            case "pods" if gone:
                pieces.drop_pod(metadata["uid"])
            case "pods" if light.POD in document:
                pieces.put_pod(document)
            case "groups":
                key = f"{metadata['namespace']}/{metadata['name']}"
                pieces.drop_group(key) if gone else pieces.put_group(document)
            case "queues":
                self._lists_due = True
                pieces.drop_queue(metadata["name"]) if gone else pieces.put_queue(document)
            case "events" if not gone and "row" in document:
                self._decisions[metadata["uid"]] = document["row"]
                self._lists_due = True

    def _changed_nodes(self) -> list[Any]:
        """Nodes whose rows are others now; one without cards now is told by its name alone."""
        if self._pieces is None:
            return []
        told: list[Any] = []
        until, self._more = time.monotonic() + AT_ONCE_S, False
        for name, piece in self._pieces.changed_nodes():
            if piece is None:
                if self._nodes.pop(name, None) is not None:
                    told.append([name])
                continue
            data = _node_json(piece)
            if self._nodes.get(name) != data:
                self._nodes[name] = data
                told.append(orjson.Fragment(data))
            if time.monotonic() > until:
                self._more = True
                break
        return told

    def _changed_lists(self) -> dict[str, Any]:
        pieces, scope = self._pieces, self._scope
        if pieces is None or scope is None:
            return {}
        self._lists_due = bool(pieces.changed_gangs()) or self._lists_due
        began = time.monotonic()
        if not self._lists_due or began < self._lists_again_at():
            return {}
        self._lists_due = False
        partial = not (scope.is_whole("pods") and scope.is_whole("groups"))
        self._keep_latest()
        waiting = pieces.waiting()
        fresh = {
            "queues": orjson.dumps(pieces.queues(partial=partial).queues, option=orjson.OPT_NON_STR_KEYS),
            "waiting": orjson.dumps({"count": len(waiting), "rows": waiting[:MOST_WAITING]}),
            "decisions": orjson.dumps(sorted(self._decisions.values(), key=_at, reverse=True)),
        }
        changed = {name: data for name, data in fresh.items() if self._lists.get(name) != data}
        self._lists = fresh
        self._lists_at = time.monotonic()
        self._lists_took_s = self._lists_at - began
        return {"lists": {name: orjson.Fragment(data) for name, data in changed.items()}} if changed else {}

    def _keep_latest(self) -> None:
        if len(self._decisions) > MOST_DECISIONS:
            latest = sorted(self._decisions.items(), key=lambda pair: _at(pair[1]))[-MOST_DECISIONS:]
            self._decisions = dict(latest)

    def _fresh_health(self) -> dict[str, Any]:
        kinds: dict[str, Json] = {}
        ended = ""
        for kind, some in self._reflectors.items():
            failures = [found for one in some if (found := one.failure()) is not None]
            synced = all(one.synced.is_set() for one in some)
            kinds[kind] = {"synced": synced, "error": str(failures[0])[:512] if failures else ""}
            ended = ended or next(filter(None, map(_end_of, failures)), "")
        return {"ended": ended, "kinds": kinds, "error": ""}

    def _tell_health(self, *, error: str, ended: str) -> None:
        with self._rows:
            self._health = {"ended": ended, "kinds": {}, "error": error[:512]}
        self._publish({"health": self._health})

    def _publish(self, told: dict[str, Any]) -> None:
        with self._rows:
            self.revision += 1
            revision = self.revision
        message = orjson.dumps({"rev": revision, **told}, option=orjson.OPT_NON_STR_KEYS)
        with self._lock:
            subscribers = list(self._subscribers.values())
        for subscriber in subscribers:
            subscriber(message)


def _end_of(error: Exception) -> str:
    """What this failure means for the whole copy; rights that were taken away end it."""
    if isinstance(error, Unauthorized):
        return "signed-out"
    return "rights" if isinstance(error, Forbidden) else ""


def _node_json(piece: NodePiece) -> bytes:
    """``[name, problem, cards]``; the figures of each card stand in the order of their fields."""
    return orjson.dumps([piece.name, piece.problem, [_FIGURES(card) for card in piece.cards]])


def _at(row: Json) -> str:
    return str(row["at"])


def _sharer(row: ShareRow) -> Json:
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "container": row.container,
        "queue": row.queue or "",
        "gang": row.gang or "",
        "class": row.share_class.name.lower() if row.share_class is not None else "unset",
        "memory_mib": row.memory_mib,
        "on_card_mib": row.occupies_mib,
        "cores_percent": row.cores_percent,
        "suspension": row.suspension.value,
        "ending": row.phase.name == "TERMINATING",
    }
