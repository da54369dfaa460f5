"""A server that says what a script tells it, byte by byte."""

import socket
import threading
import time
from contextlib import suppress
from typing import BinaryIO

from kubernetes.client import Configuration
from vc_egpu.kube.wire.config import Endpoint
from vc_egpu.kube.wire.transport import Transport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
END = b"|END OF CONNECTION"
"""Behind an answer: the server hangs up then."""
DRIP = b"x|" * 20_000
"""Takes 40 s."""


class Server:
    """Answers each request with the next entry of the script: bytes, None (hang up), something to await."""

    def __init__(self) -> None:
        self.script: list[bytes | threading.Event | None] = []
        self.seen: list[bytes] = []
        self.connections = 0
        self.answered = 0
        """Requests whose answer was given to the end."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection.makefile("rb") as lines:
            while request := _request(lines):
                self.seen.append(request)
                step = self.script.pop(0) if self.script else OK
                if step is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                if isinstance(step, threading.Event):
                    step.wait(60)
                    step = OK
                for piece in step.removesuffix(END).split(b"|"):  # each piece is a packet of its own
                    connection.sendall(piece)
                    time.sleep(0.002)
                self.answered += 1
                if step.endswith(END):
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def wait_for_requests(self, count: int) -> None:
        """Until so many have come."""
        deadline = time.monotonic() + 30
        while len(self.seen) < count:
            assert time.monotonic() < deadline, self.seen
            time.sleep(0.005)

    def hang_up(self) -> None:
        """Close all connections, as a server does that was restarted."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # close() alone would wait for the reading thread
            connection.close()
        self._open.clear()

    def close(self) -> None:
        self._socket.close()
        self.hang_up()


def _request(lines: BinaryIO) -> bytes:
    """The next request with its body; empty at the end."""
    head, length = b"", 0
    while line := lines.readline():
        head += line
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        if line == b"\r\n":
            return head + bytes(lines.read(length))
    return b""


def transport_to(server: Server, *, pool_size: int, timeout_s: float = 30.0) -> Transport:
    """One that talks to this server, without TLS and without a proxy."""
    configuration = Configuration(host=f"http://127.0.0.1:{server.port}")
    configuration.proxy = None
    return Transport(Endpoint(configuration), pool_size=pool_size, timeout_s=timeout_s)
