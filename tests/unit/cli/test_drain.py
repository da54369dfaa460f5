"""`kubectl egpu drain`: the order on the node, what is waited for, and what is said of pods that stay."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.live import drain
from vc_egpu.core.model.cluster import DRAIN
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.words import names

NODE = "/api/v1/nodes/n1"
PODS = "/api/v1/namespaces/ml/pods"
OURS = {"key": DRAIN, "effect": "NoSchedule"}
THEIRS = {"key": "team", "value": "a", "effect": "NoSchedule"}
JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "name": "train",
    "uid": "j",
    "controller": True,
}


class Cluster:
    """A node with two pods on its cards; what the admission controller would do is played by the test."""

    def __init__(self, server: TinyApi, api: ApiConnection) -> None:
        self.server, self.api = server, api
        self.told: list[str] = []
        self.reacts: Callable[[], None] = lambda: None
        server.put(NODE, docs.node("n1", docs.card("GPU-a")))
        for name in ("train-0", "train-1"):
            self.put(name)

    def put(self, name: str, owner: dict[str, Any] | None = JOB, **more: Any) -> None:
        cards = more.pop("cards", {"GPU-a": (4096, 10)})
        raw = docs.pod(name, cards=cards, group="train", **more)
        raw["metadata"]["ownerReferences"] = [owner] if owner else []
        raw["spec"]["nodeName"] = "n1"
        self.server.put(f"{PODS}/{name}", raw)

    def taints(self) -> list[dict[str, Any]]:
        return list(self.server.objects[NODE]["spec"].get("taints") or ())

    def heard(self, line: str) -> None:
        self.told.append(line)
        self.reacts()

    def drain(self, timeout_s: float = 30.0, *, undo: bool = False) -> drain.DrainOutcome:
        return drain.run(self.api, "n1", undo=undo, timeout_s=timeout_s, progress=self.heard)

    def all_go(self) -> None:
        for path in [path for path in self.server.objects if path.startswith(f"{PODS}/train")]:
            self.server.remove(path)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        yield Cluster(server, api)
        api.close()


def test_the_node_is_tainted_and_its_gangs_are_waited_for(cluster: Cluster) -> None:
    cluster.server.objects[NODE]["spec"]["taints"] = [THEIRS]
    cluster.reacts = cluster.all_go
    found = cluster.drain()
    assert cluster.taints() == [THEIRS, OURS]
    assert (found.done, found.left) == (True, ())
    assert cluster.told[0] == "n1 takes nothing new; its gangs are evicted whole and planned elsewhere"


def test_asked_twice_it_is_written_once(cluster: Cluster) -> None:
    cluster.drain(timeout_s=0)
    cluster.drain(timeout_s=0)
    writes = [path for method, path, _ in cluster.server.requests if method == "PATCH"]
    assert len(writes) == 1
    assert cluster.taints() == [OURS]


def test_it_is_taken_back_and_others_taints_stay(cluster: Cluster) -> None:
    cluster.server.objects[NODE]["spec"]["taints"] = [THEIRS, OURS]
    assert cluster.drain(undo=True).order == "takes work"
    assert cluster.taints() == [THEIRS]
    assert cluster.drain(undo=True).done, "nothing is left to do"


def test_an_agent_that_writes_meanwhile_costs_nothing(cluster: Cluster) -> None:
    left = [1, 1]

    def refuses(method: str, path: str, _body: Any) -> tuple[int, Any] | None:
        if method == "PATCH" and path.startswith(NODE) and left:
            left.pop()
            return 409, status(409, "Conflict", "the object has been modified")
        return None

    cluster.server.refuses = refuses
    cluster.drain(timeout_s=0)
    assert cluster.taints() == [OURS]


def test_when_the_time_is_over_the_order_stands(cluster: Cluster) -> None:
    found = cluster.drain(timeout_s=0)
    assert not found.done
    assert [(row.pod, row.gang, row.why) for row in found.left] == [
        ("ml/train-0", "ml/train", ""), ("ml/train-1", "ml/train", ""),
    ]  # fmt: skip
    assert cluster.taints() == [OURS]


def test_a_bare_pod_keeps_its_gang_and_is_named_at_once(cluster: Cluster) -> None:
    cluster.put("train-1", owner=None)
    found = cluster.drain(timeout_s=300)
    assert not found.done
    assert [row.why for row in found.left] == [
        "its gang has a pod that no controller makes again",
        "no controller makes it again: delete it yourself, its gang stays meanwhile",
    ]


def test_pods_without_cards_are_counted_and_left_alone(cluster: Cluster) -> None:
    cluster.put("web", owner={**JOB, "kind": "ReplicaSet"}, cards=None)
    cluster.put("logs", owner={**JOB, "kind": "DaemonSet"}, cards=None)
    cluster.put("over", owner=JOB, phase="Succeeded")
    cluster.reacts = cluster.all_go
    found = cluster.drain()
    assert (found.done, found.others) == (True, 1)


def test_as_a_command(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(cluster.server.kubeconfig(tmp_path))
    assert kubectl.main(["drain", "n1", "--timeout", "0s", "--kubeconfig", config]) == exit_status.EXIT_FOUND
    said = capsys.readouterr().out
    assert "n1: 2 pods with cards are left" in said
    assert "it has not gone yet" in said
    assert "it takes work again with: kubectl egpu drain n1 --undo" in said
    assert kubectl.main(["drain", "n1", "--undo", "--kubeconfig", config]) == exit_status.EXIT_OK
    assert capsys.readouterr().out.strip() == "n1 takes work again"
    assert kubectl.main(["drain", "n7", "--kubeconfig", config]) == exit_status.EXIT_FOUND
    assert "there is no node n7" in capsys.readouterr().err


def test_the_taint_has_the_domain_of_all_our_words() -> None:
    assert DRAIN.startswith(f"{names.DOMAIN}/")
