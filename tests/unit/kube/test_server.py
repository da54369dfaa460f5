"""The port for probes and metrics that every process of ours has."""

import errno
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from vc_egpu.kube import server
from vc_egpu.kube.server import Answer, GetServer, Request, address_of, pages


@pytest.fixture
def registry() -> CollectorRegistry:
    found = CollectorRegistry()
    Gauge("answer", "Of everything.", registry=found).set(42)
    return found


@pytest.fixture
def process(registry: CollectorRegistry) -> Iterator[GetServer]:
    made = GetServer(("127.0.0.1", 0), pages(registry, lambda: "", lambda: "not yet")).start()
    yield made
    made.stop()


def get(port: int, path: str, host: str = "127.0.0.1", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    finally:
        connection.close()


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def serving(others: set[threading.Thread]) -> list[str]:
    threads = set(threading.enumerate()) - others
    return [thread.name for thread in threads if "process_request_thread" in thread.name]


def test_the_three_pages(process: GetServer) -> None:
    assert get(process.port, "/healthz")[::2] == (200, "ok\n")
    assert get(process.port, "/readyz?verbose")[::2] == (503, "not yet\n")
    status, kind, text = get(process.port, "/metrics")
    assert (status, "answer 42.0" in text) == (200, True)
    assert "version=" in kind
    assert get(process.port, "/elsewhere")[::2] == (404, "/metrics /healthz /readyz\n")


def test_a_page_of_ones_own_knows_who_asks() -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return Answer(403, b"no")

    made = GetServer(("127.0.0.1", 0), answer).start()
    try:
        assert get(made.port, "/secret?a=b", Authorization="Bearer x")[0] == 403
    finally:
        made.stop()
    assert asked == [Request("/secret", "127.0.0.1", "Bearer x", query="a=b")]


def test_it_starts_without_asking_anybody_for_its_name(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody answers it takes 10 s: no container with cards starts on a node meanwhile."""

    def asked(_name: str = "") -> str:
        raise AssertionError("asked for a name")

    monkeypatch.setattr(socket, "getfqdn", asked)
    made = GetServer(("127.0.0.1", 0), pages(registry, lambda: "", lambda: "")).start()
    try:
        assert get(made.port, "/readyz")[0] == 200
    finally:
        made.stop()


def test_who_connects_and_says_nothing_is_not_waited_for(registry: CollectorRegistry) -> None:
    shown = pages(registry, lambda: "", lambda: "")
    made = GetServer(("127.0.0.1", 0), shown, request_timeout_s=0.05).start()
    try:
        with socket.create_connection(("127.0.0.1", made.port), timeout=30) as silent:
            assert silent.recv(1) == b"", "the server ends it"
    finally:
        made.stop()


def test_all_addresses_are_those_of_both_families_and_a_client_is_known_by_its_own() -> None:
    """A cluster has pods of either family; who asks from this machine is told by its address."""
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        asked.append(request.client)
        return Answer(200, b"")

    made = GetServer(("::", 0), answer).start()
    try:
        assert [get(made.port, "/", host)[0] for host in ("127.0.0.1", "::1")] == [200, 200]
    finally:
        made.stop()
    assert asked == ["127.0.0.1", "::1"]


def test_a_kernel_without_ipv6_has_the_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    made = GetServer(("::", 0), lambda _: Answer(200, b"")).start()
    try:
        assert get(made.port, "/")[0] == 200
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("[::]:9445", ("::", 9445)),
        ("0.0.0.0:9445", ("0.0.0.0", 9445)),
        (":0", ("", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(listen: str, address: tuple[str, int]) -> None:
    assert address_of(listen) == address


@pytest.fixture
def patient(registry: CollectorRegistry) -> Iterator[GetServer]:
    """Waits longer for a request than any test takes."""
    shown = pages(registry, lambda: "", lambda: "not yet")
    made = GetServer(("127.0.0.1", 0), shown, request_timeout_s=300.0).start()
    yield made
    made.stop()


def test_connections_that_ask_for_nothing_take_no_thread_each(patient: GetServer) -> None:
    """A client that reaches the port could otherwise use up the threads of the process, which ends it."""
    others = set(threading.enumerate())
    idle = [socket.create_connection(("127.0.0.1", patient.port), timeout=30) for _ in range(200)]
    try:
        assert get(patient.port, "/healthz")[0] == 200, "who comes last is heard"
        until(lambda: len(serving(others)) <= server.MOST_CONNECTIONS)
        assert idle[0].recv(1) == b"", "who has been there longest goes"
    finally:
        for connection in idle:
            connection.close()
    until(lambda: not serving(others))
    assert not patient.connections()


def test_a_process_out_of_descriptors_is_not_busy_with_who_waits(
    process: GetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that it cannot take still waits, so the next try does not come at once."""
    tries: list[float] = []
    accept = socket.socket.accept

    def out_of_them(taken: socket.socket) -> tuple[socket.socket, Any]:
        tries.append(time.monotonic())
        if len(tries) < 5:
            raise OSError(errno.EMFILE, "too many open files")
        return accept(taken)

    monkeypatch.setattr(socket.socket, "accept", out_of_them)
    began_s = time.monotonic()
    assert get(process.port, "/healthz")[0] == 200, "in the end"
    assert time.monotonic() - began_s > 4 * 0.9 * server.PAUSE_S


def test_a_client_that_does_not_wait_is_not_worth_a_line(
    registry: CollectorRegistry, capfd: pytest.CaptureFixture[str]
) -> None:
    asked, gone = threading.Event(), threading.Event()

    def answer(_: Request) -> Answer:
        asked.set()
        gone.wait(30)
        return Answer(200, bytes(1 << 24))

    made = GetServer(("127.0.0.1", 0), answer).start()
    try:
        with socket.create_connection(("127.0.0.1", made.port), timeout=30) as hasty:
            hasty.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert asked.wait(30)
        gone.set()
        until(lambda: not made.connections())
    finally:
        made.stop()
    assert capfd.readouterr().err == ""
