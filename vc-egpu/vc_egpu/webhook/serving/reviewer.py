"""From an AdmissionReview to its answer: runs the pure reviews and fetches what they ask for."""

import base64
import binascii
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import orjson

from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.webhook.protocol.context import Context, Review, Settings
from vc_egpu.webhook.protocol.decision import Decision, allow
from vc_egpu.webhook.protocol.questions import Unanswered
from vc_egpu.webhook.reviews.commands import review_command
from vc_egpu.webhook.reviews.jobs.review import review_final_job, review_job
from vc_egpu.webhook.reviews.pods import review_pod
from vc_egpu.webhook.reviews.queues import review_queue, review_queue_deleted
from vc_egpu.webhook.serving.caches import Caches
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.oracle import LayeredAnswers, Oracle

Json = dict[str, Any]
ReviewFunction = Callable[[Review, Context], Decision]
PATHS: Final[dict[str, ReviewFunction]] = {
    "/mutate/pods": review_pod,
    "/mutate/members": review_pod,
    "/mutate/jobs": review_job,
    "/validate/jobs": review_final_job,
    "/validate/queues": review_queue,
    "/validate/commands": review_command,
}
_BY_OPERATION: Final[dict[str, dict[str, ReviewFunction]]] = {
    "CREATE": PATHS,
    "UPDATE": PATHS,
    "DELETE": {"/validate/queues": review_queue_deleted},
}
OPEN_PATHS: Final = frozenset({"/mutate/members"})
"""Most of what comes here is none of our business: where we cannot decide the API server goes on alone."""
MAX_ROUNDS: Final = 8
"""A review asks once for the group, once for the queue, once for the class: more is a fault."""

logger = logging.getLogger(__name__)


class BadReview(ValueError):  # noqa: N818 - the request is bad, and the reply says so
    """The body is no AdmissionReview that can be answered; the text says why."""


class Undecided(RuntimeError):  # noqa: N818 - no answer is given, and the API server's failure policy counts
    """Nothing can be decided now, and nothing has to be; the text says why."""


class Reviewer:
    """Answers reviews. Lives on the event loop; only the oracle waits."""

    def __init__(self, caches: Caches, oracle: Oracle, settings: Settings, metrics: Metrics) -> None:
        self.table = ModelTable()
        self._caches = caches
        self._oracle = oracle
        self._settings = settings
        self._metrics = metrics

    def take_environments(self, table: EnvironmentTable) -> bool:
        """A table of what software needs, for the next review; whether it is another one."""
        if table == self._settings.environments:
            return False
        self._settings = replace(self._settings, environments=table)
        return True

    async def answer(self, path: str, body: bytes) -> tuple[bytes, str]:
        """(the reply's body, the outcome for the metrics). Raises :class:`BadReview`, :class:`Undecided`."""
        request = _request_of(body)
        uid = str(request.get("uid") or "")
        try:
            reviews = _BY_OPERATION.get(str(request.get("operation")), {})
            if path not in reviews:
                return _reply(uid, allow()), "allowed"
            if unsynced := self._caches.unsynced():
                text = f"vc-egpu has not listed {', '.join(unsynced)} yet; try again"
                return _failure(path, uid, 503, text), "failed"
            decision = await self._decide(reviews[path], Review.of_request(request))
        except KubeError as error:
            logger.warning("review of %s could not ask the API server: %s", path, error)
            text = "vc-egpu cannot ask the API server right now; try again"
            return _failure(path, uid, 503, text), "failed"
        except ValueError as error:
            raise BadReview(str(error)) from error
        return _reply(uid, decision), "allowed" if decision.allowed else "refused"

    async def _decide(self, review_function: ReviewFunction, review: Review) -> Decision:
        answers = LayeredAnswers(self._oracle.memory)
        caches = self._caches
        for _ in range(MAX_ROUNDS):
            context = Context(
                table=self.table,
                settings=self._settings,
                queues=caches.queues.plus(answers.queues),
                namespaces=caches.namespaces,
                pod_groups=caches.pod_groups,
                jobs=caches.jobs,
                priority_classes=caches.priority_classes,
                offers=caches.offers,
                answers=answers,
            )
            try:
                decision = review_function(review, context)
                self._oracle.refresh()
                return decision
            except Unanswered as unanswered:
                self._metrics.access_reviews.inc(len(unanswered.questions))
                await self._oracle.answer(unanswered.questions, answers)
        raise RuntimeError(f"a review still asked after {MAX_ROUNDS} rounds")


def failure_for(path: str, body: bytes, message: str) -> bytes:
    """The reply to a review that failed by a fault of ours: refused, so that nothing slips through.

    Raises :class:`Undecided` where that need not be.
    """
    try:
        uid = str(_request_of(body).get("uid") or "")
    except BadReview:
        uid = ""
    return _failure(path, uid, 500, message)


def _request_of(body: bytes) -> Json:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadReview(f"the body is not JSON: {error}") from error
    request = document.get("request") if isinstance(document, dict) else None
    if not isinstance(request, dict) or document.get("kind") != "AdmissionReview":
        raise BadReview("the body is no AdmissionReview with a request")
    return request


def _reply(uid: str, decision: Decision) -> bytes:
    response: Json = {"uid": uid, "allowed": decision.allowed}
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = binascii.b2a_base64(orjson.dumps(decision.patch), newline=False).decode()
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    if not decision.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": decision.message}
    return _document(response)


def _failure(path: str, uid: str, code: int, message: str) -> bytes:
    if path in OPEN_PATHS:
        raise Undecided(message)
    return _document({"uid": uid, "allowed": False, "status": {"code": code, "message": message}})


def _document(response: Json) -> bytes:
    return orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )


def patch_of(reply: bytes) -> list[Json]:
    """The JSON patch in a reply; empty where there is none. For benches and tests."""
    response = orjson.loads(reply)["response"]
    operations: list[Json] = orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return operations
