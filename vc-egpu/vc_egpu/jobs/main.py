"""``vc-egpu jobs``: the Job controller for clusters without Volcano.

It makes the pods and PodGroups of Volcano Jobs and runs their lifecycle policies. It keeps the status of
PodGroups and Queues. It makes PodGroups for Deployments and bare pods with the managed label.
"""

import argparse
import os
import socket
import sys
import threading
import uuid
from collections.abc import Sequence
from typing import Final

from vc_egpu import __version__, logs
from vc_egpu.jobs.controller import Controller, Settings
from vc_egpu.kube import ApiConnection, ConfigError, EventRecorder, LeaderLease, LeaseTimes
from vc_egpu.kube.server import GetServer, pages
from vc_egpu.kube.signals import when_told_to_end
from vc_egpu.volcano.words import names

LEASE_NAME: Final = "vc-egpu-jobs"
COMPONENT: Final = "vc-egpu-jobs"
METRICS_PORT: Final = 9448
SOLE_EPOCH: Final = 0
"""The epoch of a process that leads without an election."""
_GLANCE_S: Final = 0.2
"""How often the lease and the first lists are checked when no change is reported."""


def parser() -> argparse.ArgumentParser:
    """The process's flags."""
    flags = argparse.ArgumentParser(prog="vc-egpu jobs", description=__doc__)
    flags.add_argument("--kubeconfig", help="default: $KUBECONFIG, the service account, ~/.kube/config")
    flags.add_argument(
        "--kube-api-qps", type=float, default=0.0, help="requests per second; 0: no limit of ours"
    )
    flags.add_argument("--kube-api-burst", type=int, default=0, help="default: twice the qps")
    flags.add_argument(
        "--leader-elect", action=argparse.BooleanOptionalAction, default=True, help="one of several leads"
    )
    flags.add_argument("--lease-namespace", default=os.environ.get("POD_NAMESPACE", names.SYSTEM_NAMESPACE))
    flags.add_argument("--lease-duration", type=float, default=15.0, metavar="SECONDS")
    flags.add_argument("--renew-deadline", type=float, default=10.0, metavar="SECONDS")
    flags.add_argument("--retry-period", type=float, default=2.0, metavar="SECONDS")
    flags.add_argument(
        "--local-scheduler",
        default="default-scheduler",
        help="takes the place of 'volcano' as schedulerName in pods; empty: pods keep the name",
    )
    flags.add_argument(
        "--groups-only",
        action="store_true",
        help="next to Volcano: only make PodGroups, for pods that we bind and that have none",
    )
    flags.add_argument(
        "--counts",
        action="store_true",
        help="with --groups-only, where vc-scheduler does not run: also write the status of PodGroups, and "
        "what queues use",
    )
    flags.add_argument("--workers", type=int, default=8, help="Jobs looked at side by side")
    flags.add_argument("--writers", type=int, default=16, help="pods written side by side")
    flags.add_argument("--metrics-port", type=int, default=METRICS_PORT, help="0: none")
    flags.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    options = parser().parse_args(argv)
    logs.begin(options.log_level)
    try:
        api = ApiConnection.connect(
            options.kubeconfig,
            pool_size=options.writers + options.workers + 8,
            user_agent=f"vc-egpu-jobs/{__version__}",
            qps=options.kube_api_qps or None,
            burst=options.kube_api_burst or None,
        )
        times = LeaseTimes(options.lease_duration, options.renew_deadline, options.retry_period)
    except (ConfigError, ValueError) as error:
        sys.stderr.write(f"vc-egpu jobs: {error}\n")
        return 2
    return _run(api, times, options)


def _run(api: ApiConnection, times: LeaseTimes, options: argparse.Namespace) -> int:
    ending, changed = threading.Event(), threading.Event()
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    lease = LeaderLease(
        api,
        options.lease_namespace,
        LEASE_NAME,
        identity,
        times=times,
        on_started=lambda _epoch: changed.set(),
        on_stopped=changed.set,
    )

    def end(_number: int) -> None:
        ending.set()
        changed.set()

    recorder = EventRecorder(api, COMPONENT, identity)
    settings = Settings(
        local_scheduler=options.local_scheduler,
        job_workers=options.workers,
        writers=options.writers,
        groups_only=options.groups_only,
        counts=options.counts or not options.groups_only,
    )
    elect: bool = options.leader_elect
    controller = Controller(api, api.fenced(lease) if elect else api, recorder, settings)
    when_told_to_end(end)
    server = None
    if options.metrics_port:
        # Nothing depends on a standby, so an unreachable API server is no reason to restart it.
        shown = pages(
            controller.metrics.registry,
            lambda: controller.trouble() if not elect or lease.is_leader() else "",
            lambda: controller.unsynced() or "",
        )
        server = GetServer(("", options.metrics_port), shown).start()  # for the kubelet and Prometheus
    controller.start()
    if elect:
        lease.start()
    led: int | None = None
    with controller.pulse.busy("the lease"):
        while not ending.is_set():
            led = follow(controller, lease.led_epoch() if elect else SOLE_EPOCH, led)
            changed.wait(_GLANCE_S)
            changed.clear()
            controller.pulse.got_on()
    controller.stop()
    recorder.stop()
    if elect:
        lease.stop()
    if server is not None:
        server.stop()
    return 0


def follow(controller: Controller, epoch: int | None, led: int | None) -> int | None:
    """Have the controller lead under ``epoch`` (None: rest), after ``led``; under which it leads now.

    Another process may have led between two epochs, even if the first ended a moment ago. So a look that
    began under one epoch must not write under the next: the fence stops it first.
    """
    if led is not None and led != epoch:
        controller.rest()
        led = None
    if epoch is None or led is not None or controller.pulse.others_busy():
        return led
    if controller.wait_synced(0):
        controller.lead()
        return epoch
    return led


if __name__ == "__main__":
    sys.exit(main())
