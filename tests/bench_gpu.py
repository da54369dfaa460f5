"""What sharing costs and keeps on a real NVIDIA GPU that nobody else uses: `make bench-gpu`, under 8 minutes.

Times are those that kernels write themselves. The last line is one JSON object; null is not measured. A part
that fails, or for which no time is left, takes no other with it: it is named under "problems", and the exit
status is 1. With ``VC_EGPU_GPU_ON_FAKE=1`` the same commands run on the fake driver: figures of that are for
nobody.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "device-plugin", "vc-egpu")]

from gpu.judge import gaps_of, holds_of, kept_of, percentile, releases_of  # noqa: E402  the path comes first
from gpu.standalone import (  # noqa: E402  the path comes first
    BUILD,
    MS,
    ON_FAKE,
    SECOND,
    Node,
    Rows,
    Running,
    busy_ns,
    machine,
    why_not,
)

T = TypeVar("T")
QUICK: Final = "--quick" in sys.argv or ON_FAKE
LOADS: Final = (20, 50)
LENGTHS_NS: Final = (50_000, 200_000, MS, 5 * MS, 20 * MS)
ROUNDS: Final = 1 if QUICK else 3
SERVE_S: Final = 4 if QUICK else 9
CAP_S: Final = 3 if QUICK else 5
PULSE_S: Final = 3 if QUICK else 8
SUSPEND_MIB: Final = 1024 if QUICK else 8192
MEMORY_MIB: Final = 4096
WARM_NS: Final = 500 * MS
START_S: Final = 3.0
"""What a program takes to begin and to end, beside what it measures."""
BUDGET_S: Final = float(os.environ.get("VC_EGPU_GPU_BUDGET_S") or ("inf" if ON_FAKE else "460"))
"""Of the whole command."""
BEGAN_S: Final = time.monotonic()


def tell(text: str) -> None:
    """One line of progress."""
    print(f"[{time.monotonic() - BEGAN_S:5.0f} s] {text}", flush=True)


@dataclass(slots=True)
class Parts:
    """What has been measured so far, and what has not."""

    answer: dict[str, Any]
    problems: list[str] = field(default_factory=list)

    def part(self, name: str, takes_s: float, measure: Callable[[], T]) -> T | None:
        """What this part gives; None where it fails or would not be done in time."""
        left_s = BUDGET_S - (time.monotonic() - BEGAN_S)
        if takes_s > left_s:
            self._note(f"{name}: not tried, it takes {takes_s:.0f} s and {left_s:.0f} s are left")
            return None
        try:
            return measure()
        except Exception as error:  # noqa: BLE001 - told in full, and the other parts go on
            traceback.print_exc(file=sys.stdout)
            self._note(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            return None

    def _note(self, text: str) -> None:
        self.problems.append(text)
        tell(f"NOT MEASURED: {text}")

    def put(self, **figures: Any) -> None:
        """Figures of the answer, told at once: the command may be cut off."""
        self.answer |= figures
        tell(f"so far: {json.dumps(figures)}")


@contextmanager
def node() -> Iterator[Node]:
    """A card with nobody on it."""
    made = Node()
    try:
        yield made
    finally:
        made.close()


def span_of(says: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """When all of them ran, less a start."""
    listed = list(says)
    return max(say["from_ns"] for say in listed) + WARM_NS, min(say["to_ns"] for say in listed) - 100 * MS


def worked_ns(rows: Rows, span: tuple[int, int], kernel_ns: int) -> int:
    """GPU time of the kernels that ended in that span. On a real card it is what each takes by itself: its
    stamps also hold what the card did for others meanwhile."""
    if ON_FAKE:
        return busy_ns(rows, *span)
    return int(((rows[:, 2] > span[0]) & (rows[:, 2] <= span[1])).sum()) * kernel_ns


def cap(kernel_ns: int, cores: int) -> float:
    """Points by which a hard share was missed."""
    with node() as card:
        card.add("a", MEMORY_MIB, cores)
        program = card.start("a", "measure", "run", "--seconds", CAP_S, "--ns", kernel_ns, stamps=True)
        (said,) = card.together([program])
        span = span_of([said])
        points = 100 * busy_ns(card.rows(program, said), *span) / (span[1] - span[0]) - cores
    tell(f"cap {cores}, kernels of {kernel_ns} ns: {points:+.2f} points")
    return abs(points)


def soft(weights: tuple[int, int]) -> float:
    """Points by which a soft share was missed at most, of what both did."""
    worst = 0.0
    with node() as card:
        programs = {}
        for index, weight in enumerate(weights):
            card.add(f"c{index}", MEMORY_MIB, weight, core_policy="soft")
            words = ("--seconds", CAP_S, "--ns", MS)
            programs[weight, index] = card.start(f"c{index}", "measure", "run", *words, stamps=True)
        says = card.together(programs.values())
        span = span_of(says)
        done = {
            key: worked_ns(card.rows(program, said), span, MS)
            for (key, program), said in zip(programs.items(), says, strict=True)
        }
    for (weight, _), worked in done.items():
        points = 100 * worked / max(1, sum(done.values())) - weight
        worst = max(worst, abs(points))
        tell(f"weight {weight} of {weights}: {points:+.2f} points")
    return worst


def serving(load: int, seed: int, *, low: bool, ours: bool) -> dict[str, Any]:
    """Inference, alone or beside training, with the library or without: what the card says."""
    with node() as card:
        card.add("high", MEMORY_MIB, share_class="high")
        card.add("low", MEMORY_MIB, share_class="low")
        words = ("--seconds", SERVE_S, "--load", load, "--seed", seed)
        programs: list[Running] = [card.start("high", "measure", "serve", *words, stamps=True, limited=ours)]
        if low:
            more = ("--seconds", SERVE_S, "--kernels", 20, "--ns", MS)
            programs.append(card.start("low", "measure", "train", *more, stamps=True, limited=ours))
        says = card.together(programs)
        rows = [card.rows(one, said) for one, said in zip(programs, says, strict=True)]
        span = span_of(says)
        gaps = gaps_of(rows[0])
        return {
            "p99_ns": says[0]["took_p99_ns"],
            "steps_per_s": says[1]["done"] * SECOND / (says[1]["to_ns"] - says[1]["from_ns"]) if low else 0.0,
            "kept": kept_of(rows[1], gaps) if low else None,
            "releases": releases_of(rows[1], gaps) if low else [],
            "span": span,
        }


def training(ours: bool, names: Sequence[str]) -> list[float]:
    """Steps per second of each."""
    with node() as card:
        for name in names:
            card.add(name, MEMORY_MIB, share_class=name)
        words = ("--seconds", SERVE_S, "--kernels", 20, "--ns", MS)
        says = card.together(
            [card.start(name, "measure", "train", *words, stamps=True, limited=ours) for name in names]
        )
        return [say["done"] * SECOND / (say["to_ns"] - say["from_ns"]) for say in says]


def latency(load: int, turn: int, alone_steps: float | None) -> dict[str, Any]:
    """Alone, beside training that we hold, beside training in the driver's own time slices; in turn."""
    alone = serving(load, turn + 1, low=False, ours=True)
    beside = serving(load, turn + 1, low=True, ours=True)
    sliced = serving(load, turn + 1, low=True, ours=False)
    ours, native = (one["p99_ns"] / max(1, alone["p99_ns"]) for one in (beside, sliced))
    kept, kept_sliced = (
        one["steps_per_s"] / alone_steps if alone_steps else None for one in (beside, sliced)
    )
    tell(
        f"load {load} %, round {turn + 1}: p99 alone {alone['p99_ns'] / MS:.2f} ms, beside training "
        f"{ours:.2f} times that (time-slicing {native:.2f}); training keeps {kept or 0:.2f} (time-slicing "
        f"{kept_sliced or 0:.2f})"
    )
    return {
        "ours": ours,
        "native": native,
        "steps": kept,
        "kept": beside["kept"],
        "releases": beside["releases"],
    }


def latencies(parts: Parts, alone_steps: float | None) -> None:
    """All loads, round after round: what is cut off costs no load all of its rounds."""
    rounds: dict[int, list[dict[str, Any]]] = {load: [] for load in LOADS}
    for turn in range(ROUNDS):
        for load in LOADS:
            takes_s = 3 * (SERVE_S + 2 * START_S)
            found = parts.part(
                f"load {load} %, round {turn + 1}",
                takes_s,
                partial(latency, load, turn, alone_steps),
            )
            rounds[load] += [found] if found is not None else []
        every = [one for listed in rounds.values() for one in listed]
        kept = [one["kept"] for one in every if one["kept"] is not None]
        release = percentile([value for one in every for value in one["releases"]], 99)
        parts.put(
            p99_ratio=_medians(rounds, "ours"),
            native_p99_ratio=_medians(rounds, "native"),
            low_kept_of_alone=_medians(rounds, "steps"),
            low_kept_of_idle=round(min(kept), 3) if kept else None,
            release_p99_us=None if release is None else round(release / 1000, 1),
        )


def _medians(rounds: dict[int, list[dict[str, Any]]], key: str) -> dict[str, float] | None:
    """By load, of the rounds that there are."""
    values = {load: [one[key] for one in listed if one[key] is not None] for load, listed in rounds.items()}
    return {str(load): round(statistics.median(some), 3) for load, some in values.items() if some} or None


def preemption(length_ns: int) -> float | None:
    """99th percentile in us for that length of low's kernels: high's launch until low's last unit ended."""
    with node() as card:
        card.add("high", MEMORY_MIB, share_class="high")
        card.add("low", MEMORY_MIB, share_class="low")
        words = ("--seconds", PULSE_S, "--period-us", 40_000, "--ns", 2 * MS)
        high = card.start("high", "measure", "pulse", *words, stamps=True)
        more = ("--seconds", PULSE_S, "--depth", 100, "--ns", length_ns)
        low = card.start("low", "measure", "run", *more, stamps=True)
        says = card.together([high, low])
        rows = [card.rows(one, said) for one, said in zip((high, low), says, strict=True)]
    holds = holds_of(rows[0], rows[1], gaps_of(rows[0]))
    p50, p99 = percentile(holds, 50), percentile(holds, 99)
    if p50 is None or p99 is None:
        return None
    tell(f"low's kernels of {length_ns} ns: held after {p50 / 1000:.0f} us, p99 {p99 / 1000:.0f} us")
    return round(p99 / 1000, 1)


def overhead() -> tuple[float, float]:
    """CPU time that a launch costs more: median over batches of 100, 99th percentile of single ones."""
    says: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for _ in range(3 if QUICK else 7):
        with node() as card:
            card.add("a", MEMORY_MIB, 90)
            card.add("b", MEMORY_MIB)
            for ours in (False, True):
                one = card.start("a", "measure", "cost", "--rounds", 1000, limited=ours)
                says[ours] += card.together([one])
    median = {
        (ours, key): statistics.median(say[key] for say in listed)
        for ours, listed in says.items()
        for key in ("took_p50_ns", "single_p99_ns")
    }
    return (
        median[True, "took_p50_ns"] - median[False, "took_p50_ns"],
        median[True, "single_p99_ns"] - median[False, "single_p99_ns"],
    )


def suspension() -> tuple[float | None, float | None]:
    """GiB/s to the host and back; None where this driver, or this user, may not."""
    with node() as card:
        if os.geteuid() != 0 or card.free_mib() < 2 * SUSPEND_MIB:
            return None, None
        card.add("a", SUSPEND_MIB + 4 * card.context_mib, share_class="low")
        train = card.start("a", "train", "--memory-mib", SUSPEND_MIB, "--every", 1_000_000)
        speeds = []
        for verb in ("suspend", "resume"):
            began = time.monotonic()
            done = subprocess.run(
                [BUILD / "egpu-checkpoint", verb, str(train.process.pid)],
                env=card.environment(None), capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            if done.returncode:
                tell(f"{verb}: {done.stdout.strip()}")
                return None, None
            speeds.append(round(SUSPEND_MIB / 1024 / (time.monotonic() - began), 2))
        tell(f"suspended at {speeds[0]} GiB/s, resumed at {speeds[1]} GiB/s, the helper's start included")
        return speeds[0], speeds[1]


NULL: Final = (
    "cap_error_points_max", "soft_weight_error_points_max", "p99_ratio", "native_p99_ratio",
    "low_kept_of_alone", "low_kept_of_idle", "hold_p99_us", "release_p99_us", "added_ns_p50", "added_ns_p99",
    "suspend_gib_per_s", "resume_gib_per_s", "driver", "device",
)  # fmt: skip


def identity() -> tuple[str, str]:
    """Driver and card."""
    with node() as card:
        device, driver = card.card.product, card.driver
        tell(f"{device}, driver {driver}, {card.card.memory_mib} MiB, a context takes {card.context_mib} MiB")
    return (f"fake {driver}", f"fake {device}: no measurement") if ON_FAKE else (driver, device)


def measure(parts: Parts) -> None:
    """Every part, the longest one last."""
    who = parts.part("card", 0, identity)
    if who is None:
        return
    parts.put(driver=who[0], device=who[1])
    added = parts.part("overhead", 2 * (3 if QUICK else 7) * (1 + START_S), overhead)
    if added is not None:
        parts.put(added_ns_p50=added[0], added_ns_p99=added[1])
    caps = [
        parts.part(f"cap {cores}, {length_ns} ns", CAP_S + START_S, partial(cap, length_ns, cores))
        for length_ns in (50_000, MS, 20 * MS)
        for cores in (20, 50, 80)
    ]
    parts.put(cap_error_points_max=_worst(caps))
    weights = ((25, 75), (50, 50))
    missed = [parts.part(f"weights {w}", CAP_S + 2 * START_S, partial(soft, w)) for w in weights]
    parts.put(soft_weight_error_points_max=_worst(missed))
    takes_s = SERVE_S + 2 * START_S
    alone = parts.part("training alone", takes_s, lambda: training(ours=False, names=["low"]))
    alone_steps = alone[0] if alone else None
    pair = parts.part("training pair", takes_s, lambda: training(ours=True, names=["high", "low"]))
    sliced = parts.part("sliced pair", takes_s, lambda: training(ours=False, names=["high", "low"]))
    if alone_steps and pair and sliced:
        tell(
            f"training pair, of alone: high {pair[0] / alone_steps:.3f}, low {pair[1] / alone_steps:.3f} "
            f"(time-slicing {sliced[0] / alone_steps:.3f}, {sliced[1] / alone_steps:.3f})"
        )
    holds = {
        str(length_ns // 1000): parts.part(
            f"preemption, {length_ns} ns",
            PULSE_S + 2 * START_S,
            partial(preemption, length_ns),
        )
        for length_ns in LENGTHS_NS
    }
    parts.put(hold_p99_us={length: us for length, us in holds.items() if us is not None} or None)
    speeds = parts.part("suspension", 20, suspension)
    if speeds is not None:
        parts.put(suspend_gib_per_s=speeds[0], resume_gib_per_s=speeds[1])
    latencies(parts, alone_steps)


def _worst(points: Iterable[float | None]) -> float | None:
    found = [one for one in points if one is not None]
    return round(max(found), 2) if found else None


def main() -> int:
    """Everything, or why not."""
    if why := why_not():
        print(f"skipped: {why}")
        return 0
    for sentence in machine():
        tell(sentence)
    parts = Parts(dict.fromkeys(NULL))
    # Who cuts this command off still gets what there is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        measure(parts)
    finally:
        print(json.dumps(parts.answer | ({"problems": parts.problems} if parts.problems else {})), flush=True)
    return 1 if parts.problems else 0


if __name__ == "__main__":
    sys.exit(main())
