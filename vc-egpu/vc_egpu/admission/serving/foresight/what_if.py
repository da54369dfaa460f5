"""``POST /v1/what-if``: would a Job fit, for the caller and with what the caller may see.

From the machine itself, where a port-forward ends, a request without a token sees everything, as with the
other pages. With a token, its user must have the right to make that Job, and sees what it may list.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Final

from vc_egpu.admission.serving.callers import ANYWHERE, Callers, Reader
from vc_egpu.admission.serving.foresight.asked_jobs import asked
from vc_egpu.admission.serving.foresight.budget import LIMIT_S, Budget, Rests
from vc_egpu.admission.serving.foresight.questions import (
    QuestionError,
    namespace_of,
    own_queues,
    read,
    told,
)
from vc_egpu.admission.serving.turns import Turns
from vc_egpu.admission.view import View
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.report import snapshot_codec
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.whatif.answers import Asked, would_start
from vc_egpu.whatif.changes import AddNodes, Change, Drain, End, SetCap
from vc_egpu.whatif.hypothesis import UnknownThingError

PATH: Final = "/v1/what-if"
_QUESTIONS_PER_S: Final = 1.0


class WhatIf:
    """One question at a time."""

    def __init__(
        self,
        api: ApiConnection,
        view: Callable[[], View | None],
        *,
        questions: TokenBucket | None = None,
        rests: Rests = lambda _timeout_s: True,
        limit_s: float = LIMIT_S,
        callers: Callers | None = None,
    ) -> None:
        """``rests``: see :class:`.budget.Budget`. ``limit_s``: the time for one question."""
        self._view, self._rests, self._limit_s = view, rests, limit_s
        self._turns = Turns(
            callers if callers is not None else Callers(api),
            questions if questions is not None else TokenBucket(_QUESTIONS_PER_S, 5),
            page=PATH,
            questions="questions",
            an_answer="an answer",
            limit_s=limit_s,
        )

    def answer(self, request: Request) -> Answer:
        """What a POST gets."""
        return self._turns.answer(request, lambda reader: self._told(request.body, reader))

    def _told(self, body: bytes, reader: Reader) -> Answer:
        sees = reader.sees
        view = self._view()
        if view is None:
            return Answer(503, b"this replica does not lead\n")
        snapshot, now = view.snapshot, time.time()
        table = view.table if view.table.models else _table_of(snapshot)
        try:
            job, changes = read(_json(body))
            gang = asked(job, "default", table, now, view.environments, wants=view.policy.profiles.wants)
            if refused := _refused(gang, changes, snapshot, reader):
                return Answer(403, f"{refused}\n".encode())
            if gang.gang.key in snapshot.gangs:
                raise QuestionError(f"{gang.gang.key!r} is there already")
            step = Budget(self._rests, self._limit_s).step
            found = would_start(snapshot, view.policy, now, gang, changes, step=step)
        except QuestionError as error:
            return Answer(400, f"{error}\n".encode())
        except UnknownThingError as error:  # its text has names that are near
            near = (
                str(error.args[0]) if sees(ANYWHERE) else "a node, queue or gang of the changes is not there"
            )
            return Answer(400, f"{near}\n".encode())
        return Answer(200, snapshot_codec.to_json(told(found, gang, snapshot, sees)), "application/json")


def _table_of(snapshot: Snapshot) -> ModelTable:
    """As much of the model table as a snapshot knows."""
    models = [{"name": name, "memoryMiB": mib} for name, mib in snapshot.models.items()]
    return ModelTable.model_validate({"models": models})


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise QuestionError("the question is no JSON") from None


def _refused(gang: Asked, changes: Sequence[Change], snapshot: Snapshot, reader: Reader) -> str:
    """Why the caller may not ask this; empty: it may. The text does not tell whether the thing is there."""
    sees = reader.sees
    if not reader.may_submit(namespace_of(gang.gang.key)):
        return "you may not create Jobs in that namespace"
    for change in changes:
        if isinstance(change, AddNodes | Drain) and not sees(ANYWHERE):
            return "nodes can be tried by those who may list the pods of all namespaces"
        if isinstance(change, End) and not sees(namespace_of(change.gang)):
            return "you may not list the pods of the gang that is to end"
        caps = isinstance(change, SetCap) and change.queue not in own_queues(gang.gang.queue, snapshot)
        if caps and not sees(ANYWHERE):
            return "caps can be tried of the Job's own queue and of those above it"
    return ""
