"""The agent's pages."""

import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry
from vc_egpu_node.web import WebServer


def test_it_starts_without_asking_anybody_for_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node without DNS the answer comes after 10 s, and no container with cards starts meanwhile."""

    def asked(_name: str = "") -> str:
        raise AssertionError("asked for a name")

    monkeypatch.setattr(socket, "getfqdn", asked)
    server = WebServer("127.0.0.1:0", CollectorRegistry(), lambda: "", lambda: "not yet")
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=30) as answer:
            assert answer.status == 200
    finally:
        server.stop()
