"""The setting ``binder`` is changed in both directions under load, and the direct way is left altogether.

Simulated nodes, our own Job controller, and processes beside the cluster.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from localcluster.kwok import SUCCEED_AFTER
from rigs.admission import gpu_node, wait_ready
from stack.hostmode import HostOptions, HostStack
from stack.hostprocess import HostProcess
from stack.kit import is_gated, is_running
from stack.verify import check_invariants
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NAMESPACES, PODS, QUEUES, VOLCANO_JOBS, Resource
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.podspec.way import is_direct
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
Json = dict[str, Any]
NAMESPACE: Final = "leaving"
CAP, MEMBERS = 8, 4
SHARE: Final = names.shared_resource("h20")


@dataclass
class World:
    """The stack, and what its pods were."""

    stack: HostStack
    running: dict[str, str] = field(default_factory=dict)
    """UIDs of pods that run, by name: nothing touches them."""

    @property
    def api(self) -> ApiConnection:
        return self.stack.kit.api

    def pods(self, of: str) -> dict[str, Json]:
        listed = self.api.list(PODS, NAMESPACE).items
        return {p["metadata"]["name"]: p for p in listed if p["metadata"]["name"].startswith(f"{of}-w-")}

    def submit(self, name: str, members: int = MEMBERS, **more: Any) -> None:
        self.api.create(VOLCANO_JOBS, job(name, members, **more))

    def runs(self, of: str) -> dict[str, Json]:
        def check(pods: dict[str, Json]) -> bool:
            mine = [pod for name, pod in pods.items() if name.startswith(f"{of}-w-")]
            return len(mine) >= MEMBERS and all(map(is_running, mine))

        self.stack.kit.pods_until(f"{of} runs", NAMESPACE, check)
        self.running |= {name: pod["metadata"]["uid"] for name, pod in self.pods(of).items()}
        return self.pods(of)

    def waits(self, of: str, *, direct: bool) -> set[str]:
        """Until all of its pods wait, by that way; their UIDs."""

        def check(pods: dict[str, Json]) -> set[str] | None:
            mine = [pod for name, pod in pods.items() if name.startswith(f"{of}-w-")]
            fine = all(is_gated(pod) and is_direct(pod["spec"]) is direct for pod in mine)
            return {pod["metadata"]["uid"] for pod in mine} if len(mine) == CAP and fine else None

        return self.stack.kit.pods_until(f"{of} waits", NAMESPACE, check)

    def binder(self, way: str) -> None:
        """The webhook starts again with this setting, as a roll-out ends."""
        process = self.stack.processes["webhook"]
        process.stop()
        process.argv = [*process.argv, "--binder", way]
        self.stack.start("webhook")

    def untouched(self) -> None:
        """Whatever ran runs on."""
        there = {pod["metadata"]["name"]: pod for pod in self.api.list(PODS, NAMESPACE).items}
        now = {name: pod["metadata"]["uid"] for name, pod in there.items() if is_running(pod)}
        assert self.running.items() <= now.items()


def job(name: str, members: int, *, queue: str = "busy", annotations: Json | None = None) -> Json:
    container = {
        "name": "c",
        "image": "none",
        "resources": {"limits": {SHARE: "1", names.LIMIT_MEMORY: "1000"}, "requests": {"cpu": "100m"}},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    task = {
        "name": "w",
        "replicas": members,
        "template": {"metadata": {"annotations": annotations or {}}, "spec": spec},
    }
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"queue": queue, "minAvailable": members, "maxRetry": 3, "tasks": [task]},
    }


@contextmanager
def load(world: World) -> Iterator[list[str]]:
    """Small gangs come one after the other and end by themselves; at the end all of them are completed."""
    submitted: list[str] = []
    refused: list[str] = []
    ending = threading.Event()

    def submit() -> None:
        while not ending.wait(0.5):
            name = f"load{len(submitted)}"
            try:
                world.submit(name, 2, queue="load", annotations={SUCCEED_AFTER: "1s"})
            except KubeError as error:
                refused.append(str(error))
            else:
                submitted.append(name)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield submitted
    finally:
        ending.set()
        thread.join()
    # While the webhook is away nothing is let in, and the user hears so.
    assert not [text for text in refused if "failed calling webhook" not in text], refused
    assert len(submitted) > 5

    def completed(jobs: dict[str, Json]) -> bool:
        states = [(jobs[name].get("status") or {}).get("state", {}).get("phase") for name in submitted]
        return all(state == "Completed" for state in states)

    world.stack.kit.until("the load is done", VOLCANO_JOBS, completed, namespace=NAMESPACE)


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        spec = ClusterSpec(name="leaving", real_nodes=0, services=False, dns=False)
        cluster = stack.enter_context(LocalCluster.up(spec))
        cluster.add_kwok_nodes(4, gpu_node(8))
        ours = HostStack.install(cluster, HostOptions())
        stack.callback(ours.stop)
        ours.start()
        wait_ready(ours.kit, 4)
        bodies: list[tuple[Resource, Json]] = [(NAMESPACES, {"metadata": {"name": NAMESPACE}})]
        for name, cap in (("busy", CAP), ("load", 100)):
            caps = {SHARE: str(cap)}
            bodies.append((QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1, "capability": caps}}))
        for resource, body in bodies:
            ours.kit.api.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **body})
        ours.kit.until(
            "the queues are open",
            QUEUES,
            lambda found: all((found[name].get("status") or {}).get("state") for name in ("busy", "load")),
        )
        yield World(ours)


def drains(world: World, flag: str) -> int:
    """``vc-egpu admission FLAG`` beside the cluster; its exit status is in its log."""
    process = world.stack.processes["admission"]
    drain = HostProcess(process.cluster, "drain", [*process.argv, flag], process.env)
    drain.start()
    wait_until("it has drained", lambda: not drain.alive, 60)
    return drain.log_tail(50).count("still waits for us")


def test_the_setting_is_changed_and_changed_back_and_the_direct_way_is_left(world: World) -> None:
    with load(world):
        world.submit("first")
        assert all(is_direct(pod["spec"]) for pod in world.runs("first").values())
        world.submit("held-direct", CAP)
        direct = world.waits("held-direct", direct=True)

        world.binder("scheduler")
        world.submit("second")
        assert not any(is_direct(pod["spec"]) for pod in world.runs("second").values())
        world.submit("held-gated", CAP)
        gated = world.waits("held-gated", direct=False)
        assert world.waits("held-direct", direct=True) == direct, "a waiting pod keeps its way"
        world.untouched()

        # Leave: what only we could bind is made again, and goes by a scheduler.
        assert drains(world, "--drain-direct") == 0
        anew = world.waits("held-direct", direct=False)
        assert not anew & direct
        assert world.waits("held-gated", direct=False) == gated
        world.untouched()

        world.binder("direct")
        world.submit("held-again", CAP)
        world.waits("held-again", direct=True)
        caps = {"spec": {"capability": {SHARE: "32"}}}
        world.api.patch(QUEUES, "busy", caps)
        for name in ("held-direct", "held-gated", "held-again"):
            world.runs(name)
        world.untouched()
    table = ModelTable.from_yaml(world.stack.options.models.read_text())
    check_invariants(world.stack.kit, table)
    retries = [(one.get("status") or {}).get("retryCount", 0) for one in world.api.list(VOLCANO_JOBS).items]
    assert not any(retries)
