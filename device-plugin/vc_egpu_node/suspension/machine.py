"""How far a pod is with being suspended, and what is due next. Pure.

The order on the pod is the wish: with it the pod shall be suspended, without it the pod shall run. One order
is tried once; what became of it is said under its id. A state in which something was under way when the
agent ended is simply gone on with: the helper's verbs may be repeated.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Final, Self

from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.codec.suspension import MAX_REASON, PodSuspension, SuspendOrder

from vc_egpu_node.suspension.verdict import Verdict

ATTEMPTS: Final = 3
"""So often is a helper run that ended without an answer."""
RETRY_S: Final = 5.0
RETRY_MOST_S: Final = 60.0
"""What cannot go on for long, for instance where the API server refuses the helper's pod, is tried again
after a tenth of that time."""
RECORD_VERSION: Final = 1
Process = tuple[int, int]
"""(PID on the host, start time in clock ticks)."""


class Action(Enum):
    """What the agent has to do now."""

    NOTHING = "nothing"
    REFUSE = "refuse"
    """The order cannot be carried out: say so."""
    RENAME = "rename"
    """It is suspended already; the order that says so is another one now."""
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Record:
    """One pod, as kept on disk."""

    pod_uid: str
    namespace: str
    pod: str
    state: SuspensionState = SuspensionState.RUNNING
    plan_id: str = ""
    """The last order that was acted on."""
    reason: str = ""
    """What went wrong with it."""
    card_mib: tuple[tuple[str, int], ...] = ()
    """GPU memory that lies on the host, by the card that it was on."""
    processes: tuple[Process, ...] = ()
    """Whose memory it is."""
    since_s: float = 0.0
    """Unix time of the last change of state."""
    suspended_s: float = 0.0
    """Sum of earlier suspensions."""
    signal: str = ""
    """At which the program comes to rest; empty: it names none."""
    touched: bool = False
    """A helper has begun with it, or may have."""
    attempts: int = 0
    retry_at_s: float = 0.0

    @property
    def moves_together(self) -> bool:
        """Its launches go on until all its processes stand still: one may have to launch what the kernel of
        another waits for."""
        return bool(self.signal) or len(self.processes) > 1

    @property
    def host_mib(self) -> int:
        """GPU memory that lies on the host."""
        return sum(mib for _, mib in self.card_mib)

    def seconds(self, now_s: float) -> float:
        """How long it was suspended in all, until now."""
        running = self.state is not SuspensionState.SUSPENDED
        return self.suspended_s + (0.0 if running else max(0.0, now_s - self.since_s))

    def document(self) -> dict[str, Any]:
        """For the file."""
        fields = asdict(self)
        if not self.signal:  # so that earlier agents can read it
            del fields["signal"]
        return {"version": RECORD_VERSION, **fields, "state": self.state.value}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """From the file; raises ``ValueError``, ``KeyError`` or ``TypeError``."""
        fields = dict(document)
        if fields.pop("version") != RECORD_VERSION:
            raise ValueError("written by another version")
        fields["state"] = SuspensionState(fields["state"])
        fields["processes"] = tuple((int(pid), int(start)) for pid, start in fields["processes"])
        fields["card_mib"] = tuple((str(uuid), int(mib)) for uuid, mib in fields["card_mib"])
        return cls(**fields)


def due(record: Record, order: SuspendOrder | None, verdict: Verdict, now_s: float) -> Action:
    """What is to be done for a pod with which nothing is under way."""
    state = record.state
    # Never later than that: what was noted before the clock was set back may lie hours ahead.
    waits = now_s < record.retry_at_s <= now_s + RETRY_MOST_S
    if state is SuspensionState.FAILED or waits:
        return Action.NOTHING
    if state is SuspensionState.RUNNING:
        if order is None or order.plan_id == record.plan_id:
            return Action.NOTHING
        return Action.SUSPEND if verdict.suspendable else Action.REFUSE
    if order is None:
        return Action.RESUME
    if state is SuspensionState.SUSPENDED:
        return Action.NOTHING if order.plan_id == record.plan_id else Action.RENAME
    return Action.SUSPEND


def begun(record: Record, action: Action, order: SuspendOrder | None, now_s: float) -> Record:
    """While the helper is at it."""
    state = SuspensionState.SUSPENDING if action is Action.SUSPEND else SuspensionState.RESUMING
    plan_id = order.plan_id if order is not None else record.plan_id
    # A pod that ran has nothing left of what a helper did for an earlier order.
    touched = record.touched and record.state is not SuspensionState.RUNNING
    attempts = record.attempts if record.state is state else 0
    return _moved(
        record,
        state,
        now_s,
        plan_id=plan_id,
        reason="",
        retry_at_s=0.0,
        touched=touched,
        attempts=attempts,
    )


def refused(record: Record, order: SuspendOrder, reason: str, now_s: float) -> Record:
    """It runs on: the order could not be carried out."""
    return replace(undone(record, reason, now_s), plan_id=order.plan_id)


def renamed(record: Record, order: SuspendOrder) -> Record:
    """Suspended under another order."""
    return replace(record, plan_id=order.plan_id)


# --- outcomes of what was under way ----------------------------------------------------------------


def suspended(record: Record, card_mib: Mapping[str, int], now_s: float) -> Record:
    """Its memory is on the host."""
    kept = tuple(sorted(card_mib.items()))
    return _moved(record, SuspensionState.SUSPENDED, now_s, card_mib=kept, touched=True, attempts=0)


def undone(record: Record, reason: str, now_s: float) -> Record:
    """Suspending failed, all of it runs on."""
    runs = SuspensionState.RUNNING
    return _moved(record, runs, now_s, reason=_short(reason), card_mib=(), processes=(), attempts=0)


def resumed(record: Record, now_s: float) -> Record:
    """It runs again where it was."""
    return undone(record, "", now_s)


def failed(record: Record, reason: str, now_s: float) -> Record:
    """It could not be brought back: the pod is to be ended."""
    return _moved(record, SuspensionState.FAILED, now_s, reason=_short(reason))


def unanswered(record: Record, reason: str, now_s: float) -> Record:
    """The helper gave no answer: what it did is not known. Tried again a few times."""
    if record.attempts + 1 >= ATTEMPTS:
        return failed(record, reason, now_s)
    return replace(later(record, reason, now_s, touched=True), attempts=record.attempts + 1)


def later(record: Record, reason: str, now_s: float, *, touched: bool) -> Record:
    """It could not be gone on with now, for no fault of the pod's: for as long as that lasts. One that was
    only about to be suspended runs on instead."""
    if record.state is SuspensionState.SUSPENDING and not (record.touched or touched):
        return undone(record, reason, now_s)
    touched = record.touched or touched
    wait_s = min(max(RETRY_S, (now_s - record.since_s) / 10), RETRY_MOST_S)
    return replace(record, touched=touched, retry_at_s=now_s + wait_s, reason=_short(reason))


def unreadable(pod_uid: str) -> Record:
    """What a record is taken for that cannot be read."""
    reason = "how far it was with being suspended could not be read"
    return Record(pod_uid, "", pod_uid, state=SuspensionState.SUSPENDING, reason=reason, touched=True)


def found(record: Record) -> Record:
    """After a restart of the agent: a helper may have begun with what was under way."""
    return replace(record, touched=record.touched or record.state is SuspensionState.SUSPENDING)


def report(record: Record, order: SuspendOrder | None, verdict: Verdict, book_mib: int) -> PodSuspension:
    """What the Node says of it; ``book_mib``: what its memory takes of the host at most."""
    running = record.state is SuspensionState.RUNNING
    answered = not running or (order is not None and order.plan_id == record.plan_id)
    return PodSuspension(
        state=record.state,
        plan_id=record.plan_id,
        suspendable=running and verdict.suspendable,
        reason=_short(record.reason if answered else verdict.reason),
        host_mib=book_mib if running else record.host_mib,
    )


def _moved(record: Record, state: SuspensionState, now_s: float, **changes: Any) -> Record:
    if state is record.state:
        return replace(record, **changes)
    return replace(record, state=state, since_s=now_s, suspended_s=record.seconds(now_s), **changes)


def _short(text: str) -> str:
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return printable if len(printable) <= MAX_REASON else f"{printable[: MAX_REASON - 3]}..."
