"""What keeps containers to their memory on a card, and to their time: one vocabulary for nodes, asks and
sentences. Pure.

Each card has one of the words of :data:`Backend`, and each node one of :data:`Compute`. Their agent tells
them. A pod may ask for a word of the first kind, for ``mps``, or for ``any``. An ask is a condition on its
node, as the conditions on its software are."""

from collections.abc import Iterable
from typing import Final, Literal, get_args

from vc_egpu.core.environments.needs import Atom

Backend = Literal["library", "driver", "hardware", "vendor-file", "none"]
"""Our library in the program, the card's own driver, the card itself, a file that the vendor's library reads,
or nothing at all."""
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
Compute = Literal["library", "mps", "timeslice"]
"""What shares time: our library in the program, or NVIDIA's MPS server for programs of one namespace. With
``timeslice`` it is nothing of ours: programs take turns, as the driver has it."""
MPS: Final = "mps"
ANY: Final = "any"
ASKS: Final = (*BACKENDS, MPS, ANY)
"""What a pod may ask for. ``any`` is the same as no ask."""
FACT: Final = "isolation"
"""What a node tells of its cards, among the facts of its software."""
COMPUTE_FACT: Final = "compute"
"""The same of what shares their time."""
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
_TIME_SAID: Final = {
    "library": "the isolation library in the program",
    "mps": "an MPS server for the programs of one namespace",
    "timeslice": "the driver's time slice",
}


def condition(asked: str) -> Atom | None:
    """What an ask means for a node; None where any will do. Slices are found by their layout: ``hardware`` is
    no condition either."""
    if asked in {"", ANY, "hardware"}:
        return None
    if asked == MPS:
        return Atom(COMPUTE_FACT, "==", MPS)
    words = _MET_BY.get(asked, (asked,))
    return Atom(FACT, "in", "|".join(words)) if len(words) > 1 else Atom(FACT, "==", words[0])


def told(words: Iterable[str]) -> tuple[str, ...]:
    """The fact of a node with cards of these words."""
    return tuple(sorted(set(words)))


def said(word: str) -> str:
    """What it is, for sentences. A word of a later version stands for itself."""
    return _SAID.get(word, word)


def said_of_time(word: str) -> str:
    """The same for what shares time."""
    return _TIME_SAID.get(word, word)


def shown(memory: str, compute: str) -> str:
    """Both in one word, for tables: what holds memory, and what shares time where that is not the library."""
    return memory if compute == "library" else f"{memory}+{compute}"
