"""``kubectl egpu drain``: the gangs of a node go as a whole, and run elsewhere.

The order is a taint of ours on the Node. The admission controller carries it out, also where this command
ends before. No Job counts a try for it, which it does for pods that ``kubectl drain`` evicts.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.admission import taints
from vc_egpu.cli import pause, world
from vc_egpu.cli.views.table import Table
from vc_egpu.core.model.cluster import DRAIN
from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.kube.wire.errors import NotFound, Temporary
from vc_egpu.volcano.words.makers import controller_of

TRIES: Final = 5
"""Agents write their Nodes, too."""
_OVER: Final = frozenset({"Succeeded", "Failed"})


class UnknownNodeError(Exception):
    """There is no such node; the text names it."""


@dataclass(frozen=True, slots=True)
class Left:
    """A pod with cards that is still there."""

    pod: str
    gang: str
    state: str
    why: str
    """Why it does not go by itself; empty where it may yet go."""


@dataclass(frozen=True, slots=True)
class DrainOutcome:
    """What became of one node."""

    node: str
    order: str
    """``drains``, ``takes work`` or ``would drain``."""
    done: bool
    left: tuple[Left, ...]
    others: int
    """Pods without cards, which this command leaves alone; DaemonSets do not count."""


Progress = Callable[[str], None]


def add_flags(flags: argparse.ArgumentParser) -> None:
    """Which node, and how long to wait."""
    flags.add_argument("node", metavar="NODE", help="the node whose gangs shall run elsewhere")
    what = flags.add_mutually_exclusive_group()
    what.add_argument("--undo", action="store_true", help="the node takes work again")
    what.add_argument("--dry-run", action="store_true", help="only say what would become of its gangs")


def run(api: ApiConnection, node: str, *, undo: bool, timeout_s: float, progress: Progress) -> DrainOutcome:
    """Write the order and wait until no pod with cards is left, or take it back.

    Raises :class:`UnknownNodeError`. An order stands when the time is over.
    """
    order(api, node, wanted=not undo)
    if undo:
        return DrainOutcome(node, "takes work", done=True, left=(), others=0)
    progress(f"{node} takes nothing new; its gangs are evicted whole and planned elsewhere")
    return _wait(api, node, timeout_s, progress)


def order(api: ApiConnection, node: str, *, wanted: bool) -> None:
    """Put the taint on the node, or take it off. Raises :class:`UnknownNodeError`."""
    try:
        taints.change(api, node, DRAIN, "" if wanted else None, tries=TRIES)
    except NotFound:
        raise _unknown(node) from None


def _unknown(node: str) -> UnknownNodeError:
    return UnknownNodeError(f"there is no node {node}: `kubectl egpu nodes` lists those with cards")


def _wait(api: ApiConnection, node: str, timeout_s: float, progress: Progress) -> DrainOutcome:
    deadline, last = time.monotonic() + timeout_s, ""
    while True:
        began = time.monotonic()
        try:
            pods = on_node(api, node)
        except Temporary as error:  # the order stands: the node may be empty by the next look
            if time.monotonic() >= deadline:
                raise
            line = f"the cluster does not answer: {error.message}"
        else:
            rows = still_there(pods)
            if all(row.why for row in rows) or time.monotonic() >= deadline:
                return DrainOutcome(node, "drains", done=not rows, left=rows, others=_others(pods))
            line = _told(node, rows)
        if line != last:
            progress(line)
        last = line
        time.sleep(pause.pause_s(time.monotonic() - began, deadline - time.monotonic()))


def on_node(api: ApiConnection, node: str) -> Sequence[Json]:
    """The pods that are bound to a node, as far as they are not over."""
    selector = f"spec.nodeName={node}"
    found = api.list(PODS, field_selector=selector, transform=world.light_pod).items
    return [pod for pod in found if (pod.get("status") or {}).get("phase") not in _OVER]


def still_there(pods: Iterable[Json]) -> tuple[Left, ...]:
    """Those with cards, sorted by name; with the reason for which no order makes them go."""
    rows = []
    for pod in pods:
        if world.cards_of(pod) is None:
            continue
        bare = not controller_of(pod)
        why = "no controller makes it again: delete it yourself, its gang stays meanwhile" if bare else ""
        rows.append(Left(world.key(pod), world.group_key(pod), world.phase(pod), why))
    return tuple(sorted(_held_up(rows), key=lambda row: row.pod))


def _held_up(rows: Sequence[Left]) -> list[Left]:
    """A gang with a bare pod stays as a whole."""
    stuck = {row.gang for row in rows if row.why and row.gang}
    text = "its gang has a pod that no controller makes again"
    return [
        row if row.why or row.gang not in stuck else Left(row.pod, row.gang, row.state, text) for row in rows
    ]


def _others(pods: Iterable[Json]) -> int:
    stay = {"DaemonSet", "Node"}
    without = [pod for pod in pods if world.cards_of(pod) is None]
    return sum(1 for pod in without if controller_of(pod).get("kind") not in stay)


def _told(node: str, rows: Sequence[Left]) -> str:
    gangs = sorted({row.gang or row.pod for row in rows})
    return (
        f"{node}: {len(rows)} pods with cards are left, of {few(gangs)}" if rows else f"{node}: none is left"
    )


def foretold(api: ApiConnection, node: str, namespace: str) -> tuple[DrainOutcome, RenderableType]:
    """What would become of the node's gangs. Loads the decision. Raises as ``kubectl egpu what-if``."""
    try:
        api.get(NODES, node)
    except NotFound:
        raise _unknown(node) from None
    reading = importlib.import_module("vc_egpu.cli.foresight.reading")
    asked = importlib.import_module("vc_egpu.cli.foresight.run")
    drain = importlib.import_module("vc_egpu.whatif.changes").Drain
    told = importlib.import_module("vc_egpu.cli.foresight.shown")
    found = asked.foresee(reading.from_cluster(api), None, namespace, [drain(node)])
    pods = on_node(api, node)
    rows = still_there(pods)
    outcome = DrainOutcome(node, "would drain", done=False, left=rows, others=_others(pods))
    return outcome, Group(told.shown(found), shown(outcome))


def shown(found: DrainOutcome) -> RenderableType:
    """The verdict, then what is left and what to do next."""
    if found.order == "takes work":
        return Text(f"{found.node} takes work again", style="green")
    lines: list[RenderableType] = []
    if found.order == "drains":
        head = "no pod with cards is left" if found.done else f"{len(found.left)} pods with cards are left"
        lines.append(Text(f"{found.node}: {head}", style="green" if found.done else "yellow"))
    stay = found.left if found.order == "drains" else tuple(row for row in found.left if row.why)
    if stay:
        table = Table("POD", "GANG", "STATE", "WHY IT STAYS")
        for row in stay:
            table.add_row(row.pod, row.gang or "-", row.state, row.why or "it has not gone yet")
        lines.append(table)
    if found.order == "drains":
        if found.others:
            hint = f"kubectl drain {found.node} --ignore-daemonsets --delete-emptydir-data"
            lines.append(Text(f"{found.others} pods without cards are left: {hint}"))
        lines.append(Text(f"it takes work again with: kubectl egpu drain {found.node} --undo"))
    return Group(*lines)
