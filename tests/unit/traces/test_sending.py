"""What reaches a collector, over HTTP, and what is said where none takes it."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from rigs.collector import Collector
from unit.traces.test_starts import Watch, usual
from vc_egpu.traces.main import endpoint_in
from vc_egpu.traces.sending import MOST_WAITING, Sender


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def sender(collector: Collector, counts: Counter[str], cluster: str = "") -> Sender:
    exporter = OTLPSpanExporter(collector.url, headers={"authorization": "Bearer secret"}, timeout=5)
    return Sender(exporter, cluster, lambda outcome: counts.update([outcome]))


def test_a_start_is_one_trace(collector: Collector) -> None:
    watch, counts = Watch(), Counter[str]()
    usual(watch)
    sends = sender(collector, counts, "north")
    sends.start()
    sends.put(watch.over[0])
    sends.stop()
    assert counts == {"sent": 1}
    ((resource,),) = (request.resource_spans for request in collector.requests)
    about = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (about["service.name"], about["k8s.cluster.name"]) == ("vc-egpu", "north")
    spans = resource.scope_spans[0].spans
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans) == 12
    whole = next(span for span in spans if not span.parent_span_id)
    assert whole.name == "start"
    assert whole.end_time_unix_nano - whole.start_time_unix_nano == 59 * 10**9
    reasons = {span.parent_span_id for span in spans if span.name == "waits for"}
    assert reasons == {span.span_id for span in spans if span.name == "waits"}
    assert collector.headers == ["Bearer secret"]


def test_a_refusal_is_counted_and_the_next_one_goes_out(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    watch, counts = Watch(), Counter[str]()
    usual(watch)
    collector.status = 400
    sends = sender(collector, counts)
    sends.start()
    sends.put(watch.over[0])
    assert collector.came.acquire(timeout=30)
    while counts["refused"] < 1:
        assert not collector.came.acquire(timeout=0.01)
    collector.status = 200
    sends.put(watch.over[0])
    sends.stop()
    assert counts == {"refused": 1, "sent": 1}
    assert "the collector takes none now" in caplog.text
    assert "the collector takes them again" in caplog.text
    assert "secret" not in caplog.text


def test_a_slow_collector_holds_nobody_up(collector: Collector) -> None:
    watch, counts = Watch(), Counter[str]()
    usual(watch)
    collector.may_answer.clear()
    sends = sender(collector, counts)
    sends.start()
    sends.put(watch.over[0])
    assert collector.came.acquire(timeout=30)
    for _ in range(MOST_WAITING + 5):
        sends.put(watch.over[0])
    assert counts == {"too many": 5}
    sends.stop(timeout_s=0)
    collector.may_answer.set()
    for thread in threading.enumerate():
        if thread.name == "traces":
            thread.join(timeout=30)
    assert counts["sent"] + counts["refused"] == 1, "what still waits is not sent after the stop"


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "otel:4318"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"}, "http://otel:4318"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://a/v1/traces"}, "https://a/v1/traces"),
    ],
)
def test_a_collector_has_an_http_address(environment: dict[str, str], found: str) -> None:
    assert endpoint_in(environment) == found
