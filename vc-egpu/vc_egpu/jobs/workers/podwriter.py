"""Writes to the pods of a Job, many at the same time."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from vc_egpu.jobs.health import Metrics
from vc_egpu.jobs.known.latest import Latest
from vc_egpu.jobs.known.pods import CachedPod, trim
from vc_egpu.jobs.objects.services import InTheWay
from vc_egpu.jobs.rules.draft import Kill
from vc_egpu.jobs.workers.memory import Memory
from vc_egpu.jobs.workers.turns import Outcome, Turns
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import AlreadyExists, KubeError, NotFound, Refused, Temporary
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of

T = TypeVar("T")
_Concern = Callable[[KubeError], bool]


class PodWriter:
    """Deletes and makes pods; every answer goes into what is known. Thread-safe."""

    def __init__(
        self,
        api: ApiConnection,
        pods: Latest[CachedPod],
        memory: Memory,
        *,
        turns: Turns,
        metrics: Metrics,
        got_on: Callable[[], None],
    ) -> None:
        """``got_on`` is told after each of many writes, because a look may take long."""
        self._api = api
        self._pods = pods
        self._memory = memory
        self._turns = turns
        self._metrics = metrics
        self._got_on = got_on

    def delete(self, job: Job, kills: Sequence[Kill], until: float) -> bool:
        """Delete these pods of the Job; False if time was up before all were begun. Raises KubeError.

        ``until``: the end of the look, see :meth:`Turns.end_of_look`.
        """
        return self._each(lambda kill: self._delete(kill, job), kills, until, is_over=_never).all_begun

    def make(self, job: Job, wanted: Sequence[T], build: Callable[[T], Json], until: float) -> bool:
        """Make these pods of the Job; False if time was up before all were begun. Raises KubeError.

        ``build`` gives the document of one pod. The thread that sends it builds it: together, the pods of a
        large Job would not fit into memory.

        If the API server refused pods at the last look, one goes ahead alone. A Job whose quota is used up,
        or whose webhook does not answer, would otherwise try all of its pods at every look.
        """

        def send(one: T) -> None:
            self._make(build(one), job)

        uid = job.metadata.uid
        ahead = 1 if self._memory.was_refused(uid) else 0
        try:
            self._each(send, wanted[:ahead], until, is_over=_never)
            all_begun = self._each(send, wanted[ahead:], until, is_over=_concerns_all).all_begun
        except (Refused, Temporary):
            self._memory.note_refusal(uid, refused=True)
            raise
        self._memory.note_refusal(uid, refused=False)
        return all_begun

    def _delete(self, kill: Kill, job: Job) -> None:
        namespace, pod = job.metadata.namespace, kill.pod
        self._memory.kills(pod.uid, job.metadata.uid)
        if kill.mark:
            mark = {"metadata": {"uid": pod.uid, "annotations": {names.OUT_OF_SYNC: "true"}}}
            with suppress(NotFound):
                self._keep(self._api.patch(PODS, pod.name, mark, namespace))
        try:
            self._keep(self._api.delete(PODS, pod.name, namespace, uid=pod.uid), deleting=True)
        except NotFound:
            # The watch is late. Otherwise a look that may begin one write would try this one again and again.
            self._pods.gone((namespace, pod.name), pod.uid)
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
        self, work: Callable[[Any], None], items: Sequence[Any], until: float, *, is_over: _Concern
    ) -> Outcome:
        """Do it for all, side by side; raises one of the failures after that."""
        outcome = self._turns.each(work, items, until=until, is_over=is_over, got_on=self._got_on)
        if outcome.errors:
            named = (error for error in outcome.errors if isinstance(error, (Refused, InTheWay)))
            raise next(named, outcome.errors[0])
        return outcome


def _concerns_all(error: KubeError) -> bool:
    """Each further write may take as long as a time-out, and writers are lost to other Jobs meanwhile."""
    return isinstance(error, Temporary) and not isinstance(error, InTheWay)


def _never(error: KubeError) -> bool:  # noqa: ARG001 - as the other answers to a failure
    return False
