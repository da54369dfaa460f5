"""Pauses after a move that was given up: neither for the same gang nor of the same gang is one tried at once.

What was given up stands on the PodGroup of the gang that stayed. The snapshot also has the moves of gangs
that are gone since. So the next leader knows of both.
"""

from typing import Final

from vc_egpu.core.model.cluster import Instant, Move
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.trial.trial import Trial

_FIRST_S: Final = 60.0
_LONGEST_S: Final = 3600.0
FORGOTTEN_S: Final = 2 * _LONGEST_S
"""What was given up longer ago than this makes no pause longer."""


def pause_s(given_up: int) -> float:
    """How long no such move is tried after so many that were given up: it doubles up to an hour."""
    return float(min(_LONGEST_S, _FIRST_S * 2 ** (given_up - 1))) if given_up > 0 else 0.0


def given_up(move: Move | None, now: Instant) -> int:
    """How many moves of a gang were given up one after the other, the last of them lately."""
    lately = move is not None and move.stays and -CLOCK_SKEW_S <= now - move.at < FORGOTTEN_S
    return move.given_up if move is not None and lately else 0


def rests(move: Move | None, now: Instant) -> bool:
    """Whether the gang is not moved now, since a move of it was given up."""
    count = given_up(move, now)
    return move is not None and count > 0 and now - move.at < pause_s(count)


def resting(trial: Trial) -> frozenset[str]:
    """The gangs that wait, and for which no other gang moves now."""
    tried: dict[str, dict[Instant, int]] = {}
    for move in trial.index.all_moves():
        count = given_up(move, trial.now)
        if move.whom and count:
            at = tried.setdefault(move.whom, {})  # what was given up together counts once
            at[move.at] = max(at.get(move.at, 0), count)
    return frozenset(whom for whom, at in tried.items() if trial.now - max(at) < pause_s(sum(at.values())))
