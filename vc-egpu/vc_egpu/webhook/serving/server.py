"""The HTTPS server: bounded bodies, time limits, probes and metrics on a port of their own."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from vc_egpu.webhook.serving.listener import FIRST_REQUEST_S, MAX_CONNECTIONS, Listener
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.reviewer import PATHS, BadReview, Reviewer, Undecided, failure_for

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""An update carries two objects of up to 1.5 MiB (etcd's limit), escaped at worst twofold."""
REQUEST_TIMEOUT_S: Final = 9.0
"""Just below the 10 s that the API server waits."""
KEEP_ALIVE_S: Final = 120.0
"""Longer than the API server keeps its idle connections: it closes, never we under its request."""

_LISTENER: Final = web.AppKey("listener", Listener)

logger = logging.getLogger(__name__)


@web.middleware
async def _attended(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    finally:
        request.app[_LISTENER].ended(request.protocol)


class WebhookServer:
    """Serves reviews over TLS, and ``/healthz``, ``/readyz`` and ``/metrics`` in plain HTTP."""

    def __init__(
        self,
        reviewer: Reviewer,
        metrics: Metrics,
        unready: Callable[[], str],
        *,
        max_connections: int = MAX_CONNECTIONS,
        first_request_s: float = FIRST_REQUEST_S,
    ) -> None:
        self._reviewer = reviewer
        self._metrics = metrics
        self._unready = unready
        self._max_connections = max_connections
        self._first_request_s = first_request_s
        self._draining = False
        self._runners: list[web.AppRunner] = []
        self._listeners: list[Listener] = []

    async def start(
        self, host: str, port: int, context: ssl.SSLContext | None, metrics_port: int | None
    ) -> tuple[int, int]:
        """Listen; returns the ports in use (a port of 0 picks a free one)."""
        reviews = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_attended])
        for path in PATHS:
            reviews.router.add_post(path, self._review)
        bound = await self._listen(reviews, host, port, context)
        if metrics_port is None:
            return bound, 0
        probes = web.Application(middlewares=[_attended])
        probes.router.add_get("/healthz", self._healthz)
        probes.router.add_get("/readyz", self._readyz)
        probes.router.add_get("/metrics", self._metrics_text)
        return bound, await self._listen(probes, host, metrics_port, None)

    async def _listen(
        self, app: web.Application, host: str, port: int, context: ssl.SSLContext | None
    ) -> int:
        listener = Listener(context, self._max_connections, self._first_request_s)
        app[_LISTENER] = listener
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_S)
        await runner.setup()
        self._runners.append(runner)
        if runner.server is None:
            raise RuntimeError("the application did not start")
        self._listeners.append(listener)
        return await listener.listen(runner.server, host, port)

    async def drain(self, seconds: float) -> None:
        """Say "not ready", close connections after their next reply, and go on serving for a while."""
        self._draining = True
        await asyncio.sleep(seconds)

    async def stop(self) -> None:
        """Finish what is running, then close."""
        for listener in self._listeners:
            await listener.close()
        for runner in self._runners:
            await runner.cleanup()

    # --- handlers ------------------------------------------------------------------------------------

    async def _review(self, request: web.Request) -> web.Response:
        try:
            return await self._answer(request)
        except Undecided as why:
            return web.Response(status=503, text=str(why))

    async def _answer(self, request: web.Request) -> web.Response:
        body = b""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = await request.read()
                request.app[_LISTENER].began(request.protocol)
                began = time.perf_counter()
                reply, outcome = await self._reviewer.answer(request.path, body)
        except BadReview as error:
            return web.Response(status=400, text=str(error))
        except TimeoutError:
            self._metrics.observe(request.path, "failed", REQUEST_TIMEOUT_S)
            text = f"vc-egpu did not decide within {REQUEST_TIMEOUT_S:.0f} s; try again"
            return self._response(failure_for(request.path, body, text))
        except (web.HTTPException, ConnectionError, asyncio.CancelledError, Undecided):
            raise
        except Exception:
            # Nothing may slip through because of a fault of ours, and the server must go on.
            logger.exception("review of %s failed", request.path)
            self._metrics.faults.inc()
            text = "vc-egpu failed on this object; its log says why"
            return self._response(failure_for(request.path, body, text))
        self._metrics.observe(request.path, outcome, time.perf_counter() - began)
        return self._response(reply)

    def _response(self, reply: bytes) -> web.Response:
        response = web.Response(body=reply, content_type="application/json")
        if self._draining:
            response.force_close()
        return response

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        problem = "shutting down" if self._draining else self._unready()
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")

    async def _metrics_text(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})
