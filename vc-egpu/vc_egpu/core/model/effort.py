"""How much a decision may spend on searches, so that no gang keeps all others waiting.

Counted, not timed: equal clusters give equal answers. One unit is one node looked at in one step of a search,
a few microseconds.
"""

from dataclasses import dataclass
from typing import Final

DECISION: Final = 300_000
"""Units of a whole decision: about a second. A small cluster's hardest gang needs a tenth of it."""
GROUP: Final = 40
"""Units of placing one group of alike members on a small cluster."""
_ROWS_PER_UNIT: Final = 10
"""Placing looks at whole arrays: so many nodes cost as much as one in a search."""
_FEW_GROUPS: Final = 8
"""Placing so many groups in one turn is no search yet. Were they counted, gangs that need no search would
leave those that come later without theirs."""
ROOM: Final = 400_000
"""Possible victims looked at for all gangs for which room was made: some ten seconds.

Gangs that come later are tried in the next decision. What was decided has to be written some time, however
many wait."""

EXPLAINED: Final = 50_000
"""Nodes looked at to say why gangs wait, for all gangs together: some tenth of a second."""


@dataclass(slots=True)
class Effort:
    """Each gang may use up to half of what those before it have left."""

    left: int = DECISION
    turn: int = DECISION // 2
    """The part that the present gang may use."""
    free_groups: int = _FEW_GROUPS
    """How many more may be placed in this turn at no cost."""
    explained: int = EXPLAINED
    """Nodes that may still be looked at for sentences."""
    room: int = ROOM
    """Possible victims. Only gangs that find some use it up: those that cannot must not keep others out."""

    def begin_turn(self) -> None:
        """Another gang is tried."""
        self.turn = self.left // 2
        self.free_groups = _FEW_GROUPS

    @property
    def spent(self) -> bool:
        """Whether the gang has had its part: what needs no search is still tried once."""
        return self.turn <= 0

    @property
    def may_place(self) -> bool:
        """Whether one more group may be placed in this turn, where none has to be."""
        return self.free_groups > 0 or not self.spent

    def steps(self, nodes: int) -> int:
        """How many steps over so many nodes are left to the gang."""
        return max(0, self.turn) // max(1, nodes)

    def searched(self, steps: int, nodes: int) -> None:
        """So many steps over so many nodes were done."""
        self._spend(steps * nodes)

    def placed(self, groups: int, nodes: int) -> None:
        """So many groups were placed one after the other, on a cluster of so many nodes.

        Every placing counts, except for the first few groups of a turn.
        """
        free = min(groups, self.free_groups)
        self.free_groups -= free
        self._spend((groups - free) * (GROUP + nodes // _ROWS_PER_UNIT))

    def explains(self, kinds: int, nodes: int) -> bool:
        """Whether it is worked out what so many kinds of members lack on so many nodes; if so it is counted.

        Gangs that come later in the decision are told no more than how many of their members find a place.
        """
        if self.explained <= 0:
            return False
        self.explained -= kinds * nodes
        return True

    def made_room(self, victims: int) -> None:
        """Some of so many pods go for a gang."""
        self.room = max(0, self.room - victims)

    def _spend(self, units: int) -> None:
        self.left = max(0, self.left - units)
        self.turn -= units
