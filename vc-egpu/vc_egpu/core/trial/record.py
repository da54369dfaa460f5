"""What a decision has found so far; becomes the plan."""

from collections.abc import Iterable, Mapping

from vc_egpu.core.model.cluster import Move, NodeName, Reservation
from vc_egpu.core.model.findings import Shortage
from vc_egpu.core.model.gangs import GangView, Mark, mark_in_any_queue
from vc_egpu.core.model.plan import (
    Admission,
    Eviction,
    Plan,
    Readiness,
    Resize,
    Resume,
    Suspension,
    Withdrawal,
)
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.trial import Trial


class Placeless:
    """Whether gangs that ask for the same found no place without victims, and what is short for them.

    Within one decision room only shrinks. A cluster has many queues, and few kinds of gangs.
    """

    def __init__(self, known: dict[Mark, Shortage | None], mark: Mark) -> None:
        self._known = known
        self._mark = mark

    @property
    def is_known(self) -> bool:
        """Whether one of them found none."""
        return self._mark in self._known

    @property
    def shortage(self) -> Shortage | None:
        """What one of them was told; None while none was told anything."""
        return self._known.get(self._mark)

    def note(self, shortage: Shortage | None = None) -> None:
        """This one found none."""
        self._known[self._mark] = shortage or self._known.get(self._mark)


class Recorder:
    """Collects admissions, withdrawals and verdicts; remembers which shapes found no room."""

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self._admissions: list[Admission] = []
        self._withdrawals: list[Withdrawal] = []
        self._ready: list[Readiness] = []
        self._suspensions: list[Suspension] = []
        self._resumes: list[Resume] = []
        self._evictions: list[Eviction] = []
        self._resizes: list[Resize] = []
        self._verdicts: dict[str, Verdict] = {}
        self._choices: dict[str, str] = {}
        self._reservations: dict[str, Reservation | None] = {}
        self._moves: dict[str, Move] = {}
        self._empties: list[NodeName] = []
        self._opens: dict[NodeName, None] = {}
        self._refused: dict[Mark | None, tuple[Verdict, int | None]] = {}
        self._placeless: dict[Mark, Shortage | None] = {}

    def decided(self, key: str) -> bool:
        """Whether this gang has its verdict."""
        return key in self._verdicts

    def reason(self, key: str) -> Reason | None:
        """The reason in this gang's verdict; None while it has none."""
        verdict = self._verdicts.get(key)
        return verdict.reason if verdict is not None else None

    def waits(self, view: GangView, verdict: Verdict) -> None:
        """The gang waits, and why."""
        self._verdicts[view.gang.key] = verdict

    def admits(self, admission: Admission, verdict: Verdict) -> None:
        """The gang has its place, now or once its victims are gone."""
        self._admissions.append(admission)
        self._verdicts[admission.gang] = verdict

    def withdraws(self, withdrawal: Withdrawal, verdict: Verdict) -> None:
        """The gang's waiting plan is void."""
        self._withdrawals.append(withdrawal)
        self._verdicts[withdrawal.gang] = verdict

    def turns_ready(self, readiness: Readiness, verdict: Verdict) -> None:
        """The gang's victims are gone."""
        self._ready.append(readiness)
        self._verdicts[readiness.gang] = verdict

    def suspends(self, suspension: Suspension) -> None:
        """A user wants it paused."""
        self._suspensions.append(suspension)

    def resumes(self, resume: Resume) -> None:
        """A suspended gang has its cards again."""
        self._resumes.append(resume)

    def evicts(self, eviction: Eviction) -> None:
        """A gang goes although no other needs its cards: it cannot come back to them."""
        self._evictions.append(eviction)

    def resizes(self, resize: Resize) -> None:
        """A user's wish for another size of a pod's shares is granted or refused."""
        self._resizes.append(resize)

    def chooses(self, view: GangView, choice: str, verdict: Verdict) -> None:
        """The pods of the gang are to be made with this option; nothing of it is admitted before."""
        if choice != view.gang.choice:
            self._choices[view.gang.key] = choice
        self._verdicts[view.gang.key] = verdict

    def reserves(self, key: str, reservation: Reservation | None) -> None:
        """What is remembered of this gang from now on."""
        self._reservations[key] = reservation

    def moves(self, key: str, move: Move) -> None:
        """The gang claims other cards from now on, has come to them, or stays where it is."""
        self._moves[key] = move

    def empties(self, name: NodeName) -> None:
        """The node is to be empty from now on."""
        self._empties.append(name)

    def opens(self, names: Iterable[NodeName]) -> None:
        """These nodes take work again."""
        self._opens.update(dict.fromkeys(sorted(names)))

    def is_opened(self, name: str) -> bool:
        """Whether this decision opens the node."""
        return name in self._opens

    @property
    def any_moves(self) -> bool:
        """Whether this decision began or ended a move."""
        return bool(self._moves)

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """What was decided so far, in the order of the turns."""
        return self._verdicts

    def known(self, trial: Trial, view: GangView) -> Verdict | None:
        """The verdict on an equal gang that waits: within one decision room only shrinks, use only grows."""
        found = self._refused.get(trial.index.like(view)) or self._refused.get(trial.index.mark(view))
        gang = view.gang
        claims = gang.reservation is not None and gang.reservation.members
        claims = claims or (gang.move is not None and gang.move.places)
        if found is None or gang.not_before > trial.now or claims or trial.index.moving_for(gang.key):
            return None
        verdict, version = found
        return verdict if version is None or version == trial.version(view.gang.queue) else None

    def refuse_alike(
        self, trial: Trial, view: GangView, verdict: Verdict, *, by_cap: bool = False, own_words: bool = False
    ) -> None:
        """Equal gangs need not be tried again; where a cap is the cause, while its queue's use stands.

        ``own_words``: the verdict names what its programs need. Those that need the like find no place
        either, and are told so in words of their own.
        """
        mark = trial.index.mark(view) if own_words else trial.index.like(view)
        if mark is not None and not trial.claims.stays(view):  # what is lent is lent to its equals
            self._refused[mark] = (verdict, trial.version(view.gang.queue) if by_cap else None)

    def placeless(self, trial: Trial, view: GangView) -> Placeless | None:
        """What is known of gangs that find the same places, in whichever queue. None: nothing can be known
        so, since some room is free for this gang alone, or what is kept for queues moves with each admission.
        """
        mark = trial.index.like(view)
        if mark is None or trial.claims.any_aside or trial.claims.of(ClaimKind.GUARANTEE):
            return None
        return Placeless(self._placeless, mark_in_any_queue(mark))

    def plan(self) -> Plan:
        """Everything, as one value."""
        return Plan(
            revision=self._revision,
            admissions=tuple(self._admissions),
            withdrawals=tuple(self._withdrawals),
            ready=tuple(self._ready),
            verdicts=dict(sorted(self._verdicts.items())),
            suspensions=tuple(self._suspensions),
            resumes=tuple(self._resumes),
            evictions=tuple(self._evictions),
            resizes=tuple(self._resizes),
            choices=dict(sorted(self._choices.items())),
            moves=dict(sorted(self._moves.items())),
            empties=tuple(self._empties),
            opens=tuple(self._opens),
            reservations=dict(sorted(self._reservations.items())),
        )
