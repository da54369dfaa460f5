"""How much a decision may spend on searches, so that no gang keeps all others waiting.

Counted, not timed: equal clusters give equal answers. One unit is one node looked at in one step of a search,
a few microseconds.
"""

from dataclasses import dataclass
from typing import Final

DECISION: Final = 300_000
"""Units of a whole decision: about a second. A small cluster's hardest gang needs a tenth of it."""
GROUP: Final = 40
"""Units of placing one group of alike members."""
_FEW_GROUPS: Final = 8
"""Placing so many groups is no search yet."""
ROOM: Final = 400_000
"""Possible victims looked at for all gangs for which room was made: some ten seconds.

Gangs that come later are tried in the next decision. What was decided has to be written some time, however
many wait."""


@dataclass(slots=True)
class Effort:
    """Each gang may use up to half of what those before it have left."""

    left: int = DECISION
    turn: int = DECISION // 2
    """The part that the present gang may use."""
    room: int = ROOM
    """Possible victims. Only gangs that find some use it up: those that cannot must not keep others out."""

    def begin_turn(self) -> None:
        """Another gang is tried."""
        self.turn = self.left // 2

    @property
    def spent(self) -> bool:
        """Whether the gang has had its part: what needs no search is still tried once."""
        return self.turn <= 0

    def steps(self, nodes: int) -> int:
        """How many steps over so many nodes are left to the gang."""
        return max(0, self.turn) // max(1, nodes)

    def searched(self, steps: int, nodes: int) -> None:
        """So many steps over so many nodes were done."""
        self._spend(steps * nodes)

    def placed(self, groups: int) -> None:
        """So many groups were placed one after the other."""
        if groups > _FEW_GROUPS:
            self._spend(groups * GROUP)

    def made_room(self, victims: int) -> None:
        """Some of so many pods go for a gang."""
        self.room = max(0, self.room - victims)

    def _spend(self, units: int) -> None:
        self.left = max(0, self.left - units)
        self.turn -= units
