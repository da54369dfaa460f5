"""A day of inference and training, with and without sharing: prints one JSON object as its last line.

    [SEED=1] [NODES=3] [HOURS=24] [PICTURE=build/day.png] python e2e/bench_day.py

``{way: {"held_card_hours", "inference_card_hours", "training_card_hours", "used_percent", "finished",
"jobs", "evictions", "wait_p50_s", "wait_p99_s", "wait_p999_s"}}``. Training counts without what evictions
lost. A node has eight cards. ``vc_egpu/sim/day`` says what is played and what is assumed.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from vc_egpu.sim.day.picture import as_png
from vc_egpu.sim.day.played import WAYS, Outcome, Played, Way
from vc_egpu.sim.day.traffic import day

SEED, NODES = int(os.environ.get("SEED") or 1), int(os.environ.get("NODES") or 3)
HOURS = float(os.environ.get("HOURS") or 24)
PICTURE = Path(os.environ.get("PICTURE") or "build/day.png")


def played(way: Way) -> Outcome:
    """The day under one way."""
    return Played(day(SEED, NODES * 8), way, NODES).run(HOURS * 3600)


def main() -> int:
    with ProcessPoolExecutor(2) as pool:
        outcomes = list(pool.map(played, WAYS))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_bytes(as_png(outcomes, f"One day on {NODES * 8} cards, simulated"))
    print(PICTURE, file=sys.stderr)
    print(json.dumps({one.way.name: one.figures() for one in outcomes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
