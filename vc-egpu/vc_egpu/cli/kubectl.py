"""``kubectl egpu``: who shares which card, why a Job waits, what queues allow, whether the cluster is well.

Reads API objects only; the sentences are those of the conditions that the admission controller writes.
"""

import argparse
import dataclasses
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, assert_never

from vc_egpu.cli import completion, jobs_api, pause, stop
from vc_egpu.cli.commands import COMMANDS, Answer, without_cluster
from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_NO_CLUSTER, explain
from vc_egpu.cli.foresight.flags import CannotForeseeError
from vc_egpu.cli.jobs_api import CannotAskError
from vc_egpu.cli.live import cordon, drain, forms
from vc_egpu.cli.models.table_text import CannotAddError
from vc_egpu.cli.parser import parser
from vc_egpu.cli.resizing import run as resize
from vc_egpu.cli.sites import run as many
from vc_egpu.cli.sites.catalogue import Catalogue, CatalogueError, chosen
from vc_egpu.cli.sites.together import Part, Together
from vc_egpu.cli.sizing.source import CannotApplyError
from vc_egpu.cli.submit.flags import CannotSubmitError
from vc_egpu.cli.tenant.run import REFUSALS
from vc_egpu.cli.views import render, why
from vc_egpu.kube import ApiConnection, ConfigError
from vc_egpu.kube.wire.config import default_namespace
from vc_egpu.kube.wire.errors import KubeError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == [completion.ASKED]:
        return completion.main(arguments[1:])
    options = parser().parse_args(arguments)
    if options.command == "ui":
        return run(options)
    if options.command == "report":
        return _report(options)
    collects = gc.isenabled()
    gc.disable()  # what is read is kept until the end: to look for garbage in it is half of the time
    try:
        return run(options)
    finally:
        if collects:
            gc.enable()


def run(options: argparse.Namespace) -> int:
    """Run the command that the flags name, and print its answer or why there is none."""
    try:
        if (answer := without_cluster(options)) is not None:
            return _print(answer, options)
        return _with_cluster(options)
    except (*_WRONG, *REFUSALS, CannotForeseeError, CannotSubmitError, CannotAskError) as error:
        return _fail(str(error.args[0]), EXIT_FOUND)
    except ConfigError as error:
        return _fail(f"no cluster: {error}", EXIT_NO_CLUSTER)
    except KubeError as error:
        return _fail(*explain(error))
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)


_WRONG: Final = (
    why.UnknownJobError, stop.UnknownQueueError, pause.CannotPauseError, resize.NotResizableError,
    cordon.UnknownCardError, drain.UnknownNodeError, forms.FormError, CatalogueError, CannotApplyError,
    CannotAddError,
)  # fmt: skip
"""What a command raises where it cannot do what was asked, with a text for the user."""


def _with_cluster(options: argparse.Namespace) -> int:
    if (catalogue := _catalogue(options)) is not None:
        if options.command == "submit":
            return _print(_submit(catalogue, options), options)
        if options.command == "ui":
            return _serve_sites(catalogue, options)
        return _on_many(catalogue, options)
    api = connect(options)
    namespace = options.namespace or default_namespace(options.kubeconfig, options.context)
    if options.command == "ui":
        return _serve(api, namespace, options)
    return _ask(lambda: _ordered(COMMANDS[options.command](api, namespace, options), options), options)


def _catalogue(options: argparse.Namespace) -> Catalogue | None:
    """The clusters to ask; None: the one that the flags name."""
    if not hasattr(options, "all_contexts"):
        return None
    every = options.all_contexts or (options.command in _OF_MANY and options.clusters is None)
    return chosen(options.clusters, options.kubeconfig, all_contexts=every)


_OF_MANY: Final = frozenset({"clusters", "submit"})
"""Commands that ask every context where no file is named."""


def _submit(catalogue: Catalogue, options: argparse.Namespace) -> Answer:
    """The decision is loaded for this command alone: that takes a while."""
    done, status = importlib.import_module("vc_egpu.cli.submit.run").run(catalogue, options)
    shown = importlib.import_module("vc_egpu.cli.submit.shown").shown(done)
    return Answer(done, shown, status)


def _on_many(catalogue: Catalogue, options: argparse.Namespace) -> int:
    """The same command on all of them."""
    command = COMMANDS.get(options.command)

    def one(api: ApiConnection, namespace: str, options: argparse.Namespace) -> Part:
        answer = _ordered(COMMANDS[options.command](api, namespace, options), options)
        return Part(answer.document, answer.shown, answer.status)

    def ask() -> Answer:
        said = many.run(catalogue, one if command is not None else None, options, absent=_WRONG)
        return Answer(said.document, said.shown, said.status)

    return _ask(ask, options)


def _ordered(answer: Answer, options: argparse.Namespace) -> Answer:
    """Its rows in the order that the flags ask for."""
    by = getattr(options, "sort_by", None)
    if not by:
        return answer
    document = forms.ordered(answer.document, by)
    shown = answer.again(document) if answer.again is not None else answer.shown
    return dataclasses.replace(answer, document=document, shown=shown)


def _ask(ask: Callable[[], Answer], options: argparse.Namespace) -> int:
    return _watch(ask, options) if getattr(options, "watch", False) else _print(ask(), options)


def _watch(ask: Callable[[], Answer], options: argparse.Namespace) -> int:
    """Until interrupted, or the reader has gone. A terminal is wiped each time, a file grows."""
    while True:
        answer = ask()
        if sys.stdout is not None and sys.stdout.isatty():
            sys.stdout.write(_WIPE)
        status = _print(answer, options)
        if status != answer.status or sys.stdout is None or sys.stdout.closed:
            return status
        time.sleep(WATCH_S)


WATCH_S: Final = 2.0
_WIPE: Final = "\x1b[H\x1b[2J"


def _report(options: argparse.Namespace) -> int:
    """The report in the terminal, or as JSON. It asks no cluster; its libraries are loaded for it alone."""
    named = {"clusters": options.clusters, "prometheus": options.prometheus, "folder": options.folder}
    source = [f"--{flag}={value}" for flag, value in named.items() if value is not None]
    reports = importlib.import_module("vc_egpu.cli.sites.usage")
    flags = [f"--since={options.since}", f"--until={options.until}"]
    flags += [f"--tenant={options.tenant}", f"--format={options.output}"]
    flags.append(f"--cluster-timeout={options.cluster_timeout}")
    status: int = reports.main([*source, *flags])
    return status


def _serve(api: ApiConnection, namespace: str, options: argparse.Namespace) -> int:
    """The page for this user, until interrupted. It stands above this package and is loaded by its name."""
    page = importlib.import_module("vc_egpu.page.main")
    others = None
    if url := jobs_api.url_of(options):
        by_jobs_api = importlib.import_module("vc_egpu.page.cluster.others").by_jobs_api
        others = by_jobs_api(jobs_api.client(api, url, options.jobs_api_ca))
    try:
        status: int = page.local(
            api, namespace, port=options.port, prometheus=options.prometheus, others=others, say=_say_link
        )
    except OSError as error:
        return _fail(f"port {options.port} cannot be used: {error.strerror}", EXIT_FOUND)
    return status


def _serve_sites(catalogue: Catalogue, options: argparse.Namespace) -> int:
    """The page of several clusters, until interrupted."""
    if options.prometheus:
        return _fail("--prometheus shows the past of one cluster: leave it out with several", EXIT_FOUND)
    page = importlib.import_module("vc_egpu.page.main")
    within_s, port = options.cluster_timeout, options.port
    try:
        status: int = page.local_sites(
            catalogue, options.namespace or "", port=port, within_s=within_s, say=_say_link
        )
    except OSError as error:
        return _fail(f"port {port} cannot be used: {error.strerror}", EXIT_FOUND)
    sys.stdout.flush()
    os._exit(status)  # a thread that hangs in a cluster's answer would abort the interpreter's own end


def _say_link(url: str) -> None:
    print(f"open {url}\n(for you alone: the link holds a secret. End with Ctrl-C)", flush=True)


def _print(answer: Answer, options: argparse.Namespace) -> int:
    """Returns the exit status."""
    try:
        if getattr(sys, "stdout", None) is None:  # closed before we began: the answer is not wanted
            return answer.status
        written = _written(options.output, answer.document)
        if written is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(written + b"\n")  # UTF-8, whatever the terminal has
        else:
            render.show(answer.shown)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter shall not try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # else the reader has what it wanted, as `head` does
            return _fail(f"the answer cannot be written: {error.strerror}", EXIT_FOUND)
    return answer.status


def _written(form: forms.Form, document: Any) -> bytes | None:
    """The document in one of the forms for programs; None for those for people."""
    match form:
        case "json":
            return forms.as_json(document)
        case "yaml":
            return forms.as_yaml(document)
        case "name":
            return document.names() if isinstance(document, Together) else forms.as_names(document)
        case "table" | "wide":
            return None
        case _:
            assert_never(form)


def connect(options: argparse.Namespace) -> ApiConnection:
    """The cluster that the flags name. Raises :class:`ConfigError`, also for a file that is no kubeconfig."""
    within_s = options.timeout_s
    return ApiConnection.connect(options.kubeconfig, options.context, timeout_s=within_s, patience_s=within_s)


def _fail(text: str, status: int) -> int:
    render.tell(f"kubectl egpu: {text}", "red")
    return status


if __name__ == "__main__":
    sys.exit(main())
