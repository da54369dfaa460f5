"""The flags of ``kubectl egpu submit``. Nothing here loads the decision."""

import argparse
from pathlib import Path
from typing import Final

from vc_egpu.cli.sites.fan_out import CLUSTER_TIMEOUT_S

ABOUT: Final = "send a Job to the cluster where it starts first"
ASK_TIMEOUT_S: Final = 10 * CLUSTER_TIMEOUT_S
"""A whole cluster is read for what-if."""
UNCLEAR_S: Final = 60.0
"""How long a cluster is asked again whether it took the Job."""


class CannotSubmitError(Exception):
    """Nothing was sent; the text says why."""


def add_flags(flags: argparse.ArgumentParser) -> None:
    """All but those that name clusters, and their time."""
    what = flags.add_mutually_exclusive_group(required=True)
    what.add_argument("-f", "--file", type=Path, metavar="FILE", help="a Volcano Job")
    what.add_argument("--model", metavar="NAME", help="an entry of the catalogue of adapted models")
    entry = flags.add_argument_group("with --model")
    entry.add_argument("--queue", metavar="NAME", help="the queue that the Job counts in; has to be named")
    entry.add_argument("--name", metavar="NAME", help="of the Job; default: the entry's, with - for .")
    entry.add_argument("--members", type=int, metavar="N", help="default: as the entry says")
    entry.add_argument(
        "--catalogue", type=Path, metavar="FILE", help="the catalogue (YAML); default: the worked examples"
    )
    flags.add_argument("--first-start", action="store_true", required=True, help="the only rule there is")
    flags.add_argument("--dry-run", action="store_true", help="show the clusters in order, and send nothing")
    flags.add_argument(
        "--submit-id",
        default="",
        metavar="[CLUSTER/]ID",
        help="go on with an earlier try whose outcome was unclear, in that cluster alone where it is named",
    )
    flags.add_argument(
        "--unclear-timeout",
        type=_not_negative,
        default=UNCLEAR_S,
        metavar="S",
        help=f"how long a cluster is asked again whether it took the Job; default: {UNCLEAR_S:g}",
    )


def _not_negative(text: str) -> float:
    try:
        found = float(text.removesuffix("s"))
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 60 and 60s are")
    return found
