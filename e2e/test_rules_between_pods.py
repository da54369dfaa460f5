"""Rules between pods as we read them, beside a real kube-scheduler: it takes each placement that we plan.

The scheduler is free to choose among all nodes. One thing leads each pod: an extended resource of its own,
which only the node of the plan offers. Rules between pods do not look at such resources. So a pod that stays
unbound is one that the rules keep from its planned node.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from localcluster import ClusterSpec, LocalCluster
from localcluster.kwok import KwokNode
from rigs import random_rules
from stack.kit import Kit, StoryError
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.policy import Policy
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NAMESPACES, NODES, PODS
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest, NodeCard, NodeCards, Request
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]
Json = dict[str, Any]
PLACEMENTS: Final = 200
NODE_COUNT: Final = 12
MEMORY_MIB: Final = 98304
TABLE: Final = ModelTable.from_yaml(
    f"models: [{{name: h20, products: [NVIDIA H20], memoryMiB: {MEMORY_MIB}}}]"
)
SPACES: Final = {"one": {"team": "a"}, "other": {"team": "b"}}
"""Labels of the namespaces. The rules name the second one."""
HELD: Final = "example.com/held"
LEADS: Final = "example.com/pod-"
MOST_THERE: Final = 40


def _node(index: int, name: str) -> KwokNode:
    labels = {"zone": "abc"[index % 3], "rack": "xyzw"[index // 3 % 4]}
    if index == NODE_COUNT - 1:
        labels = {}
    cards = tuple(
        NodeCard(uuid=f"GPU-{name}-{i}", index=i, model="h20", memory_mib=MEMORY_MIB) for i in range(8)
    )
    return KwokNode(name, labels=labels, annotations={names.NODE_CARDS: NodeCards(cards=cards).encode()})


@pytest.fixture
def kit() -> Iterator[Kit]:
    with LocalCluster.up(ClusterSpec(name="rules", real_nodes=0, services=False, dns=False)) as cluster:
        cluster.add_kwok_nodes(NODE_COUNT, _node)
        yield Kit(ApiConnection.connect(cluster.kubeconfig), cluster.kubectl)


class Planner:
    """Gangs for a cluster in which other pods run, and our plans for them."""

    def __init__(self, kit: Kit, rng: random.Random) -> None:
        self._kit = kit
        self._rng = rng
        self._number = 0

    def made(self) -> list[Json]:
        """The members of a gang, as the API server fills them in. They are held by a gate."""
        rng = self._rng
        spec, labels = random_rules.rules(rng, 0.6), random_rules.labels(rng)
        return [self._pod(spec, labels) for _ in range(rng.randint(1, 4))]

    def _pod(self, spec: Json, labels: dict[str, str]) -> Json:
        self._number += 1
        leads = {f"{LEADS}{self._number}": "1"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p-{self._number}", "namespace": "one", "labels": labels},
            "spec": {
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": leads, "limits": leads}}
                ],
                "schedulingGates": [{"name": HELD}],
                **spec,
            },
        }
        return self._kit.api.create(PODS, body)

    def planned(self, members: list[Json]) -> dict[str, str] | None:
        """The node of each member, by name; None where it has to wait."""
        api, mirror = self._kit.api, Mirror(TABLE)
        queue = {"metadata": {"name": "q", "uid": "q", "resourceVersion": "1"}}
        caps = {names.shared_resource("h20"): "1000"}
        mirror.apply("queues", _added({**queue, "spec": {"capability": caps}}))
        for resource in (NAMESPACES, NODES):
            for found in api.list(resource).items:
                mirror.apply(resource.plural, _added(found))
        ours = {member["metadata"]["uid"] for member in members}
        for pod in api.list(PODS).items:
            if pod["metadata"]["uid"] not in ours:
                mirror.apply("pods", _added(pod))
        group = {"name": "g", "namespace": "one", "uid": "g", "resourceVersion": "1"}
        group["creationTimestamp"] = "2026-01-01T00:00:00Z"
        spec = {"minMember": len(members), "queue": "q"}
        mirror.apply("podgroups", _added({"metadata": group, "spec": spec, "status": {"phase": "Inqueue"}}))
        for index, member in enumerate(members):
            mirror.apply("pods", _added(_as_ours(member, index)))
        plan = decide(mirror.snapshot(), Policy(), 0.0)
        if not plan.admissions:
            return None
        places = plan.admissions[0].members
        return {one["metadata"]["name"]: str(places[f"w/{at}"].node) for at, one in enumerate(members)}

    def release(self, members: list[Json], places: dict[str, str]) -> None:
        """Let the scheduler have them: each finds its own resource on the planned node."""
        for member in members:
            name = member["metadata"]["name"]
            amount = {f"{LEADS}{name.removeprefix('p-')}": "1"}
            status = {"status": {"capacity": amount, "allocatable": amount}}
            self._kit.api.patch_status(NODES, places[name], status)
        for member in members:
            gone = {"spec": {"schedulingGates": None}}
            self._kit.api.patch(PODS, member["metadata"]["name"], gone, "one")

    def remove(self, pods: list[str]) -> None:
        for name in pods:
            self._kit.api.delete(PODS, name, "one", grace_period_s=0)


def _added(document: Json) -> Change:
    return Change(ChangeKind.ADDED, document)


def _as_ours(member: Json, index: int) -> Json:
    """The same pod as a member of a gang that asks for a card and is bound by us."""
    ask = ContainerRequest(model="h20", cards=1, memory_mib=1000, cores_percent=1)
    metadata = {
        **member["metadata"],
        "labels": {**(member["metadata"].get("labels") or {}), names.MANAGED_LABEL: "true"},
        "annotations": {
            names.REQUEST: Request(containers={"main": ask}).encode(),
            names.GROUP_NAME: "g",
            names.TASK_SPEC: "w",
            names.TASK_INDEX: str(index),
        },
    }
    containers = [{"name": "main", "resources": {}}]
    spec = {**member["spec"], "containers": containers, "schedulerName": names.SCHEDULER_DIRECT}
    spec.pop("schedulingGates", None)
    return {**member, "metadata": metadata, "spec": spec}


def test_a_scheduler_takes_what_is_planned(kit: Kit) -> None:
    for name, labels in SPACES.items():
        kit.api.create(
            NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
        )
    rng = random.Random(28)
    planner = Planner(kit, rng)
    there: list[str] = []
    placed = waited = 0
    refused: list[tuple[Json, dict[str, str]]] = []
    while placed < PLACEMENTS:
        members = planner.made()
        named = [member["metadata"]["name"] for member in members]
        places = planner.planned(members)
        if places is None:
            waited += 1
            planner.remove(named)
        else:
            planner.release(members, places)
            try:
                kit.pods_until("all are bound", "one", _all_bound(named), timeout_s=20)
            except StoryError:
                refused.append((members[0]["spec"], places))
            where = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in kit.api.list(PODS).items}
            assert all(where[name] in {places[name], None} for name in named)
            placed += len(members)
            there += named
        if len(there) > MOST_THERE or (places is None and there):
            going = [there.pop(rng.randrange(len(there))) for _ in range(min(4, len(there)))]
            planner.remove(going)
            with suppress(StoryError):
                kit.pods_until("they are gone", "one", _all_gone(going))
    print(f"\n{placed} placements, {waited} gangs had to wait, refused: {len(refused)}")
    assert not refused


def _all_gone(named: list[str]) -> Callable[[dict[str, Json]], bool]:
    return lambda now: set(named).isdisjoint(now)


def _all_bound(named: list[str]) -> Callable[[dict[str, Json]], bool]:
    return lambda now: all(now.get(name, {}).get("spec", {}).get("nodeName") for name in named)
