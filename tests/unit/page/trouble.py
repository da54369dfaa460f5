"""API servers in trouble: one that never answers, one that breaks off, one that answers late."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HALF: bytes = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    b'{"kind":"NodeList","items":[{"metadata":'
)


@contextmanager
def _serving(attend: Callable[[socket.socket], None]) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def run() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                taken.append(connection)
                threading.Thread(target=_quietly, args=(attend, connection), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for connection in taken:
            connection.close()


def _quietly(attend: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with suppress(OSError):
        attend(connection)


@contextmanager
def breaking_off() -> Iterator[str]:
    """Dies in the middle of each answer."""

    def attend(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(HALF)
        connection.close()

    with _serving(attend) as url:
        yield url


@contextmanager
def late(upstream: str, after_s: float) -> Iterator[str]:
    """Passes all on to another server, each connection after so long."""
    host, _, port = upstream.rpartition("/")[2].partition(":")

    def attend(connection: socket.socket) -> None:
        time.sleep(after_s)  # the trouble itself
        with socket.create_connection((host, int(port))) as other:
            threading.Thread(target=_quietly, args=(lambda one: _pump(one, connection), other)).start()
            _pump(connection, other)

    with _serving(attend) as url:
        yield url


def _pump(one: socket.socket, other: socket.socket) -> None:
    while data := one.recv(65536):
        other.sendall(data)
