"""Parts (k) and (l): training leaves its cards, by a user's wish and for inference, and goes on."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localcluster.api import wait_until
from stack.figures import TIMEOUT_S, Figures, first
from stack.kit import StoryError

from demo.screen import Screen

_STEP = re.compile(r"^step (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Suspending:
    """A gang that counts its steps in its cards' memory and says them in its log."""

    screen: Screen
    pods: Sequence[str]
    cards: Sequence[str]
    """The card of each pod."""
    log: Callable[[str], str]
    figures: Callable[[], Figures]
    """Of the cards' node."""

    def runs(self) -> None:
        """Wait until each has done some steps, and its memory shows on the card."""
        for pod in self.pods:
            self.goes_on(pod, 0)
        wait_until("memory is used on the cards", lambda: all(self._used()), TIMEOUT_S)
        self.screen.plain(f"{self._steps_said()}; {self._used_said()}")

    def rests(self, *, empty: bool) -> dict[str, int]:
        """The step at which each of them stopped. ``empty``: nobody else is on the cards meanwhile."""
        if empty:
            wait_until("nothing is used on the cards", lambda: not any(self._used()), TIMEOUT_S)
        stopped = {pod: self._at_rest(pod) for pod in self.pods}
        told = f"; {self._used_said()}" if empty else ""
        self.screen.fact(f"they stand still, {self._steps_said()}{told}")
        return stopped

    def went_on(self, stopped: dict[str, int]) -> None:
        """Wait until each is past the step at which it stopped, with none left out and none done again."""
        for pod in self.pods:
            self.goes_on(pod, stopped[pod])
            steps = self._steps(pod)
            every = steps[0]
            if steps != list(range(every, every * len(steps) + 1, every)):
                raise StoryError(f"{pod} did not go on where it was: {steps}")
        self.screen.fact(f"they go on where they were: {self._steps_said()}, none left out, none twice")

    def goes_on(self, pod: str, since: int) -> None:
        """Wait until a pod has counted further."""
        wait_until(f"{pod} counts", lambda: max(self._steps(pod), default=0) > since, TIMEOUT_S)

    def _at_rest(self, pod: str) -> int:
        """Its last step, seen twice: what it had said before may come a moment late."""
        seen: list[int] = []

        def look() -> int | None:
            seen.append(max(self._steps(pod), default=0))
            return seen[-1] if len(seen) > 2 and seen[-1] == seen[-3] else None

        return first(f"{pod} stands still", look)

    def _steps(self, pod: str) -> list[int]:
        return [int(number) for number in _STEP.findall(self.log(pod))]

    def _steps_said(self) -> str:
        return ", ".join(f"{pod} at step {max(self._steps(pod), default=0)}" for pod in self.pods)

    def _used(self) -> list[int]:
        used = self.figures().used_mib
        return [used[card] for card in self.cards]

    def _used_said(self) -> str:
        return f"used on their cards: {', '.join(f'{mib} MiB' for mib in self._used())}"
