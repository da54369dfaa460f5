"""The flags of ``kubectl egpu right-size``."""

import argparse
from typing import Final

from vc_egpu.cli.sizing import source

ABOUT: Final = "give services the memory and cores that a report proposes"


def add_flags(flags: argparse.ArgumentParser) -> None:
    """Where the proposals come from, which are meant, and whether they are written."""
    flags.add_argument(
        "service", nargs="*", metavar="SERVICE", help="Deployments, StatefulSets or Jobs; default: all"
    )
    source.add_flags(flags)
    flags.add_argument("--apply", action="store_true", help="write them; the pods are made again")
    flags.add_argument(
        "-A", "--all-namespaces", dest="everywhere", action="store_true", help="of all namespaces"
    )
