"""``POST /v1/what-if``: would a Job fit, for the caller and with what the caller may see.

From the machine itself, where a port-forward ends, a request without a token sees everything, as with the
other pages. Every token sees what its user may list.
"""

import ipaddress
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from vc_egpu.admission.serving.asked_jobs import asked
from vc_egpu.admission.serving.callers import Caller, Callers
from vc_egpu.admission.view import View
from vc_egpu.core.model.cluster import Gang, Queue, QueueName
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.report import snapshot_codec
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.whatif.outlook import look
from vc_egpu.whatif.question import End, Question, QuestionError, SetCap
from vc_egpu.whatif.reading import question_of
from vc_egpu.whatif.telling import ANYWHERE, Sees, document, everything

PATH: Final = "/v1/what-if"
BUDGET_S: Final = 5.0
"""Of one question. It shares the process with the decisions."""
_QUESTIONS_PER_S: Final = 1.0
_REVIEWS_PER_S: Final = 10.0

logger = logging.getLogger(__name__)


class WhatIf:
    """One question at a time."""

    def __init__(
        self,
        api: ApiConnection,
        view: Callable[[], View | None],
        *,
        questions: TokenBucket | None = None,
    ) -> None:
        self._callers = Callers(api, TokenBucket(_REVIEWS_PER_S, 40))
        self._view = view
        self._questions = questions if questions is not None else TokenBucket(_QUESTIONS_PER_S, 5)
        self._turn = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """What a POST gets."""
        try:
            sees = self._reader(request)
            if sees is None:
                return Answer(403, b"needs a bearer token that the API server knows\n")
            if not self._questions.try_take() or not self._turn.acquire(timeout=BUDGET_S):
                return Answer(429, b"too many questions: ask again in some seconds\n")
            try:
                return self._told(request.body, sees)
            finally:
                self._turn.release()
        except KubeError as error:
            logger.warning("a reader of %s could not be checked: %s", PATH, error)
            return Answer(503, b"the API server cannot say what you may see\n")

    def _reader(self, request: Request) -> Sees | None:
        token = request.authorization.removeprefix("Bearer ").strip()
        if not request.authorization:
            local = ipaddress.ip_address(request.client.partition("%")[0]).is_loopback
            return everything if local else None
        if not token or token == request.authorization:
            return None
        caller: Caller | None = self._callers.caller(token)
        return caller.sees if caller is not None else None

    def _told(self, body: bytes, sees: Sees) -> Answer:
        view = self._view()
        if view is None:
            return Answer(503, b"this replica does not lead\n")
        snapshot, now = view.snapshot, time.time()
        table = ModelTable.model_validate(
            {"models": [{"name": name, "memoryMiB": mib} for name, mib in snapshot.models.items()]}
        )
        try:
            question = question_of(_json(body), lambda job: asked(job, "default", table, now))
            gang = question.gang or snapshot.gangs.get(question.key)
            if refused := _refused(question, gang, snapshot.queues, sees):
                return Answer(403, f"{refused}\n".encode())
            until = time.monotonic() + BUDGET_S
            found = look(snapshot, view.policy, now, question, go_on=lambda: time.monotonic() < until)
        except QuestionError as error:
            return Answer(400, f"{error}\n".encode())
        told = document(found, question, snapshot, now, sees)
        return Answer(200, snapshot_codec.to_json(told), "application/json")


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise QuestionError("the question is no JSON") from None


def _own(gang: Gang | None, queues: Mapping[QueueName, Queue]) -> frozenset[QueueName]:
    """The gang's queue and those above it."""
    found: set[QueueName] = set()
    name = gang.queue if gang is not None else None
    while name is not None and name not in found:
        found.add(name)
        name = queues[name].parent if name in queues else None
    return frozenset(found)


def _refused(question: Question, gang: Gang | None, queues: Mapping[QueueName, Queue], sees: Sees) -> str:
    """Why the caller may not ask this; empty: it may. The text does not tell whether the thing is there."""
    if not sees(question.key.partition("/")[0]):
        return "you may not list the pods of that namespace"
    own = _own(gang, queues)
    for change in question.changes:
        if isinstance(change, End) and not sees(change.gang.partition("/")[0]):
            return "you may not list the pods of the gang that is to end"
        if isinstance(change, SetCap) and not sees(ANYWHERE) and change.queue not in own:
            return "caps can be tried of the Job's own queue and of those above it"
    return ""
