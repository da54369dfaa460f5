"""What sharing costs and keeps on a real NVIDIA GPU that nobody else uses: `make bench-gpu`, under 8 minutes.

Times are those that kernels write themselves. The last line is one JSON object; null is not measured. With
``VC_EGPU_GPU_ON_FAKE=1`` the same commands run on the fake driver: figures of that are for nobody.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "device-plugin", "vc-egpu")]

from gpu.judge import gaps_of, holds_of, kept_of, percentile, releases_of  # noqa: E402  the path comes first
from gpu.standalone import (  # noqa: E402
    BUILD,
    MS,
    ON_FAKE,
    SECOND,
    Node,
    Rows,
    Running,
    busy_ns,
    why_not,
)

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
BEGAN_S: Final = time.monotonic()


def tell(text: str) -> None:
    """One line of progress."""
    print(f"[{time.monotonic() - BEGAN_S:5.0f} s] {text}", flush=True)


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


def caps() -> float:
    """Points that a hard share was missed by at most."""
    worst = 0.0
    for kernel_ns in (50_000, MS, 20 * MS):
        for cores in (20, 50, 80):
            with node() as card:
                card.add("a", MEMORY_MIB, cores)
                program = card.start(
                    "a", "measure", "run", "--seconds", CAP_S, "--ns", kernel_ns, stamps=True
                )
                (said,) = card.together([program])
                span = span_of([said])
                points = 100 * busy_ns(card.rows(program, said), *span) / (span[1] - span[0]) - cores
                worst = max(worst, abs(points))
                tell(f"cap {cores}, kernels of {kernel_ns} ns: {points:+.2f} points")
    return worst


def soft_weights() -> float:
    """Points that a soft share was missed by at most, of what both did."""
    worst = 0.0
    for weights in ((25, 75), (50, 50)):
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


def latencies(alone_steps: float) -> dict[str, Any]:
    """Alone, beside training that we hold, beside training in the driver's own time slices; in turn."""
    answer: dict[str, Any] = {"ratio": {}, "native": {}, "of_alone": {}, "kept": [], "releases": []}
    for load in LOADS:
        ours, native, kept_steps = [], [], []
        for turn in range(ROUNDS):
            alone = serving(load, turn + 1, low=False, ours=True)
            beside = serving(load, turn + 1, low=True, ours=True)
            sliced = serving(load, turn + 1, low=True, ours=False)
            ours.append(beside["p99_ns"] / alone["p99_ns"])
            native.append(sliced["p99_ns"] / alone["p99_ns"])
            kept_steps.append(beside["steps_per_s"] / alone_steps)
            answer["kept"] += [beside["kept"]] if beside["kept"] is not None else []
            answer["releases"] += beside["releases"]
            tell(
                f"load {load} %, round {turn + 1}: p99 alone {alone['p99_ns'] / MS:.2f} ms, beside training "
                f"{ours[-1]:.2f} times that (time-slicing {native[-1]:.2f}); training keeps "
                f"{kept_steps[-1]:.2f} (time-slicing {sliced['steps_per_s'] / alone_steps:.2f})"
            )
        tell(f"load {load} %: rounds from {min(ours):.3f} to {max(ours):.3f}")
        answer["ratio"][str(load)] = round(statistics.median(ours), 3)
        answer["native"][str(load)] = round(statistics.median(native), 3)
        answer["of_alone"][str(load)] = round(statistics.median(kept_steps), 3)
    return answer


def preemption() -> dict[str, float]:
    """99th percentile by length of low's kernels in us: high's launch until low's last unit ended."""
    found = {}
    for length in LENGTHS_NS:
        with node() as card:
            card.add("high", MEMORY_MIB, share_class="high")
            card.add("low", MEMORY_MIB, share_class="low")
            words = ("--seconds", PULSE_S, "--period-us", 40_000, "--ns", 2 * MS)
            high = card.start("high", "measure", "pulse", *words, stamps=True)
            more = ("--seconds", PULSE_S, "--depth", 100, "--ns", length)
            low = card.start("low", "measure", "run", *more, stamps=True)
            says = card.together([high, low])
            rows = [card.rows(one, said) for one, said in zip((high, low), says, strict=True)]
            holds = holds_of(rows[0], rows[1], gaps_of(rows[0]))
            p50, p99 = percentile(holds, 50), percentile(holds, 99)
            if p50 is not None and p99 is not None:
                found[str(length // 1000)] = round(p99 / 1000, 1)
                tell(f"low's kernels of {length} ns: held after {p50 / 1000:.0f} us, p99 {p99 / 1000:.0f} us")
    return found


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


def main() -> None:
    """Everything, or why not."""
    if why := why_not():
        print(f"skipped: {why}")
        return
    tell(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs: wake-ups come late on a busy machine")
    with node() as card:
        device, driver = card.card.product, card.driver
        tell(
            f"{device}, driver {driver}, {card.card.memory_mib} MiB, a context takes {card.context_mib} MiB"
        )
    added = overhead()
    tell(f"added per launch: p50 {added[0]:.0f} ns, p99 {added[1]:.0f} ns")
    cap = caps()
    soft = soft_weights()
    (alone_steps,) = training(ours=False, names=["low"])
    pair = training(ours=True, names=["high", "low"])
    sliced = training(ours=False, names=["high", "low"])
    tell(
        f"training pair, of alone: high {pair[0] / alone_steps:.3f}, low {pair[1] / alone_steps:.3f} "
        f"(time-slicing {sliced[0] / alone_steps:.3f}, {sliced[1] / alone_steps:.3f})"
    )
    served = latencies(alone_steps)
    holds = preemption()
    suspend, resume = suspension()
    release = percentile(served["releases"], 99)
    answer = {
        "cap_error_points_max": round(cap, 2),
        "soft_weight_error_points_max": round(soft, 2),
        "p99_ratio": served["ratio"],
        "native_p99_ratio": served["native"],
        "low_kept_of_alone": served["of_alone"],
        "low_kept_of_idle": round(min(served["kept"]), 3) if served["kept"] else None,
        "hold_p99_us": holds or None,
        "release_p99_us": None if release is None else round(release / 1000, 1),
        "added_ns_p50": added[0],
        "added_ns_p99": added[1],
        "suspend_gib_per_s": suspend,
        "resume_gib_per_s": resume,
        "driver": f"fake {driver}" if ON_FAKE else driver,
        "device": f"fake {device}: no measurement" if ON_FAKE else device,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
