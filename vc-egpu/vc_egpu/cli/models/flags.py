"""The flags of ``kubectl egpu models``."""

import argparse
from typing import Final

ABOUT: Final = "cards of products that the model table lacks, and rows for them"


def add_flags(flags: argparse.ArgumentParser) -> None:
    """The command's flags."""
    flags.add_argument("--add", action="store_true", help="add the rows to the table, with your own rights")
    flags.add_argument("model", nargs="*", metavar="MODEL", help="these only; default: all that have a row")
