"""Training of a recorded table of pods in place of drawn Jobs: their sizes, lengths and hours of the day.

The table is that of ``openb``: see :mod:`vc_egpu.sim.table`. It tells when pods came and went and what they
asked for, and nothing of requests. So inference stays drawn, and only best-effort pods are taken.
"""

from collections import defaultdict
from pathlib import Path
from typing import Final

from vc_egpu.sim.day.traffic import DAY_S, Training
from vc_egpu.sim.table import CARD_MILLI, Row, TableError, rows_of

BEST_EFFORT: Final = "BE"
SHORTEST_S: Final = 60.0
"""Shorter ones failed at their start."""


def recorded(path: Path, card_hours: float) -> tuple[Training, ...]:
    """Jobs that ask for so many card-hours at least.

    One day of the trace has few, so days are laid over each other by the hour, the last one first. A pod that
    asked for a part of a card has that part of its time as work. Raises ``OSError``, and :class:`TableError`
    where the table has too few.
    """
    days: dict[int, list[Training]] = defaultdict(list)
    for line, row in rows_of(path):
        try:
            found = _training(row)
        except (KeyError, ValueError) as error:
            raise TableError(f"{path}:{line}: {error}") from error
        if found is not None:
            day, job = found
            days[day].append(job)
    taken: list[Training] = []
    asked_h = 0.0
    for day in sorted(days, reverse=True):
        if asked_h >= card_hours:
            break
        taken += days[day]
        asked_h += sum(job.members * job.work_s for job in days[day]) / 3600
    if asked_h < card_hours:
        raise TableError(f"{path}: its best-effort pods ask for {asked_h:.0f} card-hours of {card_hours:.0f}")
    return tuple(sorted(taken, key=lambda job: (job.arrival_s, job.name)))


def _training(row: Row) -> tuple[int, Training] | None:
    """The day on which it came, and the Job; None for what is none."""
    cards = int(row["num_gpu"])
    if row["qos"] != BEST_EFFORT or not cards or not row["scheduled_time"]:
        return None
    came_s = float(row["creation_time"])
    lasted_s = float(row["deletion_time"]) - float(row["scheduled_time"])
    work_s = lasted_s * int(row["gpu_milli"]) / CARD_MILLI
    if work_s < SHORTEST_S:
        return None
    return int(came_s // DAY_S), Training(row["name"], cards, work_s, came_s % DAY_S)
