"""Server-sent events: what changes, one message after the other, and a beat while nothing does."""

import asyncio
from contextlib import suppress
from typing import Final

import orjson
from aiohttp import web

from vc_egpu.page.cluster.live import LiveCluster
from vc_egpu.page.serving.visitors import Visitor

BEAT_S: Final = 5.0
"""A page that hears nothing for three of these says that the connection is lost."""
MOST_BEHIND: Final = 64
"""Messages that wait for a slow reader. Then it is told to take a fresh state instead."""
AGAIN: Final = b'{"again":true}'
RETRY_MS: Final = 1000


class Backlog:
    """Messages on their way to one tab. ``offer`` may be called on any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(MOST_BEHIND)

    def offer(self, message: bytes) -> None:
        """Send this one next; where too many wait, all of them become one that says so."""
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: bytes) -> None:
        if self._queue.full():
            while not self._queue.empty():
                self._queue.get_nowait()
            message = AGAIN
        self._queue.put_nowait(message)

    async def next(self) -> bytes:
        """The next message; empty where none came within :data:`BEAT_S`."""
        try:
            async with asyncio.timeout(BEAT_S):
                return await self._queue.get()
        except TimeoutError:
            return b""


async def send(response: web.StreamResponse, visitor: Visitor, live: LiveCluster) -> None:
    """Tell one tab all that changes, until it goes or the visitor is signed out."""
    backlog = Backlog(asyncio.get_running_loop())
    number = live.subscribe(backlog.offer)
    try:
        await response.write(f"retry: {RETRY_MS}\n\n".encode())
        await response.write(_event("hello", orjson.dumps({"rev": live.revision})))
        while True:
            why = "signed-out" if visitor.closed else live.ended
            if why:
                await response.write(_event("ended", orjson.dumps({"why": why})))
                return
            message = await backlog.next()
            await response.write(_event("change", message) if message else _event("beat", b"{}"))
    finally:
        live.unsubscribe(number)


def _event(kind: str, data: bytes) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
