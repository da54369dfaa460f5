"""The flags of ``kubectl egpu tenant``."""

import argparse
import re
from typing import Any, Final

ABOUT: Final = "make, compare and remove tenants, each of one document"


def add_flags(flags: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """``tenant`` has commands of its own; ``common`` are the flags that all commands take."""
    places = flags.add_subparsers(
        required=True, metavar="add|show|diff|apply|remove|render", dest="action",
        parser_class=argparse.ArgumentParser,
    )  # fmt: skip
    for name, about, fill in (
        ("add", "make a tenant from flags, and apply it", _add),
        ("show", "who is in it, what it has, what it uses", _show),
        ("diff", "what the cluster has otherwise than the document, field by field", _diff),
        ("apply", "make the cluster as the documents say", _apply),
        ("remove", "take a tenant away; nothing that runs without --evict", _remove),
        ("render", "print the objects, for kustomize and other GitOps tools; needs no cluster", _render),
    ):
        fill(places.add_parser(name, parents=[common], help=about, description=about))


def _add(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("name", metavar="NAME")
    flags.add_argument(
        "--model",
        dest="models",
        action="append",
        type=_model,
        default=[],
        metavar="MODEL=SHARES",
        help="may be repeated; h20=4 or h20=8,memoryMiB=98304,cores=200,cards=1",
    )
    flags.add_argument("--team", action="append", default=[], metavar="GROUP", help="default: NAME:ml-team")
    flags.add_argument("--admin", action="append", default=[], metavar="GROUP", help="default: NAME:admin")
    flags.add_argument("--parent", metavar="QUEUE", help="the queue above")
    flags.add_argument("--network", choices=("isolated", "internet", "open"), help="default: isolated")
    flags.add_argument("--cpu", help="most CPUs that its pods may request together")
    flags.add_argument("--memory", help="most memory that its pods may request together")
    flags.add_argument("--high-pods", type=int, metavar="N", help="pods of priority high; default: none")
    flags.add_argument("--save", metavar="FILE", help="write the document there, too")
    _wait(flags)
    flags.add_argument("--dry-run", action="store_true", help="print the document and write nothing")


def _show(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("name", nargs="?", metavar="NAME", help="default: a line for each tenant")


def _diff(flags: argparse.ArgumentParser) -> None:
    _files(flags)
    flags.add_argument("name", nargs="?", metavar="NAME", help="default document: the one last applied")


def _apply(flags: argparse.ArgumentParser) -> None:
    _files(flags, required=True)
    _wait(flags)
    flags.add_argument(
        "--force-conflicts", action="store_true", help="put back what others have changed by hand"
    )


def _remove(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("name", metavar="NAME")
    flags.add_argument("--evict", action="store_true", help="end what runs in it")
    flags.add_argument("--delete-volumes", action="store_true", help="also where claims hold data")
    flags.add_argument("--wait-s", type=float, default=120.0, metavar="S", help="default: 120")


def _render(flags: argparse.ArgumentParser) -> None:
    _files(flags, required=True)
    flags.add_argument("--models", metavar="FILE", help="the table of models; default: the cluster's, if any")
    flags.add_argument("--into", metavar="FOLDER", help="one file for each tenant and a kustomization")


def _files(flags: argparse.ArgumentParser, *, required: bool = False) -> None:
    text = "a document, a folder of them, or - for standard input; may be repeated"
    flags.add_argument("-f", "--file", dest="files", action="append", required=required, default=None,
                       metavar="FILE", help=text)  # fmt: skip


def _wait(flags: argparse.ArgumentParser) -> None:
    text = "how long to wait until Kubernetes counts the quotas; default: 60"
    flags.add_argument("--wait-s", type=float, default=60.0, metavar="S", help=text)


def _model(text: str) -> tuple[str, dict[str, Any]]:
    found = re.fullmatch(r"([^=,]+)=(\d+)((?:,(?:memoryMiB|cores|cards)=\d+)*)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL=SHARES[,memoryMiB=N][,cores=N][,cards=N]")
    more = (pair.split("=") for pair in found[3].split(",") if pair)
    return found[1], {"shares": int(found[2]), **{key: int(amount) for key, amount in more}}
