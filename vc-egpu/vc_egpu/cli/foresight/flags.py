"""The flags of ``kubectl egpu what-if``. Nothing here loads the decision: every command reads its flags."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

ABOUT: Final = "what would happen to a Job, or by a change of the cluster"
ABOUT_MOVES: Final = "which gangs would move to other cards, so that others fit"
Wanted = tuple[str, str]
"""A kind of change, and its words."""


class CannotForeseeError(Exception):
    """There is nothing that could be asked; the text says why."""


class NotAllowedError(CannotForeseeError):
    """The user may not read the whole cluster."""


def add_flags(flags: argparse.ArgumentParser) -> None:
    """All of them."""
    flags.add_argument("-f", "--file", type=Path, metavar="FILE", help="a manifest that is not applied yet")
    flags.add_argument("--snapshot", type=Path, metavar="FILE", help="ask about a saved /v1/snapshot")
    add_jobs_api(flags)
    for flag, kind, metavar, text in (
        ("--add-nodes", "add-nodes", "NODE=COUNT", "empty nodes like NODE came"),
        ("--drain", "drain", "NODE", "the node were drained"),
        ("--cap", "cap", "QUEUE:RESOURCE=AMOUNT", "the queue's cap were this; none: no cap"),
        ("--end", "end", "NAMESPACE/GANG", "this gang were over"),
    ):
        flags.add_argument(
            flag, dest="changes", action="append", type=_of(kind), metavar=metavar, help=f"if {text}"
        )


def add_jobs_api(flags: argparse.ArgumentParser) -> None:
    """Where to ask for what the user may not read."""
    flags.add_argument(
        "--jobs-api",
        metavar="URL",
        help="ask there if you may not read the whole cluster; default: $VC_EGPU_JOBS_API",
    )
    flags.add_argument("--jobs-api-ca", type=Path, metavar="FILE", help="the authority of its certificate")


def add_move_flags(flags: argparse.ArgumentParser) -> None:
    """Those of ``kubectl egpu defrag``."""
    flags.add_argument(
        "--dry-run",
        action="store_true",
        required=True,
        help="print the moves; the controller alone makes any",
    )
    flags.add_argument("--snapshot", type=Path, metavar="FILE", help="ask about a saved /v1/snapshot")


def _of(kind: str) -> Callable[[str], Wanted]:
    return lambda text: (kind, text)
