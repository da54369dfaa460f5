"""``kubectl egpu``: who shares which card, why a Job waits, what queues allow, whether the cluster is well.

Reads API objects only; the sentences are those of the conditions that the admission controller writes.
"""

import argparse
import contextlib
import dataclasses
import difflib
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NoReturn

import orjson
from rich.console import Group, RenderableType

from vc_egpu import __version__
from vc_egpu.cli import pause, stop, world
from vc_egpu.cli.doctor import checkup, facts
from vc_egpu.cli.doctor.stack import removal_findings
from vc_egpu.cli.views import cards, history, owners, queues, render, waiting, why
from vc_egpu.kube import ApiConnection, ConfigError, Json
from vc_egpu.kube.resources import (
    BATCH_JOBS,
    CONFIG_MAPS,
    CRON_JOBS,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    STATEFUL_SETS,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.config import default_namespace
from vc_egpu.kube.wire.errors import Forbidden, KubeError, NotFound, Temporary, Unauthorized
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

EXIT_OK: Final = 0
EXIT_FOUND: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_CLUSTER: Final = 3
EXIT_INTERRUPTED: Final = 130


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say."""

    document: Any
    """For ``-o json``."""
    shown: RenderableType
    status: int = EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    collects = gc.isenabled()
    gc.disable()  # what is read is kept until the end: to look for garbage in it is half of the time
    try:
        return _run(options)
    finally:
        if collects:
            gc.enable()


def _run(options: argparse.Namespace) -> int:
    try:
        api = connect(options)
        namespace = options.namespace or default_namespace(options.kubeconfig, options.context)
        run: Callable[[ApiConnection, str, argparse.Namespace], Answer] = options.run
        return _print(run(api, namespace, options), options.output)
    except (why.UnknownJobError, stop.UnknownQueueError, pause.CannotPauseError) as error:
        return _fail(str(error.args[0]), EXIT_FOUND)
    except ConfigError as error:
        return _fail(f"no cluster: {error}", EXIT_NO_CLUSTER)
    except KubeError as error:
        return _fail(*explain(error))
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)


def _print(answer: Answer, output: str) -> int:
    """Returns the exit status."""
    try:
        if getattr(sys, "stdout", None) is None:  # closed before we began: nobody wants it
            return answer.status
        if output == "json":
            sys.stdout.flush()
            sys.stdout.buffer.write(as_json(answer.document) + b"\n")  # UTF-8, whatever the terminal has
        else:
            render.show(answer.shown)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter shall not try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # else whoever reads has what it wanted, as `head` does
            return _fail(f"the answer cannot be written: {error.strerror}", EXIT_FOUND)
    return answer.status


def explain(error: KubeError) -> tuple[str, int]:
    """A sentence for the user, and the exit status."""
    match error:
        case Unauthorized():
            return f"the cluster does not accept who you are: {error.message}", EXIT_NO_CLUSTER
        case Forbidden():
            hint = " (-n names another one)" if 'in the namespace "' in error.message else ""
            return f"you may not: {error.message}{hint}", EXIT_FOUND
        case NotFound():
            hint = "is the stack installed? `kubectl egpu doctor` tells"
            return f"the cluster does not know this: {error.message} ({hint})", EXIT_FOUND
        case Temporary():
            return f"the cluster does not answer: {error.message}", EXIT_NO_CLUSTER
        case _:
            return error.message, EXIT_FOUND


def as_json(document: Any) -> bytes:
    """Dataclasses as objects with their own field names (units in the names), indented."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def connect(options: argparse.Namespace) -> ApiConnection:
    """The cluster that the flags name. Raises :class:`ConfigError`, also for a file that is no kubeconfig."""
    within_s = options.timeout_s
    return ApiConnection.connect(options.kubeconfig, options.context, timeout_s=within_s, patience_s=within_s)


def _fail(text: str, status: int) -> int:
    _tell(f"kubectl egpu: {text}", "red")
    return status


def _tell(text: str, style: str = "dim") -> None:
    with contextlib.suppress(BrokenPipeError):  # that nobody reads it stops nothing
        render.show(render.hanging(text), stderr=True, style=style)


# --- the commands --------------------------------------------------------------------------------


def _cards(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    nodes, pods = world.nodes_and_pods(api, namespace)
    report = cards.report(nodes.items, pods.items, _nominal(api), partial=pods.missing)
    if options.node:
        report = cards.of_node(report, options.node)
    return Answer(report, render.cards(report, uuids=bool(options.node)))


def _nominal(api: ApiConnection) -> dict[str, int]:
    """The model table's memory by model, where the user may read it."""
    try:
        found = api.get(CONFIG_MAPS, names.MODELS_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        table = ModelTable.from_yaml((found.get("data") or {}).get("models.yaml", ""))
    except (Forbidden, NotFound, ModelTableError):
        return {}
    return {model.name: model.memory_mib for model in table.models}


def _why(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    if options.job is None or options.everywhere:
        place = None if options.everywhere else namespace
        groups = api.list(POD_GROUPS, place).items
        pods = api.list(PODS, place, label_selector=world.MANAGED, transform=world.light_pod).items
        makers = _makers(api, place)
        events = world.events(api, place, owners.REFUSED)
        listed = waiting.report(groups, pods, place=place or "", makers=makers, events=events)
        return Answer(listed, render.waiting(listed))
    name = str(options.job)
    before, slash, after = name.partition("/")
    if slash and "/" not in after and not _is_kind(before):
        namespace, name = before, after
    groups = api.list(POD_GROUPS, namespace).items
    pods = api.list(PODS, namespace, transform=world.pod_with_limits).items
    chosen = why.meant(name, groups, pods)
    jobs = world.Listing(()) if chosen else world.list_optional(api, VOLCANO_JOBS, namespace)
    makers = _makers(api, namespace) if why.asks_makers(chosen) else []
    chosen = chosen or why.meant(name, groups, pods, makers)
    if not chosen:
        makers += world.list_optional(api, CRON_JOBS, namespace, world.light_maker).items
    told = why.stories(
        name,
        namespace,
        groups=groups,
        pods=pods,
        jobs=jobs,
        queues={queue["metadata"]["name"]: queue for queue in world.list_optional(api, QUEUES).items},
        events=world.events(api, namespace, (*owners.REFUSED, *history.EVICTED)),
        nodes=world.nodes_named(api, why.places(chosen)),
        now=time.time(),
        chosen=chosen,
        makers=makers,
    )
    return Answer(told, Group(*(render.why(story) for story in told)))


def _makers(api: ApiConnection, place: str | None) -> list[Json]:
    """What makes pods and says of itself how many it wants, as far as the user may see it."""
    kinds = (REPLICA_SETS, STATEFUL_SETS, BATCH_JOBS)
    return [maker for one in kinds for maker in world.list_optional(api, one, place, world.light_maker).items]


_KINDS: Final = frozenset(
    {
        *("job", "jobs", "vcjob", "vcjobs", "vj", "podgroup", "podgroups", "pg", "pod", "pods", "po"),
        *("deployment", "deployments", "deploy", "replicaset", "replicasets", "rs"),
        *("statefulset", "statefulsets", "sts", "daemonset", "daemonsets", "ds"),
        *("cronjob", "cronjobs", "cj", "raycluster", "rayjob", "rayservice", "mpijob", "pytorchjob"),
        *("leaderworkerset", "trainjob", "jobset", "workflow"),
    }
)
"""What may stand before a name, as kubectl writes it: not a namespace."""


def _is_kind(text: str) -> bool:
    """Also ``deployment.apps`` and ``Deployment``, as kubectl writes them; no namespace has a dot."""
    return "." in text or text.lower() in _KINDS


def _queues(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    groups, pods = world.list_all(api, POD_GROUPS, namespace), world.managed_pods(api, namespace)
    partial = groups.missing or pods.missing
    if partial:
        partial += ": of others only what their pods hold is counted, a moment late, and not who waits"
    report = queues.report(api.list(QUEUES).items, groups.items, pods.items, partial=partial)
    if options.queue:
        known = [row.name for row in report.queues]
        stop.choose([{"metadata": {"name": name}} for name in known], options.queue)
        chosen = tuple(row for row in report.queues if row.name in options.queue)
        report = dataclasses.replace(report, queues=chosen)
    return Answer(report, render.queues(report))


def _doctor(api: ApiConnection, _namespace: str, options: argparse.Namespace) -> Answer:
    if options.removal:
        found = tuple(removal_findings(api.list(PODS, transform=world.light_pod).items))
    else:
        found = checkup.examine(facts.read(api))
    worst = checkup.verdict(found)
    document = {"verdict": worst, "findings": found}
    return Answer(document, render.findings(found), EXIT_FOUND if worst == "fail" else EXIT_OK)


def _stop_admitting(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    if options.queue:
        action: Literal["close", "open"] = "open" if options.undo else "close"
        chosen = stop.choose(api.list(QUEUES).items, options.queue)
        done = stop.run(api, chosen, action, namespace, timeout_s=options.wait_s)
    else:
        done = [stop.set_switch(api, stopped=not options.undo)]
    status = EXIT_OK if all(outcome.done for outcome in done) else EXIT_FOUND
    return Answer(done, render.outcomes(done), status)


def _suspend(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    return _paused(pause.suspend, api, namespace, options)


def _resume(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    return _paused(pause.resume, api, namespace, options)


def _paused(
    action: Callable[..., pause.PauseOutcome], api: ApiConnection, namespace: str, options: argparse.Namespace
) -> Answer:
    place, _, name = re.sub("^(pod|pods|po)/", "", str(options.pod)).rpartition("/")
    try:
        outcome = action(api, place or namespace, name, timeout_s=options.wait_s, progress=_tell)
    except KeyboardInterrupt:
        if action is pause.suspend:
            _tell(pause.STANDS)
        raise
    return Answer(outcome, render.paused(outcome), EXIT_OK if outcome.reached else EXIT_FOUND)


# --- flags ---------------------------------------------------------------------------------------


class _Suggesting(argparse.ArgumentParser):
    """Says which command a misspelt one is near to."""

    def error(self, message: str) -> NoReturn:
        found = re.match(r"argument COMMAND: invalid choice: '(.*)' \(choose from (.*)\)$", message)
        near = difflib.get_close_matches(found[1], re.findall(r"[a-z-]+", found[2]), 1) if found else []
        super().error(f"{message}; did you mean {near[0]}?" if near else message)


def _name(text: str) -> str:
    if not text or text.endswith("/"):  # a shell's variable that is not set
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def _seconds(text: str) -> float:
    """``90``, ``90s`` or ``2m``, as kubectl takes it."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 90, 90s and 2m are")
    return float(found[1]) * {"m": 60, "h": 3600}.get(found[2], 1)


def _common(*, defaults: bool) -> argparse.ArgumentParser:
    """Flags of every command, before it or behind it; those behind it have no defaults, which would win."""
    common = argparse.ArgumentParser(add_help=False, argument_default=None if defaults else argparse.SUPPRESS)
    common.add_argument("-n", "--namespace", help="default: the context's, or the pod's own")
    common.add_argument("--kubeconfig", help="default: $KUBECONFIG, the pod's account, ~/.kube/config")
    common.add_argument("--context", help="context of the kubeconfig")
    common.add_argument("-o", "--output", choices=("table", "json"), help="default: table")
    common.add_argument("--timeout-s", type=float, help=argparse.SUPPRESS)
    if defaults:
        common.set_defaults(output="table", timeout_s=15.0)
    return common


def _parser() -> argparse.ArgumentParser:
    common = _common(defaults=False)
    parser = _Suggesting(
        prog="kubectl egpu",
        description="GPU sharing: cards, queues, reasons.",
        epilog="Exit status: 0 done, 1 something was found or refused (that work waits is neither), "
        "2 wrong usage, 3 no cluster, 130 interrupted.",
        parents=[_common(defaults=True)],
    )
    parser.add_argument("--version", action="version", version=f"kubectl-egpu {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=argparse.ArgumentParser)

    cards = commands.add_parser("cards", parents=[common], help="every card and who shares it")
    cards.add_argument("--node", help="this node only, with the UUIDs of its cards")
    cards.set_defaults(run=_cards)
    why = commands.add_parser("why", parents=[common], help="why a Job waits, or what it got")
    which = why.add_mutually_exclusive_group()
    text = "a Job, Deployment, CronJob or pod ...; default: all that wait"
    which.add_argument("job", nargs="?", type=_name, metavar="JOB", help=text)
    which.add_argument(
        "-A", "--all-namespaces", dest="everywhere", action="store_true", help="all that wait, anywhere"
    )
    why.set_defaults(run=_why)
    queues = commands.add_parser("queues", parents=[common], help="caps, use, who waits by reason")
    queues.add_argument("queue", nargs="*", metavar="QUEUE", help="these only; default: all")
    queues.set_defaults(run=_queues)
    for name, run, text in (
        ("suspend", _suspend, "have a pod's gang leave its cards for a while; its memory goes to the host"),
        ("resume", _resume, "have a suspended gang come back to its cards"),
    ):
        pausing = commands.add_parser(name, parents=[common], help=text)
        whole = "any pod of the gang; the gang goes as a whole"
        pausing.add_argument("pod", type=_name, metavar="POD", help=whole)
        pausing.add_argument(
            "--timeout",
            dest="wait_s",
            type=_seconds,
            default=120.0,
            metavar="S",
            help="how long to wait for it, as 90, 90s or 2m; default: 120",
        )
        pausing.set_defaults(run=run)
    examine = commands.add_parser("doctor", parents=[common], help="is the cluster ready, is the stack well")
    examine.add_argument(
        "--removal", action="store_true", help="what stands in the way of removing the stack"
    )
    examine.set_defaults(run=_doctor)
    closing = commands.add_parser(
        "stop-admitting", parents=[common], help="what runs goes on, nothing new starts"
    )
    # A variable of the shell that is not set is no wish.
    what = closing.add_mutually_exclusive_group(required=True)
    what.add_argument("queue", nargs="*", default=(), metavar="QUEUE", help="close these")
    what.add_argument("--all", dest="everything", action="store_true", help="admit nothing at all, anywhere")
    closing.add_argument("--undo", action="store_true", help="open them again")
    closing.add_argument(
        "--wait-s",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="how long to wait for the queue controller; default: 30",
    )
    closing.set_defaults(run=_stop_admitting)
    return parser


if __name__ == "__main__":
    sys.exit(main())
