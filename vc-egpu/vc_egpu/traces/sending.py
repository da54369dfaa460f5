"""Sends starts to a collector, by OTLP over HTTP. While it is away, starts are lost, and counted.

Address, headers and certificates are those of OpenTelemetry's own variables, such as
``OTEL_EXPORTER_OTLP_ENDPOINT`` and ``OTEL_EXPORTER_OTLP_HEADERS``. Headers may hold a token: nothing here
writes them anywhere.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from vc_egpu import __version__
from vc_egpu.traces.spans import Span, spans_of
from vc_egpu.traces.starts import Start

MOST_WAITING: Final = 1000
"""Starts that wait for the collector; more are lost."""
STOP_S: Final = 5.0
_NS: Final = 1_000_000_000
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

logger = logging.getLogger(__name__)


class Exporter(Protocol):
    """What OpenTelemetry's exporters have in common."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them, with tries of its own."""
        ...

    def shutdown(self) -> None:
        """End tries that are under way."""
        ...


def readable(spans: Sequence[Span], resource: Resource) -> list[ReadableSpan]:
    """One trace of these spans, each with a number of its own."""
    ids, scope = RandomIdGenerator(), InstrumentationScope("vc_egpu.traces", __version__)
    trace_id = ids.generate_trace_id()
    contexts = [
        SpanContext(trace_id, ids.generate_span_id(), is_remote=False, trace_flags=_SAMPLED) for _ in spans
    ]
    return [
        ReadableSpan(
            name=span.name,
            context=context,
            parent=None if span.parent is None else contexts[span.parent],
            resource=resource,
            attributes=dict(span.attributes),
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.trouble) if span.trouble else Status(StatusCode.UNSET),
            start_time=round(span.began * _NS),
            end_time=round(span.ended * _NS),
            instrumentation_scope=scope,
        )
        for span, context in zip(spans, contexts, strict=True)
    ]


class Sender:
    """A thread that sends one start after the other. ``count`` gets ``sent``, ``refused`` or ``too many``."""

    def __init__(self, exporter: Exporter, cluster: str, count: Callable[[str], None]) -> None:
        """``cluster``: its name in all traces; empty: none."""
        about = {"service.name": "vc-egpu", "service.version": __version__}
        self._resource = Resource.create({**about, **({"k8s.cluster.name": cluster} if cluster else {})})
        self._exporter = exporter
        self._count = count
        self._waiting: queue.Queue[Start | None] = queue.Queue(MOST_WAITING)
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._well = True
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, start: Start) -> None:
        """Send it soon. Never waits."""
        try:
            self._waiting.put_nowait(start)
        except queue.Full:
            self._count("too many")

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Send what waits, for so long at most."""
        self._stopping.set()
        with suppress(queue.Full):  # it looks at the flag after each start
            self._waiting.put_nowait(None)
        self._thread.join(timeout_s)
        self._over.set()
        self._exporter.shutdown()

    def _run(self) -> None:
        while (start := self._waiting.get()) is not None and not self._over.is_set():
            self._send(start)
            if self._stopping.is_set() and self._waiting.empty():
                return

    def _send(self, start: Start) -> None:
        try:
            done = self._exporter.export(readable(spans_of(start), self._resource))
        except Exception:
            logger.exception("traces: %s cannot be sent", start.group.key)
            done = SpanExportResult.FAILURE
        well = done is SpanExportResult.SUCCESS
        if well != self._well:
            logger.warning("traces: the collector %s", "takes them again" if well else "takes none now")
        self._well = well
        self._count("sent" if well else "refused")
