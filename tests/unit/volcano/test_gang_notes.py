"""What a PodGroup remembers, and what hostile texts make of it."""

import pytest
from vc_egpu.volcano.codec import cluster_codec, gang_notes
from vc_egpu.volcano.words import names


def test_victim_times_come_back() -> None:
    assert gang_notes.decode_victim_at(gang_notes.encode_victim_at((1.5, 2.5))) == (1.5, 2.5)


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"at": ["x"]}', '{"at": [-1]}', '{"at": [1e300]}', '{"version": 2}']
)
def test_garbage_means_that_nothing_is_known(text: str) -> None:
    assert gang_notes.decode_victim_at(text) == ()


def test_a_pod_group_tells_when_its_gang_went() -> None:
    annotations = {names.VICTIM_AT: gang_notes.encode_victim_at((3.0, 1.0, 2.0, 4.0))}
    metadata = {"namespace": "ns", "name": "g", "uid": "u", "resourceVersion": "1"}
    decoded = cluster_codec.group({"metadata": {**metadata, "annotations": annotations}})
    assert decoded.gang.victim_at == (2.0, 3.0, 4.0)


@pytest.mark.parametrize(("text", "span_s"), [("10m", 600.0), ("0", 0.0), ("soon", None), (None, None)])
def test_a_queue_tells_its_minimum_run_time(text: str | None, span_s: float | None) -> None:
    annotations = {} if text is None else {names.MIN_RUNTIME: text}
    queue = cluster_codec.queue({"metadata": {"name": "q", "annotations": annotations}})
    assert queue.min_runtime_s == span_s
