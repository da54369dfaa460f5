"""``GET /v1/view``: asked of the leader with the caller's own token, and told on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from unit.admission import test_view as leader_side
from unit.jobsapi.stand_in import Caller, Cluster, leading, served
from vc_egpu.jobsapi.client import JobsApiError, JobsClient
from vc_egpu.jobsapi.what_if.leader import VIEW_PATH, Leader, LeaderError
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.limits import TokenBucket


@dataclass
class Replica:
    """The real view of a leader, and what it was asked."""

    said: Answer | None = None
    asked: list[Request] = field(default_factory=list)

    def get(self, request: Request) -> Answer:
        self.asked.append(request)
        edge = leader_side.edge_of(leader_side.world(), views=TokenBucket(1e6, 1000))
        return self.said or edge.answer(request)


@pytest.fixture
def replica() -> Replica:
    return Replica()


@pytest.fixture
def url(api: Cluster, replica: Replica) -> Iterator[str]:
    with leading(replica.get) as leader, served(api.url, leader=leader) as found:
        yield found


def test_each_caller_gets_the_view_of_its_own_token(api: Cluster, url: str, replica: Replica) -> None:
    with JobsClient(url, "ada") as jobs:
        found = jobs.view(["lab"])
    (request,) = replica.asked
    assert (request.path, request.query) == (VIEW_PATH, "namespaces=lab")
    assert request.authorization == "Bearer ada"
    assert api.requests == [], "the leader asks the API server, and we do not"
    assert [node.name for node in found.nodes] == ["n1", "n2"]
    assert sum(card.held_by_others.pods for _, card in found.named_cards()) == 5
    assert {share.share_class for _, card in found.named_cards() for share in card.shares} == {"high"}
    assert (found.waiting[0].gang, found.waiting_of_others) == ("lab/big", 1)


def test_no_byte_of_the_answer_names_what_is_of_others(url: str) -> None:
    answer = Caller(url, "carl").send("GET", "/v1/view?namespaces=lab,okapi-1")
    assert answer.status == 200
    for word in leader_side.SECRETS:
        assert word.encode() not in answer.data
    assert {node["name"] for node in json.loads(answer.data)["nodes"]} == {""}


@pytest.mark.parametrize(
    ("token", "query", "status"),
    [
        ("", "", 401),
        ("stolen", "?namespaces=lab", 403),
        ("mallory", "?namespaces=lab", 403),
        ("ada", "?colour=red", 400),
        ("ada", "?namespaces=..", 400),
        ("ada", "?namespaces=a%26b%3Dc", 200),
    ],
)
def test_what_is_refused(url: str, token: str, query: str, status: int) -> None:
    assert Caller(url, token).send("GET", f"/v1/view{query}").status == status


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (Answer(503, b"this replica does not lead\n"), 503),
        (Answer(503, b"there was no time for the view within 5 s: ask again\n"), 503),
        (Answer(429, b"too many views: ask again in some seconds\n"), 429),
        (Answer(500, b"broken\n"), 502),
        (Answer(200, b"{}"), 502),
    ],
)
def test_what_the_leader_refuses_is_told(url: str, replica: Replica, said: Answer, status: int) -> None:
    replica.said = said
    with JobsClient(url, "ada") as jobs, pytest.raises(JobsApiError) as refused:
        jobs.view()
    assert refused.value.status == status


def test_without_a_way_to_the_leader_it_says_so() -> None:
    with pytest.raises(LeaderError, match="--leader"):
        Leader("").view("ada", [])


def test_the_document_describes_what_comes(url: str) -> None:
    """Each field of an answer stands in the OpenAPI document, with its type."""
    document: Any = json.loads(Caller(url, "ada").send("GET", "/v1/openapi.json").data)
    schema = document["paths"]["/v1/view"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/ViewAnswer"}
    answer = json.loads(Caller(url, "ada").send("GET", "/v1/view?namespaces=lab").data)
    assert set(answer) == set(document["components"]["schemas"]["ViewAnswer"]["properties"])
