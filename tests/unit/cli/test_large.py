"""A cluster of thousands of nodes: what is read of it, and what of that is kept."""

import copy
import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.cli.test_doctor import bad, healthy, said
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.cli import kubectl, stop, world
from vc_egpu.cli.doctor.stack import removal_findings
from vc_egpu.cli.views import cards, owners, queues, trouble, waiting, why
from vc_egpu.cli.world import Listing
from vc_egpu.volcano.words import names


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        yield found


@pytest.mark.parametrize("command", ["cards", "queues", "why"])
def test_what_asks_for_no_cards_is_not_read(
    command: str, server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All pods of a large cluster are a gigabyte on the wire and four in memory."""
    assert kubectl.main([command, "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))]) == 0
    capsys.readouterr()
    asked = [path for _, path, _ in server.requests if path.partition("?")[0].endswith("/pods")]
    assert asked
    assert all("labelSelector=egpu.volcano.sh%2Fmanaged%3Dtrue" in path for path in asked)


@pytest.mark.parametrize("argv", [["why"], ["why", "train"]])
def test_of_events_those_are_read_that_are_told_of(
    argv: list[str], server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A large cluster has a hundred thousand others."""
    kubectl.main([*argv, "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))])
    capsys.readouterr()
    asked = [path for _, path, _ in server.requests if path.partition("?")[0].endswith("/events")]
    assert asked
    assert all("fieldSelector=reason%3D" in path for path in asked)


def test_a_name_that_is_misspelt_is_not_answered_with_thousands() -> None:
    nodes = [docs.node(f"node-{i:04}", docs.card(f"GPU-{i}")) for i in range(2000)]
    report = cards.report(nodes, [])
    assert [card.node for card in cards.of_node(report, "node-0007").cards] == ["node-0007"]
    (near,) = cards.of_node(report, "nod-0007").notes
    assert near == "no cards on nod-0007; did you mean node-0007?"
    (far,) = cards.of_node(report, "xyz").notes
    assert far == "no cards on xyz; there are some on node-0000, node-0001, node-0002 and 1997 more"
    with pytest.raises(stop.UnknownQueueError) as caught:
        stop.choose([docs.queue(f"tenant-{i}") for i in range(500)], ["xyz"])
    assert len(str(caught.value)) < 500


def test_what_is_wrong_with_a_thousand_nodes_is_one_finding() -> None:
    """The doctor wrote a line and a hint for each: before installing next to NVIDIA's plugin, say."""
    nodes = [docs.node(f"n{i:04}", docs.card(f"GPU-{i}")) for i in range(1000)]
    for node in nodes:
        node["status"]["capacity"] = {"nvidia.com/gpu": "8"}
        node["status"]["nodeInfo"]["kubeletVersion"] = "v1.29.1"
    bare = [docs.node(f"b{i}") for i in range(5)]
    for node in bare:
        node["metadata"]["annotations"] = {}
    stuck = [docs.node(f"s{i}", problem="NVML: driver not loaded") for i in range(2)]
    away = [docs.node(f"a{i}", docs.card(f"GPU-a{i}"), ready="Unknown") for i in range(2)]
    found = said(bad(replace(healthy(), nodes=Listing([*nodes, *bare, *stuck, *away]))))
    many = ", ".join(f"n{i:04}" for i in range(20))
    for line in (
        f"fail other plugins: {many} and 980 more offer 8 nvidia.com/gpu by another plugin",
        f"fail kubelet: {many} and 980 more have kubelet v1.29.1",
        "warn agents: b0, b1, b2, b3, b4 seem to have GPUs, but no agent",
        "fail agents: s0, s1 take nothing: NVML: driver not loaded",
        "warn cards: a0, a1 are not ready: nothing new goes onto their cards (2)",
    ):
        assert line in found
    assert len(found.splitlines()) == 5


def test_what_is_not_there_is_not_looked_for_in_each_pair() -> None:
    """Each gang was held against each ReplicaSet: 10 s in a namespace of 5,000 Deployments."""
    looked: list[str] = []

    class Metadata(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            looked.append(key)
            return super().get(key, default)

    groups = [docs.group(f"g{i}", "research", job=f"job-{i}") for i in range(50)]
    makers = [{"metadata": Metadata(name=f"web-{i}", uid=f"rs{i}"), "spec": {}} for i in range(50)]
    assert why.meant("nobody", groups, [], makers) == []
    assert len(looked) < 50 * 10


def test_what_no_table_shows_is_not_kept() -> None:
    """Whole, 5,000 nodes, 50,000 pods and their makers are some gigabytes."""
    node = docs.node("n1", docs.card("GPU-a"), unschedulable=True)
    node["metadata"]["managedFields"] = [{}]
    node["status"]["images"] = [{"names": ["a", "b"]}]
    node["spec"]["taints"] = [{"key": "node.kubernetes.io/out-of-service"}]
    pod = docs.pod("web-0", labels={names.MANAGED_LABEL: "false"}, owner=("ReplicaSet", "web"))
    pod["spec"]["containers"] = [{"env": [{}], "resources": {"limits": {"nvidia.com/gpu": 1}}}, {"name": "b"}]
    maker: docs.Json = {
        "metadata": {"name": "web", "namespace": "ml", "uid": "u", "managedFields": [{}]},
        "spec": {"replicas": 0, "template": {"spec": {"containers": [{}]}}},
    }
    thin = world.light_node(copy.deepcopy(node))
    assert "images" not in thin["status"]
    assert cards.report([thin], []) == cards.report([node], [])
    assert trouble.notes([pod | {"spec": {"nodeName": "n1"}}], {"n1": thin}) == trouble.notes(
        [pod | {"spec": {"nodeName": "n1"}}], {"n1": node}
    )
    light = world.pod_with_limits(copy.deepcopy(pod))
    assert trouble.not_ours([light]) == trouble.not_ours([pod])
    pod["spec"] |= {"initContainers": pod["spec"]["containers"][:1], "containers": [{"name": "b"}]}
    assert "it names nvidia.com/gpu" in trouble.not_ours([world.pod_with_limits(pod)]), (
        "a sidecar's limits too"
    )
    assert "nvidia.com/gpu" in trouble.not_ours([light])
    bare = world.light_maker(copy.deepcopy(maker))
    assert owners.rest("web", [bare]) == owners.rest("web", [maker]) == "web asks for no pods (replicas: 0)"
    kept = json.dumps([thin, light, bare])
    assert not any(word in kept for word in ("managedFields", "template", '"env"', '"names"'))


def test_nothing_is_searched_for_garbage_while_a_cluster_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is kept until the end: looking through it again and again was half of the time."""
    seen: list[bool] = []

    def run(_: object) -> int:
        seen.append(gc.isenabled())
        return 0

    monkeypatch.setattr(kubectl, "run", run)
    kubectl.main(["cards"])
    assert (seen, gc.isenabled()) == ([False], True)


def test_tables_show_of_a_light_pod_what_they_show_of_the_whole() -> None:
    pods = [
        docs.pod(
            "train-0", cards={"GPU-a": (61440, 100)}, share_class="low", group="g", owner=("Job", "train")
        ),
        docs.pod("train-1", gated=True, group="g", labels={"volcano.sh/queue-name": "research"}),
        docs.pod("over-0", cards={"GPU-a": (1024, 1)}, phase="Succeeded", group="g"),
    ]
    for pod in pods:
        pod["spec"] = {
            **pod.get("spec", {}),
            "nodeName": "n1",
            "containers": [{"name": "main", "env": [{}] * 9}],
        }
    light = [world.light_pod(copy.deepcopy(pod)) for pod in pods]
    assert all("containers" not in pod["spec"] for pod in light)
    groups, nodes = [docs.group("g", "research")], [docs.node("n1", docs.card("GPU-a"))]
    known = [docs.queue("research", h20=4)]
    for report in (
        lambda pods: cards.report(nodes, pods),
        lambda pods: queues.report(known, groups, pods),
        lambda pods: waiting.report(groups, pods, place="ml"),
        removal_findings,
        lambda pods: [why.member_row(pod) for pod in pods],
    ):
        assert report(light) == report(pods)
