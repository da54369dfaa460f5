"""``/v1/view``: each caller sees its own work by name, and of others numbers alone."""

import gzip
import itertools
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from unit.admission.rights_api import Ask, RightsApi
from vc_egpu.admission.serving.callers import QUESTIONS_AT_ONCE, Callers
from vc_egpu.admission.serving.redacted.edge import MOST_NAMESPACES, ViewEdge
from vc_egpu.admission.view import View
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Node,
    NodeName,
    PodShape,
    Queue,
    QueueName,
    Resources,
    ShareClass,
    SuspensionState,
)
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.report.cards import cards
from vc_egpu.report.shares import shares
from vc_egpu.sim.world import World

SECRETS = ("zebra", "quagga", "okapi", "heron", "ibis")
"""Words in all names of other tenants: namespaces, gangs, queues, tasks, and sentences."""
PODS, NODES, QUEUES = "pods", "nodes", "queues"
RIGHTS: dict[str, set[Ask]] = {
    "boss": {("list", PODS, "")},
    "ada": {("list", PODS, "lab"), ("list", NODES, ""), ("list", QUEUES, "")},
    "carl": {("list", PODS, "lab")},
    "dora": {("list", NODES, "")},
    "mallory": set(),
    "system:serviceaccount:lab:runner": {("list", PODS, "lab")},
}
ZERO = {"pods": 0, "memoryMiB": 0, "suspendedMiB": 0, "coresHighPercent": 0, "coresLowPercent": 0}


def shape(memory_mib: int, cores: int, count: int = 1) -> PodShape:
    return PodShape((CardAsk("main", "h20", count, memory_mib, cores),), Resources(1000), runtime_s=None)


def world() -> World:
    """Two nodes with two cards: two tenants share them, and gangs of both wait."""
    made = World(models={"h20": 98304})
    for name in ("n1", "n2"):
        own = tuple(Card(CardId(f"GPU-{name}-{i}"), i, "h20", 98304) for i in range(2))
        made.put_node(Node(NodeName(name), Resources(64000, 1 << 40, 0, 100), cards=own))
    for name in ("lab", "zebra-queue"):
        made.put_queue(Queue(QueueName(name), capability={"volcano.sh/vgpu-h20": 6}))
    for key, queue, kind, share_class, members in (
        ("lab/train", "lab", shape(30000, 30), ShareClass.HIGH, 3),
        ("okapi-1/quagga", "zebra-queue", shape(20000, 20), ShareClass.LOW, 3),
        ("okapi-2/heron", "zebra-queue", shape(10000, 0), ShareClass.UNSET, 2),
        ("lab/big", "lab", shape(90000, 90), ShareClass.UNSET, 9),
        ("okapi-1/ibis", "zebra-queue", shape(90000, 90), ShareClass.UNSET, 9),
    ):
        gang = Gang(key, key, QueueName(queue), share_class, 0, members, 0.0)
        made.submit(gang, ((f"{key.rpartition('/')[2]}-task", members, kind),))
        made.settle()
    return made


def view_of(made: World) -> View:
    verdicts = made.decide().verdicts
    return View(made.snapshot(), verdicts, {}, 1, admitting=True, policy=made.policy)


def ask(
    name: str,
    query: str = "namespaces=lab",
    *,
    edge: ViewEdge | None = None,
    client: str = "10.0.0.9",
    **more: Any,
) -> Answer:
    edge = edge or edge_of(world())
    said = f"Bearer {name}" if name else ""
    return edge.answer(Request("/v1/view", client, said, query=query, **more))


def edge_of(made: World, api: RightsApi | None = None, **more: Any) -> ViewEdge:
    known = view_of(made)
    free = {"views": TokenBucket(1e6, 1000), **more}
    return ViewEdge(Callers(api or RightsApi(RIGHTS)), lambda: known, **free)


def told(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def test_own_work_has_names_and_that_of_others_is_numbers() -> None:
    found = told(ask("ada"))
    assert [node["name"] for node in found["nodes"]] == ["n1", "n2"]
    on_cards = [card for node in found["nodes"] for card in node["cards"]]
    mine = sorted(share["pod"] for card in on_cards for share in card.get("shares", ()))
    assert mine == ["train-train-task-0", "train-train-task-1", "train-train-task-2"]
    others = [card["heldByOthers"] for card in on_cards if "heldByOthers" in card]
    assert sum(part["pods"] for part in others) == 5
    assert sum(part["memoryMiB"] for part in others) == 80000
    assert sum(part["coresLowPercent"] for part in others) == 60
    assert [row["gang"] for row in found["waiting"]] == ["lab/big"]
    assert found["waitingOfOthers"] == 1


@pytest.mark.parametrize("name", ["carl", "dora", "system:serviceaccount:lab:runner"])
@pytest.mark.parametrize("query", ["", "namespaces=lab", "namespaces=lab,okapi-1", "namespaces=nowhere,lab"])
def test_no_byte_names_what_is_of_others(name: str, query: str) -> None:
    answer = ask(name, query)
    assert answer.status == 200
    for word in SECRETS:
        assert word.encode() not in answer.body, answer.body


def test_names_of_queues_and_nodes_go_by_the_right_to_list_them() -> None:
    ada, carl, dora = (told(ask(name)) for name in ("ada", "carl", "dora"))
    assert [row["name"] for row in ada["queues"]] == ["lab", "zebra-queue"]
    assert [row["name"] for row in carl["queues"]] == ["lab"]
    assert (dora["queues"], dora["namespaces"], dora["waiting"]) == ([], [], [])
    assert {node["name"] for node in carl["nodes"]} == {""}
    assert {node["name"] for node in dora["nodes"]} == {"n1", "n2"}
    assert b"GPU-" not in ask("ada").body


def test_no_sentence_is_told_to_those_that_see_a_part() -> None:
    """A sentence of a decision may name gangs, queues and nodes of others."""
    found = told(ask("ada"))
    assert set(found["waiting"][0]) == {"gang", "queue", "class", "reason", "since", "asks"}
    waiting = {row["name"]: row["waiting"] for row in found["queues"]}
    assert sum(waiting["zebra-queue"].values()) == 1


def test_who_sees_nothing_gets_nothing() -> None:
    for name in ("mallory", "unknown", ""):
        assert ask(name).status == 403
    assert ask("carl", "namespaces=okapi-1").status == 403
    assert told(ask("", client="127.0.0.1"))["everything"] is True
    assert ask("unknown", client="127.0.0.1").status == 403, "a token is never taken for none"


def test_who_may_list_all_pods_sees_all() -> None:
    found = told(ask("boss", ""))
    assert found["waitingOfOthers"] == 0
    assert not any("heldByOthers" in card for node in found["nodes"] for card in node["cards"])
    assert b"quagga" in ask("boss").body


def test_without_a_wish_a_service_account_sees_its_own_namespace() -> None:
    assert told(ask("system:serviceaccount:lab:runner", ""))["namespaces"] == ["lab"]


@pytest.mark.parametrize("seed", range(5))
def test_own_and_others_are_what_a_plain_count_says(seed: int) -> None:
    """Follows changes, and each time the sums are those of a new count over the whole snapshot."""
    rng, made = random.Random(seed), world()
    current = [view_of(made)]
    edge = ViewEdge(Callers(RightsApi(RIGHTS)), lambda: current[0], views=TokenBucket(1e6, 1000))
    names = itertools.count()
    for turn in range(6):
        change = rng.randrange(3)
        running = sorted({str(pod.gang) for pod in made.snapshot().pods.values() if pod.shares})
        if change == 0 and running:
            made.finish(rng.choice(running))
        elif change == 1 and running:
            for pod in made.pods_of(rng.choice(running)):
                made.put_pod(replace(pod, suspend_ordered=True, suspension=SuspensionState.SUSPENDED))
        else:
            key = f"{rng.choice(('lab', 'okapi-1'))}/more{next(names)}"
            kind = shape(rng.randrange(1, 40000), rng.randrange(40))
            gang = Gang(key, key, QueueName("lab"), rng.choice(list(ShareClass)), 0, 1, made.now)
            made.submit(gang, (("t", 1, kind),))
            made.settle()
        current[0] = view_of(made)
        found = told(ask("ada" if turn % 2 else "boss", edge=edge))
        snapshot = current[0].snapshot
        for row in cards(snapshot, shares(snapshot)):
            (node,) = (node for node in found["nodes"] if node["name"] == row.node)
            card = node["cards"][row.index]
            total = {key: card.get("held", ZERO)[key] + card.get("heldByOthers", ZERO)[key] for key in ZERO}
            assert total == {
                "pods": len({share.pod_uid for share in row.shares}),
                "memoryMiB": row.allocated_mib,
                "suspendedMiB": row.suspended_mib,
                "coresHighPercent": row.cores_high_percent,
                "coresLowPercent": row.cores_low_percent,
            }
            mine = {share.pod_uid for share in row.shares if share.namespace == "lab"}
            assert found["everything"] or card.get("held", ZERO)["pods"] == len(mine)


def test_views_are_rationed_by_caller_and_in_all() -> None:
    edge = edge_of(world())
    mine = [ask("ada", edge=edge).status for _ in range(QUESTIONS_AT_ONCE + 1)]
    assert mine == [200] * QUESTIONS_AT_ONCE + [429]
    assert ask("carl", edge=edge).status == 200
    few = edge_of(world(), views=TokenBucket(0.001, 1))
    assert [ask(name, edge=few).status for name in ("ada", "carl")] == [200, 429]


def test_without_the_api_server_there_is_no_view() -> None:
    api = RightsApi(RIGHTS)
    api.away = True
    assert ask("ada", edge=edge_of(world(), api)).status == 503


def test_what_could_not_be_asked_never_counts_as_of_others() -> None:
    edge = ViewEdge(Callers(RightsApi(RIGHTS), TokenBucket(0.0001, 2)), lambda: view_of(world()))
    assert ask("ada", edge=edge).status == 429


def test_a_view_that_finds_no_time_says_so_and_the_next_goes_on() -> None:
    rests = iter([True, False])
    edge = edge_of(world(), rests=lambda _timeout_s: next(rests, True))
    answer = ask("ada", edge=edge)
    assert (answer.status, b"no time" in answer.body) == (503, True)
    assert told(ask("ada", edge=edge)) == told(ask("ada"))


def test_a_standby_says_so() -> None:
    edge = ViewEdge(Callers(RightsApi(RIGHTS)), lambda: None)
    assert ask("ada", edge=edge).body == b"this replica does not lead\n"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("colour=red", "colour"),
        ("namespaces=..", "place in a path"),
        ("namespaces=a/b", "has a '/'"),
        ("namespaces=" + ",".join(f"n{i}" for i in range(MOST_NAMESPACES + 1)), "at most"),
        ("namespaces=" + "x" * 300, "too long"),
        ("&".join(f"namespaces={i}" for i in range(20)), "too many"),
    ],
)
def test_what_is_no_query_is_refused_by_name(query: str, said: str) -> None:
    answer = ask("ada", query)
    assert (answer.status, said in answer.body.decode()) == (400, True), answer.body


def test_it_is_packed_for_those_that_take_it() -> None:
    answer = ask("ada", takes_gzip=True)
    assert answer.encoding == "gzip"
    assert json.loads(gzip.decompress(answer.body)) == told(ask("ada"))
