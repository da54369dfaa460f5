"""Cards won back for each pod that moves, on the full openb cluster: prints one JSON object as its last line.

    OPENB_DIR=FOLDER [TRACES=default,gpuspec33] [SEEDS=42] [POLICIES=fgd,ours] [PART=0.1]
        [RULES=nothing,authors,fragments,waiting] python e2e/bench_defrag.py

``{placement: {trace: {rule: {"begin", "end", "cards_won", "moved", "won_per_move", "lost"}}}}``. ``begin``
and ``end`` are percent of all cards that are held. ``cards_won`` are cards, and ``moved`` pods. ``lost`` are
pods that ran, and had no place after they were moved. All are means over the seeds. The rules stand in
``e2e/bench/defrag.py``. ``PART`` of the pods may move at most under ``authors`` and ``fragments``.
"""

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from bench.defrag import RULES, begin, measure
from bench_openb import seeds
from vc_egpu.core.model.policy import BINPACK_RULES, FGD, OURS
from vc_egpu.sim.openb import names_in

Run = tuple[str, str, int]
Found = dict[str, dict[str, float]]
_DEFAULT_PART: Final = "0.1"


def timed(folder: Path, run: Run, rules: list[str], part: float) -> tuple[Run, Found, float]:
    placement, trace, seed = run
    began = time.process_time()
    begun = begin(folder, trace, seed, placement)
    return run, {rule: measure(begun, rule, part) for rule in rules}, time.process_time() - began


def words(name: str, default: list[str]) -> list[str]:
    """The words of an environment variable."""
    return os.environ.get(name, "").replace(",", " ").split() or default


def main() -> int:
    folder = Path(os.environ.get("OPENB_DIR", ""))
    if not os.environ.get("OPENB_DIR") or not folder.is_dir():
        print("set OPENB_DIR to a folder with the traces", file=sys.stderr)
        return 2
    traces, rules = words("TRACES", names_in(folder)), words("RULES", list(RULES))
    policies = words("POLICIES", [FGD, OURS])
    if unknown := sorted({*policies} - {*BINPACK_RULES} | {*rules} - {*RULES}):
        print(f"no such policy or rule: {', '.join(unknown)}", file=sys.stderr)
        return 2
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    part = float(os.environ.get("PART") or _DEFAULT_PART)
    runs = [(p, t, s) for s in seeds(os.environ.get("SEEDS") or "42") for t in traces for p in policies]
    found: dict[Run, Found] = {}
    workers = min(len(runs), int(os.environ.get("WORKERS", "0")) or os.cpu_count() or 1)
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(timed, folder, run, rules, part) for run in runs]):
            run, values, took_s = done.result()
            found[run] = values
            for rule, figures in values.items():
                shown = "  ".join(f"{name} {value:.2f}" for name, value in figures.items())
                print(f"{' '.join(map(str, run)):24} {rule:10} {shown}  ({took_s:.0f} s)", flush=True)
    report: dict[str, dict[str, Found]] = {}
    for policy in policies:
        for trace in traces:
            alike = [values for (p, t, _), values in found.items() if (p, t) == (policy, trace)]
            report.setdefault(policy, {})[trace] = {rule: _means(alike, rule) for rule in rules}
    print(json.dumps(report))
    return 0


def _means(alike: list[Found], rule: str) -> dict[str, float]:
    names = alike[0][rule]
    return {name: round(sum(each[rule][name] for each in alike) / len(alike), 3) for name in names}


if __name__ == "__main__":
    sys.exit(main())
