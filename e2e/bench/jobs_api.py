"""An API server for the Job controller alone: it takes what is written, and tells the watches of it.

Pods are not kept, only counted: the bench asks for many more than would fit into memory.
"""

import itertools
import queue
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

Json = dict[str, Any]
_NOT_FOUND = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}


class JobsApi:
    """What the server holds and has seen. Thread-safe."""

    def __init__(self) -> None:
        self.url = ""
        self._lock = threading.Lock()
        self._versions = itertools.count(10)
        self._objects: dict[str, Json] = {}
        self._watches: dict[str, list[queue.SimpleQueue[bytes | None]]] = {}
        self._pods: Counter[tuple[str, str]] = Counter()
        self.write("/apis/scheduling.volcano.sh/v1beta1/queues/default", {"status": {"state": "Open"}})

    @property
    def watched(self) -> int:
        """Kinds that are watched."""
        with self._lock:
            return len(self._watches)

    def pods_of(self, namespace: str, job: str) -> int:
        """Pods that were made for the Job."""
        return self._pods[namespace, job]

    def add_job(self, namespace: str, name: str, spec: Json) -> None:
        """A user makes a Job."""
        metadata = {"name": name, "namespace": namespace, "generation": 1}
        document = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata}
        path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs/{name}"
        self.write(path, {**document, "spec": {"queue": "default", **spec}})

    def write(self, path: str, document: Json) -> bytes:
        """Take the object; what the API server answers."""
        head, _, name = path.rpartition("/")
        folder, _, plural = head.rpartition("/")
        with self._lock:
            present = self._objects.get(path)
            metadata = document.setdefault("metadata", {})
            metadata |= {"name": name, "resourceVersion": str(next(self._versions))}
            metadata.setdefault(
                "uid", present["metadata"]["uid"] if present else f"uid-{metadata['resourceVersion']}"
            )
            answer = orjson.dumps(document)
            if plural == "pods":
                self._pods[folder.rpartition("/")[2], metadata["labels"]["volcano.sh/job-name"]] += 1
            else:
                self._objects[path] = document
            kind = b"MODIFIED" if present else b"ADDED"
            for watch in self._watches.get(plural, ()):
                watch.put(b'{"type":"%s","object":%s}\n' % (kind, answer))
        return answer

    def merge(self, path: str, patch: Json) -> bytes | None:
        """A merge patch of one level below the top; None if there is no such object."""
        present = self._objects.get(path)
        if present is None:
            return None
        merged = {key: {**present.get(key, {}), **part} for key, part in patch.items()}
        return self.write(path, {**present, **merged})

    def get(self, path: str) -> Json | None:
        """An object, or a list if the path is one of a kind."""
        with self._lock:
            if path in self._objects:
                return self._objects[path]
            head, _, plural = path.rpartition("/")
            if head.count("/") > 3:
                return None
            items = [
                value
                for key, value in self._objects.items()
                if key.startswith(head) and key.split("/")[-2] == plural
            ]
            return {"metadata": {"resourceVersion": str(next(self._versions))}, "items": items}

    def watch(self, path: str) -> "queue.SimpleQueue[bytes | None]":
        """From now on all changes of this kind."""
        events: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            self._watches.setdefault(path.rpartition("/")[2], []).append(events)
        return events

    def end(self) -> None:
        """End all watches."""
        with self._lock:
            for events in itertools.chain(*self._watches.values()):
                events.put(None)


@contextmanager
def serving() -> Iterator[JobsApi]:
    """Run one."""
    api = JobsApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(api))
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        api.end()
        server.shutdown()


def _handler_for(api: JobsApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if parse_qs(url.query).get("watch") == ["true"]:
                self._watch(url.path)
                return
            found = api.get(url.path)
            self._answer(404 if found is None else 200, orjson.dumps(found or _NOT_FOUND))

        def do_POST(self) -> None:
            body = self._body()
            path = self.path.partition("?")[0]
            self._answer(201, api.write(f"{path}/{body['metadata']['name']}", body))

        def do_PUT(self) -> None:
            path = self.path.partition("?")[0].removesuffix("/status")
            self._answer(200, api.write(path, self._body()))

        def do_PATCH(self) -> None:
            path = self.path.partition("?")[0].removesuffix("/status")
            found = api.merge(path, self._body())
            self._answer(404 if found is None else 200, found or orjson.dumps(_NOT_FOUND))

        def _body(self) -> Any:
            return orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, code: int, data: bytes) -> None:
            head = (
                f"HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            )
            self.wfile.write(head.encode() + data)

        def _watch(self, path: str) -> None:
            events = api.watch(path)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(ConnectionError):
                while (data := events.get()) is not None:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
