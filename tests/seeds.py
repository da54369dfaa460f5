"""The seed of this run: each run of the property suites tries other lives than the one before.

``VC_EGPU_SEED`` repeats a run. Otherwise a seed is drawn, and written into the environment: the processes of
pytest-xdist inherit it, so that all of them collect the same tests. The header of pytest and the summary of
a run that failed name it.
"""

import os
import secrets
from typing import Final

VARIABLE: Final = "VC_EGPU_SEED"
_MOST: Final = 1_000_000_000
RUN: Final = int(os.environ.setdefault(VARIABLE, str(secrets.randbelow(_MOST))))


def fresh(count: int, *, after: int = 0) -> range:
    """So many seeds of this run; ``after``: not the first ones, because another test takes those."""
    return range(RUN + after, RUN + after + count)


def again() -> str:
    """How to repeat this run."""
    return f"property suites: seed {RUN} (the same again: {VARIABLE}={RUN})"
