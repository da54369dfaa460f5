"""How busy cards, host and pods were in the last 15 minutes. Pure: samples in, means in steps of ten out."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.core.measured.use import FULL_POINTS, STEP_POINTS, in_steps
from vc_egpu.volcano.measured.notes import MAX_PODS, CardUseNote, NodeUseNote
from vc_egpu.volcano.words.annotations import MAX_CARDS_PER_NODE

WINDOW_S: Final = 900.0
LEAST_S: Final = 60.0
"""Nothing is said of what was looked at for less."""
_STAYS: Final = 0.7 * STEP_POINTS
"""A figure leaves its step only when it is further away than this: it would go back and forth."""


@dataclass(frozen=True, slots=True)
class CardLook:
    """One card at one moment, in percent; None: it does not tell."""

    compute: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class PodLook:
    """One pod with cards: what it has used of them since the agent began, in seconds of all together."""

    compute_s: float
    cards: int


@dataclass(frozen=True, slots=True)
class HostLook:
    """The host at one moment; None: it does not tell. ``cpu`` is (busy, all) since it began, in any unit."""

    cpu: tuple[int, int] | None = None
    memory: float | None = None
    """Percent in use."""


@dataclass(frozen=True, slots=True)
class Look:
    """All of it at one moment."""

    at_s: float
    """Monotonic."""
    cards: Mapping[str, CardLook] = field(default_factory=dict)
    host: HostLook = HostLook()
    pods: Mapping[str, PodLook] = field(default_factory=dict)
    """By UID; only where the driver tells whose processes are on the cards."""


class UseWindow:
    """Looks of the last 15 minutes, and what was said of them last."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()
        self._said: dict[tuple[str, str], int] = {}

    def add(self, look: Look) -> None:
        """One more look; those that are too old go. After a pause as long as the window all begins again."""
        while self._looks and look.at_s - self._looks[0].at_s > WINDOW_S:
            self._looks.popleft()
        self._looks.append(look)

    def note(self, at: int) -> NodeUseNote | None:
        """What is to be said now; None: too little was looked at. ``at``: Unix time, for the note."""
        if not self._looks or self._looks[-1].at_s - self._looks[0].at_s < LEAST_S:
            return None
        before, self._said = self._said, {}

        def step(kind: str, name: str, percent: float | None) -> int | None:
            if percent is None:
                return None
            key, percent = (kind, name), min(max(percent, 0.0), float(FULL_POINTS))
            kept = before.get(key)
            if kept is None or abs(percent - kept) > _STAYS:
                kept = in_steps(percent)
            self._said[key] = kept
            return kept

        last = self._looks[-1]
        cards = {
            uuid: CardUseNote(
                compute=step("compute", uuid, self._mean(uuid, of_memory=False)),
                memory=step("memory", uuid, self._mean(uuid, of_memory=True)),
            )
            for uuid in sorted(last.cards)[:MAX_CARDS_PER_NODE]
        }
        pods = {uid: step("pod", uid, self._of_pod(uid)) for uid in sorted(last.pods)}
        told = {uid: points for uid, points in pods.items() if points is not None}
        memory = [look.host.memory for look in self._looks if look.host.memory is not None]
        return NodeUseNote(
            at=at,
            cpu=step("host", "cpu", self._cpu()),
            memory=step("host", "memory", sum(memory) / len(memory) if memory else None),
            cards=cards,
            pods=dict(list(told.items())[:MAX_PODS]),
        )

    def _mean(self, uuid: str, *, of_memory: bool) -> float | None:
        looks = [look.cards[uuid] for look in self._looks if uuid in look.cards]
        percents = [one.memory if of_memory else one.compute for one in looks]
        known = [percent for percent in percents if percent is not None]
        return sum(known) / len(known) if known else None

    def _cpu(self) -> float | None:
        cpus = [look.host.cpu for look in self._looks if look.host.cpu is not None]
        if len(cpus) < 2 or cpus[-1][1] <= cpus[0][1]:
            return None
        return FULL_POINTS * (cpus[-1][0] - cpus[0][0]) / (cpus[-1][1] - cpus[0][1])

    def _of_pod(self, uid: str) -> float | None:
        first = next(look for look in self._looks if uid in look.pods)
        last, began = self._looks[-1], first.pods[uid]
        passed_s = last.at_s - first.at_s
        if passed_s < LEAST_S:
            return None
        used_s = last.pods[uid].compute_s - began.compute_s
        return FULL_POINTS * used_s / (passed_s * max(1, last.pods[uid].cards))
