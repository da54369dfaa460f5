"""An API server with users and rights, watches by kind and place, and as many objects as a test wants.

Objects are kept as text, whole and as metadata alone: 140,000 pods are served as fast as they are sent.
"""

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import yaml

Json = dict[str, Any]
PATHS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "events": "/api/v1/events",
    "queues": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "podgroups": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
}
CLUSTER_WIDE = {"nodes", "queues"}
OVER = ("Succeeded", "Failed")


@dataclass
class Account:
    """One user. ``namespaces`` None: all of them."""

    user: str
    namespaces: set[str] | None = None
    cluster_wide: set[str] = field(default_factory=lambda: {"nodes", "queues"})

    def may(self, kind: str, place: str | None) -> bool:
        if kind in CLUSTER_WIDE:
            return kind in self.cluster_wide
        return self.namespaces is None or place in self.namespaces


@dataclass(frozen=True)
class Stored:
    namespace: str
    name: str
    whole: bytes
    metadata: bytes


@dataclass
class Watcher:
    kind: str
    place: str | None
    metadata_only: bool
    events: "queue.Queue[bytes | None]" = field(default_factory=queue.Queue)


class ClusterApi:
    """State, users, and what arrived: (method, path with query, token, Accept)."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.kinds: dict[str, dict[tuple[str, str], Stored]] = {kind: {} for kind in PATHS}
        self.accounts: dict[str, Account] = {"operator-token": Account("operator")}
        self.absent: set[str] = set()
        """Kinds that this cluster does not have."""
        self.watchers: list[Watcher] = []
        self.requests: list[tuple[str, str, str, str]] = []
        self.version = 100
        self.away = threading.Event()
        """Set: each request is cut off without an answer."""
        self.url = ""

    def put(self, kind: str, document: Json, *, tell: bool = True) -> Json:
        """Store an object and tell those that watch it."""
        with self.lock:
            self.version += 1
            metadata = document["metadata"]
            key = (metadata.get("namespace") or "", metadata["name"])
            metadata["resourceVersion"] = str(self.version)
            metadata.setdefault("uid", f"uid-{kind}-{'-'.join(key)}")
            is_new = key not in self.kinds[kind]
            light = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            stored = Stored(*key, orjson.dumps(document), orjson.dumps(light))
            self.kinds[kind][key] = stored
            if tell:
                self._tell("ADDED" if is_new else "MODIFIED", kind, stored)
            return document

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        with self.lock:
            self.version += 1
            stored = self.kinds[kind].pop((namespace, name))
            document = orjson.loads(stored.whole)
            document["metadata"]["resourceVersion"] = str(self.version)
            metadata = orjson.dumps({"metadata": document["metadata"]})
            self._tell("DELETED", kind, Stored(namespace, name, orjson.dumps(document), metadata))

    def _tell(self, word: str, kind: str, stored: Stored) -> None:
        for watcher in self.watchers:
            if watcher.kind == kind and watcher.place in {None, stored.namespace}:
                data = stored.metadata if watcher.metadata_only else stored.whole
                watcher.events.put(b'{"type":"%s","object":%s}\n' % (word.encode(), data))

    def go_away(self) -> None:
        """No answer to anybody, and all watches break."""
        self.away.set()
        self.end_watches()

    def end_watches(self) -> None:
        with self.lock:
            for watcher in self.watchers:
                watcher.events.put(None)
            self.watchers.clear()

    def come_back(self) -> None:
        self.away.clear()

    def watched(self) -> list[tuple[str, str | None]]:
        with self.lock:
            return sorted((one.kind, one.place) for one in self.watchers)

    def kubeconfig(self, folder: Path, token: str = "operator-token", namespace: str = "") -> Path:
        path = folder / f"kubeconfig-{token}"
        context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
        document = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": context}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
        return path


@contextmanager
def cluster_api() -> Iterator[ClusterApi]:
    """Run one."""
    api = ClusterApi()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients that go away are expected."""

    handler = type("Handler", (_Handler,), {"api": api})
    server = Server(("127.0.0.1", 0), handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.go_away()
        server.shutdown()
        server.server_close()
        thread.join()


def place_of(path: str) -> tuple[str, str | None, str]:
    """Kind, namespace and name of a path; the kind is empty where it is none of ours."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = None
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    return (parts[0] if parts else ""), namespace, (parts[1] if len(parts) > 1 else "")


def _status(code: int, reason: str, message: str) -> bytes:
    return orjson.dumps({"kind": "Status", "code": code, "reason": reason, "message": message})


class _Handler(BaseHTTPRequestHandler):
    api: ClusterApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        with self.api.lock:
            self.api.requests.append((self.command, self.path, token, self.headers.get("Accept") or ""))
            account = self.api.accounts.get(token)
        if self.api.away.is_set():
            self.close_connection = True
            return
        if account is None:
            self._answer(401, _status(401, "Unauthorized", "Unauthorized"))
        elif self.command == "POST":
            info = {"userInfo": {"username": account.user}}
            self._answer(201, orjson.dumps({**orjson.loads(body), "status": info}))
        else:
            self._read(account)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_any  # noqa: N815

    def _read(self, account: Account) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        kind, place, name = place_of(parts.path)
        if kind == "configmaps" or kind in self.api.absent or (kind not in PATHS and name):
            self._answer(404, _status(404, "NotFound", "not found"))
        elif kind not in PATHS:
            self._answer(200, b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}')
        elif not account.may(kind, place):
            where = f'in the namespace "{place}"' if place else "at the cluster scope"
            text = f'{kind} is forbidden: User "{account.user}" cannot list resource "{kind}" {where}'
            self._answer(403, _status(403, "Forbidden", text))
        elif query.get("watch") == "true":
            self._watch(kind, place)
        elif name:
            stored = self.api.kinds[kind].get((place or "", name))
            found = stored.whole if stored else _status(404, "NotFound", "not found")
            self._answer(200 if stored else 404, found)
        else:
            self._list(kind, place, query)

    def _metadata_only(self) -> bool:
        return "as=PartialObjectMetadata" in (self.headers.get("Accept") or "")

    def _list(self, kind: str, place: str | None, query: dict[str, str]) -> None:
        with self.api.lock:
            found = [one for one in self.api.kinds[kind].values() if place in {None, one.namespace}]
            version = self.api.version
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or len(found) or 1)
        page = [one.metadata if self._metadata_only() else one.whole for one in found[start:end]]
        token = f'"continue":"{end}",' if end < len(found) else ""
        head = f'{{"kind":"List","metadata":{{{token}"resourceVersion":"{version}"}},"items":['
        self._answer(200, head.encode() + b",".join(page) + b"]}")

    def _answer(self, code: int, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        with suppress(OSError):
            self.end_headers()
            self.wfile.write(data)

    def _watch(self, kind: str, place: str | None) -> None:
        watcher = Watcher(kind, place, self._metadata_only())
        with self.api.lock:
            self.api.watchers.append(watcher)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        try:
            self.end_headers()
            self.wfile.flush()
            while (data := self._next(watcher)) is not None:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            if not self.api.away.is_set():
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        with self.api.lock, suppress(ValueError):
            self.api.watchers.remove(watcher)
        self.close_connection = True

    def _next(self, watcher: Watcher) -> bytes | None:
        """The next event; None at the end, or once the client has gone."""
        while True:
            try:
                return watcher.events.get(timeout=0.2)
            except queue.Empty:
                with suppress(BlockingIOError):
                    if not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                        return None

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent."""
