"""Small pieces of text that messages are made of."""

from collections.abc import Sequence
from typing import Final

FEW: Final = 3
"""Names that a sentence can bear."""


def few(names: Sequence[str], most: int = FEW) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
