"""The page's server for tests: on a thread of its own, with clients that see what browsers see."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from unit.page.cluster_api import ClusterApi
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.server import listening
from vc_egpu.page.main import shared
from vc_egpu.page.serving import guard
from vc_egpu.page.serving.doors import LocalDoor
from vc_egpu.page.serving.history import History
from vc_egpu.page.serving.server import PageServer
from vc_egpu.page.serving.visitors import Visitor, Visitors, user_of
from vc_egpu.page.settings import settings_of


@dataclass
class Site:
    """A page that is served."""

    url: str
    door: LocalDoor | None = None
    visitor: Visitor | None = None
    visitors: Visitors | None = None

    @property
    def link(self) -> str:
        assert self.door is not None
        return f"{self.url}/?token={self.door.secret}"


@dataclass
class Client:
    """A browser without a window: cookies, and the headers that a browser sends."""

    url: str
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False, timeout=20))

    def get(self, path: str, **headers: str) -> Any:
        return self._send("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self._send("POST", path, json.dumps(body).encode(), {"Origin": self.url} | headers)

    def json(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status == 200, answer.data
        return json.loads(answer.data)

    def _send(self, method: str, path: str, body: bytes | None, more: dict[str, str]) -> Any:
        headers = self.headers | {key.replace("_", "-"): value for key, value in more.items()}
        if self.cookie:
            headers["Cookie"] = self.cookie
        answer = self.pool.request(method, self.url + path, body=body, headers=headers, redirect=False)
        if given := answer.headers.get("Set-Cookie"):
            self.cookie = given.partition(";")[0]
        return answer

    @contextmanager
    def stream(self) -> Iterator[Iterator[tuple[str, Any]]]:
        """Events as they come: their kind and their data."""
        headers = self.headers | {"Cookie": self.cookie}
        answer = self.pool.request("GET", f"{self.url}/api/stream", headers=headers, preload_content=False)
        assert answer.status == 200, answer.data
        try:
            yield _events(answer)
        finally:
            answer.close()


def _events(answer: Any) -> Iterator[tuple[str, Any]]:
    rest = b""
    while chunk := answer.read1(1 << 16):
        *whole, rest = (rest + chunk).split(b"\n\n")
        for text in whole:
            fields = dict(line.split(b": ", 1) for line in text.split(b"\n") if b": " in line)
            if b"event" in fields:
                yield fields[b"event"].decode(), json.loads(fields[b"data"])


def signed_in(site: Site) -> Client:
    """A client that has opened the link."""
    client = Client(site.url)
    assert client.get(site.link.removeprefix(site.url)).status == 303
    return client


@contextmanager
def running(server: PageServer, taken: Any) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start_on(taken), loop).result(30)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@contextmanager
def local_site(
    api: ClusterApi,
    folder: Path,
    *,
    token: str = "operator-token",
    namespace: str = "ml",
    prometheus: str = "",
) -> Iterator[Site]:
    """As ``kubectl egpu ui`` serves it, for the bearer of this token."""
    connection = ApiConnection.connect(api.kubeconfig(folder, token), timeout_s=10)
    visitor = Visitor(connection, user_of(connection), tuple(filter(None, namespace.split(","))))
    taken = listening("127.0.0.1", 0)
    port = int(taken.getsockname()[1])
    door = LocalDoor(visitor, port)
    url = f"http://127.0.0.1:{port}"
    server = PageServer(
        guard.address_of(url, f"http://localhost:{port}"),
        door,
        history=History(prometheus) if prometheus else None,
    )
    try:
        with running(server, taken):
            yield Site(url, door=door, visitor=visitor)
    finally:
        visitor.close()


@contextmanager
def shared_site(api: ClusterApi, *flags: str) -> Iterator[Site]:
    """As ``vc-egpu ui`` serves it, for several users."""
    taken = listening("127.0.0.1", 0)
    url = f"http://localhost:{taken.getsockname()[1]}"
    server, visitors = shared(settings_of(["--server", api.url, "--public-url", url, *flags]))
    try:
        with running(server, taken):
            yield Site(url, visitors=visitors)
    finally:
        for visitor in visitors.all():
            visitors.forget(visitor)
