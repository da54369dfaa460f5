"""The port for probes and metrics that every process of ours has."""

import http.client
import socket
from collections.abc import Iterator

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
    assert asked == [Request("/secret", "127.0.0.1", "Bearer x")]


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


def test_who_connects_and_says_nothing_is_not_waited_for(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Handler, "timeout", 0.05)
    made = GetServer(("127.0.0.1", 0), pages(registry, lambda: "", lambda: "")).start()
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
