"""What takes long in suspending and resuming one pod: the helper, waiting for room, looking at the cards."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.suspension.facts import FactsOf, LowPod
from vc_egpu_node.suspension.helper import (
    MAX_PROCESSES,
    Answer,
    Drain,
    Helper,
    HelperError,
    NotBegunError,
    NotNowError,
    Verb,
)
from vc_egpu_node.suspension.machine import Process, Record
from vc_egpu_node.wall.wall import Look

log = logging.getLogger(__name__)

REST_MIB: Final = 64
"""What the driver may keep of a process whose memory has left."""
LOOKS_S: Final = 20.0
"""The driver is asked who runs on the cards at least so often."""
PAUSE_S: Final = 0.2
HELPERS: Final = 8
"""So many run at a time."""


class Result(Enum):
    """How it ended."""

    SUSPENDED = "suspended"
    UNDONE = "undone"
    """Not suspended; all of it runs on."""
    RESUMED = "resumed"
    FAILED = "failed"
    """Some of it can neither run nor come back."""
    ORDERED = "ordered"
    """Ordered again before it could be resumed; nothing was done."""
    UNKNOWN = "unknown"
    """The helper gave no answer."""
    LATER = "later"
    """It could not be gone on with now."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one pod."""

    pod_uid: str
    result: Result
    text: str = ""
    touched: bool = True
    """Something may have been done to its processes."""
    card_mib: Mapping[str, int] = field(default_factory=dict)
    """By card: what lies on the host now."""


class Worker:
    """Called from several threads, by one at a time for one pod."""

    def __init__(
        self,
        helper: Helper,
        facts: FactsOf,
        *,
        look: Callable[[], Look],
        shortage: Callable[[LowPod, Mapping[str, int]], str],
    ) -> None:
        """``shortage`` says why a pod that had so much (by card) does not fit onto its cards again; empty: it
        does."""
        self._helper = helper
        self._facts = facts
        self._look = look
        self._shortage = shortage
        self._wished: Callable[[str], bool] = lambda _uid: False
        self._close: Callable[[str], None] = lambda _uid: None
        self._stopping = threading.Event()
        self._helpers = threading.BoundedSemaphore(HELPERS)

    def connect(self, wished: Callable[[str], bool], close: Callable[[str], None]) -> None:
        """``wished``: whether there is an order to suspend that pod right now. ``close``: let its launches
        wait."""
        self._wished = wished
        self._close = close

    def stop(self) -> None:
        """End waiting."""
        self._stopping.set()
        self._helper.stop()

    def sweep(self) -> None:
        """See the end of what an earlier agent left behind."""
        self._helper.sweep()

    def processes(self, pod: LowPod, known: tuple[Process, ...]) -> tuple[Process, ...]:
        """Those to be suspended: what is there now, and what was before. First come those that were and
        still are: the driver may no longer name them. Where two had the same number, the later process
        counts."""
        found = self._facts.processes(pod, self._look())
        there, numbers = frozenset(found), frozenset(pid for pid, _ in found)
        stayed = (one for one in known if one in there)
        ended = (one for one in known if one[0] not in numbers)
        return tuple(dict.fromkeys((*stayed, *found, *ended)))[:MAX_PROCESSES]

    def card_mib(
        self, pod: LowPod, record: Record, processes: tuple[Process, ...]
    ) -> tuple[tuple[str, int], ...]:
        """By card: what these processes will have on the host, with what an earlier try took off the cards
        already."""
        look, kept = self._look(), dict(record.card_mib)
        for uuid, mib in _on_cards(pod, look, frozenset(record.processes)).items():
            kept[uuid] = max(kept.get(uuid, 0), mib)
        for uuid, mib in _on_cards(pod, look, frozenset(processes) - frozenset(record.processes)).items():
            kept[uuid] = kept.get(uuid, 0) + mib
        return tuple(sorted(kept.items()))

    def work(self, pod: LowPod, record: Record, policy: Policy) -> Outcome:
        """What the record's state says, to its end."""
        try:
            return (
                self._suspend(pod, record, policy)
                if record.state is SuspensionState.SUSPENDING
                else self._resume(pod, record, policy)
            )
        except HelperError as error:
            return Outcome(pod.uid, Result.UNKNOWN, str(error))
        except NotBegunError as error:
            return Outcome(pod.uid, Result.LATER, str(error), touched=False)
        except NotNowError as error:
            return Outcome(pod.uid, Result.LATER, str(error))

    # --- away ----------------------------------------------------------------------------------------

    def _suspend(self, pod: LowPod, record: Record, policy: Policy) -> Outcome:
        before = dict(record.card_mib)
        answer = self._run("suspend", record, policy)
        if not answer.done:
            again = record.touched or not answer.all_running  # an earlier helper may have begun
            return self._undo(pod, record, policy, answer.error, again=again)
        self._close(pod.uid)  # a program of it that begins now would take what it left
        left_mib = self._left(pod)
        if left_mib > REST_MIB:
            if set(self.processes(pod, record.processes)) - set(record.processes):
                # It had just started: the look that the order was carried out by did not know them yet.
                raise NotNowError(f"more of its processes began to use the GPU, {left_mib} MiB")
            text = f"{left_mib} MiB of it stay on its cards: not all of its processes could be found"
            return self._undo(pod, record, policy, text, again=True)
        text = f"{sum(before.values())} MiB are on the host"
        return Outcome(pod.uid, Result.SUSPENDED, text, card_mib=before)

    def _undo(self, pod: LowPod, record: Record, policy: Policy, text: str, *, again: bool) -> Outcome:
        if again:
            try:
                answer = self._run("resume", record, policy)
            except NotBegunError as error:
                raise NotNowError(f"{text}; not brought back yet: {error}") from error
            if not answer.done:
                return Outcome(pod.uid, Result.FAILED, f"{text}; not brought back: {answer.error}")
        return Outcome(pod.uid, Result.UNDONE, text)

    def _left(self, pod: LowPod) -> int:
        """What of it is still there. A look that was under way may have seen the state before."""
        first, until_s = self._look().number, time.monotonic() + LOOKS_S
        while not self._stopping.wait(PAUSE_S):
            look = self._look()
            left = sum(_on_cards(pod, look).values())
            told = not any(share.uuid in look.untold for grant in pod.grants for share in grant.shares)
            if told and (look.number >= first + 2 or (look.number > first and left <= REST_MIB)):
                return left
            if time.monotonic() > until_s:
                raise NotNowError(f"the driver has not told for {LOOKS_S:.0f} s who runs on the cards")
        raise NotNowError("the agent ends")

    # --- and back ------------------------------------------------------------------------------------

    def _resume(self, pod: LowPod, record: Record, policy: Policy) -> Outcome:
        until_s = time.monotonic() + policy.resume_room_s
        while True:
            while missing := self._shortage(pod, dict(record.card_mib)):
                if self._wished(pod.uid):
                    return Outcome(pod.uid, Result.ORDERED)
                if time.monotonic() > until_s:
                    text = f"no room to come back within {policy.resume_room_s:.0f} s: {missing}"
                    return Outcome(pod.uid, Result.FAILED, text)
                self._pause()
            answer = self._run("resume", record, policy)
            if answer.done:
                return Outcome(pod.uid, Result.RESUMED, "it runs again")
            if answer.stuck or time.monotonic() > until_s:
                return Outcome(pod.uid, Result.FAILED, answer.error)
            # Its memory lies where it did: another pod took the room meanwhile, and the cards show it soon.
            log.warning("%s/%s: trying again: %s", record.namespace, record.pod, answer.error)
            seen = self._look().number
            while self._look().number < seen + 2 and time.monotonic() <= until_s:
                self._pause()

    def _pause(self) -> None:
        if self._stopping.wait(PAUSE_S):
            raise NotNowError("the agent ends")

    def _run(self, verb: Verb, record: Record, policy: Policy) -> Answer:
        if not record.processes:
            return Answer(done=True)
        began_s = time.monotonic()
        with self._helpers:
            lock_ms = int(policy.suspend_lock_s * 1000)
            if record.signal:
                drain = Drain(record.signal, int(policy.suspend_drain_s * 1000))
                answer = self._helper.run(verb, record.processes, lock_ms, drain)
            else:
                answer = self._helper.run(verb, record.processes, lock_ms)
        log.info(
            "%s/%s: %s of %d processes took %.2f s%s",
            record.namespace,
            record.pod,
            verb,
            len(record.processes),
            time.monotonic() - began_s,
            "" if answer.done else f": {answer.error}",
        )
        return answer


def _on_cards(pod: LowPod, look: Look, only: Collection[Process] | None = None) -> dict[str, int]:
    """By card: MiB that the pod's processes hold (``only`` these), as the driver sees it."""
    names = {grant.name for grant in pod.grants}
    sums: dict[str, int] = {}
    for one in look.seen:
        if one.owner in names and (only is None or (one.pid, one.start_ticks) in only):
            sums[one.uuid] = sums.get(one.uuid, 0) + one.memory_mib
    return sums
