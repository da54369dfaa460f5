"""Remote write 1.0 of Prometheus, as far as a test needs it: a request, sent until it is taken."""

import http.client
import itertools
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Final

_CHUNK: Final = 1 << 16
Sample = tuple[Mapping[str, str], float, int]
"""Labels with ``__name__``, value, milliseconds since 1970."""


def request(samples: Iterable[Sample]) -> bytes:
    """The body: a ``WriteRequest`` of protobuf in a Snappy block that compresses nothing."""
    return _snappy(b"".join(_field(1, _series(*sample)) for sample in samples))


def send(port: int, body: bytes, timeout_s: float) -> int:
    """As Prometheus does: again while nobody answers or the answer is 5xx; returns how often it was sent.

    Raises ``AssertionError`` for another answer, and when the time is over.
    """
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    ends = time.monotonic() + timeout_s
    for tries in itertools.count(1):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("POST", "/receive", body, headers)
            status = connection.getresponse().status
            connection.close()
        except (OSError, http.client.HTTPException):
            status = 503
        if status < 300:
            return tries
        assert status >= 500, f"the adapter answers with {status}"
        assert time.monotonic() < ends, "the adapter does not take it"
        time.sleep(0.05)
    raise AssertionError


def _series(labels: Mapping[str, str], value: float, at_ms: int) -> bytes:
    named = sorted(labels.items())
    said = b"".join(_field(1, _field(1, name.encode()) + _field(2, text.encode())) for name, text in named)
    return said + _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(at_ms))


def _field(number: int, data: bytes) -> bytes:
    """One with a length."""
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _snappy(data: bytes) -> bytes:
    parts = [_varint(len(data))]
    for at in range(0, len(data), _CHUNK):
        chunk = data[at : at + _CHUNK]
        parts += [b"\xf4" + struct.pack("<H", len(chunk) - 1), chunk]
    return b"".join(parts)
