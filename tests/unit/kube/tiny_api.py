"""A tiny API server on a real socket: enough of the protocol to misbehave on purpose.

It keeps objects of any resource by path, gives resourceVersions, checks preconditions and serves watches. It
also plays what a test scripts: answers to the next requests, watches that end or break, compaction.
"""

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Json = dict[str, Any]
Refuses = Callable[[str, str, Any], tuple[int, Json] | None]
"""(method, path with query, body)"""
MAX_ANNOTATION_BYTES = 256 * 1024
"""Of one object in all, keys and values, as the API server counts."""


class TinyApi:
    """State and script. ``requests`` has (method, path with query, body) of all that arrived."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: dict[str, Json] = {}
        self.version = 100
        self.compacted = 0
        self.requests: list[tuple[str, str, Any]] = []
        self.script: list[tuple[int, Json, dict[str, str]]] = []
        """Answers (status, body, headers) for the next requests that are no watches."""
        self.skip = 0
        """Requests that are served as usual before the script begins."""
        self.script_for = ""
        """The script is for requests that have this in their body; others are served as usual."""
        self.watches: list[queue.Queue[bytes | None]] = []
        self.delay_s = 0.0
        self.answers = threading.Event()
        """Cleared: whatever is asked waits."""
        self.answers.set()
        self.brief: bytes | None = None
        """All that each watch says, and ends."""
        self.begins = threading.Event()
        """Cleared: watches are taken, and whoever asked for one is not told yet."""
        self.begins.set()
        self.refuses: Refuses | None = None
        """Asked about each request that is no watch: the answer (status, body) instead of the usual one."""
        self.url = ""

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that leads here."""
        path = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": self.url}}
        user = {"name": "u", "user": {"token": "secret-token"}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        document = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
        return path

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Json]:
        """What is answered to a request that is no watch; ``path`` has the query."""
        refused = self.refuses(method, path, body) if self.refuses is not None else None
        parts = urlsplit(path)
        return refused or _serve(self, method, parts.path, body, dry="dryRun=All" in parts.query)

    def put(self, path: str, document: Json) -> Json:
        """Store an object behind everybody's back and tell the watches."""
        with self.lock:
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.version += 1
            metadata = document.setdefault("metadata", {})
            present = self.objects.get(path)
            metadata.setdefault("uid", present["metadata"]["uid"] if present else f"uid-{self.version}")
            metadata["resourceVersion"] = str(self.version)
            self.objects[path] = document
            self.tell(kind, document)
            return document

    def remove(self, path: str, *, silently: bool = False) -> Json:
        """Delete an object; silently: no watch hears of it."""
        with self.lock:
            document = self.objects.pop(path)
            self.version += 1
            document["metadata"]["resourceVersion"] = str(self.version)
            if not silently:
                self.tell("DELETED", document)
            return document

    def tell(self, kind: str, document: Json) -> None:
        """Send an event on all watches."""
        self.tell_raw(json.dumps({"type": kind, "object": document}).encode() + b"\n")

    def tell_raw(self, data: bytes) -> None:
        with self.lock:
            for watch in self.watches:
                watch.put(data)

    def end_watches(self) -> None:
        """End them as a server does whose time-out is over."""
        with self.lock:
            for watch in self.watches:
                watch.put(None)
            self.watches.clear()

    def wait_for_watch(self, count: int = 1, timeout_s: float = 30.0) -> None:
        """Until somebody watches."""
        end = time.monotonic() + timeout_s
        while len(self.watches) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.watches)} watches, {count} wanted")
            time.sleep(0.005)


def status(code: int, reason: str, message: str = "no", **details: Any) -> Json:
    """A Status object."""
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


@contextmanager
def tiny_api() -> Iterator[TinyApi]:
    """Run one."""
    api = TinyApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.answers.set()
        api.begins.set()
        api.end_watches()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(api: TinyApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            with api.lock:
                api.requests.append((self.command, self.path, body))
            api.answers.wait(60)
            if api.delay_s:
                time.sleep(api.delay_s)
            if query.get("watch") == "true":
                self._watch(query)
                return
            headers: dict[str, str] = {}
            with api.lock:
                ours = api.script_for in json.dumps(body)
                if api.script and api.skip == 0 and ours:
                    code, document, headers = api.script.pop(0)
                else:
                    api.skip = max(0, api.skip - ours)
                    code, document = api.answer(self.command, self.path, body)
            self._answer(code, document, headers)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - names of the base class

        def _answer(self, code: int, document: Json, headers: dict[str, str]) -> None:
            data = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for key, value in headers.items():
                self.send_header(key, value)
            try:
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # a client that did not wait for us
                self.close_connection = True

        def _watch(self, query: dict[str, str]) -> None:
            with api.lock:
                if int(query["resourceVersion"]) < api.compacted:
                    self._answer(410, status(410, "Expired"), {})
                    return
                events = _events(api, self.path.partition("?")[0], int(query["resourceVersion"]))
            api.begins.wait(60)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while (data := events.get()) is not None:
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Silent."""

    return Handler


def _serve(api: TinyApi, method: str, path: str, body: Any, *, dry: bool = False) -> tuple[int, Json]:
    path = path.removesuffix("/status") if method == "PATCH" else path
    present = api.objects.get(path)
    answer: tuple[int, Json] = (404, status(404, "NotFound"))
    if method == "POST" and path.endswith("/eviction"):
        pod = path.removesuffix("/eviction")
        answer = (201, status(201, "Created")) if pod in api.objects else answer
    elif method == "POST" and path.endswith("/binding"):
        answer = _bind(api, path.removesuffix("/binding"), body, dry=dry)
    elif method == "POST":
        path = f"{path}/{body['metadata']['name']}"
        there = path in api.objects
        answer = (409, status(409, "AlreadyExists")) if there else (201, body if dry else api.put(path, body))
    elif present is not None and not _holds(method, present, body):
        answer = 409, status(409, "Conflict")
    elif present is not None:
        match method:
            case "PUT":
                answer = 200, api.put(path, body)
            case "DELETE":
                answer = 200, present if dry else api.remove(path)
            case "PATCH" if isinstance(body, dict):
                answer = _patched(api, path, _merged(present, body), dry=dry)
            case _:
                answer = 200, present
    elif method == "GET" and path.rsplit("/", 1)[-1].endswith("s"):
        answer = 200, _list(api, path)
    return answer


def _bind(api: TinyApi, path: str, binding: Json, *, dry: bool) -> tuple[int, Json]:
    """Node and annotations in one write, as the API server does it; no annotation is too large for it."""
    present = api.objects.get(path)
    if present is None:
        return 404, status(404, "NotFound")
    metadata, spec = present["metadata"], present["spec"]
    named = binding["metadata"]
    same = all(named.get(key) in {None, metadata[key]} for key in ("uid", "resourceVersion"))
    waits = not (spec.get("nodeName") or spec.get("schedulingGates") or metadata.get("deletionTimestamp"))
    if not (same and waits):
        return 409, status(409, "Conflict")
    change = {
        "metadata": {"annotations": named.get("annotations") or {}},
        "spec": {"nodeName": binding["target"]["name"]},
    }
    if not dry:
        api.put(path, _merged(present, change))
    return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}


def _patched(api: TinyApi, path: str, document: Json, *, dry: bool) -> tuple[int, Json]:
    said = (document.get("metadata") or {}).get("annotations") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in said.items()) > MAX_ANNOTATION_BYTES:
        return 422, status(422, "Invalid", f"metadata.annotations: Too long: {MAX_ANNOTATION_BYTES}")
    return 200, document if dry else api.put(path, document)


def _holds(method: str, present: Json, body: Any) -> bool:
    """Whether the preconditions of a write hold."""
    metadata = present["metadata"]
    if method == "PUT":
        return body["metadata"].get("resourceVersion") in {None, metadata["resourceVersion"]}
    if method == "PATCH" and isinstance(body, dict):
        wanted = body.get("metadata") or {}
        return all(wanted.get(k) in {None, metadata[k]} for k in ("uid", "resourceVersion"))
    if method == "DELETE":
        return ((body or {}).get("preconditions") or {}).get("uid") in {None, metadata["uid"]}
    return True


def _merged(present: Json, patch: Json) -> Json:
    """RFC 7386."""
    merged = dict(present)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            old = merged.get(key)
            nested = isinstance(value, dict)
            merged[key] = _merged(old if isinstance(old, dict) else {}, value) if nested else value
    return merged


def _events(api: TinyApi, folder: str, version: int) -> queue.Queue[bytes | None]:
    """What a watch from there on says, and what else happens while it lasts."""
    events: queue.Queue[bytes | None] = queue.Queue()
    if api.brief is not None:
        events.put(api.brief or None)
        events.put(None)
        return events
    for missed in _since(api, folder, version):
        events.put(json.dumps({"type": "MODIFIED", "object": missed}).encode() + b"\n")
    api.watches.append(events)
    return events


def _since(api: TinyApi, folder: str, version: int) -> list[Json]:
    """Objects that changed after that, in order. What was deleted meanwhile is not told again."""
    found = [value for path, value in api.objects.items() if path.startswith(f"{folder}/")]
    versions = [(int(value["metadata"]["resourceVersion"]), value) for value in found]
    return [value for changed, value in sorted(versions, key=lambda pair: pair[0]) if changed > version]


def _list(api: TinyApi, path: str) -> Json:
    base, _, plural = path.rpartition("/")
    of_all = re.compile(rf"{re.escape(base)}/namespaces/[^/]+/{re.escape(plural)}/")
    items = [
        json.loads(json.dumps(value))
        for key, value in api.objects.items()
        if key.startswith(f"{path}/") or of_all.match(key)
    ]
    return {"metadata": {"resourceVersion": str(api.version)}, "items": items}
