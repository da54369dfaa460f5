"""The published protocol of the openb trace, and the figures that come of it.

Pods arrive one at a time. One that fits nowhere is dropped for ever, and nothing leaves. After each arrival
``arrived`` is all that was asked for, dropped pods included, and ``used`` all that is held, both in percent
of all cards. The value *at 98* is the mean of ``used`` over the arrivals whose ``arrived`` rounds to 98.

A folder of traces has ``nodes.csv.gz``, and for each trace ``pods-TRACE.csv.gz`` and
``arrivals-TRACE.json.gz``. The latter has by seed ``arrivals``, numbers of pods sorted by name, and
``nodeTieOrder``, numbers of nodes sorted by name.

:mod:`.variants` has what a trace may be changed to. With gangs an arrival is a whole gang, and with memory
the percentages stay those of the cards' time.
"""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vc_egpu.core.model.cluster import PodShape
from vc_egpu.core.model.policy import BEST_FIT, FGD, OURS, Mix, PodClass
from vc_egpu.core.placing.learning import kind_of
from vc_egpu.sim.curves import fragmentation_percent
from vc_egpu.sim.load import Load, Work
from vc_egpu.sim.replay import Replay, Terms
from vc_egpu.sim.table import CARD_MILLI, PodRow, TableError, nodes_of, pods_of, renamed
from vc_egpu.sim.variants import GANGS, MEMORY, in_gangs, with_memory

POLICIES: Final = (FGD, BEST_FIT, OURS)
POINTS: Final = (98, 100, 130)
KNOWS_THE_MIX: Final = frozenset({FGD})
"""As published it knows beforehand how often each class of pods comes."""
_FRAGMENTS_EVERY: Final = 16


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace of a folder, in the order of one seed."""

    nodes: Path
    pods: Path
    arrivals: Path
    variant: str = ""
    """One of :data:`.variants.VARIANTS`; empty: the trace as it is."""

    @classmethod
    def of(cls, folder: Path, name: str, variant: str = "") -> "Trace":
        """Raises :class:`TableError` where a file of it is absent."""
        pods, arrivals = folder / f"pods-{name}.csv.gz", folder / f"arrivals-{name}.json.gz"
        trace = cls(folder / "nodes.csv.gz", pods, arrivals, variant)
        for path in (trace.nodes, trace.pods, trace.arrivals):
            if not path.is_file():
                raise TableError(f"there is no {path}")
        return trace

    def pod_rows(self) -> list[PodRow]:
        """All pods of the trace, sorted by name."""
        pods = sorted(pods_of(self.pods), key=lambda pod: pod.name)
        return with_memory(pods) if self.variant == MEMORY else pods

    def load(self, seed: int) -> Load:
        """The arrivals of a seed, one a second. Raises :class:`TableError`."""
        order = self._order(seed)
        nodes = sorted(nodes_of(self.nodes), key=lambda node: node.name)
        pods = self.pod_rows()
        works = tuple(
            Work(f"pod/{number}", (("t0", 1, pods[pod].shape),), pods[pod].gpu_milli, arrival_s=float(number))
            for number, pod in enumerate(order["arrivals"])
        )
        if self.variant == GANGS:
            works = in_gangs(works, seed)
        return Load(tuple(renamed(nodes, order["nodeTieOrder"])), works)

    def _order(self, seed: int) -> dict[str, list[int]]:
        with gzip.open(self.arrivals, "rt") as file:
            document: dict[str, Any] = json.load(file)
        seeds = document["seeds"]
        if str(seed) not in seeds:
            raise TableError(f"{self.arrivals}: there is no seed {seed}, only {', '.join(seeds)}")
        found: dict[str, list[int]] = seeds[str(seed)]
        return found


def names_in(folder: Path) -> list[str]:
    """The traces of a folder, by name."""
    found = sorted(path.name for path in folder.glob("pods-*.csv.gz"))
    return [name.removeprefix("pods-").removesuffix(".csv.gz") for name in found]


def mix_of(pods: Sequence[PodRow]) -> Mix:
    """How often each class of pods comes in a table."""
    counts = Counter(kind_of(pod.shape) for pod in pods)
    classes = tuple(
        PodClass(
            kind.cpu_milli,
            kind.cards,
            kind.memory_mib,
            kind.cores_percent,
            kind.model,
            kind.whole,
            kind.native,
            PodShape(node_selector=kind.where[0], affinity_terms=kind.where[1], tolerations=kind.where[2]),
            frequency=count / len(pods),
        )
        for kind, count in counts.items()
    )
    return Mix(classes)


def measure(folder: Path, name: str, seed: int, policy: str, variant: str = "") -> dict[str, float]:
    """One run: ``used`` in percent at 98, 100 and 130, and the fragmentation at 130."""
    trace = Trace.of(folder, name, variant)
    load, known = trace.load(seed), mix_of(trace.pod_rows())
    all_milli = CARD_MILLI * sum(len(node.cards) for node in load.nodes)
    used: dict[int, list[float]] = {point: [] for point in POINTS}
    fragments: list[float] = []

    def watch(replay: Replay) -> None:
        totals = replay.totals
        point = round(100 * totals.arrived_milli / all_milli)
        if point in used:
            used[point].append(100 * totals.held_milli / all_milli)
        if point == POINTS[-1] and len(used[point]) % _FRAGMENTS_EVERY == 1:
            fragments.append(fragmentation_percent(replay, known))

    terms = Terms(policy, waits=False, mix=known if policy in KNOWS_THE_MIX else None, preemption=False)
    Replay(load, terms).run(watch)
    found = {str(point): _mean(values) for point, values in used.items()}
    return {**found, "frag130": _mean(fragments)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
