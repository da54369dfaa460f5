"""``vc-egpu placement check FILE``: can this table be used? ``which``: what is its rule for such work?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vc_egpu.core.profiles.runs import WORDS
from vc_egpu.core.profiles.table import Moment, Profile, Table, Traits, Work
from vc_egpu.volcano.profiles.file import PLACEMENT, read_profiles
from vc_egpu.volcano.profiles.table import MOST_PERCENT, never_reached

EXIT_OK: Final = 0
EXIT_FOUND: Final = 1
_MODEL: Final = "asked"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 for a table that can be used, 1 for one that cannot or has rules that nothing reaches."""
    options = _parser().parse_args(argv)
    try:
        table = read_profiles(options.file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{options.file}: {' '.join(str(error).split())}\n")
        return EXIT_FOUND
    if options.action == "which":
        sys.stdout.write(f"{_told(_which(table, options))}\n")
        return EXIT_OK
    hidden = never_reached(table)
    for name, before in hidden.items():
        sys.stdout.write(f"{name}: nothing reaches it, since {before} before it takes all work\n")
    sys.stdout.write(f"{len(table.rules)} rules: {', '.join(rule.name for rule in table.rules)}\n")
    return EXIT_FOUND if hidden else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vc-egpu placement", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, about in (("check", "read a table"), ("which", "say which rule is for such work")):
        action = actions.add_parser(name, help=about)
        action.add_argument("file", type=Path, nargs="?", default=PLACEMENT, help="the table (YAML)")
    which = actions.choices["which"]
    which.add_argument("--class", dest="share_class", choices=("high", "standard", "low"), default="standard")
    which.add_argument("--owner", default="", help="as Deployment, VolcanoJob")
    which.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    which.add_argument("--members", type=int, default=1)
    which.add_argument("--cards", type=int, default=1, help="of all members together")
    which.add_argument("--share", type=int, default=MOST_PERCENT, help="percent of a card")
    which.add_argument("--hour", type=float, default=12.0, help="of the day, in UTC")
    which.add_argument("--allocation", type=int, default=0, help="percent of the model's cards")
    which.add_argument("--earlier", action="append", default=[], choices=WORDS)
    return parser


def _which(table: Table, options: argparse.Namespace) -> Profile:
    labels = ((text.partition("=")[0], text.partition("=")[2]) for text in options.label)
    traits = Traits(options.owner, tuple(sorted(labels)), tuple(options.earlier))
    models = (_MODEL,) if options.cards else ()
    work = Work(options.share_class, options.members, options.cards, options.share, models, traits)
    return table.first(work, Moment(options.hour, lambda _: options.allocation))


def _told(found: Profile) -> str:
    if not found.rule:
        return "no rule: it is placed as without a table"
    nodes, cards = (name or "as without a table" for name in (found.nodes, found.cards))
    return f"{found.rule}: nodes {nodes}, cards {cards}"
