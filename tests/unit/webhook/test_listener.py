"""Connections: any pod of the cluster may open some, and each takes memory whether or not it asks."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from vc_egpu.webhook.serving.certificates import Lifetimes, advance
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.reviewer import Reviewer
from vc_egpu.webhook.serving.server import WebhookServer

HOST = "127.0.0.1"
REQUEST = b"POST /mutate/pods HTTP/1.1\r\nHost: webhook\r\nContent-Length: 2\r\n\r\n{}"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Slow(Reviewer):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Semaphore(0), asyncio.Event()

    async def answer(self, path: str, body: bytes) -> tuple[bytes, str]:
        self.asked.release()
        await self.go.wait()
        return b"done", "allowed"


class World:
    """A server with a certificate, and its clients."""

    def __init__(self, folder: Path) -> None:
        material = advance(None, (HOST,), datetime.now(UTC), Lifetimes())
        certificate, key = folder / "tls.crt", folder / "tls.key"
        certificate.write_bytes(material.serving.certificate_pem)
        key.write_bytes(material.serving.key_pem)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self._trust = ssl.create_default_context(cadata=material.bundle_pem.decode())
        self.reviewer = Slow()
        self.port = 0
        self._streams: list[Stream] = []

    async def connect(self) -> Stream:
        self._streams.append(await asyncio.open_connection(HOST, self.port, ssl=self._trust))
        return self._streams[-1]

    async def connect_without_a_word(self) -> Stream:
        self._streams.append(await asyncio.open_connection(HOST, self.port))
        return self._streams[-1]

    def hang_up(self) -> None:
        for _, writer in self._streams:
            writer.transport.abort()


def serve(
    folder: Path, story: Callable[[World], Awaitable[None]], *, most: int = 8, first_request_s: float = 30
) -> None:
    async def run() -> None:
        world = World(folder)
        server = WebhookServer(
            world.reviewer,
            Metrics.create(),
            lambda: "",
            max_connections=most,
            first_request_s=first_request_s,
        )
        world.port, _ = await server.start(HOST, 0, world.context, None)
        try:
            async with asyncio.timeout(20):
                await story(world)
        finally:
            world.reviewer.go.set()
            world.hang_up()
            await server.stop()

    asyncio.run(run())


async def ask(stream: Stream) -> bytes:
    reader, writer = stream
    writer.write(REQUEST)
    await writer.drain()
    return await reader.readuntil(b"done")


async def is_closed(stream: Stream, within_s: float = 0.3) -> bool:
    try:
        return await asyncio.wait_for(stream[0].read(1), within_s) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("shakes_hands", [True, False])
def test_who_only_connects_keeps_nobody_out(tmp_path: Path, *, shakes_hands: bool) -> None:
    async def story(world: World) -> None:
        world.reviewer.go.set()
        connect = world.connect if shakes_hands else world.connect_without_a_word
        idle = [await connect() for _ in range(40)]
        assert b"200" in await ask(await world.connect())
        left = [stream for stream in idle if not await is_closed(stream, 0.02)]
        assert len(left) < 8

    serve(tmp_path, story)


def test_the_one_that_is_idle_longest_goes_and_none_that_is_at_work(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        at_work = await world.connect()
        answer = asyncio.create_task(ask(at_work))
        await world.reviewer.asked.acquire()
        first, *others = [await world.connect() for _ in range(8)]
        assert await is_closed(first)
        assert not any([await is_closed(stream, 0.02) for stream in others])
        world.reviewer.go.set()
        assert b"200" in await answer
        # It has just been of use: others go before it.
        again = await world.connect()
        assert await is_closed(others[0])
        assert b"200" in await ask(at_work)
        assert b"200" in await ask(again)

    serve(tmp_path, story)


@pytest.mark.parametrize("said", [b"", b"POST /mutate/pods HTTP/1.1\r\nHost: web", REQUEST[:-1]])
def test_who_asks_for_nothing_whole_is_not_waited_for(tmp_path: Path, said: bytes) -> None:
    async def story(world: World) -> None:
        world.reviewer.go.set()
        kept = await world.connect()
        assert b"200" in await ask(kept)
        stream = await world.connect()
        stream[1].write(said)
        await stream[1].drain()
        assert await is_closed(stream, within_s=5)
        assert not await is_closed(kept)

    serve(tmp_path, story, first_request_s=0.2)


def test_all_at_work_has_others_wait(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        busy = [asyncio.create_task(ask(await world.connect())) for _ in range(3)]
        for _ in busy:
            await world.reviewer.asked.acquire()
        later = asyncio.create_task(world.connect())
        await asyncio.sleep(0.2)
        assert not later.done()
        world.reviewer.go.set()
        for answer in busy:
            assert b"200" in await answer
        assert b"200" in await ask(await later)

    serve(tmp_path, story, most=3)
