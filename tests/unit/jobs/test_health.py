"""The Job controller's metrics port."""

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry
from vc_egpu.jobs.health import serve


def test_it_starts_without_asking_anybody_for_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers such a question it takes 10 s, at each start."""

    def asked(_name: str = "") -> str:
        raise AssertionError("asked for a name")

    monkeypatch.setattr(socket, "getfqdn", asked)
    server = serve(0, CollectorRegistry(), lambda: None, lambda: "not yet")
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{base}/healthz", timeout=30) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{base}/readyz", timeout=30)
    finally:
        server.shutdown()
        server.server_close()
