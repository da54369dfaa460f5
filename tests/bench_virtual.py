"""The matrix of `make bench-isolation` in virtual time: `make bench-virtual`, some minutes, alike everywhere.

The library's whole compute side runs; cards, driver and wake-ups (one in 500 comes late, by up to 300 us) are
simulated. What a launch costs cannot be known here. `--slices`: a card that gives programs turns of 2 ms, as
a real one does, instead of running units in the order of their launches. The last line is one JSON object
with the keys of `make bench-gpu`.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "device-plugin", "vc-egpu")]

import numpy as np  # noqa: E402  the path comes first
from gpu.judge import gaps_of, holds_of, kept_of, percentile, releases_of  # noqa: E402  the path comes first
from gpu.standalone import Rows  # noqa: E402  the path comes first
from unit.native.time_worlds import HARD, HIGH, LOW, SOFT, Box  # noqa: E402  the path comes first
from unit.native.virtual_worlds import MS, SECOND, Seen, World  # noqa: E402  the path comes first


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", action="store_true", help="a card that gives programs turns of 2 ms")
    parser.add_argument("--seed", type=int, default=1, help="of lengths and late wake-ups (1)")
    return parser.parse_args()


OPTIONS: Final = _options()
MODE: Final = "slices" if OPTIONS.slices else "fifo"
LOADS: Final = (20, 50)
SHORTER: Final = 20_000
SHORT: Final = 50_000
LONG: Final = 20 * MS
MIXED: Final = f"{SHORT},{MS},{LONG}"
GROUPS: Final = ((50,), (90,), (30, 60), (10, 20, 70), (10, 20, 30, 40))
UNLIKE: Final = ((30, 60), (60, 30), (20, 70))
WEIGHTS: Final = ((25, 75), (50, 50), (10, 20, 70))
WARM_MS: Final = 300
SERVE_MS: Final = 60_000
NAMES: Final = {SHORTER: "20 us", SHORT: "50 us", MS: "1 ms", LONG: "20 ms", MIXED: "mixed"}


def run(boxes: Sequence[Box], programs: Sequence[tuple[str, tuple[object, ...]]], to_ms: int) -> Seen:
    """Containers and what runs in them, from beginning to end."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), mode=MODE, seed=OPTIONS.seed)
        world.add(*boxes)
        for box, words in programs:
            world.start(box, *words, to_ms=to_ms)
        return world.run()


Words = tuple[object, ...]


def hard(name: str, words: Sequence[Words], group: tuple[int, ...], to_ms: int, processes: int = 1) -> Any:
    """Points off the share and by which a second went past it and a unit, of the worst. ``words``: what runs
    in each container."""
    boxes = [Box(f"c{index}", HARD, cores) for index, cores in enumerate(group)]
    programs = [(box.name, each) for box, each in zip(boxes, words, strict=True) for _ in range(processes)]
    seen = run(boxes, programs, to_ms)
    points = [seen.off(box.name, box.cores, WARM_MS, to_ms) for box in boxes]
    beyond = [
        100 * (seen.busiest_second_ns(box.name) - seen.longest_ns(box.name)) / SECOND - box.cores
        for box in boxes
    ]
    print(
        f"hard {group}, {name}: {[round(one, 2) for one in points]} points, "
        f"busiest second {[round(one, 2) for one in beyond]}",
        flush=True,
    )
    return max(points, key=abs), max(beyond)


def shares() -> tuple[dict[str, float], dict[str, float], float]:
    """By kind of load the points off at most and the most that a second went beyond; and soft weights."""
    missed: dict[str, float] = {}
    seconds: dict[str, float] = {}
    loads: list[tuple[str, Words, int, int]] = [
        (NAMES[kernels], ("run", 1000, kernels), 40_000 if kernels in (LONG, MIXED) else 10_000, 1)
        for kernels in (SHORT, MS, LONG, MIXED)
    ]
    loads += [(f"graphs of {each} ms", ("graph", each * MS), 40_000, 1) for each in (1, 30)]
    for kernels in (SHORT, MS, LONG, MIXED):
        to_ms = 40_000 if kernels in (LONG, MIXED) else 10_000
        loads.append((f"{NAMES[kernels]}, two processes", ("run", 1000, kernels), to_ms, 2))
    loads.append(("graphs of 30 ms, two processes", ("graph", 30 * MS), 40_000, 2))
    for name, words, to_ms, processes in loads:
        for group in GROUPS:
            points, beyond = hard(name, [words] * len(group), group, to_ms, processes)
            missed[name] = max(missed.get(name, 0.0), abs(points))
            seconds[name] = max(seconds.get(name, beyond), beyond)
    for kernels, depth in itertools.product((SHORTER, SHORT, MS), (10, 1000)):
        name = f"{NAMES[kernels]} by {depth} beside 20 ms"
        for group in UNLIKE:
            points, beyond = hard(name, [("run", depth, kernels), ("run", depth, LONG)], group, 10_000)
            missed[name] = max(missed.get(name, 0.0), abs(points))
            seconds[name] = max(seconds.get(name, beyond), beyond)
    return missed, seconds, weights_missed()


def weights_missed() -> float:
    """The most points by which a soft share is off its weight."""
    weighed = [0.0]
    alike = [((kernels,) * len(weights), weights) for weights in WEIGHTS for kernels in (SHORT, MS, LONG)]
    unlike = [((kernels, LONG), (50, 50)) for kernels in (SHORT, MS)]
    for lengths, weights in (*alike, *unlike):
        boxes = [Box(f"c{index}", SOFT, 1, weight) for index, weight in enumerate(weights)]
        programs = [(box.name, ("run", 1000, each)) for box, each in zip(boxes, lengths, strict=True)]
        seen = run(boxes, programs, 20_000)
        points = [seen.share(box.name, WARM_MS, 20_000) - box.weight for box in boxes]
        names = " beside ".join(dict.fromkeys(NAMES[each] for each in lengths))
        print(f"soft {weights}, {names}: {[round(one, 2) for one in points]} points", flush=True)
        weighed.append(max(abs(one) for one in points))
    return max(weighed)


def rows_of(seen: Seen, box: str) -> Rows:
    """Launched, began, ended."""
    mine = np.sort(seen.of(box), order="start")
    return np.stack([mine["enqueued"], mine["start"], mine["end"]], axis=1).astype(np.int64)


def classes() -> dict[str, Any]:
    """Inference alone and beside training, by load and by the length of training's kernels."""
    answer: dict[str, Any] = {
        "p99": {},
        "native": {},
        "of_alone": {},
        "kept": [],
        "holds": {},
        "releases": [],
    }
    boxes = [Box("high", share_class=HIGH), Box("low", share_class=LOW)]
    for load in LOADS:
        serve = ("high", ("serve", load, 7))
        alone = np.percentile(run(boxes, [serve], SERVE_MS).says[0]["took_ns"], 99)
        for kernels in (SHORT, MS, LONG, MIXED):
            seen = run(boxes, [serve, ("low", ("run", 100, kernels))], SERVE_MS)
            high, low = rows_of(seen, "high"), rows_of(seen, "low")
            gaps = gaps_of(high)
            ratio = float(np.percentile(seen.says[0]["took_ns"], 99) / alone)
            allowed = 1.05 + max(MS // 2, seen.longest_ns("low")) / alone
            kept = kept_of(low, gaps) or 0.0
            share = seen.share("low", 0, SERVE_MS) / 100
            holds = holds_of(high, low, gaps)
            print(
                f"load {load} %, training {NAMES[kernels]}: p99 {ratio:.3f} times alone (aim {allowed:.3f}), "
                f"training has {share:.3f}, keeps {kept:.3f} of long gaps, "
                f"held after {np.percentile(holds, 99) / 1000:.0f} us (p99)",
                flush=True,
            )
            answer["p99"].setdefault(load, {})[kernels] = ratio
            answer["kept"].append(kept)
            answer["holds"].setdefault(NAMES[kernels], []).extend(holds)
            answer["releases"] += releases_of(low, gaps)
            if kernels == SHORT:
                answer["of_alone"][str(load)] = round(share, 3)
        if MODE == "slices":  # nobody held: what the driver itself does on a real card
            unset = [Box("high"), Box("low")]
            native = run(unset, [serve, ("low", ("run", 100, MS))], SERVE_MS).says[0]["took_ns"]
            answer["native"][str(load)] = round(float(np.percentile(native, 99) / alone), 2)
            print(
                f"load {load} %, training 1 ms, not held: {answer['native'][str(load)]} times alone",
                flush=True,
            )
    return answer


def main() -> None:
    """Runs the matrix and prints the answer."""
    missed, beyond, weighed = shares()
    for name, points in missed.items():
        print(
            f"hard, {name}: within {points:.2f} points, "
            f"no second more than {beyond[name]:.2f} beyond a share and one unit"
        )
    served = classes()
    release = percentile(served["releases"], 99)
    answer = {
        "cap_error_points_max": round(max(missed.values()), 2),
        "soft_weight_error_points_max": round(weighed, 2),
        "p99_ratio": {str(load): round(by_length[MS], 3) for load, by_length in served["p99"].items()},
        "native_p99_ratio": served["native"] or None,
        "low_kept_of_alone": served["of_alone"],
        "low_kept_of_idle": round(min(served["kept"]), 3),
        "hold_p99_us": {name: round(float(np.percentile(all_, 99)) / 1000, 1)
                        for name, all_ in served["holds"].items()},
        "release_p99_us": None if release is None else round(release / 1000, 1),
        "added_ns_p50": None,
        "added_ns_p99": None,
        "suspend_gib_per_s": None,
        "resume_gib_per_s": None,
        "driver": f"virtual, {MODE}",
        "device": "virtual",
    }  # fmt: skip
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
