"""``kubectl egpu``: who shares which card, why a Job waits, what queues allow, whether the cluster is well.

Reads API objects only; the sentences are those of the conditions that the admission controller writes.
"""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import orjson

from vc_egpu.cli import pause, stop
from vc_egpu.cli.commands import COMMANDS, Answer, without_cluster
from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_NO_CLUSTER, explain
from vc_egpu.cli.parser import parser
from vc_egpu.cli.tenant.run import REFUSALS
from vc_egpu.cli.views import render, why
from vc_egpu.kube import ApiConnection, ConfigError
from vc_egpu.kube.wire.config import default_namespace
from vc_egpu.kube.wire.errors import KubeError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(sys.argv[1:] if argv is None else argv)
    if options.command == "ui":
        return run(options)
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
            return _print(answer, options.output)
        api = connect(options)
        namespace = options.namespace or default_namespace(options.kubeconfig, options.context)
        if options.command == "ui":
            return _serve(api, namespace, options)
        return _print(COMMANDS[options.command](api, namespace, options), options.output)
    except (why.UnknownJobError, stop.UnknownQueueError, pause.CannotPauseError, *REFUSALS) as error:
        return _fail(str(error.args[0]), EXIT_FOUND)
    except ConfigError as error:
        return _fail(f"no cluster: {error}", EXIT_NO_CLUSTER)
    except KubeError as error:
        return _fail(*explain(error))
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)


def _serve(api: ApiConnection, namespace: str, options: argparse.Namespace) -> int:
    """The page for this user, until interrupted. It stands above this package and is loaded by its name."""
    page = importlib.import_module("vc_egpu.page.main")

    def say(url: str) -> None:
        print(f"open {url}\n(for you alone: the link holds a secret. End with Ctrl-C)", flush=True)

    try:
        status: int = page.local(api, namespace, port=options.port, prometheus=options.prometheus, say=say)
    except OSError as error:
        return _fail(f"port {options.port} cannot be used: {error.strerror}", EXIT_FOUND)
    return status


def _print(answer: Answer, output: str) -> int:
    """Returns the exit status."""
    try:
        if getattr(sys, "stdout", None) is None:  # closed before we began: the answer is not wanted
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
        if not isinstance(error, BrokenPipeError):  # else the reader has what it wanted, as `head` does
            return _fail(f"the answer cannot be written: {error.strerror}", EXIT_FOUND)
    return answer.status


def as_json(document: Any) -> bytes:
    """Dataclasses as objects with their own field names (units in the names), indented."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def connect(options: argparse.Namespace) -> ApiConnection:
    """The cluster that the flags name. Raises :class:`ConfigError`, also for a file that is no kubeconfig."""
    within_s = options.timeout_s
    return ApiConnection.connect(options.kubeconfig, options.context, timeout_s=within_s, patience_s=within_s)


def _fail(text: str, status: int) -> int:
    render.tell(f"kubectl egpu: {text}", "red")
    return status


if __name__ == "__main__":
    sys.exit(main())
