"""Figures of one way over several days: the middle one, the least and the most."""

import statistics
from collections.abc import Sequence

from vc_egpu.sim.day.played import Outcome


def spread(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """By figure of :meth:`Outcome.figures`: ``median``, ``least`` and ``most``."""
    rows = [one.figures() for one in outcomes]
    return {
        name: {
            "median": round(statistics.median(row[name] for row in rows), 1),
            "least": min(row[name] for row in rows),
            "most": max(row[name] for row in rows),
        }
        for name in rows[0]
    }
