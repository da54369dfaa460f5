"""What the in-container library keeps of its word, on the fake card: `make bench-isolation`.

One table. Shares, latencies and gaps are judged by the card's own timeline; the fake driver takes as long on
the host as real ones do, its stamps scatter, and the harness tells the driver's count as a node agent does.
About six minutes on a machine at rest; `--quick` takes two. The last line is the table as one JSON object.
"""

import argparse
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
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "device-plugin", "vc-egpu")]

import numpy as np  # noqa: E402  the path comes first
from gpu.judge import gaps_of, kept_of  # noqa: E402  the path comes first
from unit.native.time_worlds import BUILD, FREE, HARD, HIGH, LOW, SOFT, Box, Machine  # noqa: E402  the same

MS: Final = 1_000_000
SECOND: Final = 1000 * MS
RUDE: Final = {"FAKE_CUDA_HOST_TIME": "1", "FAKE_CUDA_SCATTER": "1"}
MIXED: Final = f"50000,{MS},{20 * MS}"
Figures = dict[str, float]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs: about two minutes")
    return parser.parse_args()


@contextmanager
def machine(mode: str, *boxes: Box) -> Iterator[Machine]:
    """A machine whose timeline lies in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        made = Machine(Path(folder) / "m", mode)
        made.add(*boxes)
        try:
            yield made
        finally:
            made.close()


def cost(*boxes: Box) -> Figures:
    """What a launch costs more, in ns: medians of the runs."""
    more = []
    for _ in range(5):
        with machine("fifo", *boxes) as card:
            (said,) = card.together([card.start("a", "cost", 500, BUILD / "libvgpu-egpu.so", preload=False)])
        more.append(said)
    return {
        "p50_ns": statistics.median(one["with"]["p50_ns"] - one["without"]["p50_ns"] for one in more),
        "p99_ns": statistics.median(
            one["with"]["single_p99_ns"] - one["without"]["single_p99_ns"] for one in more
        ),
    }


def shares(boxes: Sequence[Box], kernels: Sequence[object], seconds: float, **environment: str) -> Figures:
    """Points by which a share was missed at most, in slices, over so many seconds."""
    with machine("slices", *boxes) as card:
        programs = [
            card.start(box.name, "run", seconds + 60, 20, length, environment=RUDE | environment)
            for box, length in zip(boxes, kernels, strict=True)
        ]
        for one in programs:
            one.begin()
        card.agent(4)
        began_ns = time.monotonic_ns()
        card.agent(seconds)
        ended_ns = time.monotonic_ns()
        missed = [
            card.share(one.process.pid, began_ns, ended_ns)
            - (box.weight if box.policy == SOFT else box.cores)
            for one, box in zip(programs, boxes, strict=True)
        ]
    return {"points": max(missed, key=abs)}


def serving(low: object | None, seconds: float, *, ours: bool = True) -> Figures:
    """Requests of 40 kernels of 100 us at 20 % of the card: latencies in ms, and what low had of the gaps."""
    boxes = (Box("high", share_class=HIGH), Box("low", share_class=LOW))
    with machine("slices", *boxes) as card:
        programs = [card.start("high", "serve", seconds, 20, preload=ours)]
        if low is not None:
            programs.append(card.start("low", "run", seconds + 1, 100, low, preload=ours))
        for one in reversed(programs):
            one.begin()
        said = programs[0].result(seconds * 3 + 60)
        figures = {"p50_ms": said["p50_ns"] / MS, "p99_ms": said["p99_ns"] / MS}
        if low is None:
            return figures
        table = np.array(card.stretches(said["from_ns"] + SECOND, said["to_ns"]), np.int64).reshape(-1, 4)
        rows = [table[table[:, 0] == one.process.pid][:, 1:] for one in programs]
        high, lower = (one[np.argsort(one[:, 1], kind="stable")] for one in rows)
        kept = kept_of(lower, gaps_of(high))
        return figures if kept is None else figures | {"kept": kept}


def ends(count: int) -> Figures:
    """Programs that end while work is in flight, and of these, those that did not end well."""
    bad = 0
    for box in (Box("a"), Box("a", HARD, 50), Box("a", share_class=LOW)):
        with machine("slices", box, Box("h", share_class=HIGH)) as card:
            for _ in range(count // 3):
                one = card.start("a", "leave", 20_000, program=BUILD / "rude-actor", FAKE_CUDA_EXIT_US="3000")
                one.begin()
                bad += one.process.wait(30) != 0
                card.running.remove(one)
                for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
                    if pipe:
                        pipe.close()
    return {"ends": count // 3 * 3, "not_0": bad}


def rows(quick: bool) -> Iterator[tuple[str, Callable[[], Figures]]]:
    """Each row's name and what measures it."""
    run_s, serve_s = (4.0, 5.0) if quick else (10.0, 20.0)
    idle_high = Box("h", share_class=HIGH)
    yield "launch, no cap, no class", lambda: cost(Box("a"))
    yield "launch, hard 90", lambda: cost(Box("a", HARD, 90), Box("b", FREE))
    yield "launch, low beside idle high", lambda: cost(Box("a", share_class=LOW), idle_high)
    yield "launch, high beside idle low", lambda: cost(Box("a", share_class=HIGH), Box("l", share_class=LOW))
    pair = (Box("a", HARD, 50), Box("b", HARD, 30))
    for name, kernels in (("50 us", 50_000), ("1 ms", MS), ("20 ms", 20 * MS), ("mixed", MIXED)):
        yield f"hard 50 + 30, {name}", partial(shares, pair, (kernels, kernels), run_s)
    for slice_us, queues in (("300", "1"), ("6000", "8")):
        rude = {"FAKE_CUDA_SLICE_US": slice_us, "FAKE_CUDA_CONNECTIONS": queues}
        yield (
            f"hard 50 of 200 us + 30 of 20 ms, slices {slice_us} us, {queues} queues",
            partial(shares, pair, (200_000, 20 * MS), run_s, **rude),
        )
    weighed = (Box("a", SOFT, 1, 25), Box("b", SOFT, 1, 75))
    yield "soft 25 : 75, 1 ms", lambda: shares(weighed, (MS, MS), run_s)
    yield "inference alone", lambda: serving(None, serve_s)
    yield "inference beside 1 ms, driver's slices alone", lambda: serving(MS, serve_s, ours=False)
    for name, length in (("50 us", 50_000), ("1 ms", MS), ("20 ms", 20 * MS)):
        yield f"inference beside low, {name}", partial(serving, length, serve_s)
    yield "programs that end with work in flight", lambda: ends(30 if quick else 1000)


def main() -> None:
    """Measures all rows and prints the table."""
    options = _options()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs: wake-ups come late on a busy machine")
    table: dict[str, Any] = {}
    for name, measure in rows(options.quick):
        table[name] = {key: round(value, 2) for key, value in measure().items()}
        print(f"{name:62} " + ", ".join(f"{key} {value:g}" for key, value in table[name].items()), flush=True)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
