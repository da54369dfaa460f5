"""A tiny API server and a connection to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.kube import ApiConnection


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as api:
        yield api


@pytest.fixture
def api(server: TinyApi, tmp_path: Path) -> Iterator[ApiConnection]:
    connection = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=4, timeout_s=30)
    yield connection
    connection.close()
