"""A tiny API server, a connection to it, and a live copy of what it has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.kube.live import Seen, Start
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.kube import ApiConnection, Backoff, Reflector
from vc_egpu.kube.resources import CONFIG_MAPS


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as api:
        yield api


@pytest.fixture
def api(server: TinyApi, tmp_path: Path) -> Iterator[ApiConnection]:
    connection = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=4, timeout_s=30)
    yield connection
    connection.close()


@pytest.fixture
def start(api: ApiConnection, server: TinyApi) -> Iterator[Start]:
    running: list[Reflector] = []

    def begin(**more: Any) -> tuple[Reflector, Seen]:
        seen = Seen()
        reflector = Reflector(
            api, CONFIG_MAPS, seen.changes.put, namespace="n", backoff=Backoff(0.01, 0.05), **more
        ).start()
        running.append(reflector)
        assert reflector.wait_synced(30)
        server.wait_for_watch()
        return reflector, seen

    yield begin
    for reflector in running:
        reflector.stop()
