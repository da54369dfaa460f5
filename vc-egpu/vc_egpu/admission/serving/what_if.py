"""``POST /v1/what-if``: would a Job fit, for the caller and with what the caller may see.

From the machine itself, where a port-forward ends, a request without a token sees everything, as with the
other pages. Every token sees what its user may list.
"""

import ipaddress
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from vc_egpu.admission.serving.asked_jobs import asked
from vc_egpu.admission.serving.callers import Caller, Callers
from vc_egpu.admission.serving.questions import (
    ANYWHERE,
    QuestionError,
    Sees,
    namespace_of,
    own_queues,
    read,
    told,
)
from vc_egpu.admission.view import View
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.report import snapshot_codec
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.whatif.answers import Asked, would_start
from vc_egpu.whatif.changes import Change, End, SetCap
from vc_egpu.whatif.hypothesis import UnknownThingError

PATH: Final = "/v1/what-if"
TURN_S: Final = 5.0
"""How long a question waits for the one before it."""
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
            if not self._questions.try_take() or not self._turn.acquire(timeout=TURN_S):
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
            return _everything if local else None
        if not token or token == request.authorization:
            return None
        caller: Caller | None = self._callers.caller(token)
        return caller.sees if caller is not None else None

    def _told(self, body: bytes, sees: Sees) -> Answer:
        view = self._view()
        if view is None:
            return Answer(503, b"this replica does not lead\n")
        snapshot, now = view.snapshot, time.time()
        models = [{"name": name, "memoryMiB": mib} for name, mib in snapshot.models.items()]
        table = ModelTable.model_validate({"models": models})
        try:
            job, changes = read(_json(body))
            gang = asked(job, "default", table, now)
            if refused := _refused(gang, changes, snapshot, sees):
                return Answer(403, f"{refused}\n".encode())
            if gang.gang.key in snapshot.gangs:
                raise QuestionError(f"{gang.gang.key!r} is there already")
            found = would_start(snapshot, view.policy, now, gang, changes)
        except QuestionError as error:
            return Answer(400, f"{error}\n".encode())
        except UnknownThingError as error:  # its text has names that are near
            near = (
                str(error.args[0]) if sees(ANYWHERE) else "a node, queue or gang of the changes is not there"
            )
            return Answer(400, f"{near}\n".encode())
        return Answer(200, snapshot_codec.to_json(told(found, gang, snapshot, sees)), "application/json")


def _everything(_namespace: str) -> bool:
    return True


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise QuestionError("the question is no JSON") from None


def _refused(gang: Asked, changes: Sequence[Change], snapshot: Snapshot, sees: Sees) -> str:
    """Why the caller may not ask this; empty: it may. The text does not tell whether the thing is there."""
    if not sees(namespace_of(gang.gang.key)):
        return "you may not list the pods of that namespace"
    for change in changes:
        if isinstance(change, End) and not sees(namespace_of(change.gang)):
            return "you may not list the pods of the gang that is to end"
        caps = isinstance(change, SetCap) and change.queue not in own_queues(gang.gang.queue, snapshot)
        if caps and not sees(ANYWHERE):
            return "caps can be tried of the Job's own queue and of those above it"
    return ""
