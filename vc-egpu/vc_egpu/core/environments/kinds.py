"""What nodes are like, by number, and which of these kinds of nodes meet what a program needs.

A cluster has many nodes and few kinds of them. What a program needs is compared once with each kind, not with
each node.
"""

from typing import Final

from vc_egpu.core.environments.needs import Facts, Needs, is_met

_MOST_NEEDS: Final = 8192
"""Makers of pods decide how many there are. Beyond this they are compared again."""


class NodeKinds:
    """Numbers for the facts of nodes: equal facts, equal number."""

    def __init__(self) -> None:
        self.facts: list[Facts] = []
        """By number."""
        self._numbers: dict[Facts, int] = {}
        self._met: dict[Needs, tuple[int, int]] = {}
        """By needs: the kinds that meet them, one bit each, and how many kinds were looked at."""

    def __len__(self) -> int:
        return len(self.facts)

    def number(self, facts: Facts) -> int:
        """The number of nodes like this; a new one where there was none before."""
        found = self._numbers.get(facts)
        if found is None:
            found = self._numbers[facts] = len(self.facts)
            self.facts.append(facts)
        return found

    def meeting(self, needs: Needs) -> int:
        """The kinds that meet the needs: bit ``n`` is set where the one of number ``n`` does."""
        met, looked_at = self._met.get(needs, (0, 0))
        if looked_at == len(self.facts) and looked_at:
            return met
        for number in range(looked_at, len(self.facts)):
            if is_met(needs, self.facts[number]):
                met |= 1 << number
        if len(self._met) >= _MOST_NEEDS:
            self._met.clear()
        self._met[needs] = (met, len(self.facts))
        return met
