"""Placement on the openb traces with departures: prints one JSON object as its last line.

    OPENB_DIR=FOLDER [TRACES=default,gpuspec33] [LOADS=0.90,0.98] [SEEDS=1-2] [POLICIES=fgd,ours]
        [PART=1.0] [HOURS=6+6] python e2e/bench_churn.py

``{policy: {trace: {load: {"allocation", "gpu_wait", "multi_gpu_wait_p99"}}}}``. The first is the percent of
all cards that is held. The second is cards asked for by pods that wait. Both are averages over time. The third is
the wait in seconds that one in a hundred pods of several cards exceeds. All are means over the seeds, and
``spread`` holds the standard deviations in the same form.
``PART`` of the nodes are used, drawn by the seed. ``HOURS``: of warm-up, and measured. See
``vc_egpu/sim/churn.py`` for the work.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from bench_openb import seeds
from vc_egpu.core.model.policy import BINPACK_RULES, FGD, OURS
from vc_egpu.sim.churn import Hours, measure
from vc_egpu.sim.openb import names_in
from vc_egpu.sim.table import rows_of

_POLICIES: Final = (FGD, OURS)
_LOADS: Final = "0.90,0.98,1.10"
_SEEDS: Final = "1"
_PART: Final = "0.25"
Run = tuple[str, str, str, int]
Report = dict[str, dict[str, dict[str, dict[str, float]]]]


def timed(folder: Path, run: Run, part: float, hours: Hours) -> tuple[Run, dict[str, float], float]:
    policy, trace, load, seed = run
    began = time.process_time()
    found = measure(folder, (trace, float(load), seed), policy, part, hours)
    return run, found, time.process_time() - began


def with_times(folder: Path) -> list[str]:
    """The traces whose pods come and go at known times."""
    found = []
    for name in names_in(folder):
        _, first = next(rows_of(folder / f"pods-{name}.csv.gz"))
        if first.get("creation_time"):
            found.append(name)
    return found


def listed(name: str, usual: str) -> list[str]:
    return (os.environ.get(name) or usual).replace(",", " ").split()


def main() -> int:
    folder = Path(os.environ.get("OPENB_DIR", ""))
    if not os.environ.get("OPENB_DIR") or not folder.is_dir():
        print("set OPENB_DIR to a folder with the traces", file=sys.stderr)
        return 2
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    policies, loads = listed("POLICIES", " ".join(_POLICIES)), listed("LOADS", _LOADS)
    if unknown := sorted({*policies} - {*BINPACK_RULES}):
        print(f"no such policy: {', '.join(unknown)}; there are {', '.join(BINPACK_RULES)}", file=sys.stderr)
        return 2
    traces = listed("TRACES", " ".join(with_times(folder)))
    warm_up, _, measured = (os.environ.get("HOURS") or "6+6").partition("+")
    hours, part = Hours(float(warm_up), float(measured)), float(os.environ.get("PART") or _PART)
    runs = [(policy, trace, load, seed) for seed in seeds(os.environ.get("SEEDS") or _SEEDS)
            for load in loads for trace in traces for policy in policies]  # fmt: skip
    found: dict[Run, dict[str, float]] = {}
    workers = int(os.environ.get("WORKERS", "0")) or os.cpu_count() or 1
    with ProcessPoolExecutor(min(len(runs), workers)) as pool:
        for done in as_completed([pool.submit(timed, folder, run, part, hours) for run in runs]):
            run, values, took_s = done.result()
            found[run] = values
            shown = "  ".join(f"{name} {value:.2f}" for name, value in values.items())
            print(f"{' '.join(map(str, run)):32} {shown}  ({took_s:.0f} s)", flush=True)
    report: dict[str, object] = dict(_over_seeds(found, statistics.fmean))
    report["spread"] = _over_seeds(found, statistics.pstdev)
    print(json.dumps(report))
    return 0


def _over_seeds(found: dict[Run, dict[str, float]], how: Callable[[Sequence[float]], float]) -> Report:
    report: Report = {}
    for policy, trace, load, _ in found:
        alike = [values for run, values in found.items() if run[:3] == (policy, trace, load)]
        cell = {name: round(how([each[name] for each in alike]), 3) for name in alike[0]}
        report.setdefault(policy, {}).setdefault(trace, {})[load] = cell
    return report


if __name__ == "__main__":
    sys.exit(main())
