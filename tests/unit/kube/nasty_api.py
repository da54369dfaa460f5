"""An API server for one folder of objects that keeps its history, tells the truth, and behaves badly.

Each request is given the next fault of the list, until :meth:`NastyApi.behave`. What it says about objects
is always true; what it does is cut off, delay, refuse, forget old versions, write what is hard to read.
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Final
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

PAGE: Final = 2
"""Objects on a page, whatever the client asks for."""
DEEP: Final = '{"a":' * 3000 + "1" + "}" * 3000
PATIENCE_S: Final = 60.0

LIST_FAULTS: Final = ("refuse", "reset", "half", "no json", "forget", "too many")
WATCH_FAULTS: Final = (
    "refuse",
    "reset",
    "forget",
    "forget in the stream",
    "end",
    "cut a line",
    "garble",
    "unknown type",
    "fail in the stream",
    "bookmark and end",
    "plain",
    "stand still",
    "half a line",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request; ``after`` so many events of a watch."""

    what: str
    after: int = 0
    piece: int = 1 << 16
    """Bytes in one chunk of a watch."""


class NastyApi:
    """``put`` and ``remove`` are what the world does; ``lists`` and ``watches`` count requests."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.turn = threading.Condition(threading.RLock())
        self.objects: dict[str, Json] = {}
        self.version = 100
        self.lists = self.watches = 0
        self._history: list[tuple[int, str, Json]] = []
        self._compacted = 0
        self._pages: dict[str, list[Json]] = {}
        self._faults: deque[Fault] = deque()
        self._good = False
        self._hung_up = 0

    # --- the world -------------------------------------------------------------------------------------

    def put(self, name: str, value: str, *, anew: bool = False) -> None:
        """Make or change an object; ``anew``: delete it first, and make another of the same name."""
        with self.turn:
            if anew and name in self.objects:
                self.remove(name)
            known = self.objects.get(name)
            self.version += 1
            uid = known["metadata"]["uid"] if known is not None else f"uid-{self.version}"
            metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(self.version)}
            document = {"metadata": metadata, "data": {"v": value}}
            self.objects[name] = document
            self._note("ADDED" if known is None else "MODIFIED", document)

    def remove(self, name: str) -> None:
        """Delete an object, if it is there."""
        with self.turn:
            known = self.objects.pop(name, None)
            if known is None:
                return
            self.version += 1
            metadata = {**known["metadata"], "resourceVersion": str(self.version)}
            self._note("DELETED", {**known, "metadata": metadata})

    def compact(self) -> None:
        """Forget all history."""
        with self.turn:
            self._compacted = self.version

    def hang_up(self) -> None:
        """End all watches there are."""
        with self.turn:
            self._hung_up += 1
            self.turn.notify_all()

    def misbehave(self, *faults: Fault) -> None:
        """These befall the next requests, one each."""
        with self.turn:
            self._faults.extend(faults)
            self.turn.notify_all()

    def behave(self) -> None:
        """From now on nothing goes wrong any more."""
        with self.turn:
            self._good = True
            self._faults.clear()
            self.turn.notify_all()

    def state(self) -> dict[str, tuple[str, str]]:
        """By name: UID and version."""
        with self.turn:
            return {name: identity(document) for name, document in self.objects.items()}

    def _note(self, kind: str, document: Json) -> None:
        self._history.append((self.version, kind, document))
        self.turn.notify_all()

    # --- requests --------------------------------------------------------------------------------------

    def serve(self, connection: socket.socket) -> None:
        """All requests of one connection."""
        with suppress(OSError), connection, connection.makefile("rb") as lines:
            while target := _target(lines):
                parts = urlsplit(target)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                watching = query.get("watch") == "true"
                with self.turn:
                    fault = self._faults.popleft() if self._faults else Fault("")
                    self.watches += watching
                    self.lists += not watching
                    self.turn.notify_all()
                if fault.what == "reset":
                    return
                if watching:
                    self._watch(connection, int(query["resourceVersion"]), fault)
                    return
                if not self._list(connection, query.get("continue", ""), fault):
                    return

    def _list(self, connection: socket.socket, token: str, fault: Fault) -> bool:
        with self.turn:
            if not token:
                token = f"{self.version}:0"
                self._pages[str(self.version)] = list(self.objects.values())
            version, _, at = token.partition(":")
            refusals = {"refuse": 500, "too many": 429}
            gone = int(version) < self._compacted or (fault.what == "forget" and at != "0")
            code = 410 if gone else refusals.get(fault.what, 200)
            found = self._pages[version]
        end = int(at) + PAGE
        metadata = {"resourceVersion": version, "continue": f"{version}:{end}" if end < len(found) else ""}
        text = _text({"metadata": metadata, "items": found[int(at) : end]} if code == 200 else _status(code))
        if fault.what == "no json":
            text = b"<html>a proxy was here</html>"
        head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(text)}\r\n\r\n".encode()
        connection.sendall(head + (text[: len(text) // 2] if fault.what == "half" else text))
        return fault.what != "half"

    def _watch(self, connection: socket.socket, since: int, fault: Fault) -> None:
        with self.turn:
            gone, hung_up = since < self._compacted, self._hung_up
        if gone or fault.what in {"refuse", "forget"}:
            text = _text(_status(500 if fault.what == "refuse" and not gone else 410))
            code = 500 if fault.what == "refuse" and not gone else 410
            connection.sendall(f"HTTP/1.1 {code} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
            return
        chunked = fault.what != "plain"
        out = _Chunks(connection, fault.piece, chunked=chunked)
        told = 0
        while True:
            with self.turn:
                wrong = fault.what not in {"", "plain"} and not self._good
                if not (wrong and told >= fault.after) and not self._wait_for_news(since):
                    out.end()  # as a server does whose time-out is over
                    return
                if self._hung_up != hung_up:
                    return
                events = [event for event in self._history if event[0] > since]
            for version, kind, document in events:
                if wrong and told >= fault.after:
                    break
                out.line(_text({"type": kind, "object": document}))
                since, told = version, told + 1
            if wrong and told >= fault.after:
                self._misbehave(out, fault, since, events)
                return

    def _wait_for_news(self, since: int) -> bool:
        """Whether anything happened in time that a watch has to look at."""
        good, hung_up = self._good, self._hung_up
        return self.turn.wait_for(
            lambda: self.version > since or (self._good, self._hung_up) != (good, hung_up), PATIENCE_S
        )

    def _misbehave(
        self, out: "_Chunks", fault: Fault, since: int, events: list[tuple[int, str, Json]]
    ) -> None:
        line = _text({"type": events[-1][1], "object": events[-1][2]}) if events else b'{"type":"ADDED"}'
        match fault.what:
            case "forget in the stream":
                out.line(_text({"type": "ERROR", "object": _status(410)}))
            case "fail in the stream":
                out.line(_text({"type": "ERROR", "object": _status(504)}))
            case "cut a line":
                out.raw(line[: len(line) // 2])
            case "garble":
                out.line(line[: len(line) // 2])
            case "unknown type":
                out.line(_text({"type": "SOMETHING", "object": _status(200)}))
            case "bookmark and end":
                out.line(_text({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(since)}}}))
                out.end()
            case "end":
                out.end()
            case "half a line" | "stand still":
                if fault.what == "half a line":
                    out.raw(line[: len(line) // 2])
                with self.turn:
                    hung_up = self._hung_up
                    self.turn.wait_for(lambda: self._good or self._hung_up != hung_up, PATIENCE_S)


class _Chunks:
    """The body of a watch."""

    def __init__(self, connection: socket.socket, piece: int, *, chunked: bool) -> None:
        self.connection = connection
        self._piece = piece
        self._chunked = chunked
        head = "Transfer-Encoding: chunked" if chunked else "Connection: close"
        connection.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())

    def line(self, text: bytes) -> None:
        self.raw(text + b"\n")

    def raw(self, text: bytes) -> None:
        if not self._chunked:
            self.connection.sendall(text)
            return
        pieces = [text[at : at + self._piece] for at in range(0, len(text), self._piece)]
        self.connection.sendall(b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces))

    def end(self) -> None:
        if self._chunked:
            self.connection.sendall(b"0\r\n\r\n")


def identity(document: Json) -> tuple[str, str]:
    """UID and version of an object."""
    return document["metadata"]["uid"], document["metadata"]["resourceVersion"]


def _text(document: Json) -> bytes:
    return json.dumps(document).replace('"deep"', DEEP).encode()


def _status(code: int) -> Json:
    return {"kind": "Status", "code": code, "message": "no"}


def _target(lines: BinaryIO) -> str:
    """The path and query of the next request; empty at the end."""
    first = lines.readline()
    while lines.readline() not in {b"\r\n", b""}:
        pass
    return first.split(b" ")[1].decode() if first else ""


@contextmanager
def nasty_api() -> Iterator[NastyApi]:
    """Run one."""
    listener = socket.create_server(("127.0.0.1", 0))
    api = NastyApi(listener.getsockname()[1])

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=api.serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.behave()
        api.hang_up()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
