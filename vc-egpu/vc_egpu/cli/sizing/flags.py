"""The flags of ``kubectl egpu right-size``."""

import argparse
from typing import Final

ABOUT: Final = "give services the memory and cores that a report proposes"


class CannotResizeError(Exception):
    """Nothing can be proposed; the text is for the user."""


def add_flags(flags: argparse.ArgumentParser) -> None:
    """Where the proposals come from, which are meant, and whether they are written."""
    flags.add_argument(
        "service", nargs="*", metavar="SERVICE", help="Deployments, StatefulSets or Jobs; default: all"
    )
    source = flags.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="read what is missing from here")
    source.add_argument("--folder", metavar="DIR", help="read the tables of hours from here")
    source.add_argument("--report", metavar="FILE", help="a report as JSON: `vc-egpu report --format json`")
    flags.add_argument("--since", default="8d", help="8d, 36h, 2w or a date in UTC; default: 8d")
    flags.add_argument("--apply", action="store_true", help="write them; the pods are made again")
    flags.add_argument(
        "-A", "--all-namespaces", dest="everywhere", action="store_true", help="of all namespaces"
    )
