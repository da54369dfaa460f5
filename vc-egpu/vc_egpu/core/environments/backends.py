"""What keeps containers to their memory on a card: one vocabulary for nodes, asks and sentences. Pure.

Each card has one of the words of :data:`Backend`, which its node's agent tells. A pod may ask for one of
them, or for ``any``. An ask is a condition on its node, as the conditions on its software are."""

from collections.abc import Iterable
from typing import Final, Literal, get_args

from vc_egpu.core.environments.needs import Atom

Backend = Literal["library", "driver", "hardware", "vendor-file", "none"]
"""Our library in the program, the card's own driver, the card itself, a file that the vendor's library reads,
or nothing at all."""
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
ANY: Final = "any"
ASKS: Final = (*BACKENDS, ANY)
"""What a pod may ask for. ``any`` is the same as no ask."""
FACT: Final = "isolation"
"""What a node tells of its cards, among the facts of its software."""
RESIZABLE: Final[frozenset[str]] = frozenset({"library", "driver"})
"""Their limits change while a program runs."""
HELD: Final[frozenset[str]] = frozenset({"library", "driver"})
"""With these, a share of any size is kept to its memory."""
_MET_BY: Final = {"library": ("driver", "library")}
"""Where the driver holds the memory, the library counts it as well and holds the time."""
_SAID: Final = {
    "library": "the isolation library in the program",
    "driver": "the card's own driver",
    "hardware": "the card itself",
    "vendor-file": "the vendor's library, by a file",
    "none": "nothing",
}


def condition(asked: str) -> Atom | None:
    """What an ask means for a node; None where any will do. Slices are found by their layout: ``hardware`` is
    no condition either."""
    if asked in {"", ANY, "hardware"}:
        return None
    words = _MET_BY.get(asked, (asked,))
    return Atom(FACT, "in", "|".join(words)) if len(words) > 1 else Atom(FACT, "==", words[0])


def told(words: Iterable[str]) -> tuple[str, ...]:
    """The fact of a node with cards of these words."""
    return tuple(sorted(set(words)))


def said(word: str) -> str:
    """What it is, for sentences. A word of a later version stands for itself."""
    return _SAID.get(word, word)
