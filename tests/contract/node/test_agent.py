"""The whole agent, between a played kubelet, a tiny API server and the fake NVML: what its node says."""

import errno
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from contract.node.fake_kubelet import FakeKubelet
from contract.node.node_world import RES, owner
from fakes.nvml_state import FakeNode
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.kube import ApiConnection
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare, NodeCards
from vc_egpu_node import agent as agent_module
from vc_egpu_node.agent import STUCK_S, UNFOLLOWED, Agent
from vc_egpu_node.settings.config import Settings
from vc_egpu_node.vendors.registry import chosen

MODELS = Path(__file__).resolve().parents[3] / "manifests/base/config/models.yaml"


@dataclass
class Running:
    """An agent that runs, and those around it."""

    agent: Agent
    api: TinyApi
    kubelet: FakeKubelet

    def problem(self) -> str:
        """Why the node takes nothing, as the admission layer reads it."""
        text = self.api.objects["/api/v1/nodes/n1"]["metadata"].get("annotations", {}).get(names.NODE_CARDS)
        return NodeCards.decode(text).problem if text else "nothing written yet"

    def until(self, told: Callable[[str], bool], rounds: int = 600) -> None:
        """Until the problem is such a one; the agent is woken as by any change of its Node."""
        for number in range(rounds):
            if told(self.problem()):
                return
            node = self.api.objects["/api/v1/nodes/n1"]
            self.api.put("/api/v1/nodes/n1", {**node, "metadata": {**node["metadata"], "labels": {
                **node["metadata"].get("labels", {}), "round": str(number)}}})  # fmt: skip
            threading.Event().wait(0.05)
        raise AssertionError(self.problem())

    def events(self) -> set[str]:
        """Reasons of the events on the Node so far."""
        with self.api.lock:
            kept = list(self.api.objects.values())
        return {str(one["reason"]) for one in kept if one.get("reason")}

    def metric(self, name: str) -> float:
        """A metric as scraped, its labels with its name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.agent.web.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@pytest.fixture
def running(nvml_node: Callable[[int], FakeNode], tmp_path: Path) -> Iterator[Running]:
    nvml_node(2)
    with an_agent(tmp_path) as one:
        yield one


@contextmanager
def an_agent(tmp_path: Path, models: Path = MODELS, policy: Path | None = None) -> Iterator[Running]:
    """From its start to its end; the next one finds the host as this one left it."""
    folders = {name: tmp_path / name for name in ("kubelet", "cdi", "state", "run", "cgroup", "proc")}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    kubelet = FakeKubelet(folders["kubelet"])
    kubelet.start()
    with tiny_api() as api:
        api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}, "status": {}})
        settings = Settings(
            node_name="n1",
            models=models,
            policy=policy,
            pod_resources_socket=kubelet.pod_resources_socket,
            kubelet_dir=folders["kubelet"],
            cdi_dir=folders["cdi"],
            state_dir=folders["state"],
            run_dir=folders["run"],
            cgroup_dir=folders["cgroup"],
            proc_dir=folders["proc"],
            toolkit="off",
            runtime_configs=(),
            listen="127.0.0.1:0",
            probe_interval_s=0.2,
        )
        agent = Agent(settings, ApiConnection.connect(api.kubeconfig(tmp_path)), chosen(settings))
        thread = threading.Thread(target=agent.run)
        thread.start()
        try:
            yield Running(agent, api, kubelet)
        finally:
            agent.stop()
            thread.join(30)
            agent.close()
            kubelet.stop()


def test_a_disk_that_takes_nothing_closes_the_node_until_it_does(running: Running) -> None:
    """The kubelet asks no second time: each further pod that is sent here would fail as well."""
    assert running.kubelet.registered.acquire(timeout=60)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(grpc.RpcError, match="No space left"):
            running.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
        running.until(lambda problem: "cannot be written" in problem)
        assert running.metric("egpu_node_problem") == 1
    running.until(lambda problem: "cannot be written" not in problem)
    running.kubelet.allocate(owner("p"), RES, ("s1",), "u1")


def test_a_look_at_the_kubelet_that_does_not_end_is_a_reason_to_begin_anew(running: Running) -> None:
    """Nobody else registers with a kubelet that was restarted."""
    running.until(lambda _: running.agent.unready() == "")
    entered, released = threading.Event(), threading.Event()

    def stuck() -> None:
        entered.set()
        released.wait(60)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running.agent.parts.link, "look", stuck)
        assert entered.wait(60)
        assert running.agent.unhealthy() == ""
        running.agent.parts.link.beat_s -= STUCK_S
        assert "kubelet" in running.agent.unhealthy()
    released.set()


def test_a_node_that_is_deleted_and_comes_back_is_no_fault_of_ours(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever removes a machine deletes its Node first; a kubelet that is restarted makes it anew."""
    running.until(lambda problem: problem == UNFOLLOWED)
    running.api.remove("/api/v1/nodes/n1")
    while "there is no Node n1" not in caplog.text:
        running.agent.wake()
        threading.Event().wait(0.01)
    running.api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}, "status": {}})
    running.until(lambda problem: problem == UNFOLLOWED)
    assert "a fault of ours" not in caplog.text


def test_a_runtime_that_takes_no_notice_of_cdi_closes_the_node(running: Running, tmp_path: Path) -> None:
    """Each further container would start without its cards, and without what limits it."""
    assert running.kubelet.registered.acquire(timeout=60)
    node = running.api.objects["/api/v1/nodes/n1"]
    version = {"nodeInfo": {"containerRuntimeVersion": "containerd://1.7.35"}}
    running.api.put("/api/v1/nodes/n1", {**node, "status": {**node["status"], **version}})
    uid, identity = "0bd41001-1111-2222-3333-444444444444", "c" * 64
    inventory = NodeCards.decode(node["metadata"]["annotations"][names.NODE_CARDS])
    share = CardShare(uuid=inventory.cards[0].uuid, memory_mib=1000, cores=0)
    cards = Cards(pod_uid=uid, node="n1", plan_id="1-1", containers={"main": (share,)}).encode()
    path = "/api/v1/namespaces/ns/pods/p"
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": uid, "annotations": {names.CARDS: cards}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Pending"},
    }
    running.api.put(path, pod)
    running.kubelet.allocate(owner("p"), RES, ("s1",), uid)
    running.kubelet.pre_start(RES, ("s1",))
    process = tmp_path / "proc" / "700"
    process.mkdir()
    for name, text in (
        ("cgroup", f"0::/kubepods/pod{uid}/{identity}\n"),
        ("stat", f"700 (a) S {'0 ' * 18}5 0"),
        ("status", "NSpid:\t700\t1\n"),
        ("mountinfo", "601 540 0:45 / / rw - overlay overlay rw\n"),
    ):
        (process / name).write_text(text)
    state = {"name": "main", "containerID": f"containerd://{identity}", "state": {"running": {}}}
    running.api.put(path, {**pod, "status": {"phase": "Running", "containerStatuses": [state]}})
    running.until(lambda problem: problem.startswith("containerd://1.7.35 starts containers without"))
    assert running.metric("egpu_node_problem") == 1
    with pytest.raises(grpc.RpcError, match=r"NotNow: containerd://1\.7\.35 starts containers"):
        running.kubelet.pre_start(RES, ("s1",))  # nor does the container itself start again
    running.until(lambda _: "StartedWithoutCards" in running.events())
    running.api.put(path, {**pod, "status": {"phase": "Failed"}})
    running.until(lambda problem: problem == UNFOLLOWED)


def test_a_word_on_suspension_that_came_late_is_taken_back(running: Running) -> None:
    """Of an agent before this one, which suspended pods: its last write was carried out when it was gone."""
    running.until(lambda problem: problem == UNFOLLOWED)
    with running.api.lock:
        node = running.api.objects["/api/v1/nodes/n1"]
        annotations = node["metadata"]["annotations"] | {names.NODE_SUSPENSION: "late"}
        running.api.put(
            "/api/v1/nodes/n1", {**node, "metadata": {**node["metadata"], "annotations": annotations}}
        )

    def taken_back(_problem: str) -> bool:
        kept = running.api.objects["/api/v1/nodes/n1"]["metadata"]["annotations"]
        return names.NODE_SUSPENSION not in kept

    running.until(taken_back)


def test_an_inventory_that_is_refused_is_told_and_keeps_no_counters_back(running: Running) -> None:
    """An annotation that the API server does not take, say: others may have filled the Node's."""
    running.until(lambda problem: problem == UNFOLLOWED)  # this kubelet asks for no slots
    api, node = running.api, "/api/v1/nodes/n1"
    before = running.metric("egpu_node_behind_seconds")
    with api.lock:
        api.script_for = names.NODE_CARDS
        api.script = [(422, status(422, "Invalid", "metadata.annotations: Too long"), {})] * 1000
        document = api.objects[node]
        counters = document["status"]["capacity"]
        assert counters[f"{RES}-memory"]
        bare = {key: value for key, value in document["metadata"].items() if key != "annotations"}
        api.put(node, {**document, "metadata": bare, "status": {}})
    running.until(lambda _: api.objects[node].get("status", {}).get("capacity") == counters)
    running.until(lambda _: running.metric("egpu_node_behind_seconds") > before + 0.5)
    with pytest.MonkeyPatch.context() as patched:  # what nobody claims any more goes meanwhile
        swept = threading.Event()
        patched.setattr(running.agent.parts.collector, "sweep", swept.set)
        patched.setattr(agent_module, "SWEEP_S", 0.0)
        running.until(lambda _: swept.is_set())
    assert running.problem() == "nothing written yet"
    with api.lock:
        api.script = []
    running.until(lambda problem: problem == UNFOLLOWED)


@pytest.mark.parametrize(
    ("which", "typo", "named"),
    [
        ("policy", "defaults: {slotsPerCard: seven}", "slotsPerCard"),
        ("models", "models: [{name: h20, memoryMiB: many}]", "memoryMiB"),
    ],
)
def test_an_agent_that_begins_with_a_broken_file_is_there_and_says_so(
    nvml_node: Callable[[int], FakeNode], tmp_path: Path, which: str, typo: str, named: str
) -> None:
    """With one typo a roll-out would end agent after agent, and a node without one starts nothing."""
    nvml_node(2)
    good = {"policy": "defaults: {slotsPerCard: 7}", "models": MODELS.read_text()}
    paths = {name: tmp_path / f"{name}.yaml" for name in good}
    for name, path in paths.items():
        path.write_text(typo if name == which else good[name])
    broken = f"egpu_node_{'policy' if which == 'policy' else 'model_table'}_broken"
    event = "PolicyBroken" if which == "policy" else "ModelTableBroken"
    with an_agent(tmp_path, **paths) as running:
        running.until(lambda problem: named in problem)
        running.until(lambda _: named in running.agent.unready())  # a roll-out stops at such nodes
        assert running.agent.unhealthy() == ""
        assert running.metric(broken) == 1
        running.until(lambda _: event in running.events())
        paths[which].write_text(good[which])
        running.until(lambda problem: problem == UNFOLLOWED)
        running.until(lambda _: running.agent.unready() == "")
        assert running.metric(broken) == 0
    paths[which].write_text(typo)
    with an_agent(tmp_path, **paths) as running:
        running.until(lambda problem: problem == UNFOLLOWED)
        running.until(lambda _: running.agent.unready() == "")
        assert running.metric(f'egpu_node_slots{{resource="{RES}",health="healthy"}}') == 14
        assert running.metric(broken) == 1
        running.until(lambda _: event in running.events())


def test_a_container_starts_again_though_the_next_agent_offers_its_model_no_more(
    nvml_node: Callable[[int], FakeNode], tmp_path: Path
) -> None:
    """The kubelet starts nothing, and after a reboot admits nothing, of a resource that nobody registers."""
    nvml_node(2)
    uid = "0bd41001-1111-2222-3333-444444444444"
    (tmp_path / "cgroup/memory/kubepods" / f"pod{uid}").mkdir(parents=True)
    with an_agent(tmp_path) as running:
        assert running.kubelet.registered.acquire(timeout=60)
        running.until(lambda problem: problem == UNFOLLOWED)
        text = running.api.objects["/api/v1/nodes/n1"]["metadata"]["annotations"][names.NODE_CARDS]
        share = CardShare(uuid=NodeCards.decode(text).cards[0].uuid, memory_mib=1000, cores=0)
        cards = Cards(pod_uid=uid, node="n1", plan_id="1-1", containers={"main": (share,)}).encode()
        metadata = {"name": "p", "namespace": "ns", "uid": uid, "annotations": {names.CARDS: cards}}
        running.api.put(
            "/api/v1/namespaces/ns/pods/p",
            {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}},
        )
        running.kubelet.allocate(owner("p"), RES, ("s1",), uid)
        running.kubelet.pre_start(RES, ("s1",))
    renamed = tmp_path / "renamed.yaml"
    renamed.write_text(MODELS.read_text().replace("name: h20,", "name: h21,"))
    with an_agent(tmp_path, models=renamed) as running:
        for _ in range(2):
            assert running.kubelet.registered.acquire(timeout=60)
        assert running.kubelet.endpoints.keys() == {RES, RES.replace("h20", "h21")}
        running.kubelet.pre_start(RES, ("s1",))


def test_a_card_that_could_not_be_read_since_the_agent_began_is_told_of(
    nvml_node: Callable[[int], FakeNode], tmp_path: Path
) -> None:
    """Nobody knows its UUID, so the inventory has no place for it: seven cards of eight look like seven."""
    node = nvml_node(2)
    node.cards[1].error = 15  # it fell off the bus, and the node was rebooted
    node.write()
    with an_agent(tmp_path) as running:
        running.until(lambda problem: problem == UNFOLLOWED)
        running.until(lambda _: "CardNotRead" in running.events())
