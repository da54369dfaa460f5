"""A stand-in for the API server: serves lists that never change, keeps one Secret, allows every access.

For the webhook's bench and for tests of its edge that need no cluster. It speaks plain HTTP on loopback.
"""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


class StandIn:
    """Use it as a context manager. ``denied`` holds "user verb resource name" that are not allowed."""

    def __init__(self, objects: Mapping[str, list[Json]], denied: frozenset[str] = frozenset()) -> None:
        self.objects = objects
        self.denied = denied
        self.secrets: dict[str, Json] = {}
        self.configurations: dict[str, Json] = {}
        self.access_reviews = 0
        self.broken = False
        """True: every request that is not a watch fails with 500."""
        self.lock = threading.Lock()
        self.closing = threading.Event()
        stand_in = self

        class Handler(_Handler):
            """Bound to this stand-in."""

            owner = stand_in

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def write_kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that leads here."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": self.url}}],
            "users": [{"name": "it", "user": {}}],
        }
        written = folder / "kubeconfig.new"
        written.write_text(json.dumps(config))
        return written.rename(path)


class _Handler(BaseHTTPRequestHandler):
    owner: StandIn
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        *_, parent, last = url.path.split("/")
        if parse_qs(url.query).get("watch"):
            self._watch()
        elif parent == "secrets":
            self._stored(self.owner.secrets, last)
        elif parent.endswith("webhookconfigurations"):
            self._stored(self.owner.configurations, parent)
        elif last in self.owner.objects:
            items = self.owner.objects[last]
            for index, item in enumerate(items):
                item["metadata"].setdefault("uid", f"{last}-{index}")
                item["metadata"].setdefault("resourceVersion", "1")
            self._send(200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
        elif self.owner.broken:
            self._error(500, "InternalError")
        else:
            self._error(404)

    def do_POST(self) -> None:
        body = self._body()
        if self.owner.broken:
            self._error(500, "InternalError")
        elif body.get("kind") == "SubjectAccessReview":
            self.owner.access_reviews += 1
            spec = body["spec"]
            what = spec["resourceAttributes"]
            key = f"{spec['user']} {what['verb']} {what['resource']} {what['name']}"
            self._send(201, {**body, "status": {"allowed": key not in self.owner.denied}})
        elif body.get("kind") == "Secret":
            self._keep(self.owner.secrets, body, must_be_new=True)
        else:
            self._error(404)

    def do_PUT(self) -> None:
        self._keep(self.owner.secrets, self._body(), must_be_new=False)

    def do_PATCH(self) -> None:
        kind = self.path.split("?")[0].split("/")[-2]
        with self.owner.lock:
            configuration = self.owner.configurations[kind]
            for operation in self._body_list():
                if operation["op"] == "add":
                    index = int(operation["path"].split("/")[2])
                    configuration["webhooks"][index]["clientConfig"]["caBundle"] = operation["value"]
            configuration["metadata"]["resourceVersion"] += "1"
        self._send(200, configuration)

    # --- helpers -------------------------------------------------------------------------------------

    def _keep(self, store: dict[str, Json], body: Json, *, must_be_new: bool) -> None:
        name = body["metadata"]["name"]
        with self.owner.lock:
            known = store.get(name)
            stale = known is not None and (
                must_be_new or body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]
            )
            if stale:
                self._error(409, "AlreadyExists" if must_be_new else "Conflict")
                return
            version = str(int(known["metadata"]["resourceVersion"]) + 1) if known else "1"
            store[name] = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        self._send(200, store[name])

    def _stored(self, store: dict[str, Json], name: str) -> None:
        found = store.get(name)
        if found is None:
            self._error(404)
        else:
            self._send(200, found)

    def _watch(self) -> None:
        """Nothing ever happens; the stream stays open until the stand-in closes."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        self.owner.closing.wait(600)
        self.close_connection = True

    def _body(self) -> Json:
        document: Json = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return document

    def _body_list(self) -> list[Json]:
        operations: list[Json] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return operations

    def _send(self, status: int, document: Json) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, reason: str = "NotFound") -> None:
        self._send(status, {"kind": "Status", "status": "Failure", "code": status, "reason": reason})

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""
