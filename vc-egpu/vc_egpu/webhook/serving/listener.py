"""Accepts connections: no more than memory allows, and none that stays idle for long.

Any pod of the cluster reaches the webhook's port. A connection over TLS holds a quarter of a MiB, used or
not. A client that opened two thousand of them took the memory of every review.
"""

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from vc_egpu.kube.server import listening

MAX_CONNECTIONS: Final = 600
"""Some 160 MiB. An API server has one for each write that it asks about, by default 200 at a time."""
FIRST_REQUEST_S: Final = 10.0
"""An API server connects when it has something to ask."""
HANDSHAKE_TIMEOUT_S: Final = 5.0
_GOODBYE_S: Final = 2.0
_BACKLOG: Final = 1024
_LOOK_S: Final = 1.0
_PAUSE_S: Final = 0.05
_ROOM: Final = 16
"""One in so many is closed at once, so that a flood of connections does not look for one each time."""

logger = logging.getLogger(__name__)


class Listener:
    """Accepts for one server. If there are more than ``most`` connections, the longest idle one is closed."""

    def __init__(self, context: ssl.SSLContext | None, most: int, first_request_s: float) -> None:
        self._context = context
        self._most = most
        self._first_request_s = first_request_s
        self._idle_since: dict[RequestHandler, float] = {}
        """All connections, those whose handshake is under way among them."""
        self._arriving: dict[RequestHandler, asyncio.Task[None]] = {}
        self._working: set[RequestHandler] = set()
        """A request of theirs is being answered."""
        self._asked: set[RequestHandler] = set()
        """They have had an answer."""
        self._tasks: list[asyncio.Task[None]] = []
        self._socket: socket.socket | None = None

    async def listen(self, server: web.Server, host: str, port: int) -> int:
        """Begin to accept for this server; returns the port in use (0 picks a free one)."""
        loop = asyncio.get_running_loop()
        taken = listening(host, port, _BACKLOG)
        taken.settimeout(0)
        self._socket = taken
        self._tasks += [loop.create_task(self._accept(server, taken)), loop.create_task(self._look(server))]
        bound: int = taken.getsockname()[1]
        return bound

    async def close(self) -> None:
        """Accept nothing more; connections that are there are the server's to end."""
        tasks = [*self._tasks, *self._arriving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    def began(self, connection: RequestHandler) -> None:
        """A request of this one has been read: it stays until that is answered."""
        self._working.add(connection)

    def ended(self, connection: RequestHandler) -> None:
        """Its request is answered."""
        self._working.discard(connection)
        if connection in self._idle_since:
            self._idle_since[connection] = asyncio.get_running_loop().time()
            self._asked.add(connection)

    async def _accept(self, server: web.Server, taken: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(taken)
            except OSError as error:
                logger.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                while len(self._idle_since) >= self._most and not self._make_room(server):
                    await asyncio.sleep(_PAUSE_S)
            except asyncio.CancelledError:
                accepted.close()
                raise
            connection = server()
            self._idle_since[connection] = loop.time()
            self._arriving[connection] = loop.create_task(self._attend(connection, accepted))
            await asyncio.sleep(0)  # where many wait for us nothing else would have a turn

    async def _attend(self, connection: RequestHandler, accepted: socket.socket) -> None:
        """Shake hands; from then on the connection is the server's."""
        tls: dict[str, Any] = {}
        if self._context is not None:
            tls = {
                "ssl": self._context,
                "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
                "ssl_shutdown_timeout": _GOODBYE_S,
            }
        try:
            with suppress(OSError):  # a client that breaks off in mid-handshake, or speaks no TLS
                await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted, **tls)
        finally:
            del self._arriving[connection]

    async def _look(self, server: web.Server) -> None:
        """Forget connections that are gone, and close those that never asked for anything."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._forget(server)
            late = asyncio.get_running_loop().time() - self._first_request_s
            never = self._idle_since.keys() - self._asked - self._working
            self._close([connection for connection in never if self._idle_since[connection] < late])

    def _make_room(self, server: web.Server) -> bool:
        """Close those that were idle longest; False where all are at work."""
        self._forget(server)
        idle = sorted(self._idle_since.keys() - self._working, key=self._idle_since.__getitem__)
        excess = len(self._idle_since) - self._most + 1
        if excess > 0:
            self._close(idle[: max(excess, self._most // _ROOM)])
        return len(self._idle_since) < self._most

    def _close(self, connections: list[RequestHandler]) -> None:
        for connection in connections:
            if arriving := self._arriving.get(connection):
                arriving.cancel()
            elif connection.transport is not None:
                connection.transport.abort()  # a farewell would be waited for, and it holds its memory
            self._idle_since.pop(connection, None)
            self._asked.discard(connection)

    def _forget(self, server: web.Server) -> None:
        there = {*server.connections, *self._arriving}
        for connection in self._idle_since.keys() - there:
            del self._idle_since[connection]
            self._asked.discard(connection)
