"""``vc-egpu traces``: one trace for each start of a gang, to a collector of OpenTelemetry.

It only reads, and nothing waits for it. So it may be absent, late or killed, and no gang notices.
"""

import argparse
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from prometheus_client import CollectorRegistry

from vc_egpu import __version__, logs
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.server import GetServer, pages
from vc_egpu.kube.signals import when_told_to_end
from vc_egpu.kube.wire.config import ConfigError
from vc_egpu.metrics.vocabulary import traces as vocabulary
from vc_egpu.metrics.vocabulary.build import tell_build
from vc_egpu.traces.observer import Observer
from vc_egpu.traces.sending import Sender

PORT: Final = 9454
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXIT_USAGE: Final = 2

logger = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(
        prog="vc-egpu traces",
        description="One trace for each start of a gang, by OTLP over HTTP. The collector's address stands "
        f"in {ENDPOINTS[1]}, for example http://otel-collector.monitoring:4318.",
    )
    flags.add_argument("--kubeconfig", default=None, metavar="FILE", help="default: the pod's own rights")
    flags.add_argument("--cluster", default="", metavar="NAME", help="its name in all traces")
    flags.add_argument("--listen", default="", metavar="ADDRESS", help="default: all addresses")
    flags.add_argument(
        "--port", type=int, default=PORT, help=f"metrics and probes; default: {PORT}, -1: none"
    )
    flags.add_argument("--timeout-s", type=float, default=20.0, help="for one trace, all tries together")
    return flags


def endpoint_in(environment: Mapping[str, str]) -> str:
    """The collector's address; empty: none, or not an http URL."""
    found = next((environment[name] for name in ENDPOINTS if environment.get(name)), "")
    parts = urlsplit(found)
    return found if parts.scheme in {"http", "https"} and parts.hostname else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Watch and send until SIGTERM; returns the exit status."""
    logs.begin()
    options = parser().parse_args(sys.argv[1:] if argv is None else argv)
    if not endpoint_in(os.environ):
        logger.error("traces: set %s to the http URL of a collector", ENDPOINTS[1])
        return _EXIT_USAGE
    try:
        api = ApiConnection.connect(options.kubeconfig, user_agent=f"vc-egpu-traces/{__version__}")
    except (ConfigError, OSError) as error:
        logger.error("traces: %s", error)
        return _EXIT_USAGE
    try:
        return _run(api, options)
    finally:
        api.close()


def _run(api: ApiConnection, options: argparse.Namespace) -> int:
    registry = CollectorRegistry()
    tell_build(registry, "traces", __version__)
    outcomes = vocabulary.TRACES.counter(registry)
    sender = Sender(
        OTLPSpanExporter(timeout=options.timeout_s),
        options.cluster,
        lambda outcome: outcomes.labels(outcome=outcome).inc(),
    )
    observer = Observer(api, sender.put)
    vocabulary.GANGS.gauge(registry).set_function(observer.gangs)
    ended = threading.Event()
    when_told_to_end(lambda _: ended.set())
    told = None
    if options.port >= 0:
        told = GetServer(
            (options.listen, options.port), pages(registry, lambda: "", observer.trouble)
        ).start()
    sender.start()
    observer.start()
    logger.info("traces: the watches begin; metrics on port %s", told.port if told is not None else "none")
    ended.wait()
    observer.stop()
    sender.stop()
    if told is not None:
        told.stop()
    return 0
