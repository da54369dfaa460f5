"""A running pod's share gets another size on a real API server, with our policies and accounts.

A simulated node, and our processes next to the cluster. The test plays the node's agent.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from rigs.one_team import H20, NAMESPACE, OneTeam, one_team
from stack.kit import is_running
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.volcano.resizing.notes import NodeResizes, ResizeNote, ResizeReport, Stage, note_on
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
Json = dict[str, Any]
POD: Final = "a-w-0"
CAP_MIB: Final = 60_000


@dataclass(frozen=True)
class Cluster(OneTeam):
    """A node of two cards, and our stack."""

    def submit(self, name: str, memory_mib: int) -> None:
        self.make(name, {H20: 1, names.LIMIT_MEMORY: memory_mib, names.LIMIT_CORES: 20})

    def runs(self, name: str) -> Json:
        """Wait until this pod runs."""
        return self.all_run(name.removesuffix("-w-0"))[name]

    def note(self) -> ResizeNote | None:
        metadata = self.stack.kit.api.get(PODS, POD, NAMESPACE)["metadata"]
        return note_on(metadata.get("annotations") or {}, metadata["uid"])

    def size(self) -> tuple[int, int]:
        text = self.stack.kit.api.get(PODS, POD, NAMESPACE)["metadata"]["annotations"][names.CARDS]
        ((share,),) = Cards.decode(text).containers.values()
        return share.memory_mib, share.cores

    def answers(self) -> None:
        """As the agent of a node does that can do what it is asked for."""
        pod = self.stack.kit.api.get(PODS, POD, NAMESPACE)
        note = note_on(pod["metadata"].get("annotations") or {}, pod["metadata"]["uid"])
        text = None
        if note is not None and note.waits_for_agent:
            state: Any = "lowered" if note.stage is Stage.LOWERING else "applied"
            report = ResizeReport(number=note.number, state=state)
            text = NodeResizes(pods={pod["metadata"]["uid"]: report}).encode()
        said = {"metadata": {"annotations": {names.NODE_RESIZES: text}}}
        self.stack.kit.api.patch(NODES, pod["spec"]["nodeName"], said)

    @contextmanager
    def agent(self) -> Iterator[None]:
        """It answers again and again."""
        done = threading.Event()

        def work() -> None:
            while not done.wait(0.3):
                self.answers()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def resize(self, *words: str) -> tuple[int, str, str]:
        """(exit status, result, why) of the command."""
        place = ("-n", NAMESPACE, "-o", "json", "--kubeconfig", str(self.stack.cluster.kubeconfig))
        argv = [sys.executable, "-m", "vc_egpu.cli.main", "kubectl", "resize", POD, *place, *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        said = json.loads(done.stdout) if done.stdout else {"result": "", "why": done.stderr}
        return done.returncode, said["result"], said["why"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    caps = {H20: "16", f"{H20}-memory": str(CAP_MIB)}
    with one_team("resize", nodes=1, cards=2, caps=caps) as stack:
        found = Cluster(stack)
        found.submit("a", 20_000)
        found.runs(POD)
        yield found


def test_more_less_and_too_much(cluster: Cluster) -> None:
    """The caps count what runs now; a Job that waits for quota starts once there is some again."""
    assert cluster.resize("--memory", str(CAP_MIB), "--dry-run")[:2] == (0, "would be granted")
    assert cluster.note() is None
    with cluster.agent():
        assert cluster.resize("--memory", str(CAP_MIB), "--cores", "50")[:2] == (0, "resized")
    assert cluster.size() == (CAP_MIB, 50)
    status, result, why = cluster.resize("--memory", str(CAP_MIB + 1))
    assert (status, result) == (1, "refused")
    assert f"queue team allows {CAP_MIB} of {H20}-memory, {CAP_MIB} are used, and 1 more are asked for" in why
    cluster.submit("b", 20_000)
    told = cluster.stack.kit.api
    cluster.stack.kit.until(
        "the second Job waits for quota",
        PODS,
        lambda pods: "b-w-0" in pods or None,
        namespace=NAMESPACE,
    )
    assert not is_running(told.get(PODS, "b-w-0", NAMESPACE))
    with cluster.agent():
        assert cluster.resize("--memory", "30000")[:2] == (0, "resized")
    assert cluster.size() == (30_000, 50)
    cluster.runs("b-w-0")
    cluster.check_invariants()


def test_a_leader_that_dies_in_between_is_followed_by_one_that_ends_it(cluster: Cluster) -> None:
    status, result, _ = cluster.resize("--memory", "10000", "--timeout", "5")
    assert (status, result) == (1, "granted")
    note = cluster.note()
    assert note is not None
    assert note.stage is Stage.LOWERING
    cluster.stack.processes["admission"].kill()
    cluster.answers()
    cluster.stack.start("admission")
    with cluster.agent():
        cluster.stack.kit.until(
            "the next leader ends it",
            PODS,
            lambda _: ((found := cluster.note()) is not None and found.stage is Stage.DONE) or None,
            namespace=NAMESPACE,
            timeout_s=60,
        )
    assert cluster.size() == (10_000, 50)
    cluster.check_invariants()


def test_a_node_that_does_not_answer_leaves_all_as_it_was(cluster: Cluster) -> None:
    before = cluster.size()
    status, result, why = cluster.resize("--memory", "5000")
    assert (status, result) == (1, "refused")
    assert "has not lowered its memory in 60 s" in why
    assert cluster.size() == before
