"""The HTTP server: reads requests, sends Jobs on with their callers' tokens, and answers in JSON."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from vc_egpu import __version__
from vc_egpu.jobsapi import caller, forward, openapi
from vc_egpu.jobsapi.answers import ErrorAnswer, Refusal
from vc_egpu.jobsapi.catalogue import Catalogue
from vc_egpu.jobsapi.job import volcano_job
from vc_egpu.jobsapi.request import LIMITS, MOST_BODY_BYTES, JobRequest, RequestError, checked, read
from vc_egpu.jobsapi.what_if.documents import Json, Question, WhatIfAnswer
from vc_egpu.jobsapi.what_if.leader import Leader, LeaderError
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire.errors import KubeError, RequestTimeout, Temporary, Unavailable
from vc_egpu.metrics.vocabulary import jobs_api as vocabulary
from vc_egpu.metrics.vocabulary.build import tell_build
from vc_egpu.volcano.api.paths import problem_of

JSON: Final = "application/json"
AGAIN_S: Final = 1
"""When a request may come again that found no room."""
THREADS: Final = 32
MOST_QUESTIONS: Final = 4
"""What-ifs and views at the same time: they wait for the one replica that leads. Jobs need other threads."""
MOST_HEADER: Final = caller.MOST_TOKEN + 4096
_MOST_SAID: Final = 2048
_OTHER_PATHS: Final = {"/v1/models": "models", "/v1/what-if": "what-if", "/v1/view": "view"}
_PATHS: Final = {"POST": "create", "GET": "read", "DELETE": "delete"}

logger = logging.getLogger(__name__)


class Metrics:
    """What the process counts, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        tell_build(self.registry, "jobs-api", __version__)
        self.requests = vocabulary.REQUESTS.counter(self.registry)
        self.seconds = vocabulary.REQUEST_SECONDS.histogram(self.registry)
        self.under_way = vocabulary.UNDER_WAY.gauge(self.registry)
        self.catalogue_broken = vocabulary.CATALOGUE_BROKEN.gauge(self.registry)


class _Answered(Exception):  # noqa: N818 - an answer, thrown from any depth
    """A request that is answered with this status."""

    def __init__(self, status: int, message: str, field: str = "", limit: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.refusal = Refusal(message=message[:_MOST_SAID], field=field, limit=limit)


class JobsServer:
    """Takes Jobs. ``api`` has no credentials: each call bears the token of its request."""

    def __init__(
        self,
        api: ApiConnection,
        metrics: Metrics,
        *,
        catalogue: Catalogue | None = None,
        most_under_way: int = 128,
        leader: Leader | None = None,
    ) -> None:
        self.catalogue = catalogue if catalogue is not None else Catalogue()
        """May be exchanged at any time."""
        self._api = api
        self._metrics = metrics
        self._most_under_way = most_under_way
        self._under_way = 0
        self._leader = leader if leader is not None else Leader("")
        self._questions = 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="forward")
        self._document = orjson.dumps(openapi.document())
        self._runner: web.AppRunner | None = None

    async def start_on(self, taken: Any, tls_files: tuple[Path, Path] | None = None) -> int:
        """Answer on a socket that is bound; returns its port. Raises OSError for files that are no
        certificate and key."""
        app = web.Application(client_max_size=MOST_BODY_BYTES, middlewares=[self._guarded])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/v1/openapi.json", self._openapi)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/what-if", self._what_if)
        app.router.add_get("/v1/view", self._view)
        app.router.add_post("/v1/jobs", self._create)
        app.router.add_get("/v1/jobs/{namespace}/{name}", self._read)
        app.router.add_delete("/v1/jobs/{namespace}/{name}", self._delete)
        context: ssl.SSLContext | None = None
        if tls_files is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls_files)
        self._runner = web.AppRunner(app, access_log=None, max_field_size=MOST_HEADER, shutdown_timeout=10.0)
        await self._runner.setup()
        await web.SockSite(self._runner, taken, ssl_context=context).start()
        port: int = taken.getsockname()[1]
        return port

    async def stop(self) -> None:
        """Answer what is under way, and end."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- every request -------------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began, path, outcome = time.monotonic(), _path_of(request), "done"
        try:
            response = await handler(request)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except _Answered as answered:
            outcome = "failed" if answered.status >= 500 else "refused"
            response = _json(ErrorAnswer(error=answered.refusal), answered.status)
        except RequestError as error:
            outcome = "refused"
            status = 401 if isinstance(error, caller.NoTokenError) else 400
            response = _json(ErrorAnswer(error=_refusal_of(error)), status)
        except KubeError as error:
            response = _of_cluster(error, writing=request.method != "GET")
            outcome = "failed" if response.status >= 500 else "refused-by-cluster"
        except web.HTTPException as error:
            outcome = "refused"
            response = _json(ErrorAnswer(error=_of_http(error)), error.status)
        except Exception:
            logger.exception("%s %s failed", request.method, path)
            outcome = "failed"
            refusal = Refusal(message="the server failed on this request; its log says why")
            response = _json(ErrorAnswer(error=refusal), 500)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        self._metrics.requests.labels(path, outcome).inc()
        self._metrics.seconds.labels(path).observe(time.monotonic() - began)
        return response

    async def _ask(self, request: web.Request, call: Callable[[ApiConnection], Any]) -> Any:
        """Call the API server for the bearer of this request, on a thread."""
        api = self._api.bearing(caller.token_of(request.headers))
        if self._under_way >= self._most_under_way:
            most = f"at most {self._most_under_way} at the same time"
            raise _Answered(503, "too many requests are under way; come again", limit=most)
        self._under_way += 1
        self._metrics.under_way.set(self._under_way)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call, api)
        finally:
            self._under_way -= 1
            self._metrics.under_way.set(self._under_way)

    # --- what ----------------------------------------------------------------------------------------

    async def _healthz(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _openapi(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._document, content_type=JSON)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        await self._ask(request, forward.is_known)
        return _json(self.catalogue)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        token = caller.token_of(request.headers)
        _must_be_json(request)
        dry_run = _dry_run(request)
        job = self._job(read(await request.read()), token)
        made = await self._ask(request, lambda api: forward.create(api, job, dry_run=dry_run))
        response = _json(made, 201)
        response.headers["Location"] = f"/v1/jobs/{made.namespace}/{made.name}"
        return response

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        token = caller.token_of(request.headers)
        _must_be_json(request)
        question = checked(Question, await request.read())
        job = self._job(question.request, token) if question.request is not None else question.job or {}
        changes = [change.told() for change in question.changes]
        return await self._of_leader(request, lambda api: self._foresee(api, token, job, changes))

    async def _view(self, request: web.Request) -> web.StreamResponse:
        token = caller.token_of(request.headers)
        if unknown := request.query.keys() - {"namespaces"}:
            raise RequestError(min(unknown)[:64], "is not known here", "namespaces=A,B")
        wished = [name for name in request.query.get("namespaces", "").split(",") if name]
        return await self._of_leader(request, lambda _: self._leader.view(token, wished))

    async def _of_leader(
        self, request: web.Request, ask: Callable[[ApiConnection], BaseModel]
    ) -> web.StreamResponse:
        if self._questions >= MOST_QUESTIONS:
            raise _Answered(429, "too many questions are under way; come again", limit=f"{MOST_QUESTIONS}")
        self._questions += 1
        try:
            return _json(await self._ask(request, ask))
        except LeaderError as error:
            raise _Answered(error.status, str(error)) from error
        finally:
            self._questions -= 1

    def _foresee(self, api: ApiConnection, token: str, job: Json, changes: list[Json]) -> WhatIfAnswer:
        """The API server says whether its caller may make this Job, then the leader what would happen."""
        return self._leader.ask(token, forward.tried(api, job), changes)

    def _job(self, request: JobRequest, token: str) -> Json:
        wanted = self.catalogue.expanded(request)
        namespace = wanted.namespace or caller.own_namespace(token)
        if not namespace:
            raise RequestError("namespace", "is missing, and the token names none", LIMITS["namespace"])
        return volcano_job(wanted, namespace)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        namespace, name = _named(request)
        return _json(await self._ask(request, lambda api: forward.read(api, namespace, name)))

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        namespace, name = _named(request)
        await self._ask(request, lambda api: forward.delete(api, namespace, name))
        return web.Response(status=204)


def _path_of(request: web.Request) -> str:
    """What a request asks for, in one of few words: paths of callers must not become series."""
    path = request.path
    if path.startswith("/v1/jobs"):
        return _PATHS.get(request.method, "other")
    return _OTHER_PATHS.get(path, "other")


def _must_be_json(request: web.Request) -> None:
    if request.content_type != JSON:
        raise _Answered(415, f"is {request.content_type[:64]}", "Content-Type", JSON)


def _dry_run(request: web.Request) -> bool:
    text = request.query.get("dry_run", "false").lower()
    if text not in {"true", "false"}:
        raise RequestError("dry_run", f"is {text[:16]!r}", "true or false")
    return text == "true"


def _named(request: web.Request) -> tuple[str, str]:
    namespace, name = request.match_info["namespace"], request.match_info["name"]
    for field, value in (("namespace", namespace), ("name", name)):
        if problem := problem_of(value):
            raise RequestError(field, problem, LIMITS[field])
        if len(value) > 253:
            raise RequestError(field, "is too long", "at most 253 characters")
    return namespace, name


def _refusal_of(error: RequestError) -> Refusal:
    return Refusal(message=error.message[:_MOST_SAID], field=error.field, limit=error.limit)


def _of_http(error: web.HTTPException) -> Refusal:
    match error.status:
        case 413:
            return Refusal(message="is too large", field="body", limit=f"at most {MOST_BODY_BYTES} bytes")
        case 405:
            allowed = error.headers.get("Allow", "")
            return Refusal(message="cannot be used here", field="method", limit=f"one of {allowed}")
        case _:
            paths = "/v1/jobs, /v1/jobs/NAMESPACE/NAME, /v1/models, /v1/what-if, /v1/view, /v1/openapi.json"
            return Refusal(message=error.reason[:256], field="path", limit=f"one of {paths}")


def _of_cluster(error: KubeError, *, writing: bool) -> web.Response:
    status = forward.status_of(error)
    message = forward.text_of(error)
    if writing and isinstance(error, Unavailable | RequestTimeout):
        message += "; it may have been done all the same: read the Job before you try again"
    refusal = Refusal(message=message[:_MOST_SAID], field=forward.field_of(error))
    response = _json(ErrorAnswer(error=refusal), status)
    if status == 429 and isinstance(error, Temporary):
        response.headers["Retry-After"] = str(max(AGAIN_S, round(error.retry_after_s or 0)))
    return response


def _json(answer: BaseModel, status: int = 200) -> web.Response:
    body = answer.model_dump_json(exclude_none=True).encode()
    return web.Response(body=body, status=status, content_type=JSON)
