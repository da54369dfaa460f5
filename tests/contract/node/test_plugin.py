"""The plugin as the kubelet sees it: registration, slots, promises, identity."""

import dataclasses
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from contract.node.node_world import RES, World, owner, planned, running
from vc_egpu_node.cards.inventory import Offer, slots
from vc_egpu_node.deviceplugin.registration import KUBELET_SOCKET
from vc_egpu_node.kubelet.podresources import PodResources, PodResourcesError
from vc_egpu_node.kubelet_api import deviceplugin_pb2 as dp

NATIVE_RES = "volcano.sh/gpu-h20"


# --- registration --------------------------------------------------------------------------------


def test_registers_again_when_the_kubelet_restarts(world: World) -> None:
    world.serve(RES, NATIVE_RES)
    assert set(world.kubelet.endpoints) == {RES, NATIVE_RES}
    world.link.look()
    assert not world.kubelet.registered.acquire(timeout=0.1)
    world.kubelet.stop()
    world.kubelet.start()
    world.link.look()
    assert world.kubelet.registered.acquire(timeout=30)
    assert world.kubelet.registered.acquire(timeout=30)
    channel, stub = world.kubelet.plugin(RES)
    with channel:
        assert stub.GetDevicePluginOptions(dp.Empty(), timeout=30).pre_start_required


def test_a_socket_that_somebody_removed_comes_back(world: World) -> None:
    world.serve()
    world.link.plugin(RES).socket.unlink()
    world.link.look()
    assert world.kubelet.registered.acquire(timeout=30)


def test_without_a_kubelet_it_waits(world: World) -> None:
    world.kubelet.stop()
    world.link.plugin(RES)
    world.link.look()
    assert not world.link.settled
    world.kubelet.start()
    world.link.look()
    assert world.kubelet.registered.acquire(timeout=30)
    assert world.link.settled


def test_that_nobody_answers_is_said_once_of_each_resource(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubelet that is stopped leaves its socket behind, for as long as it is away."""
    world.kubelet.stop()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(world.kubelet.folder / KUBELET_SOCKET))
    for resource in (RES, NATIVE_RES):
        world.link.plugin(resource)
    for _ in range(3):
        world.link.look()
    said = [record.getMessage() for record in caplog.records if "was not registered" in record.getMessage()]
    assert [text.split()[0] for text in said] == [RES, NATIVE_RES]


def test_it_is_told_when_the_kubelet_begins_and_ends_to_follow(world: World) -> None:
    world.link.plugin(RES).board.post(slots(Offer(1), 1, frozenset()))
    assert not world.link.follows
    world.link.start()
    assert world.kubelet.registered.acquire(timeout=30)
    channel, stub = world.kubelet.plugin(RES)
    with channel:
        world.changed.clear()
        stream = stub.ListAndWatch(dp.Empty(), timeout=30)
        next(stream)
        assert world.changed.wait(30)
        assert world.link.follows
        world.changed.clear()
        stream.cancel()
        assert world.changed.wait(30)
        assert not world.link.follows


def test_sockets_of_a_dead_agent_are_removed(world: World) -> None:
    stale = world.kubelet.folder / "vc-egpu-vgpu-old.sock"
    stale.write_text("")
    foreign = world.kubelet.folder / "other.sock"
    foreign.write_text("")
    world.link.start()
    assert not stale.exists()
    assert foreign.exists()


def test_slots_are_streamed_and_follow_health(world: World) -> None:
    world.serve()
    board = world.link.plugin(RES).board
    board.post(slots(Offer(2, 0), 2, frozenset()))
    channel, stub = world.kubelet.plugin(RES)
    with channel:
        stream = stub.ListAndWatch(dp.Empty())
        first = next(stream)
        assert [(d.ID, d.health) for d in first.devices] == [(f"s{n}", "Healthy") for n in range(4)]
        board.post(slots(Offer(2, 1), 2, frozenset({"s3"})))
        second = {d.ID: d.health for d in next(stream).devices}
        assert second == {"s0": "Healthy", "s1": "Unhealthy", "s2": "Unhealthy", "s3": "Healthy"}
        stream.cancel()


def test_that_there_is_no_slot_is_told_as_well(world: World) -> None:
    """Or what the kubelet had from an agent before this one would stay on offer."""
    world.serve()
    world.link.plugin(RES).board.post(())
    channel, stub = world.kubelet.plugin(RES)
    with channel:
        stream = stub.ListAndWatch(dp.Empty(), timeout=30)
        assert list(next(stream).devices) == []
        stream.cancel()


# --- identity ------------------------------------------------------------------------------------


def test_a_container_gets_the_cards_of_its_plan(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000), ("GPU-3", 4000)], "side": [("GPU-0", 1)]}))
    name = world.kubelet.allocate(owner("p"), RES, ("s1", "s2"), "u1")
    assert name.startswith("egpu.volcano.sh/vgpu=")
    assert not list((world.root / "cdi").iterdir())
    world.kubelet.pre_start(RES, ("s2", "s1"))
    env = world.cdi(name)["containerEdits"]["env"]
    assert json.loads(env[0].removeprefix("EGPU_CARDS=")) == [
        {"uuid": "GPU-1", "memoryMiB": 4000, "cores": 0},
        {"uuid": "GPU-3", "memoryMiB": 4000, "cores": 0},
    ]
    assert world.pods.gets == 0
    folder = world.root / "containers" / name.rpartition("=")[2]
    second = json.loads((folder / "limits.json").read_text())["cards"][1]
    assert (second["uuid"], second["index"], second["model"], second["product"]) == (
        "GPU-3", 3, "h20", "NVIDIA H20",
    )  # fmt: skip


def test_cards_that_the_watch_has_not_seen_yet_are_asked_for(world: World) -> None:
    """The admission layer writes them on a pod that the watch may know already, without."""
    world.serve()
    pod = planned("p", "u1", {"main": [("GPU-1", 4000)]})
    world.pods.put(pod)
    world.pods.watched["ns", "p"] = dataclasses.replace(pod, cards=None)
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.pre_start(RES, ("s1",))
    assert "GPU-1" in world.cdi(name)["containerEdits"]["env"][0]
    assert world.pods.gets == 1


def test_a_plan_of_the_first_lease_counts(world: World) -> None:
    """Its epoch is 0."""
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000)]}, plan_id="0-0"))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.pre_start(RES, ("s1",))
    assert [grant.epoch for grant in world.grants.all()] == [0]


def test_without_its_edits_a_container_still_opens_no_card(world: World) -> None:
    """A runtime with CDI switched off takes the name for nothing, and an image's own default opens all cards
    where NVIDIA's runtime reads it."""
    world.serve()
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    assert world.kubelet.envs[owner("p")] == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "ASCEND_VISIBLE_DEVICES": "void",
    }


def test_names_are_never_given_twice(world: World) -> None:
    world.serve()
    given = [world.kubelet.allocate(owner("p"), RES, ("s1",)) for _ in range(5)]
    assert len(set(given)) == 5


def test_a_restarted_container_keeps_its_cards_with_nobody_to_ask(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000)]}))
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.pre_start(RES, ("s1",))
    before = world.cdi(name)
    world.close()
    world.assemble()
    world.link.start()
    world.serve()
    world.pods.away = True
    world.pods.watched.clear()
    lists = world.kubelet.lists
    world.kubelet.pre_start(RES, ("s1",))
    assert world.cdi(name) == before
    assert world.kubelet.lists == lists


def test_promises_survive_the_agent(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000)]}))
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.close()
    world.assemble()
    world.serve()
    world.kubelet.pre_start(RES, ("s1",))
    assert world.cdi(name)["name"] == name.rpartition("=")[2]


def test_a_pod_made_anew_under_the_same_name_gets_its_own_cards(world: World) -> None:
    """The watch still has the old one; the kubelet's checkpoint knows better."""
    world.serve()
    world.pods.put(planned("p", "old", {"main": [("GPU-0", 1000)]}))
    world.pods.put(planned("p", "new", {"main": [("GPU-2", 2000)]}), watched=False)
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "new")
    world.kubelet.pre_start(RES, ("s1",))
    assert "GPU-2" in world.cdi(name)["containerEdits"]["env"][0]
    assert world.pods.gets == 1


def unreadable_checkpoint(world: World) -> None:
    (world.kubelet.folder / "kubelet_internal_checkpoint").write_text("{ not what it was")


def test_without_a_readable_checkpoint_the_api_server_is_asked(world: World) -> None:
    world.serve()
    running(world, "other", 1000)
    world.pods.put(planned("p", "u1", {"main": [("GPU-2", 2000)], "side": [("GPU-3", 2000)]}))
    for slot, container, card in (("s1", "main", "GPU-2"), ("s2", "side", "GPU-3")):
        name = world.kubelet.allocate(owner("p", container), RES, (slot,), "u1")
        unreadable_checkpoint(world)
        world.kubelet.pre_start(RES, (slot,))
        assert card in world.cdi(name)["containerEdits"]["env"][0]
    assert world.pods.gets == 2


def _watch_lags(world: World, new: Any, old: Any) -> None:
    world.pods.put(old)
    world.pods.put(new, watched=False)


def _watch_is_empty(world: World, new: Any, old: Any) -> None:
    world.pods.put(new, watched=False)


def _goes_itself(world: World, new: Any, old: Any) -> None:
    world.pods.put(new)
    world.pods.put(dataclasses.replace(new, terminating=True), watched=False)


def _goes_as_the_watch_has_it(world: World, new: Any, old: Any) -> None:
    world.pods.put(dataclasses.replace(new, terminating=True))
    world.pods.served[("ns", "p")] = new


def _was_remade(world: World, new: Any, old: Any) -> None:
    world.pods.put(new)
    world.pods.remade = True


def _old_one_holds_cards(world: World, new: Any, old: Any) -> None:
    world.pods.put(old)
    world.kubelet.allocate(owner("p"), RES, ("s9",), "old")
    world.kubelet.pre_start(RES, ("s9",))
    world.kubelet.free(owner("p"))
    world.pods.put(new)


@pytest.mark.parametrize(
    ("doubt", "text"),
    [
        (_watch_lags, "the watch has another one"),
        (_watch_is_empty, "the watch has not seen it yet"),
        (_goes_itself, "new is being deleted"),
        (_goes_as_the_watch_has_it, "new is being deleted"),
        (_was_remade, "may have gone just now"),
        (_old_one_holds_cards, "still held by UID old"),
    ],
)
def test_without_a_readable_checkpoint_no_pod_starts_that_may_be_another(
    world: World, doubt: Callable[[Any, Any, Any], None], text: str
) -> None:
    """A container of the deleted pod would get its successor's cards. With the checkpoint back it starts."""
    world.serve()
    old, new = (planned("p", uid, {"main": [("GPU-2", 2000)]}) for uid in ("old", "new"))
    doubt(world, new, old)
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "new")
    unreadable_checkpoint(world)
    with pytest.raises(grpc.RpcError) as caught:
        world.kubelet.pre_start(RES, ("s1",))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert text in caught.value.details()
    world.kubelet.write_checkpoint()
    world.kubelet.pre_start(RES, ("s1",))
    assert "GPU-2" in world.cdi(name)["containerEdits"]["env"][0]


def test_32_at_once_are_served_by_few_lists(world: World) -> None:
    world.serve()
    names = {}
    for n in range(32):
        world.pods.put(planned(f"p{n}", f"u{n}", {"main": [(f"GPU-{n % 4}", 100 + n)]}))
        names[n] = world.kubelet.allocate(owner(f"p{n}"), RES, (f"s{n}",), f"u{n}")
    world.kubelet.list_delay_s = 0.05
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda n: world.kubelet.pre_start(RES, (f"s{n}",)), range(32)))
    for n, name in names.items():
        shares = json.loads(world.cdi(name)["containerEdits"]["env"][0].removeprefix("EGPU_CARDS="))
        assert shares == [{"uuid": f"GPU-{n % 4}", "memoryMiB": 100 + n, "cores": 0}]
    assert world.kubelet.lists <= 6


def test_nobody_is_served_by_a_list_that_began_before_he_asked(world: World) -> None:
    """Slots go to another container while a List is on its way."""
    world.serve()
    world.pods.put(planned("first", "u1", {"main": [("GPU-0", 100)]}))
    world.pods.put(planned("second", "u2", {"main": [("GPU-1", 200)]}))
    world.kubelet.allocate(owner("first"), RES, ("s1",), "u1")
    world.kubelet.list_delay_s = 0.3
    slow = threading.Thread(target=world.pod_resources.holders)
    slow.start()
    while not world.kubelet.lists:
        pass
    world.kubelet.free(owner("first"))
    name = world.kubelet.allocate(owner("second"), RES, ("s1",), "u2")
    world.kubelet.pre_start(RES, ("s1",))
    slow.join()
    assert "GPU-1" in world.cdi(name)["containerEdits"]["env"][0]


def test_the_rate_limit_is_waited_out(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000)]}))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.refuse_lists = 2
    world.kubelet.pre_start(RES, ("s1",))


def test_a_list_that_is_a_moment_behind_is_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000)]}))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    asked = world.pod_resources.holders
    behind: list[list[Any]] = [[], []]
    monkeypatch.setattr(world.pod_resources, "holders", lambda: behind.pop() if behind else asked())
    world.kubelet.pre_start(RES, ("s1",))
    assert not behind


def test_a_fault_while_one_asks_keeps_nobody_from_asking_again(world: World) -> None:
    """gRPC needs a thread for a new connection, and may get none."""
    faults = [RuntimeError("can't start new thread")]

    def observe(_call: str, _seconds: float, _outcome: str) -> None:
        if faults:
            raise faults.pop()

    asked = PodResources(world.kubelet.pod_resources_socket, observe=observe)
    with pytest.raises(PodResourcesError, match="can't start new thread"):
        asked.holders()
    assert asked.holders() == []
    asked.close()


def test_native_cards(world: World) -> None:
    world.serve(NATIVE_RES)
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 98304)]}, native=True))
    name = world.kubelet.allocate(owner("p"), NATIVE_RES, ("s1",), "u1")
    world.kubelet.pre_start(NATIVE_RES, ("s1",))
    assert "NVIDIA_VISIBLE_DEVICES=void" in world.cdi(name)["containerEdits"]["env"]
