"""A queue goes after those under it: their use would no longer count in the queues above it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from unit.webhook.world import ALICE, OPERATOR, QUEUES, Json, context, create, queue, update
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.words.names import memory_total_resource
from vc_egpu.webhook.policies.manifests import webhook_configurations
from vc_egpu.webhook.protocol.context import Review, Settings
from vc_egpu.webhook.reviews.queues import review_queue, review_queue_deleted
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.oracle import Oracle
from vc_egpu.webhook.serving.reviewer import Reviewer

CACHED = {**QUEUES, "org-1": queue("org-1", parent="org"), "vision": queue("vision", parent="org-1")}


class Server:
    """An API server with these queues, which may be ahead of the webhook's cache."""

    def __init__(self, queues: Mapping[str, Json]) -> None:
        self.queues = queues
        self.asked: list[str] = []

    def get(self, resource: Any, name: str, namespace: str | None = None, timeout_s: float = 0) -> Any:
        self.asked.append(name)
        if name not in self.queues:
            raise NotFound(f"queues {name!r} not found", status=404)
        return self.queues[name]


class Cache:
    """All that the webhook has listed."""

    def __init__(self, queues: Json) -> None:
        known = context(queues=queues)
        self.queues, self.namespaces, self.pod_groups = known.queues, known.namespaces, known.pod_groups
        self.jobs, self.priority_classes, self.offers = known.jobs, known.priority_classes, known.offers

    def unsynced(self) -> list[str]:
        return []


def deleted(name: str, cached: Json, server: Server, **changes: Any) -> Json:
    """The response to the review of a deletion as an API server sends it: without an object. There is no name
    if all queues of a list are deleted."""
    request = {
        "uid": "u-1",
        "operation": "DELETE",
        "name": "",
        "userInfo": {"username": "alice"},
        "object": None,
        "oldObject": queue(name) | {"metadata": {"name": name}} | changes,
    }
    body = json.dumps({"kind": "AdmissionReview", "request": request}).encode()

    async def ask() -> bytes:
        oracle = Oracle(server)  # type: ignore[arg-type]
        try:
            reviewer = Reviewer(Cache(cached), oracle, Settings(), Metrics.create())  # type: ignore[arg-type]
            return (await reviewer.answer("/validate/queues", body))[0]
        finally:
            oracle.close()

    found: Json = json.loads(asyncio.run(ask()))["response"]
    return found


@pytest.mark.parametrize(
    ("name", "below"), [("org", "org-1, org-2"), ("org-1", "vision"), ("root", "a, closed, default, org")]
)
def test_a_queue_with_queues_under_it_stays(name: str, below: str) -> None:
    """The department's cap of 10 counted no team's cards any more once the queue between them was gone."""
    answer = deleted(name, CACHED, Server(CACHED))
    assert answer["allowed"] is False
    assert answer["status"]["message"].startswith(f"queue {name!r} has queues under it ({below}): ")


@pytest.mark.parametrize("name", ["vision", "a"])
def test_a_queue_with_none_under_it_goes_and_nobody_is_asked(name: str) -> None:
    server = Server(CACHED)
    assert deleted(name, CACHED, server)["allowed"]
    assert server.asked == []


IN_USE = {
    "allocated": {"volcano.sh/vgpu-h20": "6", memory_total_resource("h20"): "9000", "cpu": "4"},
}


def test_a_queue_under_another_stays_while_its_cards_are_in_use() -> None:
    """What ran in it counted for the parent's cap no more: a new queue there gave as much again."""
    answer = deleted("vision", CACHED, Server(CACHED), spec={"parent": "org-1"}, status=IN_USE)
    assert answer["allowed"] is False
    assert answer["status"]["message"] == (
        "queue 'vision' is in use (6 volcano.sh/vgpu-h20), which would count in 'org-1' no more: "
        "close it, and delete it once nothing runs in it"
    )


@pytest.mark.parametrize(
    ("parent", "use"),
    [
        ("root", IN_USE),
        ("nobody", IN_USE),
        ("org-1", {"allocated": {"volcano.sh/vgpu-h20": "0", "cpu": "4"}}),
        ("org-1", {"allocated": None}),
    ],
)
def test_one_that_nothing_counts_above_or_that_holds_no_card_goes(parent: str, use: Json) -> None:
    assert deleted("vision", CACHED, Server(CACHED), spec={"parent": parent}, status=use)["allowed"]


def test_who_deletes_a_tree_from_its_leaves_up_does_not_wait_for_our_cache() -> None:
    now = {name: one for name, one in CACHED.items() if name not in {"org-1", "org-2", "vision"}}
    assert deleted("org", CACHED, Server(now))["allowed"]
    moved = {**CACHED, "vision": queue("vision", parent="a")}
    assert deleted("org-1", CACHED, Server(moved))["allowed"]


def test_many_that_went_a_moment_ago_are_asked_for_in_few_rounds() -> None:
    many = {f"team-{number}": queue(f"team-{number}", parent="org") for number in range(100)}
    assert deleted("org", {**QUEUES, **many}, server := Server({}))["allowed"]
    assert len(server.asked) == 102
    server = Server(many)
    refused = deleted("org", {**QUEUES, **many}, server)
    assert refused["status"]["message"].count("team-") == 20
    assert len(server.asked) <= 16


@pytest.mark.parametrize("moved", [False, True])
def test_nobody_comes_under_a_queue_that_a_finalizer_alone_still_keeps(moved: bool) -> None:
    """A user who may update it takes that off, and the caps above count for its children no more."""
    going = queue("org-2", parent="org") | {
        "metadata": {"name": "org-2", "deletionTimestamp": "2026-01-01T00:00Z"}
    }
    ctx = context("operator set-cap queues new", queues={**CACHED, "org-2": going})
    new, old = queue("new", parent="org-2"), queue("new", parent="org-1")
    review = update(new, old, OPERATOR) if moved else create(new, OPERATOR)
    assert review_queue(review, ctx).message == "spec.parent: queue 'org-2' is being deleted"
    before, after = (queue("there", parent="org-2", weight=weight) for weight in (2, 1))
    assert review_queue(update(after, before, OPERATOR), ctx).allowed, "who is under it may be edited"


def test_the_api_server_asks_about_deletions() -> None:
    (operations,) = (
        rule["operations"]
        for configuration in webhook_configurations()
        for webhook in configuration["webhooks"]
        for rule in webhook["rules"]
        if rule["resources"] == ["queues"]
    )
    assert "DELETE" in operations


def test_of_a_queue_of_any_shape() -> None:
    shapes: list[Any] = [None, 0, "x", [], {}, {"name": 3}]
    for shape in shapes:
        review = Review("DELETE", "", ALICE, {"metadata": shape, "spec": shape})
        assert review_queue_deleted(review, context()).allowed
