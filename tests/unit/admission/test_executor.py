"""How a plan becomes calls, and what the loop is told of each."""

import queue
from typing import Any, TypeVar, cast

import pytest
from unit.admission.build import TABLE, group, pod
from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.execution.outcomes import (
    Done,
    EvictionRun,
    GateWrite,
    GroupLookup,
    GroupWrite,
    OrphanRemoval,
    UnknownWrite,
)
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, Share, ShareClass
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.errors import Conflict, KubeError, LeaseLost, NotFound, Unavailable
from vc_egpu.volcano.codec import cluster_codec, pod_codec
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.words import names

Json = dict[str, Any]
Outcome = TypeVar("Outcome", bound=Done)
KEY = "team/g"
ON_N1 = PlannedMember(MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-2"), 30000, 30)),)))
NOWHERE = PlannedMember(MemberPlacement(None))


class Api:
    """An API server that answers as it is told, call by call; without a script it takes everything."""

    def __init__(self, *script: Json | KubeError) -> None:
        self.script = list(script)
        self.calls: list[tuple[str, Json]] = []

    def _answer(self, verb: str, body: Json) -> Json:
        self.calls.append((verb, body))
        answer = self.script.pop(0) if self.script else {"metadata": {"uid": "none", "resourceVersion": "77"}}
        if isinstance(answer, KubeError):
            raise answer
        return answer

    def patch(self, _: Resource, _name: str, body: Json, _namespace: str, **_more: Any) -> Json:
        return self._answer("patch", body)

    def patch_status(self, _: Resource, _name: str, body: Json, _namespace: str, **_more: Any) -> Json:
        return self._answer("patch status", body)

    def get(self, _: Resource, name: str, _namespace: str) -> Json:
        return self._answer("get", {"name": name})

    def delete(self, _: Resource, name: str, _namespace: str, *, uid: str) -> Json:
        return self._answer("delete", {"name": name, "uid": uid})


def told(api: Api, do: Any, kind: type[Outcome]) -> Outcome:
    """What one operation ends as."""
    inbox: queue.SimpleQueue[Done] = queue.SimpleQueue()
    executor = Executor(cast("ApiConnection", api), inbox.put)
    try:
        do(executor)
        done = inbox.get(timeout=20)
        assert isinstance(done, kind)
        return done
    finally:
        executor.stop()


def carried(api: Api, member: PlannedMember = ON_N1, scheduler: str = "default-scheduler") -> GateWrite:
    decoded = pod_codec.pod(pod(uid="pod-0", spec={"schedulerName": scheduler}), TABLE)
    return told(api, lambda executor: executor.carry(KEY, decoded, member, "5-1", ShareClass.LOW), GateWrite)


def verbs(api: Api) -> list[str]:
    return [verb for verb, _ in api.calls]


def test_a_gate_falls_in_one_write_and_under_volcano_after_the_node_was_nominated() -> None:
    api = Api()
    carried(api)
    assert verbs(api) == ["patch"]
    api = Api()
    done = carried(api, scheduler=names.SCHEDULER_VOLCANO)
    assert verbs(api) == ["patch status", "patch"]
    assert api.calls[0][1]["status"] == {"nominatedNodeName": "n1"}
    assert api.calls[1][1]["metadata"]["resourceVersion"] == "77", "as the first one left it"
    assert (done.uid, done.error) == ("pod-0", None)
    api = Api()
    carried(api, NOWHERE, names.SCHEDULER_VOLCANO)
    assert verbs(api) == ["patch"], "a member without cards goes where it likes"


@pytest.mark.parametrize(
    ("now", "gone", "seen"),
    [
        ({"metadata": {"uid": "pod-0"}}, False, True),
        ({"metadata": {"uid": "another"}}, True, False),
        (NotFound("no such pod"), True, False),
        (Unavailable("away"), False, False),
    ],
    ids=["it is there", "another has its name", "it is not", "nobody knows"],
)
def test_after_a_write_that_came_too_late_it_is_looked_at_what_is_there(
    now: Json | KubeError, *, gone: bool, seen: bool
) -> None:
    done = carried(Api(Conflict("somebody wrote to it"), now))
    assert (done.gone, done.document is not None, done.error is not None) == (gone, seen, True)


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        ({"metadata": {"uid": "uid-g"}}, False),
        ({"metadata": {"uid": "another"}}, True),
        (NotFound("no such group"), True),
    ],
)
def test_after_a_plan_whose_write_failed_as_well(now: Json | KubeError, *, gone: bool) -> None:
    api = Api(Conflict("somebody wrote to it"), now)
    done = told(api, write_plan, GroupWrite)
    assert (done.purpose, done.gone, done.plan_id) == ("plan", gone, "5-1")
    assert api.calls[1] == ("get", {"name": "g"})


def test_after_a_plan_of_which_no_answer_says_whether_it_was_written() -> None:
    """What was booked stays booked, and it is asked again."""
    api = Api(Conflict("somebody wrote to it"), Unavailable("away"))
    done = told(api, write_plan, UnknownWrite)
    assert (done.plan_id, isinstance(done.error, Conflict)) == ("5-1", True)
    assert api.calls[1] == ("get", {"name": "g"})


def write_plan(executor: Executor) -> None:
    decoded = cluster_codec.group(group(uid="uid-g"))
    executor.write_group("plan", KEY, decoded, {"metadata": {}}, "5-1")


def test_who_leads_no_more_does_not_even_look() -> None:
    api = Api(LeaseLost("another leads"))
    done = told(api, write_plan, GroupWrite)
    assert isinstance(done.error, LeaseLost)
    assert verbs(api) == ["patch"]


@pytest.mark.parametrize(
    ("answer", "gone"), [({}, False), (NotFound("gone"), True), (Conflict("another"), True)]
)
def test_a_pod_that_was_bound_without_a_plan_is_deleted_as_that_very_pod(
    answer: Json | KubeError, *, gone: bool
) -> None:
    api = Api(answer)
    decoded = pod_codec.pod(pod(uid="pod-0"), TABLE)
    done = told(api, lambda executor: executor.delete_orphan(KEY, decoded), OrphanRemoval)
    assert api.calls == [("delete", {"name": "g-w-0", "uid": "pod-0"})]
    assert done.gone is gone


def test_a_group_that_nobody_told_of_is_looked_for_by_its_name() -> None:
    there = {"metadata": {"uid": "uid-g"}}
    found = told(Api(there), lambda executor: executor.look_for_group("team/a/b"), GroupLookup)
    assert (found.document, found.gone) == (there, False)
    assert told(Api(NotFound("none")), lambda executor: executor.look_for_group(KEY), GroupLookup).gone


def test_a_fault_of_ours_is_told_like_any_error() -> None:
    """The loop waits for an answer to everything."""

    def broken() -> EvictionRun:
        raise RuntimeError("a fault")

    done = told(Api(), lambda executor: executor.helper(EvictionRun(gang=KEY), broken), EvictionRun)
    assert (done.gang, str(done.error)) == (KEY, "a fault of ours, see the log")
