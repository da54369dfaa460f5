"""What is said on one connection: bodies in all forms, connections that end, and lines that are not ours."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from vc_egpu.kube.errors import RequestTimeout, Unavailable
from vc_egpu.kube.wire import Answer, WirePool

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next entry of the script: bytes, None (hang up) or a pause."""

    def __init__(self) -> None:
        self.script: list[bytes | float | None] = []
        self.seen: list[bytes] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(4096)
                    if not more:
                        return
                    data += more
                self.seen.append(data)
                data = b""
                step = self.script.pop(0) if self.script else OK
                if step is None:
                    connection.close()
                    return
                if isinstance(step, float):
                    time.sleep(step)
                    step = OK
                for piece in step.split(b"|"):  # each piece is a packet of its own
                    connection.sendall(piece)
                    time.sleep(0.002)
        except OSError:
            return

    def hang_up(self) -> None:
        """Close all connections, as a server does that was restarted."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # close() alone would wait for the reading thread
            connection.close()
        self._open.clear()

    def close(self) -> None:
        self._socket.close()
        self.hang_up()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


Ask = Callable[..., Answer]


@pytest.fixture
def ask(server: Server) -> Iterator[Ask]:
    pool = WirePool(f"http://127.0.0.1:{server.port}", {}, size=2, connect_timeout_s=1)

    def one(
        method: str = "GET", target: str = "/x", limit_s: float = 2.0, body: bytes | None = None
    ) -> Answer:
        return pool.exchange(method, target, {"Accept": "application/json"}, body, limit_s)

    yield one
    pool.clear()


@pytest.mark.parametrize(
    ("answer", "status", "data"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  5\r\n\r\nhe|llo", 200, b"hello"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
            200,
            b"abcde",
        ),
        (b"HT|TP/1.1 200 OK\r|\nTransfer-Encoding: chunked\r\n|\r\n3\r|\nab|c\r\n0\r|\n\r\n", 200, b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n", 200, b""),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", 404, b"nope"),
    ],
)
def test_answers(server: Server, ask: Ask, answer: bytes, status: int, data: bytes) -> None:
    server.script = [answer]
    first = ask()
    assert (first.status, first.data) == (status, data)
    assert ask().data == b"ok", "the connection is in order for the next one"
    assert server.connections == 1


def test_a_body_up_to_the_end_of_the_connection(server: Server, ask: Ask) -> None:
    server.script = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it"]
    threading.Timer(0.2, server.hang_up).start()
    assert ask().data == b"all of it"
    assert ask().data == b"ok"
    assert server.connections == 2


def test_connection_close_is_heard(server: Server, ask: Ask) -> None:
    server.script = [OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")]
    ask()
    ask()
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer(server: Server, ask: Ask, answer: bytes) -> None:
    server.script = [answer]
    with pytest.raises(Unavailable):
        ask()
    assert ask().data == b"ok"
    assert server.connections == 2, "a connection that is out of step is not used again"


def test_an_answer_that_ends_too_early(server: Server, ask: Ask) -> None:
    server.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"]
    threading.Timer(0.1, server.hang_up).start()
    with pytest.raises(Unavailable, match="4 of 10 bytes"):
        ask()


def test_the_limit_is_for_the_whole_exchange(server: Server, ask: Ask) -> None:
    """A server that drips must not keep a request alive for ever."""
    server.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x|" * 900]
    began = time.monotonic()
    with pytest.raises(RequestTimeout):
        ask(limit_s=0.3)
    assert time.monotonic() - began < 1.0


def test_a_late_answer_is_never_taken_for_the_next_one(server: Server, ask: Ask) -> None:
    server.script = [0.4]
    with pytest.raises(RequestTimeout):
        ask(limit_s=0.1)
    server.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew"]
    assert ask().data == b"new"


def test_a_read_survives_a_server_that_hung_up_meanwhile(server: Server, ask: Ask) -> None:
    ask()
    server.script = [None]
    assert ask().data == b"ok"


def test_a_write_is_sent_once_whatever_happens(server: Server, ask: Ask) -> None:
    ask()
    server.script = [None]
    with pytest.raises(Unavailable):
        ask("POST", body=b"{}")
    assert sum(request.startswith(b"POST") for request in server.seen) == 1


def test_a_connection_that_the_server_closed_is_not_tried(server: Server, ask: Ask) -> None:
    ask()
    server.hang_up()
    time.sleep(0.05)
    assert ask("POST", body=b"{}").data == b"ok"
    assert server.connections == 2


def test_no_more_connections_than_places(server: Server, ask: Ask) -> None:
    server.script = [0.2] * 8
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.connections == 2


def test_waiting_for_a_place_counts(server: Server, ask: Ask) -> None:
    server.script = [0.5, 0.5]
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    with pytest.raises(RequestTimeout, match="free"):
        ask(limit_s=0.1)
    for thread in threads:
        thread.join()


def test_what_is_sent(server: Server, ask: Ask) -> None:
    ask("DELETE", "/a?b=c")
    head = server.seen[0].decode()
    assert head.startswith("DELETE /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "\r\nContent-Length: 0\r\n\r\n" in head


def test_nothing_is_smuggled_into_a_request(server: Server, ask: Ask) -> None:
    with pytest.raises(ValueError, match="line break"):
        ask("GET", "/x HTTP/1.1\r\nEvil: yes")
    assert server.seen == []


def test_nobody_listens() -> None:
    pool = WirePool("http://127.0.0.1:9", {}, size=1, connect_timeout_s=1)
    with pytest.raises(Unavailable, match="not reached"):
        pool.exchange("GET", "/", {}, None, 1.0)
