"""``vc-egpu PROCESS [flags]``: the one entry point of the product image.

Each process has a ``main(argv) -> int`` of its own and reads its own flags. It is imported only when it is
the one to run: an image without GPU libraries, say, still runs the others.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Final

from vc_egpu import __version__

EXIT_USAGE: Final = 2

PROCESSES: Final = {
    "admission": ("vc_egpu.admission.main", "decides which gangs get which cards, and makes room for them"),
    "webhook": ("vc_egpu.webhook.main", "completes and refuses Jobs, pods, Queues and Commands at the door"),
    "jobs": ("vc_egpu.jobs.main", "runs Volcano Jobs on clusters without Volcano"),
    "node-agent": ("vc_egpu_node.main", "offers a node's cards to the kubelet and gives them to containers"),
    "mps-keeper": ("vc_egpu_node.mps.keeper", "keeps a node's MPS daemons, for the node agent"),
    "ui": ("vc_egpu.page.main", "the page for several users, each with the rights of their own token"),
    "jobs-api": ("vc_egpu.jobsapi.main", "Jobs over plain HTTP, each with the rights of its own token"),
    "traces": ("vc_egpu.traces.main", "one trace for each start of a gang, to a collector of OpenTelemetry"),
    "catalogue": ("vc_egpu.jobsapi.check", "checks a catalogue of adapted models, and expands its entries"),
    "node-clean": ("vc_egpu_node.removal", "takes everything of ours off a node, on removal"),
    "node-images": ("vc_egpu_node.images", "says what the images on a node need, as rows of a table"),
    "report": (
        "vc_egpu.cli.sites.usage",
        "idle cards, right sizes, gains, pairs and costs, from Prometheus or Parquet",
    ),
    "idle-events": (
        "vc_egpu.cli.idle_events",
        "tells owners of low gangs that a report finds idle, by Events",
    ),
    "environments": ("vc_egpu.volcano.needs.main", "checks a table of what software needs of nodes"),
    "placement": ("vc_egpu.volcano.profiles.main", "checks a table of how work is placed"),
    "sim": ("vc_egpu.sim.main", "replays work on a cluster in memory, under several placement policies"),
    "kubectl": (
        "vc_egpu.cli.kubectl",
        "kubectl egpu: cards, why, nodes, queues, ui, suspend, resize, doctor, stop-admitting, tenant",
    ),
}


def usage() -> str:
    """What ``--help`` prints."""
    lines = ["usage: vc-egpu PROCESS [flags]     (vc-egpu PROCESS --help lists its flags)", ""]
    lines += [f"  {name:<12} {about}" for name, (_, about) in PROCESSES.items()]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch to the process that the first argument names; returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    match arguments:
        case ["-h" | "--help" | "help"]:
            print(usage())
            return 0
        case ["-V" | "--version" | "version"]:
            print(f"vc-egpu {__version__}")
            return 0
        case [name, *rest] if name in PROCESSES:
            run: Callable[[list[str]], int] = importlib.import_module(PROCESSES[name][0]).main
            return run(rest)
        case [name, *_]:
            print(f"vc-egpu: there is no process {name!r}\n\n{usage()}", file=sys.stderr)
        case _:
            print(usage(), file=sys.stderr)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
