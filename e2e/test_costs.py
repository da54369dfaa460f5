"""What a report saves, from its numbers to the cards: three cases, each with the cards used before and after.

Real API server, real controllers of Deployments and of Jobs, our processes next to the cluster, and simulated
nodes. Who has which card is scraped; what programs do with it is made up. The program's own report counts.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from localcluster.api import wait_until
from outcomes.workload import container, pod_spec, shares
from rigs.day_of_use import Held, Report, Work
from rigs.one_team import H20, NAMESPACE, TIMEOUT_S, OneTeam, one_team
from stack.install import Stack
from stack.kit import is_running
from vc_egpu.kube.resources import NODES, PODS, VOLCANO_JOBS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
MEMORY: Final = names.memory_total_resource("h20")
CARD_MIB, GIB_IN_MIB = 98304, 1024
QUEUE: Final = {"scheduling.volcano.sh/queue-name": "team"}
ROLE: Final = "team-serves"
Json = dict[str, Any]


def by_day(hour: int) -> float:
    """Busy while people are awake."""
    return 0.8 if 8 <= hour < 20 else 0.0


def by_night(hour: int) -> float:
    return 0.8 if hour >= 21 or hour < 7 else 0.0


def always(part: float) -> Callable[[int], float]:
    return lambda _hour: part


@dataclass(frozen=True)
class Site:
    """The cluster, and what its reports say."""

    team: OneTeam

    def serve(self, name: str, limits: Mapping[str, int], priority: str = "") -> None:
        """A Deployment of one replica."""
        annotations = QUEUE | ({names.PRIORITY: priority} if priority else {})
        template = {
            "metadata": {"labels": {"app": name}, "annotations": annotations},
            "spec": pod_spec(container(limits=dict(limits))),
        }
        spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
        self.team.apply(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        )

    def runs(self, *memory_mib: int) -> Held:
        """Wait until pods with just these sizes run, and the leader tells of just them."""
        kit = self.team.stack.kit

        def settled(pods: dict[str, Json]) -> set[str] | None:
            asked = sorted(
                int(one["spec"]["containers"][0]["resources"]["limits"][MEMORY]) for one in pods.values()
            )
            return set(pods) if all(map(is_running, pods.values())) and asked == sorted(memory_mib) else None

        pods = kit.until("all run", PODS, settled, namespace=NAMESPACE, timeout_s=TIMEOUT_S)
        port = self.team.stack.ports["admission"]
        wait_until("the leader tells of them", lambda: Held.scraped(port).pods == pods, TIMEOUT_S)
        return Held.scraped(port)

    def close(self, nodes: set[str]) -> None:
        """They take nothing new."""
        for node in nodes:
            self.team.stack.kit.kubectl("cordon", node)

    def egpu(self, *arguments: str) -> Any:
        """``kubectl egpu`` in the team's namespace; its answer."""
        return json.loads(Stack.of(self.team.stack.cluster).egpu(*arguments, "-n", NAMESPACE, "-o", "json"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneTeam]:
    """Three nodes of two cards, and a team that serves and trains."""
    with one_team("costs", nodes=3, cards=2, caps={H20: "16"}) as stack:
        stack.kit.apply(*_rights())
        yield OneTeam(stack)


@pytest.fixture
def site(cluster: OneTeam) -> Iterator[Site]:
    """Nothing of an earlier story is left."""
    kit = cluster.stack.kit
    yield Site(cluster)
    cluster.check_invariants()
    for node in kit.api.list(NODES).items:
        kit.kubectl("uncordon", node["metadata"]["name"])
    kit.kubectl("delete", "deployments,jobs.batch.volcano.sh", "--all", "-n", NAMESPACE, "--wait=true")
    kit.until("all have gone", PODS, lambda pods: not pods or None, namespace=NAMESPACE, timeout_s=TIMEOUT_S)


def _rights() -> list[Json]:
    """The ReplicaSet controller makes the pods, so their account needs the queue and the class."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["use"]},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["use"]},
    ]
    account = {"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": ROLE}
    metadata = {"name": ROLE}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [account],
        },
    ]


def sizes_of(report: Report) -> dict[str, Json]:
    return {row["service"]: row for row in report.tables["right_sizes"]}


def test_two_services_share_one_card_after_their_sizes_were_put_right(site: Site, tmp_path: Path) -> None:
    does = {"chat": Work(34.0, always(0.3)), "search": Work(34.0, always(0.2))}
    for name in does:
        site.serve(name, shares())
    before = site.runs(CARD_MIB, CARD_MIB).used_as(does, tmp_path / "before")
    assert before.cards_used == 2
    told = site.egpu("right-size", "--report", before.file, "--apply")["sizes"]
    assert {one["state"] for one in told} == {"applied"}
    after = site.runs(*[40 * GIB_IN_MIB] * 2).used_as(does, tmp_path / "after")
    assert (before.cards_used, after.cards_used) == (2, 1)
    assert after.saved_cards("slicing") == 1
    # What it promised for a week is what it saves: a card has 168 hours in one.
    assert sum(row["saved_card_hours_per_week"] for row in sizes_of(before).values()) >= 168
    assert site.egpu("right-size", "--report", after.file)["sizes"] == [], "nothing is left to do"


def test_training_goes_into_the_gaps_of_inference(site: Site, tmp_path: Path) -> None:
    """Four cards on two nodes before, two on one node after, and the operator has two nodes to give back.

    As long as cards are free, a Job that wants all of a card's time gets one for itself. So the nodes that
    are to go are closed first.
    """
    serves = {name: Work(50.0, by_day) for name in ("chat", "search")}
    for name in serves:
        site.serve(name, shares(), priority="high")
    for name in ("train-a", "train-b"):
        site.team.make(name, shares(), priority="low")
    alone = serves | {name: Work(30.0, always(0.95)) for name in ("train-a", "train-b")}
    held = site.runs(*[CARD_MIB] * 4)
    before = held.used_as(alone, tmp_path / "before")
    assert (before.cards_used, before.saved_cards()) == (4, 0)
    sizes = {name: row["memory_proposed_bytes"] / 2**20 for name, row in sizes_of(before).items()}
    one_of_each = sizes["chat"] + sizes["train-a"]
    assert one_of_each <= CARD_MIB < sizes["chat"] + sizes["search"]

    site.close(held.nodes)
    told = site.egpu("right-size", "--report", before.file, "--apply")
    states = {one["name"]: one["state"] for one in told["sizes"]}
    assert states == {
        "chat": "applied",
        "search": "applied",
        "train-a": "replace it",
        "train-b": "replace it",
    }
    # Their owner makes the Jobs again, as the command has printed them.
    for manifest in told["manifests"]:
        name = manifest["metadata"]["name"]
        site.team.stack.kit.kubectl("delete", "jobs.batch.volcano.sh", name, "-n", NAMESPACE, "--wait=true")
    services = [int(sizes[name]) for name in serves]
    site.runs(*services)
    for manifest in told["manifests"]:
        site.team.apply(manifest)
    held = site.runs(*services, *[int(sizes["train-a"])] * 2)
    classes: dict[str, set[str]] = {}
    for share in held.shares:
        classes.setdefault(share.labels["uuid"], set()).add(share.labels["class"])
    assert list(classes.values()) == [{"high", "low"}] * 2

    assert len(held.nodes) == 1
    in_gaps = serves | {name: Work(30.0, lambda h: 0.95 - by_day(h)) for name in ("train-a", "train-b")}
    after = held.used_as(in_gaps, tmp_path / "after")
    assert (before.cards_used, after.cards_used) == (4, 2)
    # Cores of high and low sum up above one card, and the report calls that oversubscription.
    assert after.saved_cards("oversubscription") + after.saved_cards("colocation") == 2
    assert {job["metadata"]["name"] for job in _jobs(site)} == {"train-a", "train-b"}
    assert [site.team.tries(name) for name in ("train-a", "train-b")] == [0, 0]


def _jobs(site: Site) -> list[Json]:
    return site.team.stack.kit.api.list(VOLCANO_JOBS, NAMESPACE).items


def test_two_services_that_work_at_different_hours_are_paired(site: Site, tmp_path: Path) -> None:
    """Right sizes save nothing here: each works on most of a card while it works."""
    does = {"shop": Work(40.0, by_day), "reports": Work(36.0, by_night)}
    for name in does:
        site.serve(name, shares(CARD_MIB, 80))
    before = site.runs(CARD_MIB, CARD_MIB).used_as(does, tmp_path / "before")
    assert before.cards_used == 2
    sizes = sizes_of(before)
    assert sum(row["cores_proposed_ratio"] for row in sizes.values()) > 1
    (pair,) = before.tables["pairs"]
    assert {pair["service_one"], pair["service_other"]} == set(does)
    assert (pair["method"], pair["conflict_hours"]) == ("share", 0)

    told = site.egpu("pair", "--report", before.file, "--apply")["halves"]
    assert {one["name"]: one["state"] for one in told} == dict.fromkeys(does, "applied")
    sizes_mib = [one["memory_mib"] for one in told]
    after = site.runs(*sizes_mib).used_as(does, tmp_path / "after")
    assert (before.cards_used, after.cards_used) == (2, 1)
    assert pair["saved_card_hours_per_week"] == 168 * after.saved_cards()

    site.egpu("pair", "--remove", "--apply")
    again = site.runs(CARD_MIB, CARD_MIB).used_as(does, tmp_path / "again")
    assert again.cards_used == 2
