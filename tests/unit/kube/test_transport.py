"""One request: answers in all forms, connections that end, lines that are not ours, and its one deadline."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client import Configuration
from unit.kube.raw_server import DRIP, END, OK, Server
from urllib3.exceptions import TimeoutError as HTTPTimeoutError
from vc_egpu.kube.wire import pool
from vc_egpu.kube.wire.config import Endpoint
from vc_egpu.kube.wire.errors import NotFound, RequestTimeout, Temporary, Unavailable
from vc_egpu.kube.wire.transport import Transport

Ask = Callable[..., bytes]


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


def _transport(port: int, *, proxy_port: int | None = None) -> Transport:
    configuration = Configuration(host=f"http://127.0.0.1:{port}")
    configuration.api_key["authorization"] = "secret-token"
    configuration.proxy = None if proxy_port is None else f"http://127.0.0.1:{proxy_port}"
    return Transport(Endpoint(configuration), pool_size=2)


@pytest.fixture
def ask(server: Server) -> Iterator[Ask]:
    transport = _transport(server.port)

    def one(method: str = "GET", target: str = "/x", limit_s: float = 30.0, body: Any = None) -> bytes:
        return transport.exchange(method, target, body, timeout_s=limit_s)

    yield one
    transport.close()


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (OK, b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  5\r\n\r\nhe|llo", b"hello"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
            b"abcde",
        ),
        (b"HT|TP/1.1 200 OK\r|\nTransfer-Encoding: chunked\r\n|\r\n3\r|\nab|c\r\n0\r|\n\r\n", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n|" + OK.replace(b"ok", b"hi"), b"hi"),
        (b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200\nX:\nContent-Length: 2 \n\nok", b"ok"),
    ],
)
def test_answers(server: Server, ask: Ask, answer: bytes, data: bytes) -> None:
    server.script = [answer]
    assert ask() == data
    assert ask() == b"ok", "the connection is in order for the next one"
    assert server.connections == 1


def test_a_refusal_leaves_the_connection_in_order(server: Server, ask: Ask) -> None:
    server.script = [b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope"]
    with pytest.raises(NotFound, match="nope"):
        ask()
    assert ask() == b"ok"
    assert server.connections == 1


def test_a_redirect_is_no_answer(server: Server, ask: Ask) -> None:
    """A server that is not ours must not lead the token elsewhere."""
    server.script = [b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"]
    with pytest.raises(Unavailable, match="302"):
        ask()
    assert len(server.seen) == 1


def test_a_connection_that_speaks_something_else_from_now_on_is_not_used_again(
    server: Server, ask: Ask
) -> None:
    server.script = [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + OK]
    with pytest.raises(Unavailable, match="101"):
        ask()
    assert ask() == b"ok"
    assert server.connections == 2


def test_a_body_up_to_the_end_of_the_connection(server: Server, ask: Ask) -> None:
    server.script = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall| of it" + END]
    assert ask() == b"all of it"
    assert ask() == b"ok"
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
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\r\n Z: folded\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/3 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_is_no_answer(server: Server, ask: Ask, answer: bytes) -> None:
    server.script = [answer]
    with pytest.raises(Temporary):
        ask("POST", body={}, limit_s=1.0)
    assert ask() == b"ok"
    assert server.connections == 2, "a connection that is out of step is not used again"


def test_an_answer_that_ends_too_early(server: Server, ask: Ask) -> None:
    server.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf" + END]
    with pytest.raises(Unavailable, match="4 bytes read, 6 more expected"):
        ask("POST", body={})


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + DRIP,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1|\r\nx|\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\nX: " + DRIP,
    ],
    ids=["body", "chunks", "head"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_limit_is_for_the_whole_exchange(server: Server, ask: Ask, method: str, answer: bytes) -> None:
    """A server that drips must not keep a request alive for ever."""
    server.script = [answer]
    with pytest.raises(RequestTimeout):
        ask(method, limit_s=1.0)
    assert (len(server.seen), server.answered) == (1, 0), "given up in the midst of the answer"


def test_a_late_answer_is_never_taken_for_the_next_one(server: Server, ask: Ask) -> None:
    late = threading.Event()
    server.script = [late]
    with pytest.raises(RequestTimeout):
        ask(limit_s=1.0)
    late.set()
    server.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew"]
    assert ask() == b"new"


def test_a_read_survives_a_server_that_hung_up_meanwhile(
    server: Server, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    ask()
    server.script = [None]
    assert ask() == b"ok"
    assert not caplog.records, "nobody wants to know: kubectl egpu showed it"


def test_a_read_is_repeated_once(server: Server, ask: Ask) -> None:
    server.script = [None, None, None]
    with pytest.raises(Unavailable, match="broke off"):
        ask()
    assert len(server.seen) == 2


def test_a_server_that_says_when_to_come_back_is_not_waited_for(server: Server, ask: Ask) -> None:
    server.script = [b"HTTP/1.1 503 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"]
    with pytest.raises(Unavailable) as caught:
        ask()
    assert caught.value.retry_after_s == 60
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("said", "after_s"),
    [
        (b"0", 0.0),
        (b"3600", 60.0),
        ("²".encode("latin-1"), None),
        ("٣".encode(), None),
        (b"-1", None),
        (b"1e3", None),
        (b"9" * 5000, 60.0),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_when_to_come_back(server: Server, ask: Ask, said: bytes, after_s: float | None) -> None:
    server.script = [b"HTTP/1.1 503 No\r\nRetry-After: " + said + b"\r\nContent-Length: 0\r\n\r\n"]
    with pytest.raises(Unavailable) as caught:
        ask()
    assert caught.value.retry_after_s == after_s


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_is_sent_once_whatever_happens(server: Server, ask: Ask, method: str) -> None:
    ask()
    server.script = [None]
    with pytest.raises(Unavailable):
        ask(method, body={})
    assert sum(request.startswith(method.encode()) for request in server.seen) == 1


def test_a_connection_that_the_server_closed_is_not_tried(server: Server, ask: Ask) -> None:
    ask()
    server.hang_up()
    time.sleep(0.05)
    assert ask("POST", body={}) == b"ok"
    assert server.connections == 2


def test_a_connection_that_rested_for_long_is_not_tried(
    server: Server, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask()
    ask()
    assert server.connections == 1
    monkeypatch.setattr(pool, "REST_S", 0.05)
    time.sleep(0.06)
    ask("POST", body={})
    assert server.connections == 2


def test_no_more_connections_than_places(server: Server, ask: Ask) -> None:
    release = threading.Event()
    server.script = [release] * 8
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    server.wait_for_requests(2)
    release.set()
    for thread in threads:
        thread.join()
    assert server.connections == 2


def test_waiting_for_a_place_counts(server: Server, ask: Ask) -> None:
    release = threading.Event()
    server.script = [release, release]
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    server.wait_for_requests(2)
    with pytest.raises(Unavailable, match="no connection became free"):
        ask("POST", limit_s=0.1, body={})
    release.set()
    for thread in threads:
        thread.join()
    assert len(server.seen) == 2


def test_the_clock_starts_once() -> None:
    clock = pool.TimeLeft(0.05)
    connect_s = clock.clone().connect_timeout
    assert isinstance(connect_s, float)
    assert connect_s <= 0.05
    clock.start_connect()
    time.sleep(0.06)
    assert clock.clone().read_timeout == 0
    with pytest.raises(HTTPTimeoutError, match="no time left"):
        _ = clock.clone().connect_timeout


def test_a_write_is_not_begun_after_its_time(
    server: Server, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time-out of a socket covers a slow name look-up, and the lease is over meanwhile."""
    look_up = socket.getaddrinfo

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.3)
        return look_up(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    with pytest.raises(Unavailable, match="too late"):
        ask("POST", limit_s=0.2, body={})
    assert server.seen == []


def test_what_is_sent(server: Server, ask: Ask) -> None:
    ask("PATCH", "/a?b=c", body={"x": 1})
    head = server.seen[0].decode()
    assert head.startswith(f"PATCH /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n")
    assert "\r\nContent-Length: 7\r\n" in head and "\r\nContent-Type: application/json\r\n" in head
    assert head.endswith('\r\n\r\n{"x":1}')


def test_a_request_is_sent_in_one_piece(server: Server, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    send = http.client.HTTPConnection.send

    def spy(connection: http.client.HTTPConnection, data: bytes) -> None:
        pieces.append(data)
        send(connection, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", spy)
    ask("PATCH", body={"x": 1})
    assert pieces == server.seen


def test_nothing_is_smuggled_into_a_request(server: Server, ask: Ask) -> None:
    ask("GET", "/x HTTP/1.1\r\nEvil: yes")
    assert server.seen[0].startswith(b"GET /x%20HTTP/1.1%0D%0AEvil:%20yes HTTP/1.1\r\n")


def test_nobody_listens() -> None:
    with pytest.raises(Unavailable, match="not reached"):
        _transport(9).exchange("GET", "/")


@pytest.mark.parametrize("step", [None, b"SSH-2.0-OpenSSH\r\n\r\n", threading.Event()])
def test_no_secret_in_errors_and_what_they_come_from(
    server: Server, ask: Ask, step: bytes | threading.Event | None
) -> None:
    server.script = [step]
    with pytest.raises(Temporary) as caught:
        ask("POST", limit_s=1.0, body={"secret": "in the body"})
    assert b"secret-token" in server.seen[0]
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def test_through_a_proxy_all_is_the_same(server: Server) -> None:
    transport = _transport(9, proxy_port=server.port)
    server.script = [OK, None, OK, None, b"HTTP/1.1 200 OK\r\nX: " + DRIP]
    assert transport.exchange("GET", "/a") == b"ok"
    assert transport.exchange("GET", "/b") == b"ok", "repeated, since it is a read"
    with pytest.raises(Unavailable):
        transport.exchange("POST", "/c", {})
    with pytest.raises(RequestTimeout):
        transport.exchange("POST", "/d", {}, timeout_s=1.0)
    assert server.answered == 2, "the last one was given up in the midst of its answer"
    lines = [request.split(b"\r\n")[0].decode() for request in server.seen]
    assert lines == [
        f"{method} http://127.0.0.1:9/{path} HTTP/1.1"
        for method, path in [("GET", "a"), ("GET", "b"), ("GET", "b"), ("POST", "c"), ("POST", "d")]
    ]
    transport.close()


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


def test_a_line_of_a_watch_is_there_when_it_came_also_where_a_proxy_took_the_chunks_away(
    server: Server,
) -> None:
    more = threading.Event()
    server.script += [HEAD + b"one\ntw|o\nhalf", more]
    transport = _transport(server.port)
    stream = transport.stream("/x", {"watch": True}, idle_timeout_s=30.0)
    lines = stream.lines()
    assert [next(lines), next(lines)] == [b"one", b"two"]
    stream.close()
    assert list(lines) == []
    more.set()
    transport.close()


def test_a_line_that_drips_has_a_time_to_end_in(server: Server) -> None:
    server.script.append(HEAD + b"one\n|" + DRIP)
    transport = _transport(server.port)
    stream = transport.stream("/x", {"watch": True}, idle_timeout_s=0.2)
    lines = stream.lines()
    assert next(lines) == b"one"
    with pytest.raises(RequestTimeout, match="did not end"):
        next(lines)
    stream.close()
    transport.close()


def test_a_watch_that_is_refused_in_half_a_sentence_is_an_error_of_ours(server: Server) -> None:
    server.script.append(b"HTTP/1.1 500 X\r\nContent-Length: 90\r\n\r\nsorry, b" + END)
    transport = _transport(server.port)
    with pytest.raises(Unavailable):
        transport.stream("/x", {"watch": True}, idle_timeout_s=30.0)
    transport.close()
