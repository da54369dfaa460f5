"""Suspends and resumes the low pods of this node as the admission layer orders, and says how far each is.

One thread looks at the pods each time processes were read, or an order came or went. What takes long (the
helper, waiting for room) runs on other threads, one per pod. Records on disk come before deeds, so that the
next agent finishes or undoes what this one began.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError
from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.files import write_atomically
from vc_egpu_node.suspension import machine
from vc_egpu_node.suspension.facts import LowPod, NodeState
from vc_egpu_node.suspension.machine import Action, Record
from vc_egpu_node.suspension.verdict import Verdict
from vc_egpu_node.suspension.work import Outcome, Result, Worker

log = logging.getLogger(__name__)

AT_ONCE: Final = 256
"""More than pods of a node: one that waits for room must not keep from leaving the one that makes it."""
IDLE_S: Final = 10.0
EVENTS: Final = {
    Result.SUSPENDED: ("Normal", "LeftCards"),
    Result.RESUMED: ("Normal", "BackOnCards"),
    Result.UNDONE: ("Warning", "NotSuspended"),
    Result.FAILED: ("Warning", "ResumeFailed"),
}
"""Type and reason of the pod's event: what was done here. Why, and for whom, is the admission controller's to
tell, and its events have other reasons."""


class World(Protocol):
    """What is around: see :class:`vc_egpu_node.suspension.world.NodeWorld`."""

    def pods(self) -> Mapping[str, LowPod] | None:
        """The low pods here, by UID; None: not known yet."""

    def is_here(self, pod_uid: str) -> bool:
        """Whether it still is on this node and has not ended, whatever is known of its cards."""

    def state(self) -> NodeState:
        """The node's state; suspended pods are not counted in it yet."""

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        """Whether it can be suspended."""

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        """Let its launches wait, or go on."""

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        """An event of the pod."""

    def publish(self, text: str) -> None:
        """Onto the Node, unless it says so already. Raises ``KubeError``."""


@dataclass(frozen=True, slots=True)
class SuspendedPod:
    """For metrics."""

    namespace: str
    pod: str
    state: SuspensionState
    suspended_s: float
    host_mib: int


class Store:
    """A file per pod that is or was suspended."""

    def __init__(self, folder: Path) -> None:
        """Raises ``OSError``."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def all(self) -> dict[str, Record]:
        """By pod UID. A record that cannot be read is set aside, and its pod counts as one that was being
        suspended. Whether it is away is not known; its order, or the lack of one, says what is to be done."""
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            try:
                record = Record.of_document(json.loads(path.read_text(encoding="utf-8")))
                if path.name != f"{record.pod_uid}.json":
                    raise ValueError(f"names pod {record.pod_uid}")
                found[record.pod_uid] = record
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.exception("%s is broken and set aside", path, exc_info=error)
                path.replace(path.with_suffix(".broken"))
                found[path.stem] = machine.unreadable(path.stem)
                with suppress(OSError):  # said above; until something else is written it holds for this agent
                    self.put(found[path.stem])
        return found

    def put(self, record: Record) -> None:
        """Durable when this returns. Raises ``OSError``."""
        text = json.dumps(record.document())
        write_atomically(self._folder / f"{record.pod_uid}.json", text, flush=True)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        (self._folder / f"{uid}.json").unlink(missing_ok=True)


class Suspender:
    """See the module. ``look`` is called by its own thread, or by a test."""

    def __init__(
        self,
        world: World,
        worker: Worker,
        store: Store,
        policy: Callable[[], Policy],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._world = world
        self._worker = worker
        self._store = store
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._records = {uid: machine.found(record) for uid, record in store.all().items()}
        self._outcomes: list[Outcome] = []
        self._busy: set[str] = set()
        self._said: Mapping[str, PodSuspension] = {}
        self._essences: dict[str, tuple[object, ...]] = {}
        """By pod: of what is said in ``_said``."""
        self._gated: frozenset[str] = frozenset()
        """Pods whose gate is as their record says."""
        self._counted_s: Mapping[str, float] = {}
        """For how long each was suspended, as last told: clocks are set back, counters must not be."""
        self._odd: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="suspend")
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="suspensions", daemon=True)
        worker.connect(wished=self._wished, close=lambda uid: world.gate(uid, closed=True))

    def start(self) -> None:
        """Begin to look. What an earlier agent's helper was at is ended first, on this thread's own time."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is under way is left to the next agent."""
        self._stopping.set()
        self._worker.stop()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def poke(self) -> None:
        """There is something new to look at."""
        self._due.set()

    @property
    def busy(self) -> frozenset[str]:
        """UIDs of pods with which something is under way, as of the last look."""
        return frozenset(self._busy)

    def wait(self, timeout_s: float) -> bool:
        """Until there is something new to look at, or the time is over; whether there is."""
        due = self._due.wait(timeout_s)
        self._due.clear()
        return due

    def suspended(self) -> frozenset[str]:
        """UIDs of pods whose memory has left their cards."""
        with self._lock:
            records = self._records.items()
            return frozenset(uid for uid, one in records if one.state is SuspensionState.SUSPENDED)

    def booked_mib(self) -> dict[str, int]:
        """By UID: GPU memory of pods that lies on the host, or is on its way."""
        with self._lock:
            return {
                uid: one.host_mib
                for uid, one in self._records.items()
                if one.state is not SuspensionState.RUNNING
            }

    def closed(self) -> frozenset[str]:
        """UIDs of pods whose launches wait."""
        with self._lock:
            records = self._records.items()
            return frozenset(uid for uid, one in records if _waits(one))

    def pods(self) -> list[SuspendedPod]:
        """All that is or was suspended."""
        with self._lock:
            now_s, before = self._clock(), self._counted_s
            self._counted_s = {
                uid: max(one.seconds(now_s), before.get(uid, 0.0)) for uid, one in self._records.items()
            }
            return [
                SuspendedPod(one.namespace, one.pod, one.state, self._counted_s[one.pod_uid], one.host_mib)
                for one in sorted(self._records.values(), key=lambda one: one.since_s)
            ]

    def _run(self) -> None:
        try:
            self._worker.sweep()
        except Exception:
            log.exception("a fault of ours: an earlier agent's helpers are not known to have ended")
        while not self._stopping.is_set():
            try:
                self.look()
            except Exception:
                log.exception("a fault of ours in suspension; looking again")
            self.wait(IDLE_S)

    # --- one look ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what became of things, begin what is due, say how far each pod is."""
        pods = self._world.pods()
        if pods is None:
            return
        for uid in pods.keys() - self._gated:  # pages of an agent before this one
            self._world.gate(uid, closed=uid in self.closed())
        self._gated = frozenset(pods)
        self._take_in(pods)
        self._forget(pods)
        node, verdicts = self._world.state(), {}
        for uid, pod in sorted(pods.items()):
            # Each after those before it: what they take of the host is not free for this one.
            verdicts[uid] = self._world.verdict(pod, self._with_suspended(node, pods))
            if uid not in self._busy:
                self._step(pod, verdicts[uid])
        self._publish(pods, verdicts)

    def _with_suspended(self, node: NodeState, pods: Mapping[str, LowPod]) -> NodeState:
        booked, leaving = dict(node.booked_mib), set[str]()
        for uid, record in self._records.items():
            if uid in pods and record.state is not SuspensionState.RUNNING:
                booked[uid] = booked.get(uid, 0) + pods[uid].book_mib
            if uid in pods and record.state is SuspensionState.SUSPENDING:
                leaving |= {grant.name for grant in pods[uid].grants}
        return replace(node, booked_mib=booked, leaving=frozenset(leaving))

    def _step(self, pod: LowPod, verdict: Verdict) -> None:
        order, now_s = self._order(pod), self._clock()
        known = self._records.get(pod.uid) or Record(pod.uid, "", "")
        record = replace(known, namespace=pod.view.namespace, pod=pod.view.name)
        action = machine.due(record, order, verdict, now_s)
        if action is Action.REFUSE and order is not None:
            self._note(machine.refused(record, order, verdict.reason, now_s))
            self._tell(pod, Result.UNDONE, verdict.reason)
        elif action is Action.RENAME and order is not None:
            self._note(machine.renamed(record, order))
        elif action in (Action.SUSPEND, Action.RESUME):
            self._begin(pod, record, action, order)

    def _begin(self, pod: LowPod, record: Record, action: Action, order: SuspendOrder | None) -> None:
        now_s = self._clock()
        after = machine.begun(record, action, order, now_s)
        if action is Action.SUSPEND or not record.processes:
            after = replace(after, processes=self._worker.processes(pod, record.processes))
        if action is Action.SUSPEND:  # before it leaves: of what has left no look tells
            after = replace(
                after,
                card_mib=self._worker.card_mib(pod, record, after.processes),
                signal=pod.view.suspend_signal,
            )
        try:
            self._keep(after)
        except OSError as error:
            log.error("%s/%s stays %s: %s", record.namespace, record.pod, record.state, error)
            return
        log.info("%s/%s: %s", record.namespace, record.pod, after.state)
        if action is Action.SUSPEND and not after.moves_together:
            self._world.gate(pod.uid, closed=True)
        self._busy.add(pod.uid)
        self._pool.submit(self._work, pod, after, self._policy())

    def _work(self, pod: LowPod, record: Record, policy: Policy) -> None:
        try:
            outcome = self._worker.work(pod, record, policy)
        except Exception as error:
            log.exception("a fault of ours in suspension")
            outcome = Outcome(record.pod_uid, Result.UNKNOWN, str(error))
        with self._lock:
            self._outcomes.append(outcome)
        self._due.set()

    def _wished(self, uid: str) -> bool:
        """Whether there is an order to suspend that pod right now."""
        pod = (self._world.pods() or {}).get(uid)
        return pod is not None and self._order(pod) is not None

    def _order(self, pod: LowPod) -> SuspendOrder | None:
        text = pod.view.suspend
        if text is None:
            return None
        try:
            order = SuspendOrder.decode(text)
            if order.pod_uid != pod.uid:
                raise AnnotationError(f"it names pod UID {order.pod_uid}")
        except AnnotationError as error:
            if self._odd.get(pod.uid) != text:
                self._odd[pod.uid] = text
                log.warning(
                    "%s/%s, annotation %s is no order: %s",
                    pod.view.namespace,
                    pod.view.name,
                    names.SUSPEND,
                    error,
                )
            return None
        return order

    # --- what became of it -------------------------------------------------------------------------

    def _take_in(self, pods: Mapping[str, LowPod]) -> None:
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        for outcome in outcomes:
            self._busy.discard(outcome.pod_uid)
            record = self._records.get(outcome.pod_uid)
            if record is None:
                continue
            after = self._after(record, outcome)
            self._note(after)
            if after.state is SuspensionState.RUNNING:
                self._world.gate(record.pod_uid, closed=False)
            pod = pods.get(record.pod_uid)
            told = outcome.result
            if after.state is SuspensionState.FAILED:
                told = Result.FAILED
            elif outcome.result is Result.LATER and after.state is SuspensionState.RUNNING:
                told = Result.UNDONE
            if pod is not None and told in EVENTS:
                self._tell(pod, told, after.reason or outcome.text)

    def _after(self, record: Record, outcome: Outcome) -> Record:
        now_s, text = self._clock(), outcome.text
        after = record  # ORDERED: nothing was done
        match outcome.result:
            case Result.SUSPENDED:
                after = machine.suspended(record, outcome.card_mib, now_s)
            case Result.RESUMED:
                after = machine.resumed(record, now_s)
            case Result.UNDONE:
                after = machine.undone(record, text, now_s)
            case Result.FAILED:
                after = machine.failed(record, text, now_s)
            case Result.LATER:
                after = machine.later(record, text, now_s, touched=outcome.touched)
            case Result.UNKNOWN:
                after = machine.unanswered(record, text, now_s)
        return after

    def _tell(self, pod: LowPod, result: Result, text: str) -> None:
        kind, reason = EVENTS[result]
        (log.warning if kind == "Warning" else log.info)(
            "%s/%s: %s: %s", pod.view.namespace, pod.view.name, reason, text
        )
        self._world.tell(pod, kind, reason, text)

    def _forget(self, pods: Mapping[str, LowPod]) -> None:
        """Records of pods that are not here any more. One whose cards are not known (its files are gone, and
        the kubelet has not answered yet) may be away."""
        gone = [uid for uid in self._records if uid not in pods and not self._world.is_here(uid)]
        for uid in (one for one in gone if one not in self._busy):
            with self._lock:
                del self._records[uid]
            self._store.forget(uid)
        self._odd = {uid: text for uid, text in self._odd.items() if uid in pods}

    def _note(self, record: Record) -> None:
        """What is done is done, and in force though it cannot be written."""
        try:
            self._keep(record)
        except OSError as error:
            log.error("how far %s/%s is was not written: %s", record.namespace, record.pod, error)

    def _keep(self, record: Record) -> None:
        """Raises ``OSError``; deeds that are done count all the same."""
        done = record.state not in (SuspensionState.SUSPENDING, SuspensionState.RESUMING)
        try:
            self._store.put(record)
            done = True
        finally:
            if done:
                with self._lock:
                    self._records[record.pod_uid] = record

    # --- what the Node says ------------------------------------------------------------------------

    def _publish(self, pods: Mapping[str, LowPod], verdicts: Mapping[str, Verdict]) -> None:
        """Each time: whether the Node says it already is the world's to see, for a write that failed may be
        carried out later. Figures within a reason that stays the same are no change."""
        said = {}
        essences: dict[str, tuple[object, ...]] = {}
        for uid, pod in sorted(pods.items()):
            record = self._records.get(uid) or Record(uid, pod.view.namespace, pod.view.name)
            order = self._order(pod)
            now = machine.report(record, order, verdicts[uid], pod.book_mib)
            essence = (now.model_copy(update={"reason": ""}), order, record.reason, verdicts[uid].topic)
            said[uid] = self._said[uid] if self._essences.get(uid) == essence else now
            essences[uid] = essence
        self._said, self._essences = said, essences
        try:
            self._world.publish(NodeSuspension(pods=said).encode())
        except KubeError as error:
            log.warning("the node does not say yet how far its pods are: %s", error)


def _waits(record: Record) -> bool:
    """Whether its launches wait."""
    leaving = record.state is SuspensionState.SUSPENDING
    return record.state is not SuspensionState.RUNNING and not (leaving and record.moves_together)
