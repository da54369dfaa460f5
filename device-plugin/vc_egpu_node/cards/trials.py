"""Tries now and then whether programs can use the cards that nobody is on: what no reading tells.

It runs on a thread of its own and may take as long as it likes: the cards are read and offered meanwhile.
What it finds stands in :attr:`Trials.faults`, and :class:`vc_egpu_node.cards.monitor.Monitor` takes it from
there.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from vc_egpu_node.vendors.base import UntoldError

log = logging.getLogger(__name__)

STEP_S: Final = 5.0
"""How often it looks whether a card is due."""
AGAIN_S: Final = 60.0
"""A card that failed is tried again so soon: that is how it comes back."""
Outcome = Literal["well", "fault", "untold"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("well", "fault", "untold")


class Trials:
    """Tries cards. ``faults`` may be read from any thread."""

    def __init__(
        self,
        trial: Callable[[str], str],
        *,
        interval_s: float,
        cards: Callable[[], Mapping[str, bool]],
        count: Callable[[Outcome], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``trial``: see :attr:`vc_egpu_node.vendors.base.Vendor.trial`. ``cards``: UUID of each card of the
        node to whether it may be tried now, because nobody is on it."""
        self._trial, self._cards, self._count, self._clock = trial, cards, count, clock
        self._interval_s = interval_s
        self._due_s: dict[str, float] = {}
        self._untold = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trials", daemon=True)
        self.faults: Mapping[str, str] = {}
        """UUID to why programs cannot use the card. Replaced as a whole, never changed."""

    def start(self) -> None:
        """Begin on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End it soon. A trial that is under way is not waited for."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.turn()
            except Exception:
                log.exception("trying the cards failed, trying again")
            self._stopping.wait(STEP_S)

    def turn(self) -> None:
        """Try each card that is due. Called by the thread, or by a test."""
        known = self._cards()
        self._due_s = {uuid: due_s for uuid, due_s in self._due_s.items() if uuid in known}
        self.faults = {uuid: fault for uuid, fault in self.faults.items() if uuid in known}
        for uuid in sorted(known):
            if self._stopping.is_set():
                return
            due = self._clock() >= self._due_s.get(uuid, float("-inf"))
            if due and self._cards().get(uuid):  # asked just before: the last trial may have taken long
                self._try(uuid)

    def _try(self, uuid: str) -> None:
        outcome: Outcome
        try:
            fault = self._trial(uuid)
            outcome = "fault" if fault else "well"
        except UntoldError as error:
            fault, outcome = self.faults.get(uuid, ""), "untold"
            if self._untold != str(error):
                self._untold = str(error)
                log.warning("whether programs can use card %s is not known: %s", uuid, error)
        others = {one: why for one, why in self.faults.items() if one != uuid}
        self.faults = others | ({uuid: fault} if fault else {})
        self._due_s[uuid] = self._clock() + (min(AGAIN_S, self._interval_s) if fault else self._interval_s)
        self._count(outcome)
