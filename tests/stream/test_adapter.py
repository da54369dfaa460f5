"""The first half of the stream with its real programs: no sample is lost between remote write and Kafka.

The broker is frozen and then killed, and the adapter is killed with samples in its buffer.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

import pytest
from stream.programs import HOME, SMALL_JVM, TOPIC, Part, Ports, kafka, needs_parts, telegraf, topic
from stream.remote_write import Sample, request, send

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), needs_parts]
EACH: Final = 200
"""Samples of one request."""
REQUESTS: Final = 40
FROZEN_S: Final = 12.0
SETTLED_S: Final = 0.5
SENT_S: Final = 300
ENDS_S: Final = 300


def samples(number: int) -> list[Sample]:
    """Of one request: each value is there once."""
    at_ms = int(time.time()) * 1000
    labels = {"__name__": "egpu_share_memory_bytes", "namespace": "serve"}
    return [({**labels, "uuid": f"GPU-{n}"}, float(number * EACH + n), at_ms) for n in range(EACH)]


def test_no_sample_is_lost_when_broker_and_adapter_are_frozen_and_killed(tmp_path: Path) -> None:
    ports = Ports.free()
    with running(tmp_path, ports) as (broker, adapter):
        begun = time.monotonic()
        for number in range(REQUESTS):
            sent = samples(number)
            if number == 5:
                sent.append(({"__name__": "egpu_share_memory_bytes"}, -1.0, int(time.time() + 7200) * 1000))
            send(ports.adapter, request(sent), SENT_S)
            if number == 10:
                broker.signal(SIGSTOP)
                frozen_at = time.monotonic()
            if number == 15:
                until_settled(adapter, tmp_path / "buffer")
                adapter.kill()
                adapter.until_time(frozen_at + FROZEN_S)
                broker.signal(SIGCONT)
                adapter.start()
            if number == 25:
                broker.kill()
            if number == 30:
                broker.start()
        adapter.until("all are in Kafka", lambda: len(set(values(ports))) >= REQUESTS * EACH, ENDS_S)
        took_s = time.monotonic() - begun
        found = values(ports)
        broker.measure()
        adapter.measure()
    assert set(found) == {float(value) for value in range(REQUESTS * EACH)}
    twice = len(found) - REQUESTS * EACH
    print(f"{REQUESTS * EACH} samples in {took_s:.0f} s with all trouble; {twice} came twice")
    print("MiB at most:", {part.name: part.peak_kib >> 10 for part in (broker, adapter)})


@contextmanager
def running(folder: Path, ports: Ports) -> Iterator[tuple[Part, Part]]:
    """Broker and adapter until the end of the block."""
    broker, adapter = kafka(folder, ports), telegraf(folder, ports)
    try:
        broker.start()
        topic(ports)
        adapter.start()
        yield broker, adapter
    finally:
        for part in (broker, adapter):
            part.signal(SIGCONT)
            part.kill()


def until_settled(adapter: Part, buffer: Path) -> None:
    """Until what it has taken lies in its buffer: it answers some milliseconds before."""
    since, size = time.monotonic(), -1

    def is_settled() -> bool:
        nonlocal since, size
        now = sum(path.stat().st_size for path in buffer.rglob("*") if path.is_file())
        if now != size:
            since, size = time.monotonic(), now
        return time.monotonic() > since + SETTLED_S

    adapter.until("its buffer is written", is_settled, SENT_S)


def values(ports: Ports) -> list[float]:
    """Of all messages in the topic but the one that is ahead, in their order."""
    argv = [
        *("java", *SMALL_JVM, "-cp", f"{HOME}/kafka/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
        *("--bootstrap-server", f"127.0.0.1:{ports.kafka}", "--topic", TOPIC, "--from-beginning"),
        *("--timeout-ms", "10000"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=ENDS_S)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [value for line in lines if (value := float(json.loads(line)["value"])) >= 0]
