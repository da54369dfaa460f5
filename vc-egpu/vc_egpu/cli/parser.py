"""The flags of ``kubectl egpu``. Which function a command runs stands in :mod:`.commands`."""

import argparse
import difflib
import re
from typing import Final, NoReturn

from vc_egpu import __version__
from vc_egpu.cli.exit_status import MEANINGS
from vc_egpu.cli.foresight import flags as foresight
from vc_egpu.cli.live import drain
from vc_egpu.cli.live.forms import FORMS
from vc_egpu.cli.models import flags as models
from vc_egpu.cli.pairing import flags as pairing
from vc_egpu.cli.sites.catalogue import VARIABLE
from vc_egpu.cli.sites.fan_out import CLUSTER_TIMEOUT_S
from vc_egpu.cli.sizing import flags as sizing
from vc_egpu.cli.submit import flags as submit
from vc_egpu.cli.tenant import flags as tenant
from vc_egpu.volcano.api.paths import problem_of
from vc_egpu.volcano.words.annotations import CARD_CORES_PERCENT, MAX_MEMORY_MIB
from vc_egpu.volcano.words.quantity import QuantityError, parse

TIMEOUT_S: Final = 15.0
"""How long one request to the API server may take."""


def parser() -> argparse.ArgumentParser:
    """The whole command line; ``options.command`` is the name of the command."""
    whole, _ = _build()
    return whole


def commands() -> dict[str, argparse.ArgumentParser]:
    """The flags of each command by its name."""
    _, each = _build()
    return each


def _build() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    whole = _Suggesting(
        prog="kubectl egpu",
        description="GPU sharing: cards, queues, reasons.",
        epilog=MEANINGS,
        parents=[_common(defaults=True)],
    )
    whole.add_argument("--version", action="version", version=f"kubectl-egpu {__version__}")
    places = whole.add_subparsers(
        required=True, metavar="COMMAND", dest="command", parser_class=argparse.ArgumentParser
    )
    common = _common(defaults=False)
    each = {}
    for name, about, add_flags in (
        ("cards", "every card and who shares it", _cards),
        ("clusters", "many clusters: cards by model, and what waits", _clusters),
        ("why", "why a Job waits, or what it got", _why),
        ("nodes", "nodes with cards: driver, CUDA, capability, sizes of slices", _nodes),
        ("models", models.ABOUT, models.add_flags),
        ("queues", "caps, use, who waits by reason", _queues),
        ("submit", submit.ABOUT, _submit),
        ("what-if", foresight.ABOUT, foresight.add_flags),
        ("defrag", foresight.ABOUT_MOVES, foresight.add_move_flags),
        ("top", "what each container uses of its cards now", _top),
        ("events", "what was done for whom, and why", _events),
        ("history", "what happened to a Job", _history),
        ("cordon", "single cards take nothing new", _cordon),
        ("uncordon", "they take work again", _cordon),
        ("drain", "a node's gangs go as a whole, and run elsewhere", _drain),
        ("ui", "all of this as a page in your browser, live", _ui),
        ("report", "what cards were used for: idle time, right sizes, pairs, costs", _report),
        ("right-size", sizing.ABOUT, sizing.add_flags),
        ("pair", pairing.ABOUT, pairing.add_flags),
        ("suspend", "have a pod's gang leave its cards for a while; its memory goes to the host", _pause),
        ("resume", "have a suspended gang come back to its cards", _pause),
        ("resize", "give a running pod's share another size, without a restart", _resize),
        ("doctor", "is the cluster ready, is the stack well", _doctor),
        ("stop-admitting", "what runs goes on, nothing new starts", _stop_admitting),
        ("tenant", tenant.ABOUT, lambda flags: tenant.add_flags(flags, common)),
        ("completion", "print the script that completes this command in a shell", _completion),
    ):
        each[name] = places.add_parser(name, parents=[common], help=about)
        add_flags(each[name])
    return whole, each


def _common(*, defaults: bool) -> argparse.ArgumentParser:
    """Flags of every command, before it or behind it; those behind it have no defaults, which would win."""
    common = argparse.ArgumentParser(add_help=False, argument_default=None if defaults else argparse.SUPPRESS)
    common.add_argument("-n", "--namespace", type=_namespace, help="default: the context's, or the pod's own")
    common.add_argument("--kubeconfig", help="default: $KUBECONFIG, the pod's account, ~/.kube/config")
    common.add_argument("--context", help="context of the kubeconfig")
    common.add_argument("-o", "--output", choices=FORMS, help="default: table")
    common.add_argument("--timeout-s", type=float, help=argparse.SUPPRESS)
    if defaults:
        common.set_defaults(output="table", timeout_s=TIMEOUT_S)
    return common


def _rows(flags: argparse.ArgumentParser) -> None:
    """Flags of commands that answer with rows."""
    flags.add_argument("--sort-by", metavar="FIELD", help="a field of -o json; FIELD:desc turns it round")
    flags.add_argument("-w", "--watch", action="store_true", help="show it again every two seconds")
    _many(flags)


def _many(flags: argparse.ArgumentParser) -> None:
    """Flags of commands that many clusters can answer."""
    which = flags.add_mutually_exclusive_group()
    which.add_argument("--all-contexts", action="store_true", help="ask the cluster of each context")
    _clusters_file(which)
    _cluster_timeout(flags)


def _clusters_file(which: argparse._MutuallyExclusiveGroup) -> None:
    which.add_argument(
        "--clusters", metavar="FILE", help=f"ask the clusters of this file; '': of ${VARIABLE}"
    )


def _cluster_timeout(flags: argparse.ArgumentParser, what_for: str = "") -> None:
    flags.add_argument(
        "--cluster-timeout",
        type=_seconds,
        default=CLUSTER_TIMEOUT_S,
        metavar="S",
        help=" ".join(filter(None, ("how long each of them may take", what_for)))
        + f"; default: {CLUSTER_TIMEOUT_S:g}",
    )


def _submit(flags: argparse.ArgumentParser) -> None:
    submit.add_flags(flags)
    _many(flags)


def _clusters(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("-w", "--watch", action="store_true", help="show it again every two seconds")
    _many(flags)


def _events(flags: argparse.ArgumentParser) -> None:
    flags.add_argument(
        "-A", "--all-namespaces", dest="everywhere", action="store_true", help="of all tenants"
    )
    _rows(flags)


def _top(flags: argparse.ArgumentParser) -> None:
    flags.add_argument(
        "-A", "--all-namespaces", dest="everywhere", action="store_true", help="of all tenants"
    )
    flags.add_argument("--node", default="", help="of this node only")
    _rows(flags)


def _history(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("job", type=_name, metavar="JOB", help="a Job, Deployment or pod")
    _rows(flags)


def _cordon(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("card", nargs="+", metavar="CARD", help="a UUID, or node/index")


def _cards(flags: argparse.ArgumentParser) -> None:
    _rows(flags)
    flags.add_argument("--node", help="this node only, with the UUIDs of its cards")
    foresight.add_jobs_api(flags)


def _nodes(flags: argparse.ArgumentParser) -> None:
    _rows(flags)


def _why(flags: argparse.ArgumentParser) -> None:
    _rows(flags)
    which = flags.add_mutually_exclusive_group()
    text = "a Job, Deployment, CronJob or pod ...; default: all that wait"
    which.add_argument("job", nargs="?", type=_name, metavar="JOB", help=text)
    which.add_argument(
        "-A", "--all-namespaces", dest="everywhere", action="store_true", help="all that wait, anywhere"
    )


def _queues(flags: argparse.ArgumentParser) -> None:
    _rows(flags)
    flags.add_argument("queue", nargs="*", metavar="QUEUE", help="these only; default: all")


def _report(flags: argparse.ArgumentParser) -> None:
    """The quick look; ``vc-egpu report`` has more flags and formats."""
    source = flags.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="read what is missing from here")
    source.add_argument("--folder", metavar="DIR", help="read the tables of hours from here")
    _clusters_file(source)
    _cluster_timeout(flags, "for its first answer")
    flags.add_argument("--since", default="8d", help="8d, 36h, 2w or a date in UTC; default: 8d")
    flags.add_argument("--until", default="", help="a date in UTC; default: the last whole hour")
    flags.add_argument("--tenant", default="", help="only this tenant: a queue below the root")


def _ui(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--port", type=_port, default=0, help="on this machine alone; default: a free one")
    flags.add_argument(
        "--prometheus", default="", metavar="URL", help="show the past of cards, queues and pods from there"
    )
    foresight.add_jobs_api(flags)
    _many(flags)


def _drain(flags: argparse.ArgumentParser) -> None:
    drain.add_flags(flags)
    _wait(flags, 600.0)


def _pause(flags: argparse.ArgumentParser) -> None:
    whole = "any pod of the gang; the gang goes as a whole"
    flags.add_argument("pod", type=_name, metavar="POD", help=whole)
    _wait(flags, 120.0)


def _wait(flags: argparse.ArgumentParser, default_s: float) -> None:
    flags.add_argument(
        "--timeout",
        dest="wait_s",
        type=_seconds,
        default=default_s,
        metavar="S",
        help=f"how long to wait for it, as 90, 90s or 2m; default: {default_s:g}",
    )


def _resize(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("pod", type=_name, metavar="POD", help="a pod that runs on its cards")
    flags.add_argument("--memory", dest="memory_mib", type=_mib, metavar="MIB", help="of each of its cards")
    flags.add_argument("--cores", type=_percent, metavar="PERCENT", help="of each of its cards")
    flags.add_argument("--container", metavar="NAME", help="needed where several have a share")
    flags.add_argument("--dry-run", action="store_true", help="change nothing, say what would become of it")
    flags.add_argument(
        "--timeout",
        dest="wait_s",
        type=_seconds,
        default=90.0,
        metavar="S",
        help="how long to wait for its node, as 90, 90s or 2m; default: 90",
    )


def _doctor(flags: argparse.ArgumentParser) -> None:
    what = flags.add_mutually_exclusive_group()
    what.add_argument("--removal", action="store_true", help="what stands in the way of removing the stack")
    what.add_argument(
        "--vendor-report", action="store_true", help="what to send of cards of other vendors, without names"
    )


def _stop_admitting(flags: argparse.ArgumentParser) -> None:
    # A shell variable that is not set leaves no queue: that must not stop everything.
    what = flags.add_mutually_exclusive_group(required=True)
    what.add_argument("queue", nargs="*", default=(), metavar="QUEUE", help="close these")
    what.add_argument("--all", dest="everything", action="store_true", help="admit nothing at all, anywhere")
    flags.add_argument("--undo", action="store_true", help="open them again")
    flags.add_argument(
        "--wait-s",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="how long to wait for the queue controller; default: 30",
    )


def _completion(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("shell", choices=("bash", "fish", "zsh"))


class _Suggesting(argparse.ArgumentParser):
    """Says which command a misspelt one is near to."""

    def error(self, message: str) -> NoReturn:
        found = re.match(r"argument COMMAND: invalid choice: '(.*)' \(choose from (.*)\)$", message)
        near = difflib.get_close_matches(found[1], re.findall(r"[a-z-]+", found[2]), 1) if found else []
        super().error(f"{message}; did you mean {near[0]}?" if near else message)


def _name(text: str) -> str:
    """A name, perhaps behind a kind or a namespace and a slash."""
    *before, name = text.split("/")  # an empty name is a shell's variable that is not set
    if problem := next(filter(None, map(problem_of, (name, *filter(None, before)))), ""):
        raise argparse.ArgumentTypeError(f"the name {problem}")
    return text


def _namespace(text: str) -> str:
    if text and (problem := problem_of(text)):  # an empty one is the context's, as for kubectl
        raise argparse.ArgumentTypeError(f"the namespace {problem}")
    return text


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _mib(text: str) -> int:
    """As in a container's limits: the unit is MiB."""
    try:
        found = parse(text)
        if found.is_binary:
            raise argparse.ArgumentTypeError(f"the unit is MiB, did you mean {found.whole() >> 20}?")
        mib = found.whole()
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 1 <= mib <= MAX_MEMORY_MIB:
        raise argparse.ArgumentTypeError(f"{text} is not within 1..{MAX_MEMORY_MIB} MiB")
    return mib


def _percent(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= CARD_CORES_PERCENT):
        raise argparse.ArgumentTypeError(f"{text!r} is not within 0..{CARD_CORES_PERCENT}")
    return int(text)


def _seconds(text: str) -> float:
    """``90``, ``90s`` or ``2m``, as kubectl takes it."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 90, 90s and 2m are")
    return float(found[1]) * {"m": 60, "h": 3600}.get(found[2], 1)
