"""A cluster with one real node, its agent with fake cards, and hands to plan pods with."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from stack.kit import Kit
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import EVENTS, NODES, PODS
from vc_egpu.volcano.api.containers import end_of, statuses_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCards

from rigs.agent_on_node import AgentOnNode
from rigs.planned_pods import NAMESPACE, PlannedPod, Planner, said

Json = dict[str, Any]


@contextlib.contextmanager
def agent_world(
    name: str, cards: int, policy: str, flags: tuple[str, ...] = (), *, user_namespaces: bool = False
) -> Iterator["World"]:
    """Cluster up, agent ready, slots offered; all of it down at the end.

    With ``user_namespaces`` all pods have users of their own.
    """
    spec = ClusterSpec(name=name, real_nodes=1, services=False, dns=False, user_namespaces=user_namespaces)
    with LocalCluster.up(spec) as cluster:
        agent = AgentOnNode.with_h20(cluster, cluster.nodes[0], cards, flags)
        (agent.folder / "policy.yaml").write_text(policy)
        agent.start()
        agent.wait_ready()
        api = ApiConnection.connect(cluster.kubeconfig)
        planner = Planner(api, agent.node.name, host_users=not user_namespaces)
        world = World(cluster, agent, Kit(api, cluster.kubectl), planner)
        try:
            yield world
        finally:
            print(agent.process.log_tail())


@dataclass
class World:
    """What a test holds."""

    cluster: LocalCluster
    agent: AgentOnNode
    kit: Kit
    planner: Planner

    @property
    def api(self) -> ApiConnection:
        """With the administrator's rights."""
        return self.planner.api

    @property
    def uuids(self) -> list[str]:
        """The cards."""
        return [card.uuid for card in self.agent.fake.cards]

    def restore(self) -> None:
        """After a test: the agent runs, no pod is left."""
        if not self.agent.process.alive():
            self.agent.start()
            self.agent.wait_ready()
        for name in self.pods():
            self.api.delete(PODS, name, NAMESPACE, grace_period_s=0)
        self.none_left()

    # --- the node --------------------------------------------------------------------------------

    def node(self) -> Json:
        """The Node object."""
        return self.api.get(NODES, self.agent.node.name)

    def inventory(self) -> NodeCards:
        """What the agent says on it."""
        return NodeCards.decode(self.node()["metadata"]["annotations"][names.NODE_CARDS])

    def allocatable(self, resource: str) -> int:
        """What the kubelet offers now."""
        return int(self.node()["status"]["allocatable"].get(resource, 0))

    def offers(self, resource: str, amount: int, timeout_s: float = 60) -> None:
        """Wait until the kubelet offers exactly that much."""
        wait_until(f"{amount} of {resource}", lambda: self.allocatable(resource) == amount, timeout_s)

    # --- pods ------------------------------------------------------------------------------------

    def pods(self) -> dict[str, Json]:
        """All pods by name."""
        return {item["metadata"]["name"]: item for item in self.api.list(PODS, NAMESPACE).items}

    def running(self, count: int, timeout_s: float = 120) -> None:
        """Wait until that many pods run with all containers."""

        def check(pods: dict[str, Json]) -> bool | None:
            return sum(all_started(pod) for pod in pods.values()) == count or None

        self.kit.until(f"{count} pods running", PODS, check, namespace=NAMESPACE, timeout_s=timeout_s)

    def started(self, name: str, timeout_s: float = 60) -> None:
        """Wait until that pod runs with all containers."""

        def check(pods: dict[str, Json]) -> bool | None:
            return (name in pods and all_started(pods[name])) or None

        self.kit.until(f"{name} running", PODS, check, namespace=NAMESPACE, timeout_s=timeout_s)

    def refusal(self, pod: str, text: str, timeout_s: float = 60) -> str:
        """Wait for an event of that pod that holds the text; the whole note."""

        def check(events: dict[str, Json]) -> str | None:
            notes = [
                e.get("note") or "" for e in events.values() if (e.get("regarding") or {}).get("name") == pod
            ]
            return next((note for note in notes if text in note), None)

        return self.kit.until(f"event {text!r}", EVENTS, check, namespace=NAMESPACE, timeout_s=timeout_s)

    def none_left(self) -> None:
        """Every pod is gone and the agent has let go of everything."""
        gone = "all pods gone"
        self.kit.until(gone, PODS, lambda pods: not pods or None, namespace=NAMESPACE, timeout_s=60)
        wait_until("CDI files collected", lambda: not self.cdi_files(), 30)

    # --- what is on the node's disk --------------------------------------------------------------

    def cdi_files(self) -> list[Path]:
        """The agent's specs."""
        return list(self.agent.node.cdi_dir.glob("egpu.volcano.sh-*.json"))

    def cdi_cards(self) -> dict[tuple[str, str], list[Json]]:
        """(pod UID, container) to the cards in its CDI file."""
        found = {}
        for path in self.cdi_files():
            device = json.loads(path.read_text())["devices"][0]
            grant = json.loads(device["annotations"]["egpu.volcano.sh/grant"])
            env = dict(entry.split("=", 1) for entry in device["containerEdits"]["env"])
            found[(grant["pod_uid"], grant["container"])] = json.loads(env["EGPU_CARDS"])
        return found

    def _report(self, pod: str, container: str) -> str:
        """What a container printed. It runs before it has said anything, so its last line is waited for."""
        log = ""

        def is_whole() -> bool:
            nonlocal log
            log = self.api.pod_log(pod, NAMESPACE, container=container)
            return "\n{" in log and log.endswith("}\n")

        wait_until(f"the report of {pod}/{container}", is_whole, 60)
        return log

    def wrong_containers(self, pods: list[PlannedPod]) -> list[str]:
        """Containers whose plan, CDI file and own words are not the same."""
        by_name, in_files = self.pods(), self.cdi_cards()

        def look(pod: PlannedPod) -> list[str]:
            faults = []
            uid = by_name[pod.name]["metadata"]["uid"]
            for container, shares in pod.containers.items():
                planned = [share.model_dump(by_alias=True, exclude_none=True) for share in shares]
                heard, limits = said(self._report(pod.name, container))
                filed = in_files.get((uid, container))
                sizes = [
                    {key: card[key] for key in ("uuid", "memoryMiB", "cores")} for card in limits["cards"]
                ]
                if not planned == heard == filed == sizes or limits["podUid"] != uid:
                    faults.append(f"{pod.name}/{container}: plan {planned}, says {heard}, file {filed}")
            return faults

        with ThreadPoolExecutor(8) as pool:
            return [fault for faults in pool.map(look, pods) for fault in faults]


def all_started(pod: Json) -> bool:
    """Whether every container and every sidecar runs; ordinary init containers have ended by then."""
    status = pod.get("status") or {}
    proper = status.get("containerStatuses") or []
    return bool(proper) and all(
        "running" in one["state"] or (one not in proper and end_of(one)) for one in statuses_of(status)
    )
