"""Writes to the pods of a Job, many at the same time."""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from vc_egpu.jobs.health import Metrics
from vc_egpu.jobs.known.latest import Latest
from vc_egpu.jobs.known.pods import CachedPod, trim
from vc_egpu.jobs.objects.services import InTheWay
from vc_egpu.jobs.rules.draft import Kill
from vc_egpu.jobs.workers.memory import Memory
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import AlreadyExists, KubeError, NotFound, Refused, Temporary
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of


class PodWriter:
    """Deletes and makes pods; every answer goes into what is known. Thread-safe."""

    def __init__(
        self,
        api: ApiConnection,
        pods: Latest[CachedPod],
        memory: Memory,
        *,
        executor: Executor,
        metrics: Metrics,
        got_on: Callable[[], None],
    ) -> None:
        """``got_on`` is told after each of many writes, because a look may take long."""
        self._api = api
        self._pods = pods
        self._memory = memory
        self._executor = executor
        self._metrics = metrics
        self._got_on = got_on

    def delete(self, job: Job, kills: Iterable[Kill]) -> None:
        """Delete these pods of the Job; raises KubeError."""
        self._each(self._delete, kills, job)

    def make(self, job: Job, documents: Iterable[Json]) -> None:
        """Make these pods of the Job; raises KubeError.

        If the API server refused pods at the last look, one goes ahead alone. A Job whose quota is used up,
        or whose webhook does not answer, would otherwise try all of its pods at every look.
        """
        uid, wanted = job.metadata.uid, list(documents)
        ahead = 1 if self._memory.was_refused(uid) else 0
        try:
            self._each(self._make, wanted[:ahead], job)
            self._each(self._make, wanted[ahead:], job, while_it_answers=True)
        except (Refused, Temporary):
            self._memory.note_refusal(uid, refused=True)
            raise
        self._memory.note_refusal(uid, refused=False)

    def _delete(self, kill: Kill, job: Job) -> None:
        namespace, pod = job.metadata.namespace, kill.pod
        self._memory.kills(pod.uid, job.metadata.uid)
        if kill.mark:
            mark = {"metadata": {"uid": pod.uid, "annotations": {names.OUT_OF_SYNC: "true"}}}
            unless_gone(lambda: self._keep(self._api.patch(PODS, pod.name, mark, namespace)))
        unless_gone(
            lambda: self._keep(self._api.delete(PODS, pod.name, namespace, uid=pod.uid), deleting=True)
        )
        self._metrics.pods_deleted.inc()

    def _keep(self, answer: Json, *, deleting: bool = False) -> None:
        """Remember a pod as the API server's answer has it."""
        if answer.get("kind") != "Pod":
            return
        if deleting:
            # A pod that no kubelet holds is gone at once, and the answer does not say that it is going.
            answer["metadata"].setdefault("deletionTimestamp", answer["metadata"].get("creationTimestamp"))
        self._pods.put(trim(answer))

    def _make(self, document: Json, job: Job) -> None:
        namespace, name = job.metadata.namespace, document["metadata"]["name"]
        try:
            answer = self._api.create(PODS, document)
        except AlreadyExists:
            answer = self._api.get(PODS, name, namespace)
            if controller_of(answer).get("uid") != job.metadata.uid:
                raise InTheWay(job, {**answer, "kind": "Pod"}) from None
        else:
            self._metrics.pods_created.inc()
        self._pods.put(trim(answer))

    def _each(
        self,
        work: Callable[[Any, Job], None],
        items: Iterable[Any],
        job: Job,
        *,
        while_it_answers: bool = False,
    ) -> None:
        """Do it for all, side by side; raise the first failure after all were tried.

        ``while_it_answers``: after a failure that concerns all, leave out what has not begun. Each write may
        take as long as a time-out, and the writes of other Jobs wait behind all of them.
        """
        values = list(items)
        if len(values) == 1:
            work(values[0], job)
            return
        errors: list[KubeError] = []
        futures = [self._executor.submit(work, value, job) for value in values]
        for future in futures:
            if future.cancelled():
                continue
            try:
                future.result()
            except KubeError as error:
                errors.append(error)
                if while_it_answers and isinstance(error, Temporary) and not isinstance(error, InTheWay):
                    for later in futures:
                        later.cancel()
            self._got_on()
        if errors:
            raise next((error for error in errors if isinstance(error, (Refused, InTheWay))), errors[0])


def unless_gone(call: Callable[[], object]) -> None:
    """Call it; the object may be gone already. A conflict is raised, and the next look reads again."""
    with suppress(NotFound):
        call()
