"""An API server that knows users, namespaces and Jobs; and our server in front of it, on a thread."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

import orjson
import urllib3
from vc_egpu.jobsapi.catalogue import Catalogue
from vc_egpu.jobsapi.server import JobsServer, Metrics
from vc_egpu.jobsapi.what_if.leader import Leader
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.server import Answer, GetServer, Request, listening

Json = dict[str, Any]


@dataclass
class Cluster:
    """What it holds, who may write where, and which requests came: method, path, headers."""

    rights: dict[str, set[str]] = field(default_factory=lambda: {"ann-token": {"lab"}, "bob-token": {"web"}})
    jobs: dict[tuple[str, str], Json] = field(default_factory=dict)
    groups: dict[tuple[str, str], Json] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    refusal: tuple[int, str, str] | None = None
    """What each create is answered with, in place of being done: code, reason, message."""
    url: str = ""


def _status(code: int, reason: str, message: str) -> tuple[int, Json]:
    return code, {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = orjson.loads(self.rfile.read(length)) if length else {}
        self.cluster.requests.append((self.command, self.path, dict(self.headers)))
        code, document = self._answer(body)
        data = orjson.dumps(document)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if code == 429:
            self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_any  # noqa: N815

    def _answer(self, body: Json) -> tuple[int, Json]:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        rights = self.cluster.rights.get(token)
        if rights is None:
            return _status(401, "Unauthorized", "Unauthorized")
        path, _, query = self.path.partition("?")
        parts = path.strip("/").split("/")
        if parts[-1] == "selfsubjectreviews":
            return 201, {**body, "status": {"userInfo": {"username": token}}}
        _, _, _, _, namespace, plural, *rest = parts
        if namespace not in rights:
            verb = {"POST": "create", "GET": "get", "DELETE": "delete"}[self.command]
            what = f'User "{token[:3]}" cannot {verb} resource "{plural}" in API group'
            return _status(403, "Forbidden", f'{plural} is forbidden: {what} in the namespace "{namespace}"')
        if self.command == "POST":
            return self._create(namespace, body, dry_run="dryRun=All" in query)
        return self._stored(namespace, plural, rest[0])

    def _stored(self, namespace: str, plural: str, name: str) -> tuple[int, Json]:
        store = self.cluster.jobs if plural == "jobs" else self.cluster.groups
        found = store.get((namespace, name))
        if found is None:
            return _status(404, "NotFound", f'{plural} "{name}" not found')
        if self.command == "DELETE":
            del store[namespace, name]
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        return 200, found

    def _create(self, namespace: str, body: Json, *, dry_run: bool) -> tuple[int, Json]:
        if self.cluster.refusal is not None:
            return _status(*self.cluster.refusal)
        key = (namespace, body["metadata"]["name"])
        if key in self.cluster.jobs:
            return _status(409, "AlreadyExists", f'jobs "{key[1]}" already exists')
        made = {**body, "metadata": {**body["metadata"], "uid": f"uid-{key[1]}"}}
        if not dry_run:
            self.cluster.jobs[key] = made
        return 201, made

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent."""


@contextmanager
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"cluster": found}))
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Answers = Callable[[Request], Answer]


def _nothing(_request: Request) -> Answer:
    return Answer(404, b"")


@contextmanager
def leading(
    get: Answers = _nothing, *, posts: Mapping[str, Answers] = MappingProxyType({})
) -> Iterator[Leader]:
    """The way to a leader that answers like this."""
    server = GetServer(("127.0.0.1", 0), get, posts=posts).start()
    try:
        yield Leader(f"http://127.0.0.1:{server.port}", timeout_s=5)
    finally:
        server.stop()


@contextmanager
def served(
    url: str, catalogue: Catalogue | None = None, *, leader: Leader | None = None, **options: int
) -> Iterator[str]:
    """Our server, for the API server at this URL; its own URL."""
    api = ApiConnection.without_credentials(url, None, timeout_s=5)
    taken = listening("127.0.0.1", 0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> JobsServer:
        server = JobsServer(api, Metrics(), catalogue=catalogue, leader=leader, **options)
        await server.start_on(taken)
        return server

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        api.close()


@dataclass
class Caller:
    """A program that sends requests; ``token`` empty: without one."""

    url: str
    token: str = "ann-token"
    pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False, timeout=20))

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        if self.token:
            given["Authorization"] = f"Bearer {self.token}"
        given |= {key.replace("_", "-"): value for key, value in headers.items()}
        return self.pool.request(method, self.url + path, body=data, headers=given, redirect=False)

    def post(self, body: Any, **headers: str) -> Any:
        return self.send("POST", "/v1/jobs", body, **headers)


def wanted(**fields: Any) -> Json:
    """A request that is taken; fields that are None are left out."""
    plain = {"name": "tune", "namespace": "lab", "queue": "lab", "model": "h20", "image": "reg/tune:1"}
    return {key: value for key, value in (plain | fields).items() if value is not None}
