"""The flags of ``kubectl egpu pair``."""

import argparse
from typing import Final

from vc_egpu.cli.sizing import source

ABOUT: Final = "put two services that work at different hours on one card"


def add_flags(flags: argparse.ArgumentParser) -> None:
    """Where the pairs come from, which are meant, and whether they are written."""
    flags.add_argument(
        "service", nargs="*", metavar="SERVICE", help="pairs with one of these; default: all of the namespace"
    )
    source.add_flags(flags).add_argument(
        "--remove", action="store_true", help="take back what --apply wrote; needs no report"
    )
    flags.add_argument("--apply", action="store_true", help="write it; the pods are made again")
    flags.add_argument(
        "-A", "--all-namespaces", dest="everywhere", action="store_true", help="of all namespaces"
    )
