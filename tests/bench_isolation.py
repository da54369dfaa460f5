"""What the in-container library keeps of its word, on the fake card: `make bench-isolation`.

Everything but the overhead is judged by the card's timeline. The last line is one JSON object; null is not
measured. `--quick` runs a tenth of the matrix.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "device-plugin", "vc-egpu")]

from unit.native.time_worlds import FREE, HARD, HIGH, LOW, SOFT, Box, Machine  # noqa: E402  the path comes first

MS: Final = 1_000_000
SECOND: Final = 1000 * MS
LONG_GAP_NS: Final = 5 * MS
QUICK: Final = "--quick" in sys.argv
RUN_S: Final = 2.0 if QUICK else 10.0
LOADS: Final = (20, 50)
WARM_NS: Final = 300 * MS
Span = tuple[int, int]


@contextmanager
def machine(mode: str = "fifo") -> Iterator[Machine]:
    """A machine whose timeline lies in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        made = Machine(Path(folder) / "m", mode)
        try:
            yield made
        finally:
            made.close()


def span_of(says: Sequence[dict[str, Any]]) -> Span:
    """When all of them ran, less a start."""
    return max(say["from_ns"] for say in says) + WARM_NS, min(say["to_ns"] for say in says) - 50 * MS


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Of a list that may be empty."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)] if values else None


def caps() -> tuple[float, float]:
    """Points that a hard share was missed by; and by which a second went past it and one unit."""
    worst = beyond = 0.0
    lengths = ("50000", f"{MS}", f"{20 * MS}", f"50000,{MS},{20 * MS}")
    groups = ((50,), (30, 60), (10, 20, 30, 40))
    for kernels in lengths[:2] if QUICK else lengths:
        for group in groups[:2] if QUICK else groups:
            with machine() as card:
                boxes = [Box(f"c{index}", HARD, cores) for index, cores in enumerate(group)]
                card.add(*boxes)
                programs = [card.start(box.name, "run", RUN_S, 1000, kernels) for box in boxes]
                says = card.together(programs, RUN_S * 3)
                span = span_of(says)
                used = card.used(*span)
                for box, say in zip(boxes, says, strict=True):
                    one = used[say["pid"], 0]
                    points = 100 * one.busy_ns / (span[1] - span[0]) - box.cores
                    over = (one.busiest_second_ns - one.longest_ns) * 100 / SECOND - box.cores
                    worst, beyond = max(worst, abs(points)), max(beyond, over)
                    what = f"cap {box.cores:3} of {group}, kernels {kernels}"
                    print(f"{what}: {points:+.2f} points, busiest second {over:+.2f}")
    return worst, beyond


def soft_weights() -> float:
    """Points that a soft share's part by weight was missed by at most."""
    worst = 0.0
    for weights in ((25, 75), (50, 50), (10, 20, 70)):
        with machine() as card:
            boxes = [Box(f"c{index}", SOFT, 1, weight) for index, weight in enumerate(weights)]
            card.add(*boxes)
            says = card.together([card.start(box.name, "run", RUN_S, 1000, MS) for box in boxes], RUN_S * 3)
            span = span_of(says)
            used = card.used(*span)
            for weight, say in zip(weights, says, strict=True):
                points = 100 * used[say["pid"], 0].busy_ns / (span[1] - span[0]) - weight
                worst = max(worst, abs(points))
                print(f"weight {weight} of {weights}: {points:+.2f} points")
    return worst


Stretch = tuple[int, int, int]
"""Enqueued, start and end in ns."""


def gaps_of(high: Sequence[Stretch]) -> list[Span]:
    """Where high left the card for longer than 5 ms: its last end, its next launch."""
    pairs = [(before[2], after[0]) for before, after in pairwise(high)]
    return [(end, launch) for end, launch in pairs if launch - end > LONG_GAP_NS]


def hold_of(low: Sequence[Stretch], launch: int) -> int:
    """How long after that launch the low unit ended that ran then."""
    return max((row[2] for row in low if row[1] < launch < row[2]), default=launch) - launch


def release_of(low: Sequence[Stretch], end: int, launch: int) -> int:
    """How long after that end the next low unit began."""
    return min((row[1] for row in low if row[1] >= end), default=launch) - end


def kept_of(low: Sequence[Stretch], gaps: Sequence[Span]) -> float | None:
    """The part of these gaps that low used."""
    idle = sum(launch - end for end, launch in gaps)
    used = sum(max(0, min(row[2], launch) - max(row[1], end)) for end, launch in gaps for row in low)
    return used / idle if idle else None


def beside(load: int, kernel_ns: int) -> dict[str, Any]:
    """Inference beside training: latencies, and what training keeps."""
    with machine() as card:
        card.add(Box("high", share_class=HIGH), Box("low", share_class=LOW))
        (alone,) = card.together([card.start("high", "serve", RUN_S, load)], RUN_S * 3)
        programs = [card.start("high", "serve", RUN_S, load), card.start("low", "run", RUN_S, 100, kernel_ns)]
        says = card.together(programs, RUN_S * 3)
        span = span_of(says)
        rows = sorted(card.stretches(*span), key=lambda row: row[2])
        high = [row[1:] for row in rows if row[0] == says[0]["pid"]]
        low = [row[1:] for row in rows if row[0] == says[1]["pid"]]
        gaps = gaps_of(high)
        return {
            "p99_ratio": says[0]["p99_ns"] / alone["p99_ns"],
            "p50_ratio": says[0]["p50_ns"] / alone["p50_ns"],
            "low_of_alone": sum(row[2] - row[1] for row in low) / (span[1] - span[0]),
            "kept": kept_of(low, gaps),
            "holds": [hold_of(low, launch) for _, launch in gaps],
            "releases": [release_of(low, end, launch) for end, launch in gaps],
        }


def overhead() -> tuple[float, float]:
    """CPU time that a launch costs more: median over batches of 100, 99th percentile of single ones."""
    bare, ours = [], []
    for _ in range(3 if QUICK else 7):
        with machine() as card:
            card.add(Box("a", HARD, 90), Box("b", FREE))
            bare += card.together([card.start("a", "cost", 1000, preload=False)])
            ours += card.together([card.start("a", "cost", 1000)])
    p50 = statistics.median(one["p50_ns"] for one in ours) - statistics.median(one["p50_ns"] for one in bare)
    p99 = statistics.median(one["p99_ns"] for one in ours) - statistics.median(one["p99_ns"] for one in bare)
    return p50, p99


def main() -> None:
    """Runs the matrix and prints the answer."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs: wake-ups come late on a busy machine")
    added = overhead()
    print(f"added per launch: p50 {added[0]:.0f} ns, p99 {added[1]:.0f} ns")
    cap, second = caps()
    soft = soft_weights()
    runs = {(load, length): beside(load, length) for load in LOADS for length in (50_000, MS)}
    for (load, length), one in runs.items():
        shown = {name: round(value, 3) for name, value in one.items() if isinstance(value, float)}
        print(f"load {load} %, training kernels of {length} ns: {shown}")
    by_load = {load: [one for (at, _), one in runs.items() if at == load] for load in LOADS}
    kept = [one["kept"] for one in runs.values() if one["kept"] is not None]
    holds = percentile([hold for one in runs.values() for hold in one["holds"]], 99)
    releases = percentile([wait for one in runs.values() for wait in one["releases"]], 99)
    answer = {
        "cap_error_points_max": round(cap, 2),
        "cap_second_beyond_points_max": round(second, 2),
        "soft_weight_error_points_max": round(soft, 2),
        "p99_ratio": {str(load): max(one["p99_ratio"] for one in by_load[load]) for load in LOADS},
        "p50_ratio": {str(load): max(one["p50_ratio"] for one in by_load[load]) for load in LOADS},
        "native_p99_ratio": None,
        "low_kept_of_alone": {f"{load}": runs[load, 50_000]["low_of_alone"] for load in LOADS},
        "low_kept_of_idle": round(min(kept), 3) if kept else None,
        "hold_p99_us": None if holds is None else holds / 1000,
        "release_p99_us": None if releases is None else releases / 1000,
        "added_ns_p50": added[0],
        "added_ns_p99": added[1],
        "suspend_gib_per_s": None,
        "resume_gib_per_s": None,
        "driver": "fake",
        "device": "fake",
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
