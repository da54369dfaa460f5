"""The command line of the local cluster."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from localcluster import surroundings, teardown, toolchain
from localcluster.cluster import LocalCluster
from localcluster.errors import LocalClusterError, in_words
from localcluster.spec import ClientRate, ClusterSpec
from localcluster.state import StateDir, all_clusters, locked
from localcluster.status import describe


def say(line: str) -> None:
    """Progress goes to standard error; what is done does not stop because nobody reads of it any more."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:  # a pipe whose reader went away, or a terminal that was closed
        _discard(sys.stderr)


def tell(line: str) -> None:
    """Results go to standard output. Ends the program, as a shell expects it, where nobody reads on."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        _discard(sys.stdout)
        raise SystemExit(128 + signal.SIGPIPE) from None


def _discard(stream: TextIO) -> None:
    """Python would try the rest once more as it exits, and complain; Debian 12's fails then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    arguments = _parser().parse_args(argv)
    surroundings.interruptible()
    try:
        return int(arguments.run(arguments))
    except LocalClusterError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        say(f"error: {in_words(error)}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build", help="build the binaries into the cache")
    build.add_argument("--jobs", type=int, help="compilations at once (default: one per core)")
    build.add_argument(
        "--with",
        dest="extras",
        action="append",
        default=[],
        choices=[extra.name for extra in toolchain.EXTRAS],
        help="what no cluster needs, but some tests do",
    )
    minors = [upstream.minor for upstream in toolchain.KUBERNETES]
    build.add_argument(
        "--kubernetes",
        dest="minors",
        action="append",
        default=[],
        choices=minors,
        help="minor version (default: VC_EGPU_KUBERNETES, or the newest); may be given more than once",
    )
    runtimes = [upstream.minor for upstream in toolchain.CONTAINERD]
    build.add_argument("--containerd", default="", choices=runtimes, help="default: VC_EGPU_CONTAINERD")
    build.set_defaults(run=_build)
    up = commands.add_parser("up", help="start a cluster")
    default = ClusterSpec()
    up.add_argument("--name", default=default.name)
    up.add_argument("--real-nodes", type=int, default=None, help="default 2, and 0 with --rootless")
    up.add_argument("--kwok-nodes", type=int, default=0)
    up.add_argument("--services", action=argparse.BooleanOptionalAction, default=True)
    up.add_argument("--dns", action=argparse.BooleanOptionalAction, default=True)
    up.add_argument("--audit", action="store_true", help="write an audit log of all writes")
    up.add_argument(
        "--fairness", action=argparse.BooleanOptionalAction, default=True, help="priority and fairness"
    )
    up.add_argument("--kubernetes", default="", choices=minors, help="minor version, likewise")
    up.add_argument("--kubelet", default="", choices=minors, help="that of the nodes, where it is another")
    up.add_argument("--containerd", default="", choices=runtimes, help="of the nodes, likewise")
    up.add_argument("--rootless", action="store_true", help="control plane and simulated nodes only")
    up.add_argument(
        "--controllers-qps", type=_rate, default=default.controller_manager_rate, metavar="QPS/BURST"
    )
    up.add_argument("--scheduler-qps", type=_rate, default=default.scheduler_rate, metavar="QPS/BURST")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="end a cluster and remove its files")
    which = down.add_mutually_exclusive_group()
    which.add_argument("--name", default=default.name)
    which.add_argument("--all", action="store_true")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="show the clusters of this user")
    status.add_argument("--name")
    status.set_defaults(run=_status)
    gc = commands.add_parser("gc", help="remove what crashed clusters left")
    gc.set_defaults(run=_gc)
    return parser


def _rate(text: str) -> ClientRate:
    try:
        qps, burst = text.split("/")
        return ClientRate(int(qps), int(burst))
    except (ValueError, LocalClusterError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: QPS/BURST is needed, as in 200/400") from error


def _build(arguments: argparse.Namespace) -> int:
    minors: list[str] = arguments.minors
    seconds = toolchain.build(
        say, jobs=arguments.jobs, extras=arguments.extras, minors=minors, runtime=arguments.containerd
    )
    kubectl = toolchain.program("kubectl", *minors[:1])
    say(f"binaries ready ({seconds:.0f} s); kubectl is {kubectl}")
    return 0


def _up(arguments: argparse.Namespace) -> int:
    rootless = arguments.rootless
    real = arguments.real_nodes if arguments.real_nodes is not None else (0 if rootless else 2)
    if os.geteuid() != 0 and arguments.real_nodes is None and not rootless:
        raise LocalClusterError("real nodes need root; `up --rootless --kwok-nodes N` works without")
    services = arguments.services and real > 0
    spec = ClusterSpec(
        name=arguments.name,
        real_nodes=real,
        kwok_nodes=arguments.kwok_nodes,
        services=services,
        dns=arguments.dns and services,
        audit=arguments.audit,
        priority_and_fairness=arguments.fairness,
        rootless=rootless,
        kubernetes=arguments.kubernetes,
        kubelet=arguments.kubelet,
        containerd=arguments.containerd,
        controller_manager_rate=arguments.controllers_qps,
        scheduler_rate=arguments.scheduler_qps,
    )
    began = time.monotonic()
    cluster = LocalCluster.up(spec, say)
    say(f"{spec.name} is up after {time.monotonic() - began:.1f} s")
    if real == 0:
        say("no real nodes: there are no containers, no Services, no DNS, no logs or exec, no device plugins")
    tell(f"export KUBECONFIG={cluster.kubeconfig}")
    past_proxy = surroundings.without_proxy(cluster.context.all_addresses, os.environ)
    if past_proxy:
        tell(f"export NO_PROXY={past_proxy['NO_PROXY']}")
    tell(f"export PATH={cluster.bin('kubectl').parent}:$PATH")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    states = all_clusters() if arguments.all else [StateDir.of(arguments.name)]
    for state in states:
        if not state.path.exists():
            say(f"no cluster {state.name}")
            continue
        with locked(state.lock_file):
            teardown.remove(state, say)
        say(f"{state.name} is down")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    states = [StateDir.of(arguments.name)] if arguments.name is not None else all_clusters()
    if not states:
        tell("no clusters")
    for state in states:
        tell(describe(state))
    return 0


def _gc(_arguments: argparse.Namespace) -> int:
    removed = teardown.collect(say)
    tell(f"removed: {', '.join(removed)}" if removed else "nothing to remove")
    return 0
