"""The flags of ``vc-egpu report``."""

import argparse
from typing import Final

from vc_egpu.usage.output.words import LANGUAGES

FORMATS: Final = ("table", "json", "csv", "parquet", "html", "patch")
CLUSTER_TIMEOUT_S: Final = 3.0
MEANINGS: Final = (
    "Exit status: 0 done, 1 no report can be made of what is there, 2 wrong usage, "
    "3 a Prometheus does not answer, 130 interrupted."
)


class UsageError(Exception):
    """Flags that do not fit together; the text is for the user."""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    flags = argparse.ArgumentParser(
        prog="vc-egpu report",
        description="What cards were used for: idle time, right sizes, gains of sharing, pairs, costs.",
        epilog=MEANINGS,
    )
    source = flags.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prometheus", metavar="URL", help="read what is missing from here, such as http://prometheus:9090"
    )
    source.add_argument(
        "--folder", metavar="DIR", help="read the tables usage_hourly and queue_hourly from here"
    )
    source.add_argument(
        "--clusters",
        metavar="FILE",
        help="read from the Prometheus of each cluster of this file; '': of $VC_EGPU_CLUSTERS",
    )
    flags.add_argument("--since", default="8d", help="8d, 36h, 2w or a date in UTC; default: 8d")
    flags.add_argument("--until", default="", help="a date in UTC; default: the last whole hour")
    flags.add_argument("--tenant", default="", help="only this tenant: a queue below the root")
    flags.add_argument(
        "--time-zone", default="UTC", help="of hours of the day, such as Asia/Shanghai; default: UTC"
    )
    flags.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    flags.add_argument(
        "--output", default="", metavar="PATH", help="a file, for csv and parquet a folder; default: stdout"
    )
    flags.add_argument("--lang", choices=LANGUAGES, default="en", help="of tables and the page; default: en")
    flags.add_argument("--prices", default="", metavar="FILE", help="prices of card-hours, YAML")
    flags.add_argument(
        "--charge",
        choices=("dominant", "memory", "cores"),
        default="dominant",
        help="what of a share counts as its part of a card; default: dominant, the larger of both",
    )
    flags.add_argument(
        "--host-memory-gib",
        type=_not_negative,
        default=64.0,
        metavar="N",
        help="host memory for each card that pairs may spill to; default: 64",
    )
    flags.add_argument(
        "--memory-mib", type=_memory, default=600, metavar="N", help="of the database; default: 600"
    )
    reading = flags.add_argument_group("Prometheus")
    reading.add_argument(
        "--store", default="", metavar="DIR", help="where hours that were read are kept; default: the cache"
    )
    reading.add_argument("--cluster", default="", help="name of the cluster where no label says it")
    reading.add_argument(
        "--cluster-timeout",
        type=_positive,
        default=CLUSTER_TIMEOUT_S,
        metavar="S",
        help=f"with --clusters, how long each may take for its first answer; default: {CLUSTER_TIMEOUT_S:g}",
    )
    reading.add_argument("--refresh", action="store_true", help="read all hours of the window again")
    reading.add_argument("--token-file", default="", metavar="FILE", help="bearer token for Prometheus")
    reading.add_argument("--ca-file", default="", metavar="FILE", help="authority of Prometheus' certificate")
    reading.add_argument(
        "--timeout-s", type=_positive, default=120.0, metavar="S", help="of one request; default: 120"
    )
    return flags


def _positive(text: str) -> float:
    number = _not_negative(text)
    if number == 0:
        raise argparse.ArgumentTypeError("it is above 0")
    return number


def _not_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range")
    return number


def _memory(text: str) -> int:
    number = int(_not_negative(text))
    if number < 128:
        raise argparse.ArgumentTypeError("the database needs 128 MiB")
    return number
