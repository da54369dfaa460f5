"""Finds the answers that reviews ask for: access (with a short memory), PodGroups and new Queues by GET."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import POD_GROUPS, QUEUES, SUBJECT_ACCESS_REVIEWS, Resource
from vc_egpu.kube.wire.errors import Invalid, KubeError, NotFound
from vc_egpu.volcano.words.makers import controller_of
from vc_egpu.webhook.protocol.decision import Json
from vc_egpu.webhook.protocol.questions import (
    MAKERS,
    Access,
    KnownAnswers,
    MakerLookup,
    PodGroupLookup,
    Question,
    QueueLookup,
)
from vc_egpu.webhook.serving.caches import slim_group

ALLOWED_FOR_S: Final = 30.0
ASK_AGAIN_S: Final = 10.0
"""A "yes" that is still used after this long is asked for again; reviews do not wait for it."""
DENIED_FOR_S: Final = 2.0
"""Short, so that a user who was just given permission is not refused for long."""
_REQUEST_TIMEOUT_S: Final = 4.0
_MAX_REMEMBERED: Final = 20_000
_THREADS: Final = 4
"""They share the interpreter with the reviews: more of them make every review wait."""
_REFRESH_PAUSE_S: Final = 0.005
"""Between two answers asked for again: up to some 100/s, never a burst."""

logger = logging.getLogger(__name__)


class AccessMemory:
    """Access answers with an expiry, oldest out first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = _MAX_REMEMBERED) -> None:
        self._clock = clock
        self._limit = limit
        self._known: OrderedDict[Access, tuple[bool, float]] = OrderedDict()
        """Question to (answer, when it was given), oldest first."""
        self.due: dict[Access, None] = {}
        """Answers in use that should be asked for again."""

    def get(self, question: Access) -> bool | None:
        """The answer, while it holds."""
        found = self._known.get(question)
        if found is None:
            return None
        allowed, since = found
        age_s = self._clock() - since
        if age_s >= (ALLOWED_FOR_S if allowed else DENIED_FOR_S):
            return None
        if allowed and age_s >= ASK_AGAIN_S:
            self.due[question] = None
        return allowed

    def put(self, question: Access, *, allowed: bool) -> None:
        """Remember an answer."""
        self._known[question] = (allowed, self._clock())
        self._known.move_to_end(question)
        self.due.pop(question, None)
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


class LayeredAnswers(KnownAnswers):
    """What was found for this one review, and behind it what is remembered from others.

    What a review has once seen it sees again: an entry that expires in mid-review does not start it over.
    """

    def __init__(self, memory: AccessMemory) -> None:
        super().__init__()
        self._memory = memory
        self.queues: dict[str, Json | None] = {}
        """Queues that were asked for; None for those that there are not."""

    def looked_up(self, question: QueueLookup) -> bool:
        """See :class:`~vc_egpu.webhook.protocol.questions.Answers`."""
        return question.name in self.queues

    def found_queue(self, question: QueueLookup, queue: Json | None) -> None:
        """Remember a Queue, or that there is none, for this review."""
        self.queues[question.name] = queue

    def access(self, question: Access) -> bool | None:
        """See :class:`~vc_egpu.webhook.protocol.questions.Answers`."""
        known = self.accesses.get(question)
        if known is None:
            known = self._memory.get(question)
            if known is not None:
                self.accesses[question] = known
        return known


class Oracle:
    """Asks the API server. Equal questions that are asked at the same time are asked once."""

    def __init__(self, api: ApiConnection, memory: AccessMemory | None = None) -> None:
        self.memory = memory or AccessMemory()
        self._api = api
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ask")
        self._asking: dict[Question, asyncio.Future[Any]] = {}
        self._refresher: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Give up the threads."""
        if self._refresher is not None:
            self._refresher.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def answer(self, questions: Iterable[Question], answers: "LayeredAnswers") -> None:
        """Put the answers of these questions into ``answers``; raises :class:`KubeError`."""
        wanted = list(dict.fromkeys(questions))
        found = await asyncio.gather(*(self._find(question) for question in wanted), return_exceptions=True)
        for question, value in zip(wanted, found, strict=True):
            if isinstance(value, BaseException):
                raise value
            if isinstance(question, Access):
                answers.accesses[question] = bool(value)
            elif isinstance(question, QueueLookup):
                answers.found_queue(question, value)
            elif isinstance(question, MakerLookup):
                answers.makers[question] = value
            else:
                answers.pod_groups[question] = value

    def refresh(self) -> None:
        """Ask again for answers that are in use and no longer fresh; reviews do not wait."""
        if self.memory.due and (self._refresher is None or self._refresher.done()):
            self._refresher = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        while self.memory.due:
            question = next(iter(self.memory.due))
            del self.memory.due[question]
            try:
                await self._once(question)
            except KubeError as error:
                # The old answer holds until it expires; then the review that needs it will say so.
                logger.debug("an access review could not be asked for again: %s", error)
            await asyncio.sleep(_REFRESH_PAUSE_S)

    async def _find(self, question: Question) -> Any:
        # Another review's answer may have come since this one looked.
        known = self.memory.get(question) if isinstance(question, Access) else None
        return await self._once(question) if known is None else known

    async def _once(self, question: Question) -> Any:
        running = self._asking.get(question)
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._pool, self._ask, question)
            self._asking[question] = running
            running.add_done_callback(partial(self._answered, question))
        return await asyncio.shield(running)

    def _answered(self, question: Question, done: "asyncio.Future[Any]") -> None:
        """The answer is remembered in the same step, so that no review asks for it again in between."""
        self._asking.pop(question, None)
        if isinstance(question, Access) and not done.cancelled() and done.exception() is None:
            self.memory.put(question, allowed=bool(done.result()))

    def _ask(self, question: Question) -> Any:
        if isinstance(question, Access):
            return self._may(question)
        if isinstance(question, MakerLookup):
            return self._maker(question)
        return self._queue(question) if isinstance(question, QueueLookup) else self._pod_group(question)

    def _maker(self, question: MakerLookup) -> Json:
        found = self._found(MAKERS[question.api_version, question.kind], question.name, question.namespace)
        if found is None or found["metadata"].get("uid") != question.uid:
            return {}
        return controller_of(found)

    def _queue(self, question: QueueLookup) -> Json | None:
        return self._found(QUEUES, question.name)

    def _found(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        try:
            return self._api.get(resource, name, namespace, timeout_s=_REQUEST_TIMEOUT_S)
        except (NotFound, Invalid):
            return None

    def _may(self, question: Access) -> bool:
        subject = question.subject
        attributes = {
            "verb": question.verb,
            "group": question.group,
            "resource": question.resource,
            "name": question.name,
        }
        if question.namespace:
            attributes["namespace"] = question.namespace
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": subject.user,
                "groups": list(subject.groups),
                "uid": subject.uid,
                "extra": {key: list(values) for key, values in subject.extra},
                "resourceAttributes": attributes,
            },
        }
        answer = self._api.create(SUBJECT_ACCESS_REVIEWS, body, timeout_s=_REQUEST_TIMEOUT_S)
        status = answer.get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")

    def _pod_group(self, question: PodGroupLookup) -> Any:
        try:
            found = self._api.get(POD_GROUPS, question.name, question.namespace, timeout_s=_REQUEST_TIMEOUT_S)
        except NotFound:
            return None
        return slim_group(found)
