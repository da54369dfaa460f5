"""The HTTP server: files of the page, its API, and the stream of changes. It only reads."""

import asyncio
import gzip
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from vc_egpu.cli.views import why
from vc_egpu.kube import TokenBucket
from vc_egpu.kube.server import listening
from vc_egpu.kube.wire.config import ConfigError
from vc_egpu.kube.wire.errors import Forbidden, KubeError, Unauthorized
from vc_egpu.page.serving import guard, stream
from vc_egpu.page.serving.doors import Door
from vc_egpu.page.serving.history import History
from vc_egpu.page.serving.visitors import (
    CHECK_S,
    MOST_TABS,
    MOST_TOKEN,
    TooManyVisitorsError,
    Visitor,
    Visitors,
    user_of,
)
from vc_egpu.volcano.api.paths import problem_of

STATIC: Final = Path(__file__).parents[1] / "static"
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
MOST_BODY: Final = 64 * 1024
MOST_CONNECTIONS: Final = 256
MOST_LOOKUPS: Final = 8
"""Questions to the API server that are under way at the same time."""
MOST_TEXT: Final = 253
COMPRESSED_FROM: Final = 4096
GOODBYE_S: Final = 0.5
"""So long are open streams waited for at the end: they would last as long as their tabs."""
SIGN_INS_PER_S: Final = 2.0


class Sites(Protocol):
    """Several clusters, for one user."""

    def knows(self, cookie: str, /) -> bool:
        """Whether the cookie is the user's."""
        ...

    def names(self) -> list[dict[str, str]]:
        """Name, title and city of each."""
        ...

    def into(self, name: str, /) -> Visitor:
        """The user in the cluster of this name. Raises :class:`UnknownSiteError` and ConfigError."""
        ...

    def report(self) -> Any:
        """What all of them have now. It waits for none."""
        ...


class UnknownSiteError(Exception):
    """The page has no cluster of this name."""


VisitorHandler = Callable[[web.Request, Visitor], Awaitable[web.StreamResponse]]

_REFUSALS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (Unauthorized, 401, "the API server does not take this token"),
    (Forbidden, 403, ""),
    (why.UnknownJobError, 404, ""),
    (UnknownSiteError, 404, ""),
    (ConfigError, 502, ""),
    (TooManyVisitorsError, 503, "too many users are signed in"),
    (KubeError, 502, ""),
)
"""Status and text by error; without a text, its own."""

logger = logging.getLogger(__name__)


_NO_SESSION: Final = {
    "signedIn": False, "user": "", "namespaces": (), "takesTokens": False, "passedOn": False,
    "history": False, "problem": "", "sites": None,
}  # fmt: skip
"""``sites`` are the clusters of the switch; null: the page has one cluster."""


class RefusedError(Exception):
    """A request that is answered with this status and this text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class PageServer:
    """Serves the page. ``visitors`` are those of a page for several users, ``sites`` of several clusters."""

    def __init__(
        self,
        address: guard.Address,
        door: Door,
        *,
        visitors: Visitors | None = None,
        history: History | None = None,
        sites: Sites | None = None,
        tls_files: tuple[Path, Path] | None = None,
        static: Path = STATIC,
    ) -> None:
        self._address = address
        self._door = door
        self._visitors = visitors
        self._history = history
        self._sites = sites
        self._tls_files = tls_files
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls_files is not None else None
        self._sign_ins = TokenBucket(SIGN_INS_PER_S, 10)
        self._lookups = asyncio.Semaphore(MOST_LOOKUPS)
        self._files = {
            path.relative_to(static).as_posix(): path.read_bytes()
            for path in static.rglob("*")
            if path.suffix in TYPES
        }
        self._streams: set[asyncio.Task[Any]] = set()
        self._runner: web.AppRunner | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port in use."""
        taken = listening(host, port)
        return await self.start_on(taken)

    async def start_on(self, taken: Any) -> int:
        """Listen on a socket that is bound already."""
        app = web.Application(client_max_size=MOST_BODY, middlewares=[self._guarded])
        app.router.add_get("/", self._index)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/static/{name:.*}", self._static)
        app.router.add_get("/api/session", self._session)
        for path, handler in (
            ("/api/state", self._state),
            ("/api/stream", self._stream),
            ("/api/card", self._card),
            ("/api/find", self._find),
            ("/api/job", self._job),
            ("/api/history", self._past),
        ):
            app.router.add_get(path, self._for_visitor(handler))
        app.router.add_get("/api/sites", self._all_sites)
        app.router.add_post("/api/sign-in", self._sign_in)
        app.router.add_post("/api/sign-out", self._sign_out)
        runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=60.0,
            shutdown_timeout=GOODBYE_S,
            max_field_size=MOST_TOKEN + 4096,
        )
        await runner.setup()
        self._runner = runner
        self._read_certificate()
        await web.SockSite(runner, taken, backlog=MOST_CONNECTIONS, ssl_context=self._tls).start()
        self._task = asyncio.get_running_loop().create_task(self._look_after())
        port: int = taken.getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close all streams and end."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for stream_task in self._streams:
            stream_task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    def _read_certificate(self) -> None:
        """Take the files as they are now; new connections get them."""
        if self._tls is not None and self._tls_files is not None:
            self._tls.load_cert_chain(*self._tls_files)

    async def _look_after(self) -> None:
        """Forget users that are idle or whose tokens are no longer good; read the certificate again."""
        while self._visitors is not None:
            await asyncio.sleep(CHECK_S)
            try:
                self._read_certificate()
            except OSError as error:
                logger.warning("the certificate cannot be read: %s; the last one stays", error)
            await asyncio.to_thread(self._visitors.forget_idle)
            for visitor in self._visitors.all():
                try:
                    await asyncio.to_thread(user_of, visitor.api)
                except Unauthorized:
                    await asyncio.to_thread(self._visitors.forget, visitor)
                except KubeError as error:
                    logger.info("a token could not be checked: %s", error)

    # --- every request -------------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            response = await self._looked_at(request, handler)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except (
            RefusedError,
            web.HTTPException,
            KubeError,
            why.UnknownJobError,
            UnknownSiteError,
            ConfigError,
            TooManyVisitorsError,
        ) as error:
            response = _said(*_refusal_of(error))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = _said(500, "the page failed on this request; its log says why")
        if not response.prepared:
            response.headers.update(guard.HEADERS)
        return response

    async def _looked_at(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path
        if path == "/healthz":
            return await handler(request)
        if problem := guard.refusal(self._address, request.method, path, request.headers):
            raise RefusedError(403, problem)
        if len(request.query_string) > 4 * MOST_TEXT:
            raise RefusedError(414, "the query is too long")
        return await handler(request)

    def _for_visitor(self, handler: VisitorHandler) -> Handler:
        """A handler that is asked for signed-in users alone, and not too often for each."""

        async def attended(request: web.Request) -> web.StreamResponse:
            visitor = await self._visitor(request)
            if visitor is None:
                raise RefusedError(401, "nobody is signed in")
            if not visitor.bucket.try_take():
                raise RefusedError(429, "too many requests")
            return await handler(request, visitor)

        return attended

    async def _visitor(self, request: web.Request) -> Visitor | None:
        cookie = request.cookies.get(self._door.cookie, "")
        if self._sites is not None:
            if not self._sites.knows(cookie):
                return None
            return await asyncio.to_thread(self._sites.into, request.query.get("cluster", "")[:MOST_TEXT])
        return await asyncio.to_thread(self._door.visitor, request.remote or "", cookie, request.headers)

    # --- files ---------------------------------------------------------------------------------------

    async def _healthz(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _index(self, request: web.Request) -> web.StreamResponse:
        if secret := request.query.get("token"):
            value = self._door.exchange(secret[:MOST_TEXT])
            if not value:
                return _said(403, "this link is of another run of the command")
            response = web.Response(status=303, headers={"Location": "/"})
            self._set_cookie(response, value)
            return response
        return self._file("index.html")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return self._file(request.match_info["name"])

    def _file(self, name: str) -> web.Response:
        body = self._files.get(name)
        if body is None:
            return _said(404, "there is no such file")
        return web.Response(body=body, content_type=TYPES[Path(name).suffix], charset="utf-8")

    def _set_cookie(self, response: web.Response, value: str) -> None:
        response.set_cookie(
            self._door.cookie,
            value,
            httponly=True,
            samesite="Strict",
            secure=self._address.is_secure,
            path="/",
        )

    # --- who -----------------------------------------------------------------------------------------

    async def _session(self, request: web.Request) -> web.StreamResponse:
        if self._sites is not None:
            signed_in = self._sites.knows(request.cookies.get(self._door.cookie, ""))
            sites = self._sites.names() if signed_in else []
            return _json({**_NO_SESSION, "signedIn": signed_in, "sites": sites})
        problem = ""
        try:
            visitor = await self._visitor(request)
        except (KubeError, TooManyVisitorsError) as error:
            visitor, problem = None, str(error) or "too many users are signed in"
        if visitor is not None and visitor.ended == "signed-out":
            visitor, problem = None, "the API server does not take these credentials any more"
        return _json(
            {
                **_NO_SESSION,
                "signedIn": visitor is not None,
                "user": visitor.user if visitor is not None else "",
                "namespaces": visitor.namespaces if visitor is not None else (),
                "takesTokens": self._door.takes_tokens,
                "passedOn": bool(self._door.passed_on(request.remote or "", request.headers)),
                "history": self._history is not None,
                "problem": problem,
            }
        )

    async def _all_sites(self, request: web.Request) -> web.StreamResponse:
        if self._sites is None:
            raise RefusedError(404, "this page has one cluster")
        if not self._sites.knows(request.cookies.get(self._door.cookie, "")):
            raise RefusedError(401, "nobody is signed in")
        return _json(self._sites.report())

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        if self._visitors is None:
            raise RefusedError(404, "this page has one user")
        if not self._sign_ins.try_take():
            raise RefusedError(429, "too many sign-ins; try again in some seconds")
        passed_on = self._door.passed_on(request.remote or "", request.headers)
        token, namespaces = _credentials(await request.read(), passed_on)
        value = await asyncio.to_thread(self._visitors.sign_in, token, namespaces)
        response = _json({"signedIn": True})
        self._set_cookie(response, value)
        return response

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        if self._visitors is not None:
            cookie = request.cookies.get(self._door.cookie, "")
            await asyncio.to_thread(self._visitors.sign_out, cookie)
        response = _json({"signedIn": False})
        response.del_cookie(self._door.cookie, path="/", secure=self._address.is_secure)
        return response

    # --- what ----------------------------------------------------------------------------------------

    async def _state(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        packed = "gzip" in request.headers.get("Accept-Encoding", "")

        def make() -> tuple[bytes, bool]:
            body = visitor.live().state()
            if not packed or len(body) < COMPRESSED_FROM:
                return body, False
            return gzip.compress(body, compresslevel=1), True

        body, is_packed = await asyncio.to_thread(make)
        response = web.Response(body=body, content_type="application/json")
        if is_packed:
            response.headers["Content-Encoding"] = "gzip"
        return response

    async def _stream(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        if visitor.tabs >= MOST_TABS:
            return _said(429, f"a user may have {MOST_TABS} tabs")
        headers = {**guard.HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        visitor.tabs += 1
        if (task := asyncio.current_task()) is not None:
            self._streams.add(task)
            task.add_done_callback(self._streams.discard)
        try:
            live = await asyncio.to_thread(visitor.live)
            await response.prepare(request)
            await stream.send(response, visitor, live)
        except ConnectionError:
            logger.debug("a tab was closed")
        finally:
            visitor.tabs -= 1
            visitor.seen = time.monotonic()
        return response

    async def _card(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        node, index = request.query.get("node", "")[:MOST_TEXT], request.query.get("index", "")
        if not index.isdecimal() or len(index) > 3:
            return _said(400, "which card?")
        found = await asyncio.to_thread(visitor.live().card, node, int(index))
        return _json(found) if found is not None else _said(404, "there is no such card")

    async def _find(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        text = request.query.get("text", "")[:MOST_TEXT].strip()
        return _json(await asyncio.to_thread(visitor.live().find, text))

    async def _job(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        namespace, name = (request.query.get(key, "") for key in ("namespace", "name"))
        if problem := next(filter(None, map(problem_of, (namespace, name))), ""):
            raise RefusedError(400, f"the name {problem}")
        async with self._lookups:
            return _json(await asyncio.to_thread(why.read, visitor.api, namespace, name))

    async def _past(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        if self._history is None:
            return _said(404, "no Prometheus is named")
        async with self._lookups:
            status, body = await asyncio.to_thread(self._history.answer, visitor.live(), request.query)
        return _json(body) if status == 200 else _said(status, str(body))


def _credentials(body: bytes, passed_on: str) -> tuple[str, tuple[str, ...]]:
    """Token and namespaces of a sign-in. Raises :class:`RefusedError`.

    Behind a proxy the token is the one that it passed on, and the user names namespaces alone.
    """
    try:
        document = orjson.loads(body)
        token, named = passed_on or str(document["token"]).strip(), str(document.get("namespaces") or "")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise RefusedError(400, "a token is wanted") from error
    namespaces = tuple(filter(None, (part.strip() for part in named.split(","))))
    if not token or len(token) > MOST_TOKEN or not (token.isascii() and token.isprintable()):
        raise RefusedError(400, "this is no token")
    if problem := next(filter(None, map(problem_of, namespaces)), ""):
        raise RefusedError(400, f"a namespace {problem}")
    return token, namespaces


def _refusal_of(error: Exception) -> tuple[int, str]:
    """Status and text for what a request met."""
    if isinstance(error, RefusedError | web.HTTPException):
        return error.status, str(error)
    status, text = next((status, text) for kind, status, text in _REFUSALS if isinstance(error, kind))
    return status, text or str(error.args[0])


def _json(document: Any) -> web.Response:
    body = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, content_type="application/json")


def _said(status: int, text: str) -> web.Response:
    """A refusal, as a document that the page shows."""
    return web.Response(
        status=status, body=orjson.dumps({"error": text[:1024]}), content_type="application/json"
    )
