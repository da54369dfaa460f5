"""Ask all clusters at once, and wait for none of them longer than its time."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from vc_egpu.cli.sites.catalogue import Site

CLUSTER_TIMEOUT_S: Final = 3.0
"""For all that one cluster is asked."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Heard(Generic[_Answer]):
    """What came of one cluster: an answer, or an error in its place."""

    site: Site
    answer: _Answer | None = None
    error: Exception | None = None
    """None without an answer: it did not answer in time."""


def ask(
    sites: Sequence[Site],
    question: Callable[[Site], _Answer],
    within_s: float = CLUSTER_TIMEOUT_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[Heard[_Answer], ...]:
    """Ask each on a thread of its own, in the order of ``sites``.

    A cluster that hangs is left behind: its thread ends with the process. ``question`` may raise anything.
    """
    told: SimpleQueue[tuple[int, Heard[_Answer]]] = SimpleQueue()

    def run(index: int, site: Site) -> None:
        try:
            told.put((index, Heard(site, answer=question(site))))
        except Exception as error:  # noqa: BLE001 - shown in its row
            told.put((index, Heard(site, error=error)))

    for index, site in enumerate(sites):
        threading.Thread(target=run, args=(index, site), name=f"ask-{site.name}", daemon=True).start()
    found: list[Heard[_Answer]] = [Heard(site) for site in sites]
    end, missing = monotonic() + within_s, len(found)
    while missing and (left_s := end - monotonic()) > 0:
        try:
            index, heard = told.get(timeout=left_s)
        except Empty:
            break
        found[index] = heard
        missing -= 1
    return tuple(found)
