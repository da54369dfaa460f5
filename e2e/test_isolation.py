"""The library's pages and mounts on a real kubelet and runtime, live limits, and the second wall."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from localcluster.api import wait_until
from rigs.agent_on_node import FAKE_LIBRARIES, AgentOnNode
from rigs.agent_world import World, agent_world
from rigs.planned_pods import NAMESPACE, SLEEP, PlannedPod
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.volcano.resizing.notes import NodeResizes, ResizeNote, Stage
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu_node.isolation.control import Control, decode

SHARED = "volcano.sh/vgpu-h20"
LOOK = (
    "cat /etc/ld.so.preload; ls /usr/local/vc-egpu/*/*.so /usr/local/vc-egpu/lib/*/*.so; "
    "wc -c < /etc/egpu/control; wc -c < /run/egpu/usage; "
    "(echo x > /etc/egpu/control) 2>&1; (echo x > /etc/ld.so.preload) 2>&1; (rm /run/egpu/activity) 2>&1; "
    "(echo x > /run/egpu/peers/y) 2>&1; echo looked"
)
TOLD_WITHIN_S = 10.0
"""docs/operator-isolation.md promises what two looks in a row show, one every two seconds; and events."""
pytestmark = pytest.mark.cluster


@pytest.fixture(
    scope="module",
    params=[False, pytest.param(True, marks=pytest.mark.long)],
    ids=["hosts_users", "own_users"],
)
def cluster_world(request: pytest.FixtureRequest) -> Iterator[World]:
    own_users: bool = request.param
    flags = (f"--library={FAKE_LIBRARIES}/libvgpu-egpu.so", "--run-dir=/run/vc-egpu-isolation")
    with agent_world(
        "isolation", 2, "defaults: {slotsPerCard: 10}\n", flags, user_namespaces=own_users
    ) as world:
        world.offers(SHARED, 20)
        yield world


@pytest.fixture
def world(cluster_world: World) -> Iterator[World]:
    """The same cluster for all; each test leaves it as it was."""
    yield cluster_world
    set_policy(cluster_world.agent, "report")
    see(cluster_world, [])
    for name in cluster_world.pods():
        cluster_world.api.delete(PODS, name, NAMESPACE, grace_period_s=0)
    cluster_world.none_left()


def pod(name: str, uuid: str, memory_mib: int = 1000, script: str = SLEEP) -> PlannedPod:
    return PlannedPod(name, {"main": (CardShare(uuid=uuid, memory_mib=memory_mib, cores=10),)}, script=script)


def set_policy(agent: AgentOnNode, wall: str) -> None:
    (agent.folder / "policy.yaml").write_text(f"defaults: {{slotsPerCard: 10, secondWall: {wall}}}\n")


def see(world: World, processes: list[tuple[int, int, int]]) -> None:
    """What the driver tells of the first card."""
    world.agent.fake.cards[0].processes = processes
    world.agent.fake.write()


def uid_of(world: World, name: str) -> str:
    return str(world.pods()[name]["metadata"]["uid"])


def pages(world: World) -> dict[str, Control]:
    """By pod UID: what control pages say."""
    found: dict[str, Control] = {}
    for path in world.cdi_files():
        name = path.stem.rpartition("vgpu-")[2]
        uid = re.search(r'pod_uid[\\"]*:[\\"]*([0-9a-f-]{36})', path.read_text())
        page = decode((world.agent.state_dir / "containers" / name / "control").read_bytes())
        assert uid is not None
        assert page is not None
        found[uid[1]] = page
    return found


def process_of(uid: str) -> int:
    """A process of that pod's container, on the host."""
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            inside = uid in path.read_text() and (path.parent / "comm").read_text().strip() == "sh"
        except OSError:
            continue
        if inside:
            return int(path.parent.name)
    raise AssertionError(f"no process of {uid}")


def on_the_node(pid: int) -> int:
    """Its PID as the node's own processes see it: the node is a PID namespace of this machine."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("NSpid:")).split()[2])


def said(world: World, name: str) -> str:
    def log() -> str:
        return world.api.pod_log(name, NAMESPACE, container="main")

    wait_until(f"{name} has looked", lambda: log().rstrip().endswith("looked"), 30)
    return log()


def gone(pid: int) -> Callable[[], bool]:
    return lambda: not Path(f"/proc/{pid}").exists()


def test_what_a_container_finds_and_cannot_change(world: World) -> None:
    looker = pod("looker", world.uuids[0], script=f"{LOOK}; {SLEEP}")
    world.planner.start([looker])
    world.started("looker")
    text = said(world, "looker")
    assert text.startswith("/usr/local/vc-egpu/$LIB/libvgpu-egpu.so\n")
    assert "/usr/local/vc-egpu/lib64/libvgpu-egpu.so" in text
    assert "/usr/local/vc-egpu/lib/x86_64-linux-gnu/libvgpu-egpu.so" in text
    assert text.count("Read-only file system") == 3, text
    assert "activity': Device or resource busy" in text or "Resource busy" in text, text


def test_neighbours_and_live_limits(world: World) -> None:
    one, two = pod("one", world.uuids[0]), pod("two", world.uuids[0])
    world.planner.start([one, two])
    world.running(2)
    first, second = uid_of(world, "one"), uid_of(world, "two")
    before = pages(world)
    assert [peer.name for peer in before[first].peers] == [before[second].name]
    share = CardShare(uuid=world.uuids[0], memory_mib=500, cores=20)
    cards = one.cards(first, world.agent.node.name, share_class="high", containers={"main": (share,)})
    began = time.monotonic()
    world.planner.release(one, first, cards)

    def changed() -> bool:
        return pages(world)[first].limits[0].memory_bytes == 500 << 20

    wait_until("the page says so", changed, 5)
    print(f"in force after {time.monotonic() - began:.3f} s")
    assert pages(world)[second].peers[0].peer_class == 2
    world.agent.kill()
    kept = pages(world)
    world.agent.start()
    world.agent.wait_ready()
    assert pages(world) == kept
    too_much = CardShare(uuid=world.uuids[0], memory_mib=98_000, cores=20)
    cards = one.cards(first, world.agent.node.name, share_class="high", containers={"main": (too_much,)})
    world.planner.release(one, first, cards)
    world.refusal("one", "98000 MiB do not fit")
    assert pages(world) == kept


def test_a_note_of_a_resize_is_answered_on_the_node(world: World) -> None:
    """Less memory comes in two steps, and survives the agent's end between them."""
    one = pod("one", world.uuids[0])
    world.planner.start([one])
    world.running(1)
    uid, node = uid_of(world, "one"), world.agent.node.name
    less = (CardShare(uuid=world.uuids[0], memory_mib=600, cores=10),)

    def noted(stage: Stage, **changes: Any) -> None:
        note = ResizeNote(pod_uid=uid, number="1-7", stage=stage, was={}, then={"main": less})
        said = {names.RESIZED: note.encode(), names.CARDS: one.cards(uid, node, **changes).encode()}
        world.api.patch(PODS, "one", {"metadata": {"annotations": said}}, NAMESPACE)

    def answered(state: str) -> bool:
        text = world.api.get(NODES, node)["metadata"]["annotations"].get(names.NODE_RESIZES, "{}")
        report = NodeResizes.decode(text).pods.get(uid)
        return report is not None and report.state == state

    noted(Stage.LOWERING)
    wait_until("the limit is lowered", lambda: answered("lowered"), 10)
    assert pages(world)[uid].limits[0].memory_bytes == 600 << 20
    world.agent.kill()
    world.agent.start()
    world.agent.wait_ready()
    wait_until("the next agent says so, too", lambda: answered("lowered"), 10)
    noted(Stage.APPLYING, containers={"main": less})
    wait_until("the size is applied", lambda: answered("applied"), 10)
    noted(Stage.DONE, containers={"main": less})
    wait_until(
        "there is nothing more to say",
        lambda: names.NODE_RESIZES not in world.api.get(NODES, node)["metadata"]["annotations"],
        10,
    )
    assert pages(world)[uid].limits[0].memory_bytes == 600 << 20


def test_the_second_wall_reports_and_kills(world: World) -> None:
    rogue, good = pod("rogue", world.uuids[0]), pod("good", world.uuids[0])
    world.planner.start([rogue, good])
    world.running(2)
    pid = process_of(uid_of(world, "rogue"))
    see(world, [(on_the_node(pid), 1200, 0)])
    began = time.monotonic()
    world.refusal("rogue", "1200 MiB on card", 15)
    world.refusal("rogue", "past the isolation library", 15)
    took_s = time.monotonic() - began
    print(f"told after {took_s:.1f} s")
    assert took_s < TOLD_WITHIN_S
    assert Path(f"/proc/{pid}").exists()
    set_policy(world.agent, "kill")
    wait_until("it is killed", gone(pid), 30)
    status, text = world.agent.get("/metrics")
    assert status == 200
    assert 'egpu_node_offences_total{offence="OverGrant",action="killed"}' in text
    assert "egpu_node_isolation 1.0" in text
