"""Gangs that take any of several models: which one, for all members at once.

Each option is tried as if the gang had asked for it alone, in the order that its user wishes. The first one
that starts now is taken, and without one the first for which others make room. The choice is written on the
PodGroup, and the pods are made with it: what a pod asks for never changes. So pods that wait already are made
again, and nothing is admitted, nor evicted, before they are.

A choice stands while any member has its place. Until then each decision may find a better one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Final

from vc_egpu.core import admit
from vc_egpu.core.admit import Attempt
from vc_egpu.core.model.cluster import LONGEST_CHOICE
from vc_egpu.core.model.findings import AboveMinimum, Finding, NoOption, Remade
from vc_egpu.core.model.gangs import GangView, Member, option_of
from vc_egpu.core.model.plan import Admission
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.core.room.preempt import Patience, Room
from vc_egpu.core.standing import reservations
from vc_egpu.core.trial.claims import Claim
from vc_egpu.core.trial.record import Placeless, Recorder
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import say

_MOST_WAYS: Final = 24
"""So many combinations of options are tried for a gang whose tasks may take different ones."""


def begin(trial: Trial, record: Recorder, view: GangView, own: list[Claim]) -> Attempt:
    """Begin a gang's turn, whatever it asks for. See :func:`.admit.begin`."""
    if not any(member.shape.options for member in view.waiting):
        return admit.begin(trial, record, view, own)
    return _AnyOf(trial, record, view, own)


def made(trial: Trial, view: GangView) -> list[GangView]:
    """The gang as it is with each of its choices; as it is where it has none."""
    if not any(member.shape.options for member in view.waiting):
        return [view]
    return [_as(trial, view, way) for way in ways(view)]


def ways(view: GangView) -> list[str]:
    """The choices that a gang has, in the order in which they are tried; one alone where it has chosen.

    What stands on the PodGroup comes first: of two options that start now it costs no pod.
    """
    by_task = _options(view)
    fixed = _fixed(view)
    if fixed and all(option_of(fixed, task) in names for task, names in by_task.items()):
        return [fixed]
    common = [name for name in next(iter(by_task.values())) if all(name in n for n in by_task.values())]
    found = common
    if _mixes(view) and len(by_task) > 1:
        tasks = sorted(by_task)
        combined = product(*(by_task[task] for task in tasks))
        mixed = [
            ",".join(f"{task}={name}" for task, name in zip(tasks, names, strict=True))
            for names in islice(combined, _MOST_WAYS)
            if len(set(names)) > 1
        ]
        found = [*common, *(way for way in mixed if len(way) <= LONGEST_CHOICE)]
    standing = view.gang.choice
    return sorted(found, key=lambda way: way != standing)


def _options(view: GangView) -> dict[str, tuple[str, ...]]:
    """By task, the options that all its members have which wait, in the order of the first of them."""
    found: dict[str, tuple[str, ...]] = {}
    for member in view.waiting:
        names = tuple(option.name for option in member.shape.options)
        if names:
            before = found.setdefault(member.task, names)
            if before != names:
                found[member.task] = tuple(name for name in before if name in names)
    return found


def _mixes(view: GangView) -> bool:
    having = [member.shape for member in view.waiting if member.shape.options]
    return all(shape.mixes for shape in having)


def _fixed(view: GangView) -> str:
    """The choice that members which have their place were made with; empty: nothing binds the gang."""
    there = (*view.placed, *view.succeeded)
    if (not there and not view.planned) or (view.gang.single and _mixes(view)):
        return ""
    choices = {pod.task: pod.shape.choice for pod in there if pod.shape.choice}
    known = option_of(view.gang.choice, next(iter(choices), ""))
    if not choices or known in choices.values():
        return view.gang.choice
    return next(iter(choices.values()))  # the PodGroup has lost it


def _as(trial: Trial, view: GangView, choice: str) -> GangView:
    """The gang as it is once its pods are made with this choice."""

    def made(member: Member) -> Member:
        shape = member.shape.as_option(option_of(choice, member.task))
        if shape is None or shape == member.shape:
            return member
        return member._replace(shape=shape, shape_id=trial.index.intern(shape))

    return replace(view, waiting=tuple(made(member) for member in view.waiting))


class _Aside(Recorder):
    """Listens to the attempt at one option. What it says about equal gangs is not true of the others."""

    def __init__(self) -> None:
        super().__init__(revision=0)
        self.verdict: Verdict | None = None
        self.admission: Admission | None = None

    def waits(self, view: GangView, verdict: Verdict) -> None:  # noqa: ARG002 - as the one it stands for
        self.verdict = verdict

    def admits(self, admission: Admission, verdict: Verdict) -> None:
        self.admission, self.verdict = admission, verdict

    def refuse_alike(
        self, trial: Trial, view: GangView, verdict: Verdict, *, by_cap: bool = False, own_words: bool = False
    ) -> None:
        """Equal gangs have other options, too."""

    def placeless(self, trial: Trial, view: GangView) -> Placeless | None:  # noqa: ARG002 - see waits
        return None


@dataclass(frozen=True, slots=True)
class _Way:
    choice: str
    view: GangView
    record: _Aside
    attempt: Attempt

    def said(self) -> Verdict:
        """Why this option cannot start now."""
        self.attempt.say()
        if self.record.verdict is None:
            raise AssertionError("an attempt ends with a verdict")
        return self.record.verdict


class _AnyOf(Attempt):
    """One attempt for each option; the first that has its place is taken."""

    def __init__(self, trial: Trial, record: Recorder, view: GangView, own: list[Claim]) -> None:
        super().__init__(trial, record, view, own)
        self._ways: list[_Way] = []
        self._taken: _Way | None = None
        self._soon: _Way | None = None
        """There will be room for this one, and none has to go for it."""
        self._next: _Way | None = None
        """None can start, and this one will be the first to."""

    def _way(self, choice: str) -> _Way:
        view, aside = _as(self._trial, self._view, choice), _Aside()
        return _Way(choice, view, aside, admit.begin(self._trial, aside, view, self._own))

    @property
    def is_seated(self) -> bool:
        return self._taken is not None

    @property
    def is_allowed(self) -> bool:
        return any(way.attempt.is_allowed for way in self._ways)

    def check_caps(self) -> None:
        """Each option has caps of its own: see :meth:`place`."""

    def place(self) -> None:
        for choice in ways(self._view):
            way = self._way(choice)
            self._ways.append(way)
            way.attempt.check_caps()
            way.attempt.place()
            if way.attempt.is_seated:
                self._taken = way
                return

    def make_room(self) -> None:
        if self._taken is not None:
            return
        for way in self._ways:
            way.attempt.make_room()
            if isinstance(way.attempt.room, Room):
                self._taken = way
                return
            if isinstance(way.attempt.room, Patience):
                self._soon = way
                return
        self._look_ahead()

    def _look_ahead(self) -> None:
        """None can start: where the gang wishes it, take the one that will start soonest, and wait for it.

        A choice that stands and has a known start is kept: each other one would cost the pods.
        """
        waiting = [member.shape for member in self._view.waiting if member.shape.options]
        if not all(shape.takes_soonest for shape in waiting) or len(self._ways) < 2:
            return
        known = [
            (at, number)
            for number, way in enumerate(self._ways)
            if way.attempt.is_allowed and (at := reservations.forecast(self._trial, way.view)) is not None
        ]
        if not known:
            return
        made = self._made_with()
        standing = next((number for _, number in known if self._ways[number].choice == made), None)
        self._next = self._ways[min(known)[1] if standing is None else standing]

    def _made_with(self) -> str:
        """The choice that all its pods were made with; empty where there is none."""
        open_ones = any(member.shape.is_open and member.is_made for member in self._view.waiting)
        return "" if open_ones else self._view.gang.choice

    def hold(self) -> None:
        if self._taken is not None:
            self._taken.attempt.hold()

    def say(self) -> None:
        way, made = self._taken or self._next, self._view
        if way is None:
            self._say_why(None)
            return
        again = sum(
            one.is_made and one.shape != two.shape
            for one, two in zip(made.waiting, way.view.waiting, strict=True)
        )
        if again:
            self._record.chooses(made, way.choice, say.verdict(Remade(way.choice, again)))
            return
        if self._taken is None:
            self._say_why(None)  # it was chosen for its forecast
            return
        verdict = way.said()
        if way.record.admission is None:
            raise AssertionError("what is seated is admitted")
        chosen = way.choice if way.choice != made.gang.choice else ""
        self._record.admits(replace(way.record.admission, choice=chosen), verdict)

    def _say_why(self, patience: Patience | None) -> None:  # noqa: ARG002 - of one option alone
        if self._soon is not None:
            self._record.waits(self._view, self._soon.said())
            return
        said = [(way.choice, way.said()) for way in self._ways]
        alone = len(said) == 1 and not any(member.shape.is_open for member in self._view.waiting)
        verdict = said[0][1] if alone else say.verdict(_none_of(said, self._made_with()))
        self._record.refuse_alike(self._trial, self._view, verdict, by_cap=True)
        self._record.waits(self._view, verdict)


def _none_of(said: Iterable[tuple[str, Verdict]], standing: str) -> Finding:
    """What is short for each option. That a member is above the minimum is said once."""
    found = [(choice, verdict.finding) for choice, verdict in said if verdict.finding is not None]
    above = next((finding for _, finding in found if isinstance(finding, AboveMinimum)), None)
    if above is None:
        return NoOption(tuple(found), dict(found).get(standing))
    inner = ((choice, f.why if isinstance(f, AboveMinimum) else f) for choice, f in found)
    return replace(above, why=NoOption(tuple(inner)))
