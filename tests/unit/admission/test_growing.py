"""Nodes that are asked for: how many, when, and when not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.admission.growing.grower import Grower, name_of
from vc_egpu.admission.growing.need import Empty, Need, need, nodes_of
from vc_egpu.admission.growing.node_groups import NodeGroups, NodeGroupsError
from vc_egpu.admission.growing.steps import (
    MOST_RETRY_S,
    RETRY_S,
    SETTLE_S,
    STEADY_S,
    Make,
    Memory,
    Remove,
    Request,
    Stand,
    stand_of,
    step,
)
from vc_egpu.admission.view import View
from vc_egpu.core.model import findings
from vc_egpu.core.model.cluster import AskOption, PodPhase, QueueName, Snapshot
from vc_egpu.core.model.findings import Limit, NoOption
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.waiting import say
from vc_egpu.kube.connection import ObjectList
from vc_egpu.kube.wire.errors import Conflict, KubeError, NotFound
from vc_egpu.volcano.words.model_table import ModelTable

EMPTY = Empty(8, make.H20_MIB)
WAITS = Verdict(Reason.WAITING_FOR_CARDS, "")
TABLE = ModelTable.model_validate({"models": [{"name": "h20", "memoryMiB": make.H20_MIB}]})
GROUPS = "groups: [{model: h20, podTemplate: gpu-node, mostNodes: 4}]"


def world(*sizes: tuple[str, int, Any], nodes: int = 0) -> Snapshot:
    """Gangs of (key, members, shape), all waiting."""
    gangs = [make.gang(key, least=count) for key, count, _ in sizes]
    members = [pod for key, count, shape in sizes for pod in make.pods(key, count, shape)]
    return make.snapshot([make.node(f"n{i}", 8) for i in range(nodes)], gangs, members)


def verdicts(snapshot: Snapshot, verdict: Verdict = WAITS) -> dict[str, Verdict]:
    return dict.fromkeys(snapshot.gangs, verdict)


# --- how many ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "shape", "nodes"),
    [
        (4, make.shape(make.H20_MIB, 100), 1),  # four whole cards
        (9, make.shape(make.H20_MIB, 100), 2),
        (16, make.shape(make.H20_MIB // 2, 50), 1),  # two on each card
        (17, make.shape(make.H20_MIB // 2, 50), 2),
        (3, make.shape(60_000, 10), 1),  # more than half of a card each
        (2, make.shape(make.H20_MIB, 100, cards=5), 2),  # five do not share eight
        (2, make.shape(make.H20_MIB, 100, cards=9), 0),  # no node is as large
        (3, make.shape(), 0),  # no cards at all
    ],
)
def test_a_gang_asks_for_the_nodes_that_it_fills(members: int, shape: Any, nodes: int) -> None:
    snapshot = world(("ns/a", members, shape))
    assert need(snapshot, verdicts(snapshot), "h20", EMPTY).nodes == nodes
    assert need(snapshot, verdicts(snapshot), "t4", EMPTY).nodes == 0


def test_small_gangs_share_a_node() -> None:
    snapshot = world(*((f"ns/{i}", 2, make.shape(make.H20_MIB, 100)) for i in range(4)))
    assert need(snapshot, verdicts(snapshot), "h20", EMPTY) == Need(1, ("ns/0", "ns/1", "ns/2", "ns/3"))


@pytest.mark.parametrize(
    "reason", [r for r in Reason if r.value not in ("WaitingForCards", "WaitingForModel")]
)
def test_nothing_else_than_missing_cards_asks_for_nodes(reason: Reason) -> None:
    snapshot = world(("ns/a", 4, make.shape(make.H20_MIB, 100)))
    assert need(snapshot, verdicts(snapshot, Verdict(reason, "")), "h20", EMPTY).nodes == 0


def test_a_gang_that_runs_asks_for_nothing_and_replicas_do() -> None:
    snapshot = world(("ns/a", 2, make.shape(make.H20_MIB, 100)))
    first = next(iter(snapshot.pods.values()))
    runs = replace(snapshot, pods={**snapshot.pods, first.uid: replace(first, phase=PodPhase.PLACED)})
    assert need(runs, verdicts(runs), "h20", EMPTY).nodes == 0
    replicas = replace(runs, gangs={"ns/a": replace(runs.gangs["ns/a"], single=True, min_member=1)})
    assert need(replicas, verdicts(replicas), "h20", EMPTY).nodes == 1


def test_a_gang_whose_pods_are_still_to_be_made_asks_by_its_template() -> None:
    gang = make.gang("ns/a", least=2, template=(("w", 2, make.shape(make.H20_MIB, 100, cards=8)),))
    assert need(make.snapshot(gangs=[gang]), {"ns/a": WAITS}, "h20", EMPTY).nodes == 2


def test_a_gang_that_takes_any_of_several_models_asks_for_the_first_that_lacks_cards_alone() -> None:
    asks = {name: replace(make.shape(make.H20_MIB, 100).asks[0], model=name) for name in ("t4", "h20", "l20")}
    options = tuple(AskOption(name, (ask,)) for name, ask in asks.items())
    snapshot = world(("ns/a", 9, replace(make.shape(), options=options)))
    limit = Limit(QueueName("q"), "volcano.sh/vgpu-t4", 9, 0, 4)
    request = findings.Request(9, ())
    found = NoOption(
        (
            ("t4", findings.OverCap(request, limit)),
            ("h20", findings.Shortage(request, QueueName("q"), 9, 0)),
            ("l20", findings.NoModel("l20", native=False)),
        )
    )
    said = verdicts(snapshot, say.verdict(found))
    assert [need(snapshot, said, name, EMPTY).nodes for name in asks] == [0, 2, 0]


def test_a_gang_that_is_gone_asks_for_nothing() -> None:
    assert need(make.snapshot(), {"ns/a": WAITS}, "h20", EMPTY).nodes == 0


# --- when -------------------------------------------------------------------------------------------


def open_one(nodes: int = 2) -> Request:
    return Request("r", nodes, Stand.OPEN)


def test_a_need_is_asked_for_once_it_is_steady() -> None:
    memory, action = step(Memory(), Need(2), 4, None, 100)
    assert action is None
    memory, action = step(memory, Need(3), 4, None, 100 + STEADY_S)
    assert action == Make(3)
    assert step(memory, Need(9), 4, None, 200)[1] == Make(4)  # no more than may come
    assert step(memory, Need(9), 0, None, 200)[1] is None


def test_a_need_that_ends_takes_its_request_back() -> None:
    assert step(Memory(since=1), Need(0), 4, open_one(), 2) == (Memory(), Remove("r"))


def test_an_open_request_stays_whatever_the_need_is() -> None:
    assert step(Memory(since=1), Need(4), 4, open_one(), 10_000)[1] is None


def test_a_request_that_failed_is_made_again_later_and_later() -> None:
    memory, now, pauses = Memory(since=0.0), 0.0, []
    for _ in range(8):
        memory, action = step(memory, Need(2), 4, Request("r", 2, Stand.FAILED), now)
        assert action == Remove("r")
        pauses.append(memory.not_before - now)
        assert step(memory, Need(2), 4, None, memory.not_before - 1)[1] is None
        assert step(memory, Need(2), 4, None, memory.not_before)[1] == Make(2)
        now = memory.not_before
    assert pauses[:3] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    assert max(pauses) == MOST_RETRY_S


def test_nodes_that_helped_no_gang_are_not_asked_for_again_at_once() -> None:
    promised, waiting = Request("r", 2, Stand.PROVISIONED), Need(2, ("ns/a",))
    memory, action = step(Memory(since=0.0), waiting, 4, promised, 100)
    assert action is None
    memory, action = step(memory, waiting, 4, promised, 100 + SETTLE_S)
    assert action == Remove("r")
    assert step(memory, waiting, 4, None, 101 + SETTLE_S)[1] is None
    assert step(memory, waiting, 4, None, 100 + SETTLE_S + RETRY_S)[1] == Make(2)


def test_nodes_that_helped_are_followed_by_more_for_other_gangs() -> None:
    promised = Request("r", 2, Stand.PROVISIONED)
    memory, _ = step(Memory(since=0.0), Need(2, ("ns/a",)), 4, promised, 100)
    memory, action = step(memory, Need(1, ("ns/b",)), 2, promised, 100 + SETTLE_S)
    assert action == Remove("r")
    assert step(memory, Need(1, ("ns/b",)), 2, None, 101 + SETTLE_S)[1] == Make(1)


@pytest.mark.parametrize(
    ("conditions", "stand"),
    [
        ([], Stand.OPEN), (None, Stand.OPEN), ("x", Stand.OPEN), (["x", {}], Stand.OPEN),
        ([{"type": "Accepted", "status": "True"}], Stand.OPEN),
        ([{"type": "Provisioned", "status": "False"}], Stand.OPEN),
        ([{"type": "Provisioned", "status": "True"}], Stand.PROVISIONED),
        ([{"type": "Provisioned", "status": "True"}, {"type": "BookingExpired", "status": "True"}],
         Stand.PROVISIONED),
        ([{"type": "Failed", "status": "True"}], Stand.FAILED),
        ([{"type": "Provisioned", "status": "True"}, {"type": "CapacityRevoked", "status": "True"}],
         Stand.FAILED),
    ],
)  # fmt: skip
def test_what_its_conditions_say(conditions: Any, stand: Stand) -> None:
    assert stand_of({"status": {"conditions": conditions}})[0] is stand
    assert stand_of({"status": conditions})[0] is Stand.OPEN


# --- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("groups: [{model: h20, podTemplate: a}]", "groups.0.mostNodes"),
        ("groups: [{model: h20, podTemplate: a, mostNodes: 0}]", "groups.0.mostNodes"),
        ("groups: [{model: l20, podTemplate: a, mostNodes: 1}]", "'l20' is not in the model table"),
        ("groups: [{model: h20, podTemplate: A/B, mostNodes: 1}]", "groups.0.podTemplate"),
        ("groups: [{model: h20, podTemplate: a, mostNodes: 1, most: 1}]", "groups.0.most"),
        (
            "groups: [" + ", ".join(["{model: h20, podTemplate: a, mostNodes: 1}"] * 2) + "]",
            "has two groups",
        ),
        ("groups: [", "not YAML"),
        ("[1]", "node groups"),
    ],
)
def test_a_bad_file_names_the_field(text: str, says: str) -> None:
    with pytest.raises(NodeGroupsError, match=says.replace("[", r"\[")):
        NodeGroups.from_yaml(text, TABLE)


def test_an_empty_file_is_no_group() -> None:
    assert NodeGroups.from_yaml("", TABLE).groups == ()


# --- on an API server -------------------------------------------------------------------------------


class Api:
    """The three calls that the grower makes."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.broken = False

    def list(self, *_: Any, **__: Any) -> ObjectList:
        if self.broken:
            raise KubeError("the API server is away")
        return ObjectList(list(self.objects.values()), "1")

    def create(self, _: Any, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if name in self.objects:
            raise Conflict("it is there")
        self.objects[name] = body
        assert namespace == body["metadata"]["namespace"] == "system"
        return body

    def delete(self, _: Any, name: str, __: str) -> dict[str, Any]:
        if name not in self.objects:
            raise NotFound("no such thing")
        return self.objects.pop(name)


class Site:
    def __init__(self) -> None:
        self.api = Api()
        self.snapshot = world(("ns/a", 2, make.shape(make.H20_MIB, 100, cards=8)))
        self.verdicts: Mapping[str, Verdict] = verdicts(self.snapshot)
        self.admitting = True
        self.now = 0.0

    def grower(self, groups: str = GROUPS) -> Grower:
        return Grower(
            self.api,  # type: ignore[arg-type]
            "system",
            NodeGroups.from_yaml(groups, TABLE),
            table=TABLE,
            view=lambda: View(self.snapshot, self.verdicts, {}, 1, self.admitting),
            monotonic=lambda: self.now,
        )

    def look(self, grower: Grower, after_s: float = 0.0) -> None:
        self.now += after_s
        grower.look()


def test_one_request_stands_while_gangs_lack_cards() -> None:
    site = Site()
    grower = site.grower()
    site.look(grower)
    assert not site.api.objects
    site.look(grower, STEADY_S)
    spec = site.api.objects[name_of("h20")]["spec"]
    assert spec["podSets"] == [{"podTemplateRef": {"name": "gpu-node"}, "count": 2}]
    site.look(grower, 1000)
    assert len(site.api.objects) == 1
    site.verdicts = {}
    site.look(grower, 1)
    assert not site.api.objects


def test_the_next_leader_goes_on_with_the_request() -> None:
    site = Site()
    first = site.grower()
    site.look(first)
    site.look(first, STEADY_S)
    second = site.grower()
    site.look(second, STEADY_S)
    site.look(second, STEADY_S)
    assert len(site.api.objects) == 1
    site.snapshot = make.snapshot()
    site.look(second, 1)
    assert not site.api.objects


def test_nodes_that_are_there_count_against_the_most() -> None:
    site = Site()
    site.snapshot = world(("ns/a", 4, make.shape(make.H20_MIB, 100, cards=8)), nodes=3)
    assert nodes_of(site.snapshot, "h20") == 3
    grower = site.grower()
    site.look(grower)
    site.look(grower, STEADY_S)
    assert site.api.objects[name_of("h20")]["spec"]["podSets"][0]["count"] == 1


def test_nothing_is_asked_for_while_the_operator_has_stopped_admitting() -> None:
    site = Site()
    site.admitting = False
    grower = site.grower()
    site.look(grower)
    site.look(grower, STEADY_S)
    assert not site.api.objects


def test_a_group_that_left_the_file_takes_its_request_along() -> None:
    site = Site()
    grower = site.grower()
    site.look(grower)
    site.look(grower, STEADY_S)
    site.look(site.grower("groups: []"))
    assert not site.api.objects


def test_requests_of_others_are_left_alone() -> None:
    site = Site()
    site.api.objects["theirs"] = {"metadata": {"name": "theirs", "labels": {}}}
    site.look(site.grower())
    assert "theirs" in site.api.objects


def test_an_api_server_without_such_requests_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.api.broken = True
    grower = site.grower()
    for _ in range(3):
        site.look(grower, STEADY_S)
    assert caplog.text.count("requests for nodes cannot be read") == 1
