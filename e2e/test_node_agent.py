"""The node agent on a real kubelet: refusals that say why, restarts on all sides, cards that fail."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.nvml_state import FakeCard
from localcluster.api import wait_until
from rigs.agent_world import World, agent_world, all_started
from rigs.planned_pods import NAMESPACE, PlannedPod
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.volcano.codec.pod_status import start_error_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import CardShare

CARDS = 4
SLOTS = 10
SHARED = "volcano.sh/vgpu-h20"
NATIVE = "volcano.sh/gpu-h20"
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster_world() -> Iterator[World]:
    policy = f"defaults: {{slotsPerCard: {SLOTS}, recoveryS: 3}}\n"
    quick = ("--probe-interval-s=0.5", "--rescan-interval-s=4")
    with agent_world("nodeagent", CARDS, policy, quick) as world:
        world.offers(SHARED, CARDS * SLOTS)
        yield world


@pytest.fixture
def world(cluster_world: World) -> Iterator[World]:
    """The same cluster for all; each test leaves it as it was."""
    yield cluster_world
    cluster_world.restore()
    cluster_world.offers(SHARED, CARDS * SLOTS)


def pod(name: str, uuid: str, memory_mib: int = 1000, **changes: Any) -> PlannedPod:
    return PlannedPod(name, {"main": (CardShare(uuid=uuid, memory_mib=memory_mib, cores=0),)}, **changes)


def patch_node(world: World, patch: dict[str, Any], subresource: str | None = None) -> None:
    world.api.patch(NODES, world.agent.node.name, patch, subresource=subresource)


# --- refusals ------------------------------------------------------------------------------------


def test_a_pod_without_a_plan_does_not_start_and_the_event_says_why(world: World) -> None:
    lost = pod("lost", world.uuids[0])
    world.planner.create(lost)
    world.planner.bind_without_plan(lost)
    world.refusal("lost", "NoPlan: pod default/lost has no annotation egpu.volcano.sh/cards")
    assert not world.cdi_files()


def with_sidecar(world: World, name: str) -> PlannedPod:
    """A container and a sidecar, each with a share of a card of its own."""
    shares = {
        part: (CardShare(uuid=uuid, memory_mib=size, cores=0),)
        for part, uuid, size in (("main", world.uuids[0], 300), ("side", world.uuids[1], 200))
    }
    return PlannedPod(name, shares, sidecars=("side",))


def test_a_sidecar_starts_with_its_own_cards(world: World) -> None:
    planned = with_sidecar(world, "beside")
    world.planner.start([planned])
    world.started("beside")
    assert not world.wrong_containers([planned])


def test_a_sidecar_that_is_refused_is_seen_by_who_would_roll_it_back(world: World) -> None:
    """The kubelet says it in ``initContainerStatuses`` alone: the containers proper only wait for it."""
    lost = with_sidecar(world, "lost")
    world.planner.create(lost)
    world.planner.bind_without_plan(lost)
    world.refusal("lost", "NoPlan: pod default/lost has no annotation egpu.volcano.sh/cards")

    def refused(pods: dict[str, Any]) -> str | None:
        return start_error_of(pods["lost"]["status"]) or None

    said = world.kit.until("the kubelet says so", PODS, refused, namespace=NAMESPACE, timeout_s=60)
    assert "PreStartContainer" in said and "NoPlan" in said
    proper = world.pods()["lost"]["status"]["containerStatuses"]
    assert [one["state"]["waiting"]["reason"] for one in proper] == ["PodInitializing"]


def test_a_share_that_does_not_fit_does_not_start(world: World) -> None:
    first, second = pod("first", world.uuids[0], 60_000), pod("second", world.uuids[0], 60_000)
    world.planner.start([first])
    world.running(1)
    world.planner.start([second])
    world.refusal("second", "60000 MiB do not fit, 60000 of 98304 MiB are held by pod")
    world.planner.delete([first])
    world.started("second")
    assert not world.wrong_containers([second])


def test_a_forged_plan_is_refused(world: World) -> None:
    forged = pod("forged", world.uuids[0])
    uid = world.planner.create(forged)
    world.planner.release(forged, uid, forged.cards("another-uid", world.agent.node.name))
    world.refusal("forged", "podUid is another-uid, the pod's UID is")


# --- restarts ------------------------------------------------------------------------------------


def test_a_pod_deleted_with_force_holds_its_card_until_its_containers_are_gone(world: World) -> None:
    stubborn = pod("stubborn", world.uuids[0], 60_000, script="trap '' TERM; while :; do sleep 1; done")
    world.planner.start([stubborn])
    world.running(1)
    uid = world.pods()["stubborn"]["metadata"]["uid"]
    assert pod_cgroups(world, uid)
    world.agent.node.pause_kubelet()  # so that its containers live on for as long as the test likes
    try:
        world.planner.delete([stubborn], grace_period_s=0)
        assert "stubborn" not in world.pods()
        world.agent.kill()
        world.agent.start()
        wait_until("its card is held", lambda: world.inventory().cards[0].held == (uid,), 60)
    finally:
        world.agent.node.resume_kubelet()
    wait_until("let go", lambda: world.inventory().cards[0].held == (), 60)
    assert not pod_cgroups(world, uid)


def pod_cgroups(world: World, uid: str) -> list[str]:
    """Control groups of a pod, as seen in the node."""
    found = world.agent.node.run(["/bin/sh", "-c", f"find /sys/fs/cgroup -type d -name '*pod{uid}*'"])
    return found.stdout.split()


def test_the_kubelet_restarts(world: World) -> None:
    world.planner.start([pod("before", world.uuids[0])])
    world.running(1)
    world.agent.node.kill_kubelet()
    world.agent.node.start_kubelet()
    world.agent.node.wait_ready()
    world.offers(SHARED, CARDS * SLOTS)
    world.planner.start([pod("after", world.uuids[1])])
    world.running(2)
    assert not world.wrong_containers([pod("before", world.uuids[0]), pod("after", world.uuids[1])])
    assert world.pods()["before"]["status"]["containerStatuses"][0]["restartCount"] == 0


def end_container(world: World, name: str) -> None:
    # The program that kills its container dies with it: kubectl cannot be content.
    world.cluster.kubectl("exec", name, "--", "kill", "-TERM", "1", check=False)


def restarts(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def test_a_container_restarts_while_the_agent_is_dead(world: World) -> None:
    """With its own cards or not at all; with them at the latest once the agent is back."""
    planned = pod("restarting", world.uuids[2], 1234)
    world.planner.start([planned])
    world.running(1)
    world.agent.kill()
    end_container(world, "restarting")

    def restarted(pods: dict[str, Any]) -> bool | None:
        status = pods["restarting"]["status"]["containerStatuses"][0]
        return (status["restartCount"] == 1 and "running" in status["state"]) or None

    def ended(pods: dict[str, Any]) -> bool | None:
        status = pods["restarting"]["status"]["containerStatuses"][0]
        return status["restartCount"] == 1 or "running" not in status["state"] or None

    world.kit.until("ended", PODS, ended, namespace=NAMESPACE, timeout_s=30)
    world.agent.start()
    world.agent.wait_ready()
    world.kit.until("restarted", PODS, restarted, namespace=NAMESPACE, timeout_s=90)
    assert not world.wrong_containers([planned])


def test_the_node_reboots(world: World) -> None:
    """The CDI folder is empty afterwards. What runs again has its own cards; the kubelet may fail the pod."""
    planned = pod("survivor", world.uuids[3], 4321)
    world.planner.start([planned])
    world.running(1)
    world.agent.kill()
    world.agent.node.reboot()
    assert not world.cdi_files()
    world.agent.start()
    world.agent.wait_ready()
    world.offers(SHARED, CARDS * SLOTS)

    def settled(pods: dict[str, Any]) -> Any:
        status = pods["survivor"]["status"]
        again = any(one.get("restartCount", 0) > 0 for one in status.get("containerStatuses") or ())
        return status["phase"] == "Failed" or (again and all_started(pods["survivor"])) or None

    world.kit.until("started again or failed", PODS, settled, namespace=NAMESPACE, timeout_s=120)
    if world.pods()["survivor"]["status"]["phase"] == "Running":
        assert not world.wrong_containers([planned])


def test_the_state_folder_is_lost(world: World) -> None:
    """Running containers go on and restart with their own cards; new ones start."""
    old, new = pod("old", world.uuids[0], 111), pod("new", world.uuids[0], 222)
    world.planner.start([old])
    world.running(1)
    world.agent.kill()
    # Else what the node said before would do below.
    world.offers(SHARED, 0)
    world.agent.forget_state()
    world.agent.start()
    world.agent.wait_ready()
    # Registered is not yet listened to: until the kubelet does, the node says that it takes nothing.
    world.offers(SHARED, CARDS * SLOTS)
    wait_until("the node takes pods again", lambda: not world.inventory().problem, 60)
    world.planner.start([new])
    world.running(2)
    end_container(world, "old")
    world.kit.until("restarted", PODS, lambda pods: restarts(pods["old"]) or None, namespace=NAMESPACE)
    world.running(2)
    assert not world.wrong_containers([old, new])
    uids = sorted(item["metadata"]["uid"] for item in world.pods().values())
    wait_until("both are told of", lambda: sorted(world.inventory().cards[0].held) == uids, 60)


# --- cards ---------------------------------------------------------------------------------------


def test_a_card_falls_ill_under_a_running_pod_and_recovers(world: World) -> None:
    world.planner.start([pod("patient", world.uuids[0])])
    world.running(1)
    fake = world.agent.fake
    fake.cards[0].fail_with_xid(79)
    fake.cards[0].recovery_action = 1
    fake.write()
    world.offers(SHARED, (CARDS - 1) * SLOTS + 1)  # its own slot is nobody else's
    ill = world.inventory().cards[0]
    reasons = ("XID 79", "the driver asks for a reset of the card")
    assert (ill.healthy, ill.reason in reasons) == (False, True), ill
    assert all_started(world.pods()["patient"])
    world.refusal(world.agent.node.name, f"card {world.uuids[0]}: ")  # an event of the Node, too
    world.planner.start([pod("latecomer", world.uuids[0])])
    world.refusal("latecomer", "is ill: ")
    fake.cards[0].recover()
    fake.write()
    world.offers(SHARED, CARDS * SLOTS)
    world.running(2)


def test_cards_come_and_go(world: World) -> None:
    fake = world.agent.fake
    before = list(fake.cards)
    indices = {card.uuid: card.index for card in world.inventory().cards}
    fake.cards = [before[0], *before[2:]]
    fake.write()
    world.offers(SHARED, (CARDS - 1) * SLOTS)
    assert {card.uuid: card.index for card in world.inventory().cards} == indices
    fake.cards = [FakeCard.h20(9), *before]
    fake.write()
    world.offers(SHARED, (CARDS + 1) * SLOTS, timeout_s=90)
    assert {c.uuid: c.index for c in world.inventory().cards} == {**indices, fake.cards[0].uuid: CARDS}
    fake.cards = before
    fake.write()
    world.agent.kill()  # a card that is gone is remembered as ill for a while, but not by a new process
    world.agent.start()
    world.agent.wait_ready()


@pytest.mark.parametrize(
    ("change", "undo", "text"),
    [
        ({"metadata": {"labels": {names.NODE_MODE_LABEL: "mig"}}},
         {"metadata": {"labels": {names.NODE_MODE_LABEL: None}}}, "MIG cards are not offered yet"),
        ({"metadata": {"labels": {names.NODE_MODE_LABEL: "both"}}},
         {"metadata": {"labels": {names.NODE_MODE_LABEL: None}}}, "not shared, native or mig"),
    ],
    ids=["mig", "unknown-mode"],
)  # fmt: skip
def test_a_node_that_takes_nothing_says_why(
    world: World, change: dict[str, Any], undo: dict[str, Any], text: str
) -> None:
    patch_node(world, change)
    world.offers(SHARED, 0)
    assert text in world.inventory().problem
    patch_node(world, undo)
    world.offers(SHARED, CARDS * SLOTS)
    assert world.inventory().problem == ""


def test_native_cards(world: World) -> None:
    patch_node(world, {"metadata": {"labels": {names.NODE_MODE_LABEL: "native"}}})
    world.offers(SHARED, 0)
    world.offers(NATIVE, CARDS)
    whole = PlannedPod("whole", {"main": (CardShare(uuid=world.uuids[1], memory_mib=98304, cores=100),)})
    document = whole.document(world.agent.node.name)
    document["spec"]["containers"][0]["resources"] = {"limits": {NATIVE: "1"}}
    uid = world.api.create(PODS, document)["metadata"]["uid"]
    world.planner.release(whole, uid, whole.cards(uid, world.agent.node.name, native=True))
    world.running(1)
    assert not world.wrong_containers([whole])
    world.planner.delete([whole])
    world.none_left()
    patch_node(world, {"metadata": {"labels": {names.NODE_MODE_LABEL: None}}})
    world.offers(NATIVE, 0)


def test_cordoned_cards_take_nothing_new(world: World) -> None:
    patch_node(world, {"metadata": {"annotations": {names.CORDONED_CARDS: ",".join(world.uuids[:2])}}})
    world.offers(SHARED, 2 * SLOTS)
    assert [card.reason for card in world.inventory().cards][:2] == ["cordoned by the operator"] * 2
    patch_node(world, {"metadata": {"annotations": {names.CORDONED_CARDS: None}}})


def test_slots_per_card_change_without_a_restart(world: World) -> None:
    policy = world.agent.folder / "policy.yaml"
    before = policy.read_text()
    pid = world.agent.process.pid
    policy.write_text("defaults: {slotsPerCard: 7, coreRatio: 1.5, recoveryS: 3}\n")
    world.offers(SHARED, CARDS * 7)
    assert (world.inventory().max_sharers, world.inventory().core_ratio) == (7, 1.5)
    assert world.allocatable("volcano.sh/vgpu-h20-memory") == CARDS * 7 * 98304
    policy.write_text(before)
    world.offers(SHARED, CARDS * SLOTS)
    assert world.agent.process.pid == pid


def test_counters_are_put_right_again(world: World) -> None:
    counter = "volcano.sh/vgpu-h20-memory"
    for wrong in ("1", None):
        patch_node(
            world, {"status": {key: {counter: wrong} for key in ("capacity", "allocatable")}}, "status"
        )
        world.offers(counter, CARDS * SLOTS * 98304)


# --- metrics -------------------------------------------------------------------------------------


def metric(world: World, name: str, **labels: str) -> float | None:
    for line in world.agent.get("/metrics")[1].splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return None


def test_metrics_of_cards_and_containers(world: World, when: Callable[..., None]) -> None:
    uuid = world.uuids[1]
    world.planner.start([pod("measured", uuid, 2048)])
    world.running(1)
    status = world.pods()["measured"]["status"]["containerStatuses"][0]
    container = status["containerID"].rpartition("//")[2]
    fake = world.agent.fake
    fake.cards[1].used_mib, fake.cards[1].util = 1500, 42
    fake.cards[1].processes = [(pid_of(world, container), 1500, 40)]
    fake.write()
    when(lambda: metric(world, "DCGM_FI_DEV_GPU_UTIL", UUID=uuid) == 42)
    assert metric(world, "DCGM_FI_DEV_FB_USED", UUID=uuid, gpu="1", device="nvidia1") == 1500
    who = {"namespace": NAMESPACE, "pod": "measured", "container": "main", "uuid": uuid}
    assert metric(world, "egpu_node_container_memory_granted_bytes", **who) == 2048 << 20
    assert metric(world, "egpu_node_container_memory_used_bytes", **who) == 1500 << 20
    used = metric(world, "egpu_node_container_compute_used_seconds_total", **who)
    when(lambda: (metric(world, "egpu_node_container_compute_used_seconds_total", **who) or 0) > (used or 0))
    fake.cards[1].used_mib, fake.cards[1].util, fake.cards[1].processes = 0, 0, []
    fake.write()


@pytest.fixture
def when() -> Callable[..., None]:
    """Waits for a page that says so."""
    return lambda check: wait_until("the metrics follow", check, 30)


def pid_of(world: World, container: str) -> int:
    """A process of the container, as seen in the node."""
    script = f"grep -l {container} /proc/[0-9]*/cgroup | head -1 | cut -d/ -f3"
    return int(world.agent.node.run(["/bin/sh", "-c", script]).stdout)


# --- removal -------------------------------------------------------------------------------------


def test_removal_leaves_nothing_and_is_refused_while_cards_are_held(cluster_world: World) -> None:
    world = cluster_world
    world.planner.start([pod("holder", world.uuids[0])])
    world.running(1)
    world.agent.stop()
    refused = world.agent.run_once("--action=remove")
    assert refused.returncode == 1
    assert "1 pods hold cards of nodeagent-node-0: default/holder" in refused.stderr
    world.api.delete(PODS, "holder", NAMESPACE)
    world.kit.until("gone", PODS, lambda pods: not pods or None, namespace=NAMESPACE)
    assert world.agent.run_once("--action=remove").returncode == 0
    node = world.node()
    assert names.NODE_CARDS not in node["metadata"]["annotations"]
    ours = ("egpu.volcano.sh", "nvidia.com/")
    assert not [key for key in node["metadata"]["labels"] if any(part in key for part in ours)]
    counters = [key for key in node["status"]["capacity"] if key.endswith(("-memory", "-cores"))]
    assert not counters
    assert not world.cdi_files()
    assert not list(world.agent.node.device_plugins_dir.glob("vc-egpu-*"))
    assert not list(world.agent.state_dir.iterdir())
    world.agent.start()
    world.agent.wait_ready()
    world.offers(SHARED, CARDS * SLOTS)
