"""Connections that are dead, and nobody has said so."""

import threading
from collections.abc import Iterator

import pytest
from unit.kube.raw_server import Server, transport_to
from vc_egpu.kube.wire.errors import RequestTimeout
from vc_egpu.kube.wire.transport import Transport


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def transport(server: Server) -> Iterator[Transport]:
    one = transport_to(server, pool_size=4)
    yield one
    one.close()


def at_once(server: Server, transport: Transport, count: int) -> None:
    """So many requests: from then on so many connections rest."""
    seen, release = len(server.seen), threading.Event()
    server.script = [release] * count
    threads = [threading.Thread(target=transport.exchange, args=("GET", "/x")) for _ in range(count)]
    for thread in threads:
        thread.start()
    server.wait_for_requests(seen + count)
    release.set()
    for thread in threads:
        thread.join()


def test_where_one_did_not_answer_those_that_rested_are_not_tried(
    server: Server, transport: Transport
) -> None:
    """As after a load balancer was replaced, which forgets whom it connected with whom and tells nobody."""
    at_once(server, transport, 3)
    assert server.connections == 3
    dark = threading.Event()
    server.script = [dark]
    with pytest.raises(RequestTimeout):
        transport.exchange("GET", "/x", timeout_s=0.5)
    assert server.connections == 3
    for _ in range(3):
        assert transport.exchange("POST", "/x", {}) == b"ok"
    assert server.connections == 4, "a new one, that is in order"
    at_once(server, transport, 3)
    assert server.connections == 6, "in the places of the others"
    dark.set()
