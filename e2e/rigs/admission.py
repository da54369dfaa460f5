"""The admission controller alone on a cluster of simulated nodes: pods and PodGroups are made by hand.

What the webhook and a Job controller would write is written here, so that these tests say something about
the controller only.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from localcluster import ClusterSpec, LocalCluster
from localcluster.kwok import KwokNode, NodeTemplate
from stack.fakes import inventory, offered
from stack.hostprocess import HostProcess
from stack.kit import Kit, is_gated, is_true
from stack.verify import check_invariants, look
from vc_egpu.core.check import invariants
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    VOLCANO_JOBS,
)
from vc_egpu.kube.watch import Change, ChangeKind, Reflector
from vc_egpu.kube.wire.errors import AlreadyExists, Conflict, NotFound
from vc_egpu.volcano.api.crds import files
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

from rigs.gangs import Gang, admitted, job, pod, podgroup

Json = dict[str, Any]
SYSTEM: str = "vc-egpu-system"
MODELS: str = """
models:
  - {name: h20, products: ["NVIDIA H20"], memoryMiB: 98304, cardsPerNode: 8}
"""


@dataclass
class Rig:
    """One cluster with simulated nodes, and the processes under test."""

    cluster: LocalCluster
    api: ApiConnection
    kit: Kit
    models: Path
    processes: dict[str, HostProcess] = field(default_factory=dict)
    suffix: Callable[[], str] = str
    """Of the next pod's name. A simulated kubelet that is told twice that a pod goes deletes it twice, by its
    name, and the second time it may be that of a later test's pod."""

    def controller(self, name: str = "admission", *flags: str) -> HostProcess:
        """An admission controller beside the cluster; not started yet."""
        process = self.processes.get(name)
        if process is None:
            argv = [
                *(sys.executable, "-m", "vc_egpu.cli.main", "admission"),
                *("--kubeconfig", str(self.cluster.kubeconfig), "--models", str(self.models)),
                *("--namespace", SYSTEM, "--identity", name, "--port", "-1", *flags),
            ]
            process = self.processes[name] = HostProcess(self.cluster, name, argv)
        return process

    def queue(self, name: str = "team", **capability: int) -> None:
        """A queue; a cap on model h20 where none is given is far away."""
        self.queue_with(name, {}, **capability)

    def queue_with(self, name: str, more: Json, /, **capability: int) -> None:
        """The same with further fields of its ``spec``, and its ``annotations``."""
        caps = {names.shared_resource("h20"): 100_000, **capability}
        spec = {"capability": {key: str(value) for key, value in caps.items()}, "weight": 1}
        body = {
            "apiVersion": QUEUES.api_version,
            "kind": "Queue",
            "metadata": {"name": name, "annotations": more.get("annotations", {})},
            "spec": {**spec, **more.get("spec", {})},
        }
        self.api.create(QUEUES, body)

    def submit(self, gang: Gang) -> Json:
        """Make the Job (nothing runs it), its PodGroup and its waiting pods; returns the PodGroup."""
        owner = self.api.create(VOLCANO_JOBS, job(gang))
        group = self.api.create(POD_GROUPS, podgroup(gang, owner))
        for index in range(gang.members):
            self._make(gang, owner, index)
        return group

    def _make(self, gang: Gang, owner: Json, index: int) -> Json:
        body = pod(gang, owner, index)
        body["metadata"]["name"] += self.suffix()
        return self.api.create(PODS, body)

    def make_anew(self, gang: Gang, index: int) -> Json:
        """What a Job's controller does after one of its pods went."""
        owner = self.api.get(VOLCANO_JOBS, gang.name, gang.namespace)
        return self._make(gang, owner, index)

    def pods_of(self, gang: Gang) -> list[Json]:
        """The gang's pods now."""
        listed = self.api.list(PODS, gang.namespace, label_selector=f"gang={gang.name}")
        return sorted(listed.items, key=lambda p: str(p["metadata"]["name"]))

    def until_bound(self, gang: Gang, members: int | None = None, timeout_s: float = 30) -> dict[str, Json]:
        """Wait until all members (or so many) are bound; returns them by name."""
        wanted = gang.members if members is None else members

        def check(pods: dict[str, Json]) -> dict[str, Json] | None:
            bound = {n: p for n, p in pods.items() if p["spec"].get("nodeName")}
            return bound if len(bound) >= wanted else None

        return self.kit.until(
            f"{gang.name} bound",
            PODS,
            check,
            namespace=gang.namespace,
            label_selector=f"gang={gang.name}",
            timeout_s=timeout_s,
        )

    def end(self, gang: Gang) -> None:
        """Remove a gang, its Job first so that nobody makes its pods anew."""
        for resource in (VOLCANO_JOBS, POD_GROUPS):
            with suppress(NotFound):
                self.api.delete(resource, gang.name, gang.namespace, propagation="Background")
        for found in self.pods_of(gang):
            with suppress(NotFound):
                self.api.delete(PODS, found["metadata"]["name"], gang.namespace, grace_period_s=0)
        self.kit.until(
            f"{gang.name} is gone",
            PODS,
            lambda pods: not pods or None,
            namespace=gang.namespace,
            label_selector=f"gang={gang.name}",
        )

    def check(self, *, settled: bool = True) -> None:
        """The invariants hold, judged from the API objects alone.

        ``settled``: waiting gangs say why by now (conditions trail the decision by a moment); otherwise the
        rule about reasons is left out, since nobody may be there to write them.
        """
        snapshot, _ = look(self.kit, ModelTable.from_yaml(MODELS))
        found = invariants.check(snapshot)
        assert not found, "\n".join(map(str, found))
        if settled:
            self.kit.until("every waiting pod says why", PODS, _all_say_why)
            check_invariants(self.kit, ModelTable.from_yaml(MODELS))

    def until_reason(self, gang: Gang, reason: str, timeout_s: float = 30) -> Json:
        """Wait until the PodGroup's condition has this reason; returns the condition."""

        def check(groups: dict[str, Json]) -> Json | None:
            found = admitted(groups.get(gang.name) or {})
            return found if found and found["reason"] == reason else None

        what = f"{gang.name}: {reason}"
        return self.kit.until(what, POD_GROUPS, check, namespace=gang.namespace, timeout_s=timeout_s)

    @contextmanager
    def story(self) -> Iterator[None]:
        """One queue meanwhile; at the end the invariants hold, and nothing is left for the next story."""
        self.queue()
        yield
        for process in self.processes.values():
            print(process.log_tail(100))  # shown where a test fails
        try:
            self.check()
        finally:  # a story that failed fails no other
            self.stop_all()
            self.clean()

    def clean(self) -> None:
        """Remove all gangs and queues that tests made."""
        for resource in (DEPLOYMENTS, VOLCANO_JOBS, POD_GROUPS, PODS):
            for item in self.api.list(resource).items:
                meta = item["metadata"]
                with suppress(NotFound):
                    self.api.delete(resource, meta["name"], meta["namespace"], grace_period_s=0)
        for item in self.api.list(QUEUES).items:
            self.api.delete(QUEUES, item["metadata"]["name"])
        self.kit.until("no pods are left", PODS, lambda pods: not pods or None)

    def stop_all(self) -> None:
        """End the controllers, frozen ones too."""
        for process in self.processes.values():
            if process.alive:
                process.resume()
                process.kill()
        self.processes.clear()


class StandInController:
    """Stands in for a Job's controller: pods with Volcano's lever on them are deleted, and pods that go are
    made anew as long as their Job exists."""

    def __init__(self, rig: Rig, *gangs: Gang, pulls_lever: bool = True) -> None:
        self._rig = rig
        self._gangs = {gang.name: gang for gang in gangs}
        self._pulls_lever = pulls_lever
        self._watch = Reflector(rig.api, PODS, self._changed)

    def __enter__(self) -> "StandInController":
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.stop()

    def _changed(self, change: Change) -> None:
        metadata = change.object["metadata"]
        gang = self._gangs.get((metadata.get("labels") or {}).get("gang", ""))
        if gang is None:
            return
        if change.kind is ChangeKind.DELETED:
            with suppress(NotFound, AlreadyExists):
                self._rig.make_anew(gang, int(metadata["annotations"][names.TASK_INDEX]))
        elif names.OUT_OF_SYNC in metadata["annotations"] and self._pulls_lever:
            with suppress(NotFound, Conflict):
                self._rig.api.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])


def _all_say_why(pods: dict[str, Json]) -> bool | None:
    return all(admitted(found) for found in pods.values() if is_gated(found)) or None


def install(api: ApiConnection, kit: Kit) -> None:
    """CRDs and the product's namespace."""
    crds = [document for text in files().values() for document in yaml.safe_load_all(text)]
    crds = [document for document in crds if document["kind"] == "CustomResourceDefinition"]
    for crd in crds:
        try:
            api.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        except AlreadyExists:
            continue
    with suppress(AlreadyExists):
        api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    wanted = {crd["metadata"]["name"] for crd in crds}

    def established(found: dict[str, Json]) -> bool | None:
        return all(is_true(found.get(name, {}), "Established") for name in wanted)

    kit.until("the CRDs are served", CUSTOM_RESOURCE_DEFINITIONS, established)


def gpu_node(cards: int) -> NodeTemplate:
    """A template of simulated nodes with so many H20 cards."""
    return lambda _index, name: KwokNode(
        name,
        extended={key: int(amount) for key, amount in offered(cards).items()},
        annotations={names.NODE_CARDS: inventory(name, cards).encode()},
    )


@contextmanager
def rig(name: str, nodes: int, cards: int, *, models: Path, **spec: Any) -> Iterator[Rig]:
    """A cluster with ``nodes`` simulated nodes of ``cards`` H20 cards each; gone afterwards."""
    with LocalCluster.up(ClusterSpec(name=name, real_nodes=0, services=False, dns=False, **spec)) as cluster:
        api = ApiConnection.connect(cluster.kubeconfig)
        kit = Kit(api, cluster.kubectl)
        install(api, kit)
        cluster.add_kwok_nodes(nodes, gpu_node(cards))
        wait_ready(kit, nodes)
        models.write_text(MODELS)
        found = Rig(cluster, api, kit, models)
        try:
            yield found
        finally:
            found.stop_all()
            api.close()


def wait_ready(kit: Kit, nodes: int) -> None:
    """Wait until all simulated nodes are ready."""

    def ready(found: dict[str, Json]) -> bool | None:
        return sum(is_true(node, "Ready") for node in found.values()) >= nodes

    kit.until("the nodes are ready", NODES, ready, timeout_s=120)
