"""What pods take of extended resources that no node offers: their makers may name any number of them."""

from vc_egpu.core.model.resources import add_to


class Unoffered:
    """By row and name; nothing fits by it, but some node may offer the name later."""

    def __init__(self) -> None:
        self._taken: dict[int, dict[str, int]] = {}

    def add(self, row: int, name: str, amount: int) -> None:
        """Count so much more, or less, on a row."""
        add_to(self._taken.setdefault(row, {}), name, amount)

    def claim(self, name: str) -> dict[int, int]:
        """By row, what is taken of a name that is offered from now on."""
        return {row: amount for row, taken in self._taken.items() if (amount := taken.pop(name, 0))}
