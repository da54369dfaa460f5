"""Running work moves to other cards on a real API server, so that a gang that waits fits.

Simulated nodes, and our processes next to the cluster with the rights of their own accounts. Two low Jobs
leave two cards free, one on each node. A third Job needs two cards of one node.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from rigs.one_team import H20, NAMESPACE, TIMEOUT_S, OneTeam, one_team
from stack.hostmode import REPOSITORY
from stack.identity import service_account_kubeconfig
from vc_egpu.admission.drain import drain
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    CORE_EVENTS,
    NODES,
    POD_GROUPS,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.errors import Forbidden
from vc_egpu.volcano.codec.cluster_codec import bears_our_taint
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]
FLAGS: Final = ("--defrag=waiting", "--defrag-after-s=3", "--min-runtime-s=0", "--defrag-per-hour=20")
EMPTYING: Final = REPOSITORY / "manifests" / "components" / "node-emptying" / "rbac.yaml"


@dataclass(frozen=True)
class Cluster(OneTeam):
    """Two nodes of two cards, and our stack."""

    def submit(self, name: str, cards: int, priority: str = "low") -> None:
        """A Job of one pod with so many whole cards."""
        self.make(name, {H20: cards}, priority=priority)

    def runs(self, name: str, but: str = "") -> Json:
        """Wait until the Job's pod runs, another one than ``but``."""
        (pod,) = self.all_run(name, but=frozenset({but})).values()
        return pod

    def end(self, *names_: str) -> None:
        for name in names_:
            self.stack.kit.kubectl("delete", "vcjob", name, "-n", NAMESPACE, "--wait=true")

    def two_halves(self) -> dict[str, Json]:
        """Jobs ``b`` and ``c`` run on a node each, with a free card next to each of them."""
        for name in ("a", "b", "c"):
            self.submit(name, 1)
            self.runs(name)
        self.end("a")
        found = {name: self.runs(name) for name in ("b", "c")}
        assert len({pod["spec"]["nodeName"] for pod in found.values()}) == 2
        return found

    def note(self, name: str) -> str:
        """What the Job's PodGroup remembers of a move."""
        groups = self.stack.kit.api.list(POD_GROUPS, NAMESPACE).items
        # That of an earlier Job of the name may not be gone yet.
        job = self.stack.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)["metadata"]["uid"]
        (mine,) = [group for group in groups if group["metadata"]["name"] == f"{name}-{job}"]
        return str((mine["metadata"].get("annotations") or {}).get(names.MOVED, ""))

    def tainted(self) -> set[str]:
        """The nodes that are to be empty."""
        nodes = self.stack.kit.api.list(NODES).items
        return {node["metadata"]["name"] for node in nodes if bears_our_taint(node)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with two_nodes("defrag", FLAGS) as found:
        yield found


@pytest.fixture
def emptying() -> Iterator[Cluster]:
    """The same, with the component ``node-emptying``."""
    with two_nodes("emptying", (*FLAGS, "--defrag-empty-nodes"), EMPTYING) as found:
        yield found


@contextmanager
def two_nodes(name: str, flags: tuple[str, ...], *more: Path) -> Iterator[Cluster]:
    """``more``: documents that are applied, too."""
    with one_team(name, nodes=2, cards=2, caps={H20: "16"}, flags=flags, more=more) as stack:
        yield Cluster(stack)


def test_a_gang_that_waited_starts_after_one_move(cluster: Cluster) -> None:
    before = cluster.two_halves()
    cluster.submit("large", 2, priority="")
    large = cluster.runs("large")
    stayed = {
        name: pod
        for name, pod in before.items()
        if cluster.runs(name)["metadata"]["uid"] == pod["metadata"]["uid"]
    }
    (moved,) = before.keys() - stayed.keys()
    after = cluster.runs(moved, but=before[moved]["metadata"]["uid"])
    assert after["spec"]["nodeName"] != before[moved]["spec"]["nodeName"]
    assert large["spec"]["nodeName"] == before[moved]["spec"]["nodeName"]
    assert {cluster.tries(name) for name in ("b", "c", "large")} == {0}
    cluster.stack.kit.until(
        "an event tells of the move",
        CORE_EVENTS,
        lambda events: any(event["reason"] == "Moved" for event in events.values()) or None,
        namespace=NAMESPACE,
    )
    cluster.stack.kit.until(
        "its PodGroup remembers that it came",
        POD_GROUPS,
        lambda _: ((text := cluster.note(moved)) != "" and '"claim"' not in text) or None,
        namespace=NAMESPACE,
    )
    cluster.check_invariants()
    cluster.end("b", "c", "large")


def test_a_leader_that_dies_during_a_move_is_followed_by_one_that_ends_it(cluster: Cluster) -> None:
    before = cluster.two_halves()
    cluster.submit("large", 2, priority="")
    cluster.stack.kit.until(
        "other cards are claimed",
        POD_GROUPS,
        lambda _: any(cluster.note(name) for name in ("b", "c")) or None,
        namespace=NAMESPACE,
        timeout_s=TIMEOUT_S,
    )
    cluster.stack.processes["admission"].kill()
    cluster.stack.start("admission")
    cluster.runs("large")
    after = {name: cluster.runs(name) for name in ("b", "c")}
    uids = {name: pod["metadata"]["uid"] for name, pod in before.items()}
    gone = [name for name, pod in after.items() if pod["metadata"]["uid"] != uids[name]]
    assert len(gone) == 1
    assert after[gone[0]]["spec"]["nodeName"] != before[gone[0]]["spec"]["nodeName"]
    assert {cluster.tries(name) for name in ("b", "c", "large")} == {0}
    cluster.check_invariants()
    cluster.end("b", "c", "large")


def test_a_node_is_emptied_and_takes_work_again_once_a_gang_needs_it(emptying: Cluster) -> None:
    kit = emptying.stack.kit
    before = emptying.two_halves()
    kit.until("a node is to be empty", NODES, lambda _: emptying.tainted() or None, timeout_s=TIMEOUT_S)
    (empty,) = emptying.tainted()
    (moved,) = (name for name, pod in before.items() if pod["spec"]["nodeName"] == empty)
    after = emptying.runs(moved, but=before[moved]["metadata"]["uid"])
    assert after["spec"]["nodeName"] != empty
    assert emptying.tries(moved) == 0
    kit.until(
        "its PodGroup remembers for which node it moved",
        POD_GROUPS,
        lambda _: ((text := emptying.note(moved)) != "" and '"claim"' not in text) or None,
        namespace=NAMESPACE,
    )
    assert f'"empties":"{empty}"' in emptying.note(moved)
    emptying.stack.processes["admission"].kill()
    emptying.stack.start("admission")
    assert emptying.tainted() == {empty}, "the next leader leaves it empty"
    emptying.submit("large", 2, priority="high")
    large = emptying.runs("large")
    assert large["spec"]["nodeName"] == empty
    assert emptying.tainted() == set()
    unmoved = {name: emptying.runs(name)["metadata"]["uid"] for name in before}
    assert unmoved[moved] == after["metadata"]["uid"], "no gang goes where an empty node is opened"
    emptying.check_invariants()

    # Its account writes this taint and nothing else, and takes it off before removal.
    account = service_account_kubeconfig(emptying.stack.cluster, "vc-egpu-system", "vc-egpu-admission")
    api = ApiConnection.connect(account)
    theirs = [{"key": "theirs", "effect": "NoSchedule"}]
    for wrong in ({"spec": {"unschedulable": True}}, {"metadata": {"labels": {"a": "b"}}}):
        with pytest.raises(Forbidden, match="writes one taint"):
            api.patch(NODES, empty, wrong)
    evicts = [{"key": names.EMPTIED, "value": "1", "effect": "NoExecute"}]
    for taints in (theirs, evicts):
        with pytest.raises(Forbidden, match="with NoSchedule alone"):
            api.patch(NODES, empty, {"spec": {"taints": taints}})
    emptying.stack.processes["admission"].kill()
    kit.kubectl("taint", "node", empty, f"{names.EMPTIED}=1:NoSchedule", "theirs=1:NoSchedule")
    assert drain(api) == 0
    assert [taint["key"] for taint in kit.api.get(NODES, empty)["spec"]["taints"]] == ["theirs"]
    api.close()
