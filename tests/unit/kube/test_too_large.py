"""An answer that is larger than was to be read is given up, and its connection with it; not its place."""

from collections.abc import Iterator

import pytest
from unit.kube.raw_server import END, Server, transport_to
from vc_egpu.kube.wire.errors import Unavailable
from vc_egpu.kube.wire.transport import TooLargeError, Transport

BODY = b"x" * 400_000
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def transport(server: Server) -> Iterator[Transport]:
    one = transport_to(server, pool_size=1, timeout_s=5.0)
    yield one
    one.close()


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 400000\r\n\r\n" + BODY,
        HEAD + b"Content-Length: 400000\r\nConnection: close\r\n\r\n" + BODY + END,
        HEAD + b"\r\n" + BODY + END,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n61a80\r\n" + BODY + b"\r\n0\r\n\r\n",
    ],
    ids=["length", "length and end", "end", "chunks"],
)
def test_an_answer_that_is_too_large_costs_no_place(
    server: Server, transport: Transport, answer: bytes
) -> None:
    server.script = [answer] * 2
    for _ in range(2):
        with pytest.raises(TooLargeError):
            transport.exchange("GET", "/x", most_bytes=100_000)
    assert transport.exchange("GET", "/x", most_bytes=100_000) == b"ok"
    assert transport.exchange("POST", "/x", {}) == b"ok"


@pytest.mark.parametrize("most_bytes", [None, 100_000])
def test_nor_does_one_that_cannot_be_unpacked(
    server: Server, transport: Transport, most_bytes: int | None
) -> None:
    server.script = [HEAD + b"Content-Encoding: gzip\r\nContent-Length: 400000\r\n\r\n" + BODY] * 2
    for _ in range(2):
        with pytest.raises(Unavailable):
            transport.exchange("GET", "/x", most_bytes=most_bytes)
    assert transport.exchange("POST", "/x", {}) == b"ok"
