"""Days of inference and training, with and without sharing: prints one JSON object as its last line.

    [SEEDS=5] [NODES=3] [HOURS=24] [OPENB_DIR=…] [PICTURES=build] python e2e/bench_day.py

``{training: {way: {figure: {"median", "least", "most"}}}}`` over the seeds 1 to ``SEEDS``. ``training`` is
``drawn``, and with ``OPENB_DIR`` also ``recorded``: best-effort pods of that trace. The figures are
"held_card_hours", "inference_card_hours", "training_card_hours", "used_percent", "finished", "jobs",
"evictions", "wait_p50_s", "wait_p99_s", "wait_p999_s". Training counts without what evictions lost. A node
has eight cards. ``vc_egpu/sim/day`` says what is played and what is assumed.
"""

import dataclasses
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from vc_egpu.sim.day.front import DARK, LIGHT, as_front_png
from vc_egpu.sim.day.picture import as_png
from vc_egpu.sim.day.played import WAYS, Outcome, Played, Way
from vc_egpu.sim.day.recorded import recorded
from vc_egpu.sim.day.spread import spread
from vc_egpu.sim.day.traffic import day

SEEDS, NODES = int(os.environ.get("SEEDS") or 5), int(os.environ.get("NODES") or 3)
HOURS = float(os.environ.get("HOURS") or 24)
TRACE = os.environ.get("OPENB_DIR") or ""
PICTURES = Path(os.environ.get("PICTURES") or "build")
TRAINING_LOAD: Final = 0.75
SHARED: Final = next(way for way in WAYS if way.shares)
LOSSY: Final = dataclasses.replace(SHARED, name=f"{SHARED.name}, 20 % lost", loss=0.2)
"""The loss is an assumption: what if it is four times as large?"""
PLAYED: Final = (*WAYS, LOSSY)
Task = tuple[str, int, Way]


def played(task: Task) -> Outcome:
    """A day of one seed under one way."""
    source, seed, way = task
    cards = NODES * 8
    today = day(seed, cards, training_load=TRAINING_LOAD)
    if source == "recorded":
        path = Path(TRACE) / "pods-default.csv.gz"
        today = dataclasses.replace(today, training=recorded(path, cards * 24 * TRAINING_LOAD))
    begun = time.monotonic()
    outcome = Played(today, way, NODES).run(HOURS * 3600)
    print(f"{source} {seed} {way.name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return outcome


def main() -> int:
    if not TRACE:
        print("no OPENB_DIR: the recorded training is left out", file=sys.stderr)
    sources = ("drawn", "recorded") if TRACE else ("drawn",)
    tasks = [(source, seed, way) for source in sources for seed in range(1, SEEDS + 1) for way in PLAYED]
    with ProcessPoolExecutor(2) as pool:
        outcomes = dict(zip(tasks, pool.map(played, tasks), strict=True))
    for path in pictures({way: outcomes["drawn", 1, way] for way in WAYS}):
        print(path, file=sys.stderr)
    of_ways = {
        source: {
            way.name: spread([outcomes[source, seed, way] for seed in range(1, SEEDS + 1)]) for way in PLAYED
        }
        for source in sources
    }
    print(json.dumps(of_ways))
    return 0


def pictures(outcomes: dict[Way, Outcome]) -> list[Path]:
    """All ways for those who look closely, and two of them for the front page."""
    *_, best = WAYS
    front = (
        ("Whole cards: inference first, training on what is left", outcomes[best]),
        ("Shares: training in the gaps of inference", outcomes[SHARED]),
    )
    drawn = {
        "day.png": as_png(list(outcomes.values()), f"One day on {NODES * 8} cards, simulated"),
        "one-day.png": as_front_png(front, LIGHT),
        "one-day-dark.png": as_front_png(front, DARK),
    }
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, png in drawn.items():
        (PICTURES / name).write_bytes(png)
    return [PICTURES / name for name in drawn]


if __name__ == "__main__":
    sys.exit(main())
