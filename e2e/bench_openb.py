"""Placement on the openb traces by the published protocol: prints one JSON object as its last line.

    OPENB_DIR=FOLDER [TRACES=default,gpuspec33] [SEEDS=42-44] [POLICIES=fgd,bestfit,ours]
        [VARIANT=memory|gangs] python e2e/bench_openb.py

``{policy: {trace: {"98", "100", "130", "frag130"}}}``: percent of all cards that are held once work for so
many percent of them has arrived. ``frag130`` is the percent that is then free and of no use to usual pods.
All are means over the seeds. The form of the folder stands in ``vc_egpu/sim/openb.py``, and the variants in
``vc_egpu/sim/variants.py``.
"""

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from vc_egpu.core.model.policy import BINPACK_RULES
from vc_egpu.sim.openb import POLICIES, measure, names_in
from vc_egpu.sim.variants import VARIANTS

_SEEDS: Final = "42-44"
Run = tuple[str, str, int]


def seeds(text: str) -> list[int]:
    """``42-44,50`` in full. Raises ``ValueError``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def timed(folder: Path, run: Run, variant: str) -> tuple[Run, dict[str, float], float]:
    policy, trace, seed = run
    began = time.process_time()
    return run, measure(folder, trace, seed, policy, variant), time.process_time() - began


def main() -> int:
    folder = Path(os.environ.get("OPENB_DIR", ""))
    if not os.environ.get("OPENB_DIR") or not folder.is_dir():
        print("set OPENB_DIR to a folder with the traces", file=sys.stderr)
        return 2
    traces = os.environ.get("TRACES", "").replace(",", " ").split() or names_in(folder)
    policies = os.environ.get("POLICIES", "").replace(",", " ").split() or list(POLICIES)
    if unknown := sorted({*policies} - {*BINPACK_RULES}):
        print(f"no such policy: {', '.join(unknown)}; there are {', '.join(BINPACK_RULES)}", file=sys.stderr)
        return 2
    variant = os.environ.get("VARIANT", "")
    if variant not in ("", *VARIANTS):
        print(f"no such variant: {variant}; there are {', '.join(VARIANTS)}", file=sys.stderr)
        return 2
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    runs = [(policy, trace, seed) for seed in seeds(os.environ.get("SEEDS") or _SEEDS)
            for trace in traces for policy in policies]  # fmt: skip
    found: dict[Run, dict[str, float]] = {}
    with ProcessPoolExecutor(
        min(len(runs), int(os.environ.get("WORKERS", "0")) or os.cpu_count() or 1)
    ) as pool:
        for done in as_completed([pool.submit(timed, folder, run, variant) for run in runs]):
            run, values, took_s = done.result()
            found[run] = values
            shown = "  ".join(f"{name} {value:.2f}" for name, value in values.items())
            print(f"{' '.join(map(str, run)):32} {shown}  ({took_s:.0f} s)", flush=True)
    report: dict[str, dict[str, dict[str, float]]] = {}
    for policy in policies:
        for trace in traces:
            alike = [values for (p, t, _), values in found.items() if (p, t) == (policy, trace)]
            means = {name: round(sum(each[name] for each in alike) / len(alike), 3) for name in alike[0]}
            report.setdefault(policy, {})[trace] = means
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
