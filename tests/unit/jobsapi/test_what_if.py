"""``POST /v1/what-if``: the API server is asked first, then the leader, each with the caller's token."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from unit.admission import test_what_if as leader_side
from unit.admission.rights_api import RightsApi
from unit.jobsapi.stand_in import Caller, Cluster, leading, served, wanted
from vc_egpu.admission.serving.foresight.what_if import WhatIf
from vc_egpu.jobsapi.client import JobsApiError, JobsClient
from vc_egpu.jobsapi.request import JobRequest
from vc_egpu.jobsapi.server import MOST_QUESTIONS
from vc_egpu.jobsapi.settings import settings_of
from vc_egpu.jobsapi.what_if.documents import Change, Question
from vc_egpu.jobsapi.what_if.leader import PATH, Leader
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.limits import TokenBucket

SAID = {
    "version": 1,
    "gang": "lab/tune",
    "outcome": "makes room",
    "reason": "Admitted",
    "message": "",
    "places": [{"members": 2, "cardCount": 4}],
    "going": [],
    "goingOfOthers": {"gangs": 1, "pods": 3},
    "more": 0,
    "moreIsLeast": False,
    "forecast": None,
    "unknownEnds": 0,
    "isCutShort": False,
}


@dataclass
class Replica:
    """An admission controller: what it answers, and what it was asked."""

    answer: Callable[[], Answer] = lambda: Answer(200, json.dumps(SAID).encode(), "application/json")
    asked: list[Request] = field(default_factory=list)

    def post(self, request: Request) -> Answer:
        self.asked.append(request)
        return self.answer()


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.fixture
def ann(api: Cluster, replica: Replica) -> Iterator[Caller]:
    with leading(posts={PATH: replica.post}) as leader, served(api.url, leader=leader) as url:
        yield Caller(url)


def ask(caller: Caller, **body: Any) -> Any:
    return caller.send("POST", "/v1/what-if", body or {"request": wanted()})


def test_the_cluster_and_the_leader_are_asked_with_the_callers_token(
    api: Cluster, ann: Caller, replica: Replica
) -> None:
    answer = ask(ann, request=wanted(members=2), changes=[{"end": "lab/old"}])
    assert answer.status == 200
    found = json.loads(answer.data)
    assert (found["outcome"], found["going_of_others"]) == ("makes room", {"gangs": 1, "pods": 3})
    assert found["places"] == [{"members": 2, "card_count": 4, "node": "", "cards": []}]
    ((method, path, headers),) = api.requests
    assert (method, "dryRun=All" in path, headers["Authorization"]) == ("POST", True, "Bearer ann-token")
    (request,) = replica.asked
    assert request.authorization == "Bearer ann-token"
    asked = json.loads(request.body)
    assert asked["changes"] == [{"end": "lab/old"}]
    assert set(asked["job"]["metadata"]) == {"name", "namespace", "labels"}, "the cluster's own marks stay"
    assert api.jobs == {}, "nothing is made"


def test_a_volcano_job_is_asked_about_as_it_is(ann: Caller, replica: Replica) -> None:
    job = {"metadata": {"name": "tune", "namespace": "lab", "uid": "x"}, "spec": {"tasks": []}, "status": {}}
    assert ask(ann, job=job).status == 200
    sent = json.loads(replica.asked[0].body)["job"]
    assert (sent["metadata"], sent["spec"]) == ({"name": "tune", "namespace": "lab"}, {"tasks": []})
    assert "status" not in sent


@pytest.mark.parametrize(("token", "status"), [("bob-token", 403), ("stolen", 401), ("", 401)])
def test_without_the_right_to_make_the_job_the_leader_is_not_asked(
    ann: Caller, replica: Replica, token: str, status: int
) -> None:
    assert ask(Caller(ann.url, token)).status == status
    assert replica.asked == []


@pytest.mark.parametrize(
    ("body", "field_"),
    [
        ({"changes": []}, "request"),
        ({"request": wanted(), "job": {}}, "request"),
        ({"request": wanted(count=0)}, "request.count"),
        ({"request": wanted(), "changes": [{}]}, "changes.0.change"),
        ({"request": wanted(), "changes": [{"end": "a/b", "drain": "n"}]}, "changes.0.change"),
        (
            {"request": wanted(), "changes": [{"add_nodes": {"like": "n", "count": 65}}]},
            "changes.0.add_nodes.count",
        ),
        ({"request": wanted(), "changes": [{"end": "a/b"}] * 17}, "changes"),
        ({"job": {"metadata": {"name": "a"}}}, "job.metadata.namespace"),
        ({"job": {"metadata": {"name": "a", "namespace": "../x"}}}, "job.metadata.namespace"),
        ({"job": {}, "colour": 1}, "colour"),
    ],
)
def test_what_is_no_question_is_refused_by_its_field(
    ann: Caller, replica: Replica, body: Any, field_: str
) -> None:
    answer = ask(ann, **body)
    assert (answer.status, json.loads(answer.data)["error"]["field"]) == (400, field_)
    assert replica.asked == []


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (Answer(503, b"this replica does not lead\n"), 503),
        (Answer(503, b"there was no time for an answer within 5 s: ask again\n"), 503),
        (Answer(429, b"too many questions: ask again in some seconds\n"), 429),
        (Answer(403, b"you may not create Jobs in that namespace\n"), 403),
        (Answer(400, b"job: no pod of it\n"), 400),
        (Answer(500, b"broken\n"), 502),
        (Answer(200, b"{}"), 502),
    ],
)
def test_what_the_leader_refuses_is_told(ann: Caller, replica: Replica, said: Answer, status: int) -> None:
    replica.answer = lambda: said
    answer = ask(ann)
    assert answer.status == status
    if said.status in {400, 403, 429}:
        assert json.loads(answer.data)["error"]["message"] == said.body.decode().strip()


def test_without_a_way_to_the_leader_it_says_so(api: Cluster) -> None:
    with served(api.url) as url:
        answer = ask(Caller(url))
    assert (answer.status, b"--leader" in answer.data) == (404, True)
    with served(api.url, leader=Leader("http://127.0.0.1:1")) as url:
        assert ask(Caller(url)).status == 503
    with pytest.raises(ValueError, match="is not http://HOST:PORT"):
        Leader("leader")


def test_slow_answers_leave_room_for_jobs(ann: Caller, replica: Replica) -> None:
    """So many questions wait for the leader: one more is refused, and a Job is taken."""
    go, there = threading.Event(), threading.Semaphore(0)

    def slow() -> Answer:
        there.release()
        go.wait(20)
        return Answer(200, json.dumps(SAID).encode())

    replica.answer = slow
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(ask(Caller(ann.url)).status))
        for _ in range(MOST_QUESTIONS)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            assert there.acquire(timeout=20)
        assert ask(ann).status == 429
        assert ann.post(wanted()).status == 201
    finally:
        go.set()
        for thread in threads:
            thread.join(20)
    assert found == [200] * MOST_QUESTIONS


def test_the_real_leader_understands_each_change_and_is_understood(api: Cluster, replica: Replica) -> None:
    """Both sides of the wire: what this server sends is read there, and what comes back is read here."""
    edge = WhatIf(RightsApi(leader_side.RIGHTS), leader_side.view, questions=TokenBucket(1e6, 1000))
    api.rights["boss"] = {"default"}
    job = json.loads(leader_side.asked())["job"]
    with leading(posts={PATH: replica.post}) as leader, served(api.url, leader=leader) as url:
        replica.answer = lambda: edge.answer(replica.asked[-1])
        with JobsClient(url, "boss") as jobs:
            for change in (
                {"end": "okapi/quagga"},
                {"drain": "walrus"},
                {"add_nodes": {"like": "walrus", "count": 2}},
                {"cap": {"queue": "default", "resource": "volcano.sh/vgpu-h20", "to": None}},
            ):
                found = jobs.what_if(Question.model_validate({"job": job, "changes": [change]}))
                assert found.gang == f"default/{job['metadata']['name']}", change


def test_the_client_is_typed(ann: Caller) -> None:
    question = Question(request=JobRequest(**wanted()), changes=[Change(end="lab/old")])
    with JobsClient(ann.url, "ann-token") as jobs:
        assert jobs.what_if(question).going_of_others.pods == 3
    with JobsClient(ann.url, "bob-token") as jobs, pytest.raises(JobsApiError) as refused:
        jobs.what_if(question)
    assert refused.value.status == 403


def test_the_way_to_the_leader_is_a_flag() -> None:
    assert settings_of(["--plain-http"]).leader == ""
    assert settings_of(["--plain-http", "--leader", "http://l:9446"]).leader == "http://l:9446"
