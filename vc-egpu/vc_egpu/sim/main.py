"""``vc-egpu sim``: replay a table of pods, or a snapshot, under several placement policies."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vc_egpu.core.model.policy import BEST_FIT, BINPACK_RULES, FGD, FULLEST, OURS, Mix
from vc_egpu.core.profiles.table import NO_RULES
from vc_egpu.core.profiles.table import Table as Profiles
from vc_egpu.report.recorded.rows import RecordError
from vc_egpu.report.snapshot_codec import SnapshotError, from_json
from vc_egpu.sim.curves import Point, Sampler
from vc_egpu.sim.load import Draw, Load, works_of
from vc_egpu.sim.openb import mix_of
from vc_egpu.sim.output import CSV, FORMATS, ExtraMissingError, summary_row, write
from vc_egpu.sim.recorded.load import load_of as load_of_record
from vc_egpu.sim.replay import Replay, Terms
from vc_egpu.sim.table import CARD_MILLI, TableError, nodes_of, pods_of
from vc_egpu.volcano.profiles.file import read_profiles
from vc_egpu.volcano.profiles.table import ProfilesError

EXIT_INPUT: Final = 2
_DEFAULT_POLICIES: Final = (FULLEST, BEST_FIT, FGD, OURS)


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    drop: bool
    round_s: float
    until_s: float | None
    knows_the_mix: bool
    looks: int
    rules: Profiles = NO_RULES


def parser() -> argparse.ArgumentParser:
    """The process's flags."""
    flags = argparse.ArgumentParser(
        prog="vc-egpu sim",
        description="Replay work on a cluster in memory, with the live decision, under several policies.",
    )
    flags.add_argument("--nodes", type=Path, help="table of nodes: sn,cpu_milli,memory_mib,gpu,model")
    flags.add_argument(
        "--pods", type=Path, help="table of pods: name,cpu_milli,memory_mib,num_gpu,gpu_milli,..."
    )
    flags.add_argument("--snapshot", type=Path, help="what is there at the begin: a saved /v1/snapshot")
    flags.add_argument(
        "--recorded",
        type=Path,
        help="what came to a live cluster and ended: a file of vc-egpu admission --record",
    )
    flags.add_argument(
        "--policies",
        type=_names,
        default=_DEFAULT_POLICIES,
        help=f"some of {', '.join(BINPACK_RULES)}, by comma (default: {','.join(_DEFAULT_POLICIES)})",
    )
    flags.add_argument("--seeds", type=_numbers, default=(1,), help="of what is drawn, by comma")
    flags.add_argument("--drawn", action="store_true", help="draw arrivals also where the table has them")
    flags.add_argument("--interval-s", type=float, default=1.0, help="mean time between drawn arrivals")
    flags.add_argument(
        "--lifetime-s", type=float, help="mean of drawn lifetimes; without: the table's, or none"
    )
    flags.add_argument("--drop", action="store_true", help="what fits nowhere when it comes does not wait")
    flags.add_argument("--round-s", type=float, default=0.0, help="try what waits once in so long at most")
    flags.add_argument("--until-s", type=float, help="end there")
    flags.add_argument("--known-mix", action="store_true", help="policies know the table beforehand")
    flags.add_argument("--placement-rules", type=Path, help="the operator's table of placement (YAML)")
    flags.add_argument("--looks", type=int, default=200, help="points of each curve")
    flags.add_argument("--out", type=Path, help="folder for curves.csv and others")
    flags.add_argument(
        "--format", type=_formats, default=(CSV,), help=f"some of {', '.join(FORMATS)}, by comma"
    )
    return flags


def _names(text: str) -> tuple[str, ...]:
    return _some_of(text, BINPACK_RULES)


def _formats(text: str) -> tuple[str, ...]:
    return _some_of(text, FORMATS)


def _some_of(text: str, known: Sequence[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found or not set(found) <= set(known):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of {', '.join(known)}")
    return found


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not made of whole numbers") from None


def load_of(flags: argparse.Namespace, seed: int) -> tuple[Load, Mix]:
    """The cluster and its work, and how often each class comes. Raises ``OSError`` and ``ValueError``."""
    if flags.recorded is not None:
        if flags.nodes or flags.pods or flags.snapshot or flags.drawn or flags.known_mix:
            raise TableError(
                "--recorded brings its nodes, its work and its times: no table, nothing is drawn"
            )
        load, note = load_of_record(flags.recorded)
        if note:
            print(f"vc-egpu sim: {note}", file=sys.stderr)  # noqa: T201
        return load, Mix()
    begin = from_json(flags.snapshot.read_bytes()) if flags.snapshot else None
    nodes = nodes_of(flags.nodes) if flags.nodes else []
    pods = pods_of(flags.pods) if flags.pods else []
    if begin is None and not nodes:
        raise TableError("name --nodes, a --snapshot or what was --recorded")
    draw = Draw(seed, max(flags.interval_s, 1e-6), flags.lifetime_s, again=flags.drawn)
    return Load(tuple(nodes), tuple(works_of(pods, draw)), begin=begin), mix_of(pods)


def play(load: Load, mix: Mix, run: tuple[str, int], asked: Request, bar: "_Bar") -> tuple[Sampler, Replay]:
    """One run of (policy, seed), with its curves."""
    policy, seed = run
    ends = sum(work.lifetime_s is not None for work in load.works)
    sampler = Sampler(policy, seed, asked.looks, len(load.works) + ends, mix)
    terms = Terms(
        policy,
        waits=not asked.drop,
        round_s=asked.round_s,
        mix=mix if asked.knows_the_mix else None,
        until_s=asked.until_s,
        profiles=asked.rules,
    )
    replay = Replay(load, terms)
    with bar.run(f"{policy} {seed}", len(load.works)) as advance:

        def watch(now: Replay) -> None:
            advance(now.totals.arrived)
            sampler.look(now)

        replay.run(watch)
    sampler.take(replay)
    return sampler, replay


def figures_of(replay: Replay) -> dict[str, object]:
    """What the table of runs shows of one."""
    totals, cards = replay.totals, replay.index.ledger.row_cards.sum() * CARD_MILLI
    waits = sorted(wait for _, _, wait in replay.waits)
    return {
        "came %": 100 * totals.arrived_milli / max(1, int(cards)),
        "held %": 100 * totals.held_milli / max(1, int(cards)),
        "dropped": totals.dropped,
        "waiting": len(replay.waiting),
        "finished": totals.finished,
        "evicted": sum(totals.evictions.values()),
        "wait s": sum(waits) / len(waits) if waits else 0.0,
        "p99 s": waits[min(len(waits) - 1, len(waits) * 99 // 100)] if waits else 0.0,
    }


def _request(flags: argparse.Namespace) -> Request:
    """What the flags ask for. Raises OSError, and ValueError for rules that mean nothing."""
    rules = read_profiles(flags.placement_rules) if flags.placement_rules else NO_RULES
    until_s, knows = flags.until_s, flags.known_mix
    return Request(flags.policies, flags.seeds, flags.drop, flags.round_s, until_s, knows, flags.looks, rules)


class _Bar:
    """A bar for each run, on a terminal only."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description:16}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
        )
        self._progress = Progress(*columns, TimeRemainingColumn(), console=console)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def run(self, name: str, arrivals: int) -> Iterator[Callable[[int], None]]:
        """A run begins."""
        task = self._progress.add_task(name, total=arrivals)
        yield lambda done: self._progress.update(task, completed=done)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    flags = parser().parse_args(argv)
    points: list[Point] = []
    rows: list[dict[str, str]] = []
    try:
        asked = _request(flags)
        with _Bar(Console(stderr=True)) as bar:
            for seed in asked.seeds:
                load, mix = load_of(flags, seed)
                for policy in asked.policies:
                    sampler, replay = play(load, mix, (policy, seed), asked, bar)
                    points += sampler.points
                    rows.append(summary_row(policy, seed, figures_of(replay)))
        Console().print(_table(rows))
        played = flags.pods or flags.recorded
        title = f"Placement of {played.name if played else 'what waits'}"
        for path in write(flags.out, flags.format, points, rows, title) if flags.out else ():
            print(path)  # noqa: T201
    except (OSError, TableError, SnapshotError, RecordError, ProfilesError, ExtraMissingError) as error:
        print(f"vc-egpu sim: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_INPUT
    return 0


def _table(rows: Sequence[dict[str, str]]) -> Table:
    table = Table(box=None)
    for number, name in enumerate(rows[0] if rows else ()):
        table.add_column(name, justify="left" if not number else "right")
    for row in rows:
        table.add_row(*row.values())
    return table
