"""What the in-container library keeps of its word, on the fake card in real time: `make bench-isolation`.

Everything but the overhead is judged by the card's timeline. The last line is one JSON object with the keys
of `make bench-gpu`; null is not measured. The whole matrix takes about 20 minutes on a machine at rest; what
is done is kept, so that a run that was cut off goes on where it was (`--fresh`: from the beginning);
`--quick` takes two, `--overhead` measures nothing but what a launch costs. The same without a clock, alike
everywhere: tests/unit/native/test_time_matrix.py.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "device-plugin", "vc-egpu")]

import numpy as np  # noqa: E402  the path comes first
from gpu.judge import gaps_of, holds_of, kept_of, percentile, releases_of  # noqa: E402  the path comes first
from unit.native.time_worlds import BUILD, FREE, HARD, HIGH, LOW, SOFT, Box, Machine  # noqa: E402  the path comes first


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: about two minutes")
    parser.add_argument("--fresh", action="store_true", help="forget what a run that was cut off has done")
    parser.add_argument("--overhead", action="store_true", help="nothing but what a launch costs more")
    return parser.parse_args()


MS: Final = 1_000_000
SECOND: Final = 1000 * MS
OPTIONS: Final = _options()
QUICK: Final[bool] = OPTIONS.quick
RUN_S: Final = 2.0 if QUICK else 10.0
UNITS: Final = 20 if QUICK else 200
"""A run holds at least so many kernels of the smallest share."""
SERVE_S: Final = 4.0 if QUICK else 12.0
ROUNDS: Final = 1 if QUICK else 3
LOADS: Final = (20, 50)
WARM_NS: Final = 300 * MS
SHORT: Final = 50_000
LONG: Final = 20 * MS
MIXED: Final = f"{SHORT},{MS},{LONG}"
GROUPS: Final = ((50,), (30, 60)) if QUICK else ((50,), (90,), (30, 60), (10, 20, 70), (10, 20, 30, 40))
KERNELS: Final = (SHORT, MS) if QUICK else (SHORT, MS, LONG, MIXED)
GRAPHS_MS: Final = (1,) if QUICK else (1, 30)
BEGAN_S: Final = time.monotonic()
MEASURE: Final = BUILD / "programs" / "measure"
Span = tuple[int, int]
Cell = dict[str, Any]


def tell(text: str) -> None:
    """One line of progress."""
    print(f"[{time.monotonic() - BEGAN_S:5.0f} s] {text}", flush=True)


@contextmanager
def machine(mode: str = "fifo") -> Iterator[Machine]:
    """A machine whose timeline lies in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        made = Machine(Path(folder) / "m", mode)
        try:
            yield made
        finally:
            made.close()


class Book:
    """Results of finished cells, kept on disk until all are done."""

    def __init__(self) -> None:
        what = hashlib.sha256(Path(__file__).read_bytes())
        for name in ("libvgpu-egpu.so", "libcuda.so.1", "time-actor"):
            what.update((BUILD / name).read_bytes())
        kind = "quick" if QUICK else "whole"
        self._path = ROOT / "build" / f"bench-isolation-{kind}-{what.hexdigest()[:12]}.json"
        self._cells: dict[str, Cell] = {}
        if not OPTIONS.fresh and self._path.exists():
            self._cells = json.loads(self._path.read_text())
            tell(f"{len(self._cells)} cells are there from a run before: {self._path}")

    def cell(self, name: str, measure: Callable[[], Cell]) -> Cell:
        """What it gave, now or before."""
        if name not in self._cells:
            self._cells[name] = measure()
            self._path.parent.mkdir(exist_ok=True)
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps(self._cells))
            draft.rename(self._path)
            shown = {key: value for key, value in self._cells[name].items() if not isinstance(value, list)}
            tell(f"{name}: {shown}")
        return self._cells[name]

    def done(self) -> None:
        """The next run begins anew."""
        self._path.unlink(missing_ok=True)


def span_of(says: Sequence[dict[str, Any]]) -> Span:
    """When all of them ran, less a start."""
    return max(say["from_ns"] for say in says) + WARM_NS, min(say["to_ns"] for say in says) - 50 * MS


# --- shares -------------------------------------------------------------------------------------------


class Load(NamedTuple):
    """What each container of a group does."""

    words: tuple[object, ...]
    mean_ns: float
    processes: int = 1

    @property
    def name(self) -> str:
        """For the book."""
        return f"{' '.join(map(str, self.words))} in {self.processes}"


def _seconds(load: Load, least_percent: int) -> float:
    return max(RUN_S, UNITS * load.mean_ns * 100 / least_percent / SECOND)


def hard(group: tuple[int, ...], load: Load) -> Cell:
    """Points by which each was missed at most, and by which a second went past a share and one unit."""
    seconds = _seconds(load, min(group))
    with machine() as card:
        boxes = [Box(f"c{index}", HARD, cores) for index, cores in enumerate(group)]
        card.add(*boxes)
        kind, *rest = load.words
        names = [box.name for box in boxes for _ in range(load.processes)]
        says = card.together([card.start(name, kind, seconds, *rest) for name in names], seconds * 3 + 60)
        span = span_of(says)
        used = card.used(*span)
        missed = beyond = 0.0
        for box in boxes:
            mine = [used[say["pid"], 0] for name, say in zip(names, says, strict=True) if name == box.name]
            points = 100 * sum(one.busy_ns for one in mine) / (span[1] - span[0]) - box.cores
            missed = points if abs(points) > abs(missed) else missed
            if len(mine) == 1:
                over = (mine[0].busiest_second_ns - mine[0].longest_ns) * 100 / SECOND - box.cores
                beyond = max(beyond, over)
        return {"points": round(missed, 2), "second_beyond": round(beyond, 2)}


def soft(weights: tuple[int, ...], kernel_ns: int) -> Cell:
    """Points that a part by weight was missed by at most."""
    seconds = _seconds(Load((), kernel_ns), min(weights))
    with machine() as card:
        boxes = [Box(f"c{index}", SOFT, 1, weight) for index, weight in enumerate(weights)]
        card.add(*boxes)
        programs = [card.start(box.name, "run", seconds, 1000, kernel_ns) for box in boxes]
        says = card.together(programs, seconds * 3 + 60)
        span = span_of(says)
        used = card.used(*span)
        points = [
            100 * used[say["pid"], 0].busy_ns / (span[1] - span[0]) - weight
            for weight, say in zip(weights, says, strict=True)
        ]
        worst = max(points, key=abs)
        return {"points": round(worst, 2)}


def changed(kernel_ns: int) -> Cell:
    """From 80 to 20 in the midst: points above 20 from 200 ms after it on."""
    with machine() as card:
        card.add(Box("a", HARD, 80))
        running = card.start("a", "run", RUN_S, 1000, kernel_ns)
        running.begin()
        time.sleep(RUN_S / 2)
        card.change("a", cores=20)
        at = time.monotonic_ns() + 200 * MS
        said = running.result()
        span = at, said["to_ns"]
        return {"points": round(100 * card.used(*span)[said["pid"], 0].busy_ns / (span[1] - span[0]) - 20, 2)}


# --- classes ------------------------------------------------------------------------------------------


def serving(load: int, seed: int, low: object | None, *, ours: bool = True) -> Cell:
    """Inference alone, or beside training with kernels of that length; without the library in time slices.
    The same seed: requests come at the same times."""
    with machine("fifo" if ours else "slices") as card:
        card.add(Box("high", share_class=HIGH), Box("low", share_class=LOW))
        words = ("--seconds", round(SERVE_S), "--load", load, "--seed", seed)
        programs = [card.start("high", "serve", *words, preload=ours, program=MEASURE)]
        if low is not None:
            programs.append(card.start("low", "run", SERVE_S, 100, low, preload=ours))
        says = card.together(programs, SERVE_S * 3 + 60)
        answer: Cell = {"p99_ns": says[0]["took_p99_ns"], "p50_ns": says[0]["took_p50_ns"]}
        if low is None or not ours:
            return answer
        span = span_of(says)
        table = np.array(card.stretches(*span), np.int64).reshape(-1, 4)
        rows = [table[table[:, 0] == say["pid"]][:, 1:] for say in says]
        high_rows, low_rows = (one[np.argsort(one[:, 1], kind="stable")] for one in rows)
        gaps = gaps_of(high_rows)
        busy = int((np.clip(low_rows[:, 2], *span) - np.clip(low_rows[:, 1], *span)).sum())
        return answer | {
            "low_of_alone": round(busy / (span[1] - span[0]), 3),
            "kept": kept_of(low_rows, gaps),
            "holds": holds_of(high_rows, low_rows, gaps),
            "releases": releases_of(low_rows, gaps),
        }


BESIDE: Final = {
    "unset": (Box("a", HARD, 90), Box("b", FREE)),
    "low": (Box("a", HARD, 90, share_class=LOW), Box("b", FREE, share_class=HIGH)),
    "high": (Box("a", HARD, 90, share_class=HIGH), Box("b", FREE, share_class=LOW)),
}
"""Under a hard cap, beside an idle neighbour, by class."""


def overhead() -> Cell:
    """What a launch costs more, by class: median over batches of 100, 99th percentile of single ones as they
    come in bursts, and of such as follow a wait for the card.

    One program launches with the library and without it in turn, so that both meet the same machine; what is
    subtracted are percentiles of the same run. The median of the runs, and the least.
    """
    more: dict[str, list[Cell]] = {name: [] for name in BESIDE}
    for _ in range(5 if QUICK else 15):
        for name, boxes in BESIDE.items():
            with machine() as card:
                card.add(*boxes)
                words = ("cost", 1000, BUILD / "libvgpu-egpu.so")
                (said,) = card.together([card.start("a", *words, preload=False)])
                more[name].append({key: said["with"][key] - said["without"][key] for key in said["with"]})
    return {
        name: {
            "p50_ns": round(statistics.median(run["p50_ns"] for run in runs)),
            "p99_ns": round(statistics.median(run["single_p99_ns"] for run in runs)),
            "p99_least_ns": min(run["single_p99_ns"] for run in runs),
            "waited_p99_ns": round(statistics.median(run["waited_p99_ns"] for run in runs)),
        }
        for name, runs in more.items()
    }


# --- all of it ----------------------------------------------------------------------------------------


def shares(book: Book) -> tuple[float, float, float]:
    """Points by which hard shares were missed, seconds went beyond, soft weights were missed, at most."""
    means = {SHORT: SHORT, MS: MS, LONG: LONG, MIXED: (SHORT + MS + LONG) / 3}
    loads = [Load(("run", 1000, kernels), means[kernels]) for kernels in KERNELS]
    loads += [Load(("graph", 10, 100_000 * each), 1.0 * MS * each) for each in GRAPHS_MS]
    cells = [book.cell(f"hard {group}, {load.name}", partial(hard, group, load))
             for load in loads for group in GROUPS]  # fmt: skip
    for kernels in (SHORT, MS):
        load = Load(("run", 1000, kernels), kernels, processes=2)
        cells.append(book.cell(f"hard (30, 60), {load.name}", partial(hard, (30, 60), load)))
    weighed = [book.cell(f"soft {weights}, {kernels}", partial(soft, weights, kernels))
               for weights in ((25, 75), (50, 50), (10, 20, 70))
               for kernels in ((MS,) if QUICK else (SHORT, MS, LONG))]  # fmt: skip
    for kernels in (SHORT, MS, LONG):
        book.cell(f"80 becomes 20, {kernels}", partial(changed, kernels))
    return (
        max(abs(cell["points"]) for cell in cells),
        max(cell["second_beyond"] for cell in cells),
        max(abs(cell["points"]) for cell in weighed),
    )


def classes(book: Book) -> Cell:
    """Latencies by load: alone, beside and natively in turn; the median of the rounds, the worst length."""
    answer: Cell = {"p99": {}, "native": {}, "of_alone": {}, "kept": [], "holds": {}, "releases": []}
    for load in LOADS:
        alone, native = [], []
        beside: dict[int | str, list[Cell]] = {kernels: [] for kernels in KERNELS}
        for turn in range(ROUNDS):
            name = f"load {load} %, round {turn + 1}"
            alone.append(book.cell(f"{name}, alone", partial(serving, load, turn, None))["p99_ns"])
            for kernels in KERNELS:
                beside[kernels].append(
                    book.cell(f"{name}, training {kernels}", partial(serving, load, turn, kernels))
                )
            cell = book.cell(f"{name}, time-slicing", partial(serving, load, turn, MS, ours=False))
            native.append(cell["p99_ns"])
        rounds = {
            kernels: [cell["p99_ns"] / base for cell, base in zip(cells, alone, strict=True)]
            for kernels, cells in beside.items()
        }
        ratios = {kernels: statistics.median(values) for kernels, values in rounds.items()}
        for kernels, cells in beside.items():
            spread = [round(value, 3) for value in rounds[kernels]]
            tell(f"load {load} %, training {kernels}: p99 {ratios[kernels]:.3f} times alone, rounds {spread}")
            answer["kept"] += [cell["kept"] for cell in cells if cell["kept"] is not None]
            answer["holds"].setdefault(str(kernels), []).extend(h for cell in cells for h in cell["holds"])
            answer["releases"] += [wait for cell in cells for wait in cell["releases"]]
        answer["p99"][str(load)] = {str(kernels): round(ratio, 3) for kernels, ratio in ratios.items()}
        answer["native"][str(load)] = round(
            statistics.median(one / base for one, base in zip(native, alone, strict=True)), 3
        )
        kept = statistics.median(cell["low_of_alone"] for cell in beside[SHORT])
        answer["of_alone"][str(load)] = round(kept, 3)
    return answer


def main() -> None:
    """Runs the matrix and prints the answer."""
    tell(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs: wake-ups come late on a busy machine")
    if OPTIONS.overhead:
        print(json.dumps(overhead()))
        return
    book = Book()
    added = book.cell("overhead", overhead)
    cap, beyond, weighed = shares(book)
    tell(f"hard within {cap:.2f} points, no second more than {beyond:.2f} beyond, soft within {weighed:.2f}")
    served = classes(book)
    for load, by_length in served["p99"].items():
        tell(f"load {load} %: p99 to alone by length of training's kernels: {by_length}")
    release = percentile(served["releases"], 99)
    holds = {kernels: percentile(values, 99) for kernels, values in served["holds"].items()}
    answer = {
        "cap_error_points_max": round(cap, 2),
        "soft_weight_error_points_max": round(weighed, 2),
        "p99_ratio": {load: by_length[str(MS)] for load, by_length in served["p99"].items()},
        "native_p99_ratio": served["native"],
        "low_kept_of_alone": served["of_alone"],
        "low_kept_of_idle": round(min(served["kept"]), 3) if served["kept"] else None,
        "hold_p99_us": {
            "mixed" if kernels == MIXED else str(int(kernels) // 1000): round(hold / 1000, 1)
            for kernels, hold in holds.items()
            if hold is not None
        },
        "release_p99_us": None if release is None else round(release / 1000, 1),
        "added_ns_p50": max(one["p50_ns"] for one in added.values()),
        "added_ns_p99": max(one["p99_ns"] for one in added.values()),
        "suspend_gib_per_s": None,
        "resume_gib_per_s": None,
        "driver": "fake",
        "device": "fake",
    }
    book.done()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
