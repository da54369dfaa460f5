"""One real node whose agent delivers the isolation library; pods in it run programs on the fake driver."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.nvml_state import FakeNode
from localcluster import ClusterSpec, LocalCluster
from rigs.agent_on_node import AgentOnNode
from rigs.agent_world import World
from rigs.planned_pods import NAMESPACE, SLEEP, PlannedPod, Planner
from stack.kit import Kit
from vc_egpu.kube import ApiConnection
from vc_egpu.volcano.words.annotations import Cards, CardShare

from isolation.driver import BUILT, NVML_STATE, PROGRAMS, FakeDriver
from isolation.image import IMAGE, PROBE, archive

Json = dict[str, Any]
LIBRARY = BUILT / "release" / "x86_64" / "libvgpu-egpu.so"

PAST_THE_PRELOAD = """
import os
loader = open("/lib64/ld-linux-x86-64.so.2", "rb").read()
with open("/tmp/loader", "wb") as file:
    file.write(loader.replace(b"/etc/ld.so.preload", b"/etc/ld.so.nowhere"))
os.chmod("/tmp/loader", 0o755)
os.execv("/tmp/loader", ["/tmp/loader", "/usr/bin/python3", "/opt/egpu/probe.py", "hold", "{mib}"])
"""
"""Starts a program by a copy of the dynamic linker that looks for another file, as root inside always can."""


@dataclass(frozen=True)
class IsolatedPod(PlannedPod):
    """A pod with one container, one share and a program."""

    share_class: str = "unset"
    core_policy: str = "hard"
    command: tuple[str, ...] = ("/bin/sh", "-c", SLEEP)
    env: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def document(self, node: str) -> Json:
        """The pod, which waits for its Binding."""
        document = super().document(node)
        document["spec"] |= self.spec
        for container in document["spec"]["containers"]:
            container |= {"image": IMAGE, "command": list(self.command)}
            container["env"] = [{"name": name, "value": value} for name, value in self.env.items()]
        return document

    def cards(self, uid: str, node: str, plan_id: str = "1-1", **changes: Any) -> Cards:
        """The annotation for this pod's UID."""
        own = {"share_class": self.share_class, "core_policy": self.core_policy}
        return super().cards(uid, node, plan_id, **own, **changes)


def share(uuid: str, memory_mib: int, cores: int = 0) -> dict[str, tuple[CardShare, ...]]:
    """What a pod with one container asks for."""
    return {"main": (CardShare(uuid=uuid, memory_mib=memory_mib, cores=cores),)}


def program(*arguments: str | int | float) -> tuple[str, ...]:
    """A command of :mod:`isolation.probe`."""
    return ("/usr/bin/python3", PROBE, *map(str, arguments))


def c_program(name: str, **options: str | int) -> tuple[str, ...]:
    """One of ``device-plugin/native/programs``."""
    flags = (text for key, value in options.items() for text in (f"--{key}", str(value)))
    return (f"{PROGRAMS}/{name}", *flags)


@dataclass
class IsolationWorld(World):
    """What a test holds."""

    driver: FakeDriver

    def start(self, *pods: IsolatedPod) -> None:
        """Create them and wait until all run."""
        self.planner.start(pods)
        for pod in pods:
            self.started(pod.name)

    def run(self, pod: str, *command: str, check: bool = True) -> str:
        """A command in a running container; what it said."""
        done = self.cluster.kubectl("exec", "-n", NAMESPACE, pod, "--", *command, check=False)
        if check and done.returncode:
            raise AssertionError(f"{pod}: {' '.join(command)}: {done.stdout}{done.stderr}")
        return str(done.stdout)

    def ask(self, pod: str, *command: str) -> Json:
        """The same; the last line as JSON."""
        said = self.run(pod, *command).splitlines()
        answer: Json = json.loads(said[-1])
        return answer

    def lines(self, pod: str) -> list[Json]:
        """What the container's own program has said so far."""
        return [json.loads(line) for line in self.api.pod_log(pod, NAMESPACE).splitlines() if line[:1] == "{"]

    def note(self, name: str, reason: str, timeout_s: float = 15) -> str:
        """Wait for an event of that reason about a pod; its text."""
        return self.refusal(name, reason, timeout_s)


def programs() -> list[Path]:
    """What containers get beside the driver; one of them is static, with another C library."""
    static = BUILT / "programs" / "train-static"
    subprocess.run(
        ["make", "-s", "-C", str(BUILT.parent), f"OUT={BUILT}", str(static)], check=True, timeout=280
    )
    return [*(BUILT / "programs" / name for name in ("train", "serve", "allocate")), static]


@contextlib.contextmanager
def isolation_world(name: str, cards: int) -> Iterator[IsolationWorld]:
    """Cluster up, driver and programs on the node, agent ready; all of it down at the end."""
    images = (str(archive(print)),)
    spec = ClusterSpec(name=name, real_nodes=1, services=False, dns=False, images=images)
    with LocalCluster.up(spec) as cluster:
        node = cluster.nodes[0]
        state = node.folder / "driver" / "state"
        state.mkdir(parents=True)
        fake = FakeNode.of_h20(state / NVML_STATE, cards, node.index + 1)
        driver = FakeDriver([card.uuid for card in fake.cards], state.parent, state, state)
        driver.install(node.static_cdi_dir, programs())
        fake.write()
        flags = (f"--library={LIBRARY}", "--probe-interval-s=0.5", "--rescan-interval-s=4")
        agent = AgentOnNode(cluster, node, fake, flags=flags, extra_environment=driver.environment)
        agent.start()
        agent.wait_ready()
        api = ApiConnection.connect(cluster.kubeconfig)
        world = IsolationWorld(
            cluster, agent, Kit(api, cluster.kubectl), Planner(api, agent.node.name), driver
        )
        world.offers("volcano.sh/vgpu-h20", cards * 100)
        try:
            yield world
        finally:
            print(agent.process.log_tail())
