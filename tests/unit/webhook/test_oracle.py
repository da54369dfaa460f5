"""What reviews ask the API server: in which words, how often, and for how long an answer holds."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest
from unit.webhook.world import NAMESPACE, QUEUES, TABLE, Json, pod, queue
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.errors import KubeError, NotFound
from vc_egpu.webhook.protocol.context import QueueTree, Settings
from vc_egpu.webhook.protocol.offers import Offers
from vc_egpu.webhook.protocol.questions import (
    Access,
    MakerLookup,
    PodGroupLookup,
    Question,
    QueueLookup,
    Subject,
)
from vc_egpu.webhook.serving.caches import Caches
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.oracle import ALLOWED_FOR_S, ASK_AGAIN_S, AccessMemory, LayeredAnswers, Oracle
from vc_egpu.webhook.serving.reviewer import BadReview, Reviewer

ALICE = Subject("alice", ("team",), "u-1", (("scopes", ("a", "b")),))
MAY_USE = Access(ALICE, "use", "scheduling.volcano.sh", "queues", "a")
REPLICA_SET = MakerLookup("team-a", "apps/v1", "ReplicaSet", "web-1", "uid-1")
OWNER = {"kind": "Deployment", "name": "web", "uid": "uid-0", "controller": True}


class Api:
    """An API server that holds these objects, by name, and answers access reviews so."""

    def __init__(self, status: Json | None = None, **objects: Json) -> None:
        self.status: Json | None = {"allowed": True} if status is None else status
        self.objects = objects
        self.broken = False
        self.asked: list[Any] = []

    def create(self, _: Resource, body: Json, **_more: Any) -> Json:
        self.asked.append(body["spec"])
        if self.broken:
            raise KubeError("it does not answer")
        return {"status": self.status}

    def get(self, _: Resource, name: str, namespace: str | None = None, **_more: Any) -> Json:
        self.asked.append((namespace, name))
        if name not in self.objects:
            raise NotFound(name)
        return self.objects[name]


def with_oracle(
    api: Api, story: Callable[[Oracle], Awaitable[None]], memory: AccessMemory | None = None
) -> None:
    async def run() -> None:
        oracle = Oracle(cast("ApiConnection", api), memory)
        try:
            await story(oracle)
        finally:
            oracle.close()

    asyncio.run(run())


def found(api: Api, *questions: Question) -> LayeredAnswers:
    """The answers to these."""
    answers = LayeredAnswers(AccessMemory())
    with_oracle(api, lambda oracle: oracle.answer(questions, answers))
    return answers


def test_access_is_asked_for_who_asks_in_their_namespace_if_there_is_one() -> None:
    attributes = {"verb": "use", "group": "scheduling.volcano.sh", "resource": "queues", "name": "a"}
    who = {"user": "alice", "groups": ["team"], "uid": "u-1", "extra": {"scopes": ["a", "b"]}}
    for namespace, more in (("", {}), ("team-a", {"namespace": "team-a"})):
        api = Api()
        found(api, replace(MAY_USE, namespace=namespace))
        assert api.asked == [{**who, "resourceAttributes": {**attributes, **more}}]


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({"allowed": True, "denied": True}, False),
        ({}, False),
    ],
)
def test_only_a_clear_yes_is_one(status: Json, *, allowed: bool) -> None:
    assert found(Api(status), MAY_USE).access(MAY_USE) is allowed


def test_who_made_a_pods_owner_is_asked_of_that_very_object() -> None:
    """Not of another one that has its name by now."""
    there = {"metadata": {"name": "web-1", "uid": "uid-1", "ownerReferences": [OWNER]}}
    assert found(Api(**{"web-1": there}), REPLICA_SET).maker(REPLICA_SET) == (True, OWNER)
    other = {"metadata": {**there["metadata"], "uid": "uid-2"}}
    assert found(Api(**{"web-1": other}), REPLICA_SET).maker(REPLICA_SET) == (True, {})
    assert found(Api(), REPLICA_SET).maker(REPLICA_SET) == (True, {})


def test_queues_and_groups_that_are_not_there_are_known_not_to_be() -> None:
    group, new = PodGroupLookup("team-a", "g"), QueueLookup("new")
    answers = found(Api(), group, new)
    assert answers.pod_group(group) == (True, None)
    assert answers.looked_up(new) and answers.queues == {"new": None}
    api = Api(g={"metadata": {"name": "g", "namespace": "team-a"}, "spec": {"queue": "a"}}, new=queue("new"))
    answers = found(api, group, new)
    known, there = answers.pod_group(group)
    assert known and there is not None and there["spec"]["queue"] == "a"
    assert list(answers.queues) == ["new"]
    assert sorted(api.asked, key=str) == [("team-a", "g"), (None, "new")]


def test_what_many_ask_at_once_is_asked_once_and_remembered() -> None:
    api, memory = Api(), AccessMemory()

    async def story(oracle: Oracle) -> None:
        for _ in range(2):
            many = [LayeredAnswers(memory) for _ in range(5)]
            await asyncio.gather(*(oracle.answer([MAY_USE, MAY_USE], answers) for answers in many))
            assert all(answers.access(MAY_USE) for answers in many)

    with_oracle(api, story, memory)
    assert len(api.asked) == 1
    assert LayeredAnswers(memory).access(MAY_USE), "by other reviews too"


def test_that_it_could_not_be_asked_is_no_answer() -> None:
    api, memory = Api(), AccessMemory()
    api.broken = True

    async def story(oracle: Oracle) -> None:
        with pytest.raises(KubeError):
            await oracle.answer([MAY_USE], LayeredAnswers(memory))
        api.broken = False
        await oracle.answer([MAY_USE], LayeredAnswers(memory))

    with_oracle(api, story, memory)
    assert memory.get(MAY_USE) is True


def test_what_a_review_has_seen_it_sees_again() -> None:
    """An answer that expires during a review does not start it again."""
    now = 0.0
    memory = AccessMemory(lambda: now)
    memory.put(MAY_USE, allowed=True)
    answers = LayeredAnswers(memory)
    assert answers.access(MAY_USE)
    now = ALLOWED_FOR_S
    assert answers.access(MAY_USE)
    assert LayeredAnswers(memory).access(MAY_USE) is None


@pytest.mark.parametrize(("then", "holds"), [({"allowed": False}, False), (None, True)])
def test_answers_in_use_are_asked_for_again_beside_the_reviews(then: Json | None, holds: bool) -> None:
    """Leave that was taken back counts from then on; where nobody answers the old one holds its time."""
    now = 0.0
    api, memory = Api(), AccessMemory(lambda: now)
    memory.put(MAY_USE, allowed=True)
    now = ASK_AGAIN_S
    assert memory.get(MAY_USE)
    api.broken, api.status = then is None, then

    async def story(oracle: Oracle) -> None:
        for _ in range(3):
            oracle.refresh()
        for _ in range(200):
            await asyncio.sleep(0.001)
            if api.asked and not memory.due and memory.get(MAY_USE) is holds:
                break

    with_oracle(api, story, memory)
    assert len(api.asked) == 1
    assert memory.get(MAY_USE) is holds


# --- reviews and their answers -----------------------------------------------------------------------


class Known:
    """Caches that have these queues, or have not been filled."""

    def __init__(self, *unsynced: str) -> None:
        self._unsynced = unsynced
        self.queues = QueueTree(QUEUES)
        self.namespaces: Mapping[str, Json] = {NAMESPACE: {"metadata": {"name": NAMESPACE}}}
        self.pod_groups: Mapping[str, Json] = {}
        self.jobs: Mapping[str, Json] = {}
        self.priority_classes: Mapping[str, Json] = {}
        self.offers = Offers()

    def unsynced(self) -> tuple[str, ...]:
        return self._unsynced


def answered(
    body: Json, *unsynced: str, path: str = "/validate/queues", allowed: bool = False
) -> tuple[Json, str]:
    """(the response, the outcome for metrics)."""
    answers: list[tuple[bytes, str]] = []

    async def story(oracle: Oracle) -> None:
        reviewer = Reviewer(cast("Caches", Known(*unsynced)), oracle, Settings(), Metrics.create())
        reviewer.table = TABLE
        answers.append(await reviewer.answer(path, orjson.dumps(body)))

    with_oracle(Api({"allowed": allowed}), story)
    ((reply, outcome),) = answers
    return orjson.loads(reply)["response"], outcome


def review(operation: str, obj: Json | None, old: Json | None = None) -> Json:
    request = {
        "uid": "u-1",
        "operation": operation,
        "namespace": NAMESPACE,
        "object": obj,
        "oldObject": old,
        "userInfo": {"username": "alice"},
    }
    return {"kind": "AdmissionReview", "request": request}


def test_what_an_answer_says() -> None:
    lowered = {**QUEUES["a"], "spec": {**QUEUES["a"]["spec"], "capability": {"volcano.sh/vgpu-h2O": 0}}}
    raised = {**QUEUES["a"], "spec": {**QUEUES["a"]["spec"], "weight": 9}}
    assert answered(review("UPDATE", QUEUES["a"], QUEUES["a"])) == (
        {"uid": "u-1", "allowed": True},
        "allowed",
    )
    told, outcome = answered(review("UPDATE", raised, QUEUES["a"]))
    assert (told["allowed"], told["status"]["code"], outcome) == (False, 403, "refused")
    warned, _ = answered(review("CREATE", {**lowered, "metadata": {"name": "new"}}))
    assert len(warned["warnings"]) == 1 and "patch" not in warned


def test_of_what_is_deleted_only_queues_are_our_business() -> None:
    """Nor do we wait for anything: whoever cleans up is not held up."""
    job = review("DELETE", None, {"metadata": {"name": "train", "namespace": NAMESPACE}})
    assert answered(job, "queues", path="/validate/jobs") == ({"uid": "u-1", "allowed": True}, "allowed")
    told, _ = answered(review("DELETE", None, QUEUES["a"]), "queues")
    assert (told["allowed"], told["status"]["code"]) == (False, 503)


def test_before_everything_is_listed_nothing_is_decided() -> None:
    told, outcome = answered(review("CREATE", QUEUES["a"]), "queues", "jobs")
    assert (told["allowed"], told["status"]["code"], outcome) == (False, 503, "failed")
    assert told["status"]["message"] == "vc-egpu has not listed queues, jobs yet; try again"


def test_a_request_of_another_kind_is_no_review() -> None:
    with pytest.raises(BadReview, match="no AdmissionReview"):
        answered({**review("CREATE", QUEUES["a"]), "kind": "ConversionReview"})


def test_a_patch_is_named_as_one() -> None:
    """The API server refuses one that is not."""
    told, _ = answered(review("CREATE", pod()), path="/mutate/pods", allowed=True)
    assert told["patchType"] == "JSONPatch"
    assert orjson.loads(base64.b64decode(told["patch"]))


def test_a_driver_is_looked_for_in_the_namespace_of_its_executor_alone() -> None:
    driver = MakerLookup("team-a", "v1", "Pod", "pi-driver", "driver-1")
    there = {"metadata": {"name": "pi-driver", "uid": "driver-1", "ownerReferences": [OWNER]}}
    api = Api(**{"pi-driver": there})
    assert found(api, driver).maker(driver) == (True, OWNER)
    assert api.asked == [("team-a", "pi-driver")]
