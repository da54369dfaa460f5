"""Levels of the network, from labels of nodes and PodGroups into the decision."""

import queue
import threading
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, node, pod
from unit.kube.tiny_api import status, tiny_api
from vc_egpu.admission import settings
from vc_egpu.admission.intake.sources import Arrival, Sources
from vc_egpu.admission.serving.foresight.asked_jobs import asked
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import NodeName
from vc_egpu.core.model.gangs import partition_of
from vc_egpu.core.topology.network import Bound, Domain
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.watch import ChangeKind
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.network.bounds import PARTITION, partitions_of, policies_of, subgroup_of
from vc_egpu.volcano.network.labels import domains_by_labels
from vc_egpu.volcano.words import names

Json = dict[str, Any]

LEVELS = ("rack", "topology.example.com/block", "zone")


@pytest.mark.parametrize(
    ("labels", "domains"),
    [
        (
            {"rack": "r1", "topology.example.com/block": "b1", "zone": "z"},
            ((1, "zone z, block b1, rack r1"), (2, "zone z, block b1"), (3, "zone z")),
        ),
        ({"rack": "r1", "zone": "z"}, ((1, "zone z, rack r1"), (3, "zone z"))),
        ({"zone": "z"}, ((3, "zone z"),)),
        ({"rack": ""}, ()),
        ({}, ()),
    ],
)
def test_labels_name_the_domains_of_a_node(
    labels: dict[str, str], domains: tuple[tuple[int, str], ...]
) -> None:
    expected = tuple(Domain(tier, name, LEVELS[tier - 1]) for tier, name in domains)
    assert domains_by_labels(labels, LEVELS) == expected


@pytest.mark.parametrize(
    ("topology", "bound"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, Bound(2)),
        ({"highestTierAllowed": 1}, Bound(1)),
        ({"highestTierAllowed": 0}, Bound(0)),
        ({"highestTierName": "rack"}, Bound(level="rack")),
        ({"mode": "soft", "highestTierAllowed": 1}, None),
        ({"mode": "hard"}, None),
        ({"mode": "hard", "highestTierAllowed": "1"}, None),
        ({"mode": "hard", "highestTierAllowed": True}, None),
        ("hard", None),
        (None, None),
    ],
)
def test_a_must_has_a_mode_and_a_tier(topology: object, bound: Bound | None) -> None:
    group = {
        "metadata": {"name": "g", "namespace": "ml", "uid": "u", "resourceVersion": "1"},
        "spec": {"minMember": 2, "networkTopology": topology},
    }
    assert cluster_codec.group(group).gang.bound == bound


def test_a_node_that_changes_its_rack_is_seen() -> None:
    mirror = Mirror(TABLE, ("rack",))
    for rack in ("r1", "r2"):
        mirror.inventory.put({"metadata": {"name": "n1", "labels": {"rack": rack}}, "status": {}})
        assert mirror.nodes[NodeName("n1")].network == (Domain(1, f"rack {rack}", "rack"),)


def hypernode(name: str, *nodes: str, tier: int = 1, version: str = "1") -> Json:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes]
    metadata = {"name": name, "uid": name, "resourceVersion": version}
    return {"metadata": metadata, "spec": {"tier": tier, "members": members}}


def told(mirror: Mirror) -> dict[str, list[str]]:
    mirror.inventory.settle_network()
    return {str(name): [domain.name for domain in each.network] for name, each in mirror.nodes.items()}


def test_hypernodes_say_it_instead_of_labels_while_there_are_any() -> None:
    mirror = Mirror(TABLE, ("rack",))
    for name in ("n1", "n2"):
        made = node(name)
        made["metadata"]["labels"]["rack"] = "r1"
        mirror.apply("nodes", added(made))
    assert told(mirror) == {"n1": ["rack r1"], "n2": ["rack r1"]}
    mirror.agenda.take_question()
    mirror.apply("hypernodes", added(hypernode("h", "n1")))
    assert mirror.agenda.wants_decision
    assert told(mirror) == {"n1": ["h"], "n2": []}
    mirror.apply("hypernodes", added(hypernode("h", "n2", version="2")))
    mirror.apply("nodes", added(node("n3")))
    assert told(mirror) == {"n1": [], "n2": ["h"], "n3": []}
    mirror.apply("hypernodes", deleted(hypernode("h", version="3")))
    assert told(mirror) == {"n1": ["rack r1"], "n2": ["rack r1"], "n3": []}


def test_what_is_wrong_with_hypernodes_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node("n1")))
    broken = hypernode("broken", "n1")
    broken["spec"]["tier"] = "one"
    circle = hypernode("circle", "n1")
    circle["spec"]["members"].append({"type": "HyperNode", "selector": {"exactMatch": {"name": "circle"}}})
    for one in (broken, circle, hypernode("good", "n1")):
        mirror.apply("hypernodes", added(one))
    assert told(mirror) == {"n1": ["good"]}
    assert sorted(mirror.inventory.network.problems) == ["broken", "circle"]
    assert [name in caplog.text for name in ("HyperNode broken", "HyperNode circle", "good")] == [
        True,
        True,
        False,
    ]
    caplog.clear()
    mirror.apply("hypernodes", added(hypernode("more", version="9")))
    assert told(mirror) == {"n1": ["good"]}
    assert not caplog.text


def members_of(mirror: Mirror) -> list[tuple[str, ...]]:
    pods = sorted(mirror.snapshot().pods.values(), key=lambda pod: pod.index)
    return [pod.subgroup for pod in pods]


def test_labels_of_pods_say_which_subgroup_they_are_in() -> None:
    mirror = Mirror(TABLE)
    policy = {
        "name": "w",
        "labelSelector": {"matchLabels": {names.TASK_SPEC: "w"}},
        "matchLabelKeys": [PARTITION],
        "subGroupSize": 2,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    made = group(members=4)
    for index in range(4):
        one = pod(f"g-w-{index}", index=index)
        one["metadata"]["labels"] |= {names.TASK_SPEC: "w", PARTITION: str(index // 2)}
        mirror.apply("pods", added(one))
    mirror.apply("podgroups", added(made))
    assert members_of(mirror) == [(), (), (), ()]
    changed = group(members=4)
    changed["spec"]["subGroupPolicy"] = [policy]
    mirror.apply("podgroups", added(changed))
    assert members_of(mirror) == [("w", "0"), ("w", "0"), ("w", "1"), ("w", "1")]
    gang = mirror.snapshot().gangs["default/g"]
    assert gang.subgroups == {"w": Bound(1)}
    assert gang.is_bound
    again = group(members=4)
    mirror.apply("podgroups", added(again))
    assert members_of(mirror) == [(), (), (), ()]


def test_a_pod_is_in_the_first_subgroup_that_takes_it() -> None:
    policies = policies_of(
        [
            {"name": "a", "matchLabelKeys": ["part"], "networkTopology": {"highestTierName": "rack"}},
            {"name": "a", "networkTopology": {"highestTierAllowed": 1}},
            {"labelSelector": {"matchLabels": {"x": "y"}}},
            "garbage",
            {"labelSelector": "garbage"},
        ]
    )
    assert [(policy.name, policy.bound) for policy in policies] == [
        ("a", Bound(level="rack")),
        ("2", None),
    ]
    assert subgroup_of(policies, {"part": "0", "x": "y"}) == ("a", "0")
    assert subgroup_of(policies, {"x": "y"}) == ("2",)
    assert subgroup_of(policies[:2], {}) == ()
    assert policies_of("garbage") == policies_of(None) == ()


def test_partitions_are_known_before_their_pods() -> None:
    policy = {
        "name": "w",
        "labelSelector": {"matchLabels": {names.TASK_SPEC: "w"}},
        "matchLabelKeys": [PARTITION],
        "subGroupSize": 3,
    }
    assert partitions_of(policies_of([policy]), ["ps", "w"]) == {"w": ("w", 3)}


def test_a_cluster_without_the_kind_is_read_and_the_kind_is_found_later(tmp_path: Path) -> None:
    told: queue.Queue[Arrival] = queue.Queue()
    absent = threading.Event()
    path = "/apis/topology.volcano.sh/v1alpha1/hypernodes"

    def refuses(method: str, where: str, body: object) -> tuple[int, Json] | None:
        if absent.is_set() and where.startswith(path):
            return 404, status(404, "NotFound", "the server could not find the requested resource")
        return None

    with tiny_api() as server:
        server.refuses = refuses
        absent.set()
        api = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=4, timeout_s=30)
        sources = Sources(api, told.put, "vc-egpu")
        sources.start()
        try:
            while sources.missing():
                sources.wait(5.0)
            assert told.empty()
            with server.lock:
                server.objects[f"{path}/h"] = hypernode("h", "n1")
            absent.clear()
            plural, change = told.get(timeout=30)
            assert (plural, change.kind, change.object["metadata"]["name"]) == (
                "hypernodes",
                ChangeKind.ADDED,
                "h",
            )
        finally:
            sources.stop()
            api.close()


def test_levels_are_a_flag() -> None:
    assert settings.parse([]).network_levels == ()
    assert settings.parse(["--network-levels", "rack, block,zone"]).network_levels == (
        "rack",
        "block",
        "zone",
    )


@pytest.mark.parametrize("text", ["rack,rack", "a rack", "x" * 400])
def test_what_is_no_list_of_labels_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        settings.parse(["--network-levels", text])


def test_a_job_that_is_asked_about_has_its_bounds() -> None:
    limits = {"volcano.sh/vgpu-h20": "1"}
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
    policy = {"totalPartitions": 2, "partitionSize": 2, "networkTopology": {"highestTierAllowed": 1}}
    job = {
        "metadata": {"name": "j"},
        "spec": {
            "minAvailable": 4,
            "networkTopology": {"highestTierName": "block"},
            "tasks": [{"name": "w", "replicas": 4, "template": template, "partitionPolicy": policy}],
        },
    }
    found = asked(job, "ml", TABLE, 0.0).gang
    assert found.bound == Bound(level="block")
    assert found.subgroups == {"w": Bound(1)}
    assert [partition_of(found, "w", index) for index in (0, 1, 2)] == [("w", "0"), ("w", "0"), ("w", "1")]
