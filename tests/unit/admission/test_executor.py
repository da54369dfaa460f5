"""How a plan becomes calls, and what the loop is told of each."""

import queue
from typing import Any, cast

import pytest
from unit.admission.build import TABLE, group, pod
from vc_egpu.admission.execution.executor import Done, Executor
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, Share, ShareClass
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.errors import Conflict, KubeError, LeaseLost, NotFound, Unavailable
from vc_egpu.volcano.codec import cluster_codec, pod_codec
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.words import names

Json = dict[str, Any]
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


def told(api: Api, do: Any) -> Done:
    """What one operation ends as."""
    inbox: queue.SimpleQueue[Done] = queue.SimpleQueue()
    executor = Executor(cast("ApiConnection", api), inbox.put)
    try:
        do(executor)
        return inbox.get(timeout=20)
    finally:
        executor.stop()


def carried(api: Api, member: PlannedMember = ON_N1, scheduler: str = "default-scheduler") -> Done:
    decoded = pod_codec.pod(pod(uid="pod-0", spec={"schedulerName": scheduler}), TABLE)
    return told(api, lambda executor: executor.carry(KEY, decoded, member, "5-1", ShareClass.LOW))


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
    assert (done.kind, done.uid, done.plan_id, done.error) == ("carry", "pod-0", "5-1", None)
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
    ("now", "kind", "gone"),
    [
        ({"metadata": {"uid": "uid-g"}}, "plan", False),
        ({"metadata": {"uid": "another"}}, "plan", True),
        (NotFound("no such group"), "plan", True),
        (Unavailable("away"), "read", False),
    ],
)
def test_after_a_plan_whose_write_failed_as_well(now: Json | KubeError, kind: str, *, gone: bool) -> None:
    """Where nobody knows, what was booked stays booked and it is asked again."""
    decoded = cluster_codec.group(group(uid="uid-g"))
    api = Api(Conflict("somebody wrote to it"), now)
    done = told(api, lambda executor: executor.write_group("plan", KEY, decoded, {"metadata": {}}, "5-1"))
    assert (done.kind, done.gone, done.plan_id) == (kind, gone, "5-1")
    assert api.calls[1] == ("get", {"name": "g"})


def test_who_leads_no_more_does_not_even_look() -> None:
    decoded = cluster_codec.group(group(uid="uid-g"))
    api = Api(LeaseLost("another leads"))
    done = told(api, lambda executor: executor.write_group("plan", KEY, decoded, {"metadata": {}}, "5-1"))
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
    done = told(api, lambda executor: executor.delete_orphan(KEY, decoded))
    assert api.calls == [("delete", {"name": "g-w-0", "uid": "pod-0"})]
    assert (done.kind, done.gone) == ("orphan", gone)


def test_a_group_that_nobody_told_of_is_looked_for_by_its_name() -> None:
    there = {"metadata": {"uid": "uid-g"}}
    found = told(Api(there), lambda executor: executor.look_for_group("team/a/b"))
    assert (found.document, found.gone) == (there, False)
    assert told(Api(NotFound("none")), lambda executor: executor.look_for_group(KEY)).gone


def test_a_fault_of_ours_is_told_like_any_error() -> None:
    """The loop waits for an answer to everything."""

    def broken() -> Done:
        raise RuntimeError("a fault")

    done = told(Api(), lambda executor: executor.helper(Done("evict", KEY), broken))
    assert (done.kind, str(done.error)) == ("evict", "a fault of ours, see the log")
