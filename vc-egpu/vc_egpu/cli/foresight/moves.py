"""The command ``kubectl egpu defrag``: which gangs would move to other cards now. It moves none itself."""

import argparse
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.foresight import reading
from vc_egpu.cli.views.render import hanging
from vc_egpu.core.model.words import few, why_moved
from vc_egpu.kube import ApiConnection
from vc_egpu.whatif.moves import Moved, Moves, moves


@dataclass(frozen=True, slots=True)
class FoundMoves:
    """What the command has to say."""

    moves: Moves
    on: bool
    """Whether the controller moves gangs by itself."""
    notes: tuple[str, ...]


def run(api: ApiConnection | None, options: argparse.Namespace) -> FoundMoves:
    """The answer. ``api`` None: of a saved snapshot. Raises :class:`.flags.CannotForeseeError`."""
    seen = reading.from_cluster(api) if api is not None else reading.from_file(options.snapshot)
    notes = list(seen.notes)
    if not seen.policy.mix.classes:
        notes.append(
            "moves without a gang that fits are not looked for: only the controller knows usual work"
        )
    found = moves(seen.snapshot, seen.policy, seen.now)
    return FoundMoves(found, seen.policy.moving.on, tuple(notes))


def shown(found: FoundMoves) -> RenderableType:
    """The moves in their order, then what stays and why."""
    parts: list[RenderableType] = [Text(_head(found), style="bold")]
    parts += [Text(f"  {hanging(_line(one))}") for one in found.moves.moved]
    if found.moves.waiting:
        parts.append(Text(f"  {found.moves.waiting} gangs wait for cards, and no move helps them"))
    parts += [Text(f"  stays where it is: {count} gangs, {why}") for why, count in found.moves.stay]
    return Group(*parts, *(Text(f"note: {hanging(note)}", style="yellow") for note in found.notes))


def _head(found: FoundMoves) -> str:
    how = "the controller makes them by itself" if found.on else "the controller moves no gangs"
    count = len(found.moves.moved)
    return f"{count} gangs would move: {how}" if count else f"no gang would move ({how})"


def _line(one: Moved) -> str:
    where = f"from {few(list(one.leaves))} to {few(list(one.goes_to))}"
    won = f"{one.won_milli / 1000:g} cards become of use"
    why = why_moved(one.whom, one.empties)
    return f"{one.gang}: {one.pods} pods with {one.cards} cards go {where}, {why}; {won}"
