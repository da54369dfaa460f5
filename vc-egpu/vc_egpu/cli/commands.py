"""What each command of ``kubectl egpu`` does: it reads, makes a report of it, and says how to show that."""

import argparse
import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli import jobs_api, pause, stop, world
from vc_egpu.cli.completion import SCRIPTS
from vc_egpu.cli.doctor import checkup, facts, vendor_report
from vc_egpu.cli.doctor.stack import removal_findings
from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_OK
from vc_egpu.cli.live import cordon, drain, events, top
from vc_egpu.cli.models import run as models
from vc_egpu.cli.pairing import removal
from vc_egpu.cli.pairing import run as pairing
from vc_egpu.cli.pairing import shown as paired
from vc_egpu.cli.resizing import run as resize
from vc_egpu.cli.sizing import run as sizing
from vc_egpu.cli.sizing import shown as resized
from vc_egpu.cli.tenant import run as tenants
from vc_egpu.cli.views import cards, nodes, others, queues, render, waiting, why
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import PODS, QUEUES


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say."""

    document: Any
    """For ``-o json``."""
    shown: RenderableType
    status: int = EXIT_OK
    again: Callable[[Any], RenderableType] | None = None
    """Shows the document with its rows in another order; None: there are no rows."""


Command = Callable[[ApiConnection, str, argparse.Namespace], Answer]
"""Takes the cluster, the user's namespace and the flags."""


def _cards(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    report = cards.read(api, namespace)
    is_one = options.clusters is None and not options.all_contexts  # each cluster has a jobs API of its own
    if is_one and any(row.unseen for row in report.cards) and (url := jobs_api.url_of(options)):
        report = others.with_others(report, jobs_api.client(api, url, options.jobs_api_ca), namespace)
    if options.node:
        report = cards.of_node(report, options.node)
    show = functools.partial(render.cards, uuids=bool(options.node) or options.output == "wide")
    return Answer(report, show(report), again=show)


def _why(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    if options.job is None or options.everywhere:
        listed = waiting.read(api, None if options.everywhere else namespace)
        return Answer(listed, render.waiting(listed), again=render.waiting)
    told = why.read(api, namespace, str(options.job))
    return Answer(told, Group(*(render.why(story) for story in told)))


def _queues(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    report = queues.read(api, namespace)
    if options.queue:
        known = [row.name for row in report.queues]
        stop.choose([{"metadata": {"name": name}} for name in known], options.queue)
        chosen = tuple(row for row in report.queues if row.name in options.queue)
        report = dataclasses.replace(report, queues=chosen)
    return Answer(report, render.queues(report), again=render.queues)


def _nodes(api: ApiConnection, _namespace: str, _options: argparse.Namespace) -> Answer:
    report = nodes.read(api)
    return Answer(report, nodes.shown(report), again=nodes.shown)


def _models(api: ApiConnection, _namespace: str, options: argparse.Namespace) -> Answer:
    found = models.run(api, options)
    return Answer(found, models.shown(found))


def _events(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    report = events.read(api, None if options.everywhere else namespace)
    return Answer(report, events.shown(report), again=events.shown)


def _top(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    report = top.read(api, None if options.everywhere else namespace, options.node)
    return Answer(report, top.shown(report), again=top.shown)


def _history(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    *_, name = str(options.job).split("/")
    report = events.read(api, namespace, name)
    return Answer(report, events.shown(report), again=events.shown)


def _cordon(api: ApiConnection, _namespace: str, options: argparse.Namespace) -> Answer:
    done = cordon.run(api, options.card, undo=options.command == "uncordon")
    return Answer(done, cordon.shown(done))


def _drain(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    if options.dry_run:
        outcome, told = drain.foretold(api, options.node, namespace)
        return Answer(outcome, told)
    outcome = drain.run(api, options.node, undo=options.undo, timeout_s=options.wait_s, progress=render.tell)
    return Answer(outcome, drain.shown(outcome), EXIT_OK if outcome.done else EXIT_FOUND)


def _doctor(api: ApiConnection, _namespace: str, options: argparse.Namespace) -> Answer:
    if options.vendor_report:
        said = vendor_report.read(api)
        return Answer({"version": 1, "nodes": said.nodes}, vendor_report.shown(said))
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
    try:
        return _paused(pause.suspend, api, namespace, options)
    except KeyboardInterrupt:
        render.tell(pause.STANDS)
        raise


def _resume(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    return _paused(pause.resume, api, namespace, options)


def _paused(
    action: Callable[..., pause.PauseOutcome], api: ApiConnection, namespace: str, options: argparse.Namespace
) -> Answer:
    place, _, name = re.sub("^(pod|pods|po)/", "", str(options.pod)).rpartition("/")
    outcome = action(api, place or namespace, name, timeout_s=options.wait_s, progress=render.tell)
    return Answer(outcome, render.paused(outcome), EXIT_OK if outcome.reached else EXIT_FOUND)


def _resize(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    if options.memory_mib is None and options.cores is None:
        raise resize.NotResizableError("name --memory, --cores or both")
    outcome = resize.run(api, namespace, options, render.tell)
    return Answer(outcome, resize.shown(outcome), EXIT_OK if outcome.reached else EXIT_FOUND)


def _tenant(api: ApiConnection, _namespace: str, options: argparse.Namespace) -> Answer:
    said = tenants.run(api, options)
    return Answer(said.document, said.shown, said.status)


def _what_if(api: ApiConnection | None, namespace: str, options: argparse.Namespace) -> Answer:
    """The decision is loaded for this command alone: that takes a while."""
    found = importlib.import_module("vc_egpu.cli.foresight.run").run(api, namespace, options)
    shown = importlib.import_module("vc_egpu.cli.foresight.shown").shown(found)
    return Answer(found, shown)


def _defrag(api: ApiConnection | None, _namespace: str, options: argparse.Namespace) -> Answer:
    """As what-if."""
    moves = importlib.import_module("vc_egpu.cli.foresight.moves")
    found = moves.run(api, options)
    return Answer(found, moves.shown(found))


def _right_size(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    found = sizing.run(api, namespace, options)
    return Answer(found, resized.shown(found, written=options.apply), found.status)


def _pair(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Answer:
    found = (removal if options.remove else pairing).run(api, namespace, options)
    return Answer(found, paired.shown(found, written=options.apply), found.status)


def without_cluster(options: argparse.Namespace) -> Answer | None:
    """The answer of a command that needs no cluster; None for all others."""
    if options.command == "completion":
        script = SCRIPTS[options.shell]
        return Answer(script, Text(script.rstrip()))
    if options.command == "what-if" and options.snapshot is not None:
        return _what_if(None, options.namespace or "default", options)
    if options.command == "defrag" and options.snapshot is not None:
        return _defrag(None, "", options)
    if options.command != "tenant" or not tenants.needs_no_cluster(options):
        return None
    said = tenants.run(None, options)
    return Answer(said.document, said.shown, said.status)


COMMANDS: Final[Mapping[str, Command]] = {
    "cards": _cards,
    "why": _why,
    "nodes": _nodes,
    "models": _models,
    "queues": _queues,
    "top": _top,
    "events": _events,
    "history": _history,
    "cordon": _cordon,
    "uncordon": _cordon,
    "drain": _drain,
    "suspend": _suspend,
    "resume": _resume,
    "resize": _resize,
    "doctor": _doctor,
    "stop-admitting": _stop_admitting,
    "tenant": _tenant,
    "what-if": _what_if,
    "defrag": _defrag,
    "right-size": _right_size,
    "pair": _pair,
}
"""By the name that users type; the flags of each are in :mod:`.parser`."""
