"""The plugin as the kubelet sees it: registration, slots, promises, identity, refusals."""

import dataclasses
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from vc_egpu_node.inventory import Offer
from vc_egpu_node.kubelet_api import deviceplugin_pb2 as dp
from vc_egpu_node.slots import slots

RES = "volcano.sh/vgpu-h20"
NATIVE_RES = "volcano.sh/gpu-h20"
Planned = Callable[..., Any]


@pytest.fixture
def planned(request: pytest.FixtureRequest) -> Planned:
    """See ``conftest.planned``."""
    import sys

    return next(m.planned for n, m in sys.modules.items() if n.endswith("contract.node.conftest"))


def owner(pod: str, container: str = "main") -> tuple[str, str, str]:
    return ("ns", pod, container)


# --- registration --------------------------------------------------------------------------------


def test_registers_again_when_the_kubelet_restarts(world: Any) -> None:
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


def test_a_socket_that_somebody_removed_comes_back(world: Any) -> None:
    world.serve()
    world.link.plugin(RES).socket.unlink()
    world.link.look()
    assert world.kubelet.registered.acquire(timeout=30)


def test_without_a_kubelet_it_waits(world: Any) -> None:
    world.kubelet.stop()
    world.link.plugin(RES)
    world.link.look()
    assert not world.link.settled
    world.kubelet.start()
    world.link.look()
    assert world.kubelet.registered.acquire(timeout=30)
    assert world.link.settled


def test_it_is_told_when_the_kubelet_begins_and_ends_to_follow(world: Any) -> None:
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


def test_sockets_of_a_dead_agent_are_removed(world: Any) -> None:
    stale = world.kubelet.folder / "vc-egpu-vgpu-old.sock"
    stale.write_text("")
    foreign = world.kubelet.folder / "other.sock"
    foreign.write_text("")
    world.link.start()
    assert not stale.exists()
    assert foreign.exists()


def test_slots_are_streamed_and_follow_health(world: Any) -> None:
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


# --- identity ------------------------------------------------------------------------------------


def test_a_container_gets_the_cards_of_its_plan(world: Any, planned: Planned) -> None:
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


def test_names_are_never_given_twice(world: Any) -> None:
    world.serve()
    given = [world.kubelet.allocate(owner("p"), RES, ("s1",)) for _ in range(5)]
    assert len(set(given)) == 5


def test_a_restarted_container_keeps_its_cards_with_nobody_to_ask(world: Any, planned: Planned) -> None:
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


def test_promises_survive_the_agent(world: Any, planned: Planned) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000)]}))
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.close()
    world.assemble()
    world.serve()
    world.kubelet.pre_start(RES, ("s1",))
    assert world.cdi(name)["name"] == name.rpartition("=")[2]


def test_a_pod_made_anew_under_the_same_name_gets_its_own_cards(world: Any, planned: Planned) -> None:
    """The watch still has the old one; the kubelet's checkpoint knows better."""
    world.serve()
    world.pods.put(planned("p", "old", {"main": [("GPU-0", 1000)]}))
    world.pods.put(planned("p", "new", {"main": [("GPU-2", 2000)]}), watched=False)
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "new")
    world.kubelet.pre_start(RES, ("s1",))
    assert "GPU-2" in world.cdi(name)["containerEdits"]["env"][0]
    assert world.pods.gets == 1


def unreadable_checkpoint(world: Any) -> None:
    (world.kubelet.folder / "kubelet_internal_checkpoint").write_text("{ not what it was")


def test_without_a_readable_checkpoint_the_api_server_is_asked(world: Any, planned: Planned) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-2", 2000)]}))
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    unreadable_checkpoint(world)
    world.kubelet.pre_start(RES, ("s1",))
    assert "GPU-2" in world.cdi(name)["containerEdits"]["env"][0]
    assert world.pods.gets == 1


def _watch_lags(world: Any, new: Any, old: Any) -> None:
    world.pods.put(old)
    world.pods.put(new, watched=False)


def _watch_is_empty(world: Any, new: Any, old: Any) -> None:
    world.pods.put(new, watched=False)


def _goes_itself(world: Any, new: Any, old: Any) -> None:
    world.pods.put(dataclasses.replace(new, terminating=True))


def _was_remade(world: Any, new: Any, old: Any) -> None:
    world.pods.put(new)
    world.pods.remade = True


def _old_one_holds_cards(world: Any, new: Any, old: Any) -> None:
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
        (_was_remade, "may have gone just now"),
        (_old_one_holds_cards, "still held by UID old"),
    ],
)
def test_without_a_readable_checkpoint_no_pod_starts_that_may_be_another(
    world: Any, planned: Planned, doubt: Callable[[Any, Any, Any], None], text: str
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


def test_32_at_once_are_served_by_few_lists(world: Any, planned: Planned) -> None:
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


def test_nobody_is_served_by_a_list_that_began_before_he_asked(world: Any, planned: Planned) -> None:
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


def test_the_rate_limit_is_waited_out(world: Any, planned: Planned) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 4000)]}))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.refuse_lists = 2
    world.kubelet.pre_start(RES, ("s1",))


def test_without_what_limits_them_no_shares_start(world: Any, planned: Planned) -> None:
    """Nor does a container start again; native cards need no limits."""
    world.serve(RES, NATIVE_RES)
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.closed = "the isolation library cannot be used"
    refused(world, "UNAVAILABLE", "NotNow: the isolation library cannot be used")
    world.closed = ""
    world.kubelet.pre_start(RES, ("s1",))
    world.closed = "the isolation library cannot be used"
    refused(world, "UNAVAILABLE", "NotNow: the isolation library cannot be used")
    world.pods.put(planned("w", "u2", {"main": [("GPU-3", 98304)]}, native=True))
    world.kubelet.allocate(owner("w"), NATIVE_RES, ("s1",), "u2")
    world.kubelet.pre_start(NATIVE_RES, ("s1",))


def test_native_cards(world: Any, planned: Planned) -> None:
    world.serve(NATIVE_RES)
    world.pods.put(planned("p", "u1", {"main": [("GPU-1", 98304)]}, native=True))
    name = world.kubelet.allocate(owner("p"), NATIVE_RES, ("s1",), "u1")
    world.kubelet.pre_start(NATIVE_RES, ("s1",))
    assert "NVIDIA_VISIBLE_DEVICES=void" in world.cdi(name)["containerEdits"]["env"]


# --- refusals ------------------------------------------------------------------------------------

MAIN = {"main": [("GPU-1", 4000)]}


@pytest.mark.parametrize(
    ("containers", "changes", "answer"),
    [
        (MAIN, {"pod_uid": "other"}, ("INVALID_ARGUMENT", "podUid is other, the pod's UID is u1")),
        (MAIN, {"node": "node-2"}, ("INVALID_ARGUMENT", "node is node-2, this is node-1")),
        (MAIN, {"plan_id": "x"}, ("INVALID_ARGUMENT", "planId 'x' is not <epoch>-<number>")),
        ({"side": [("GPU-1", 1)]}, {}, ("INVALID_ARGUMENT", "container main is not among side")),
        ({"main": [("GPU-1", 1), ("GPU-2", 1)]}, {}, ("INVALID_ARGUMENT", "main has 2 cards, but 1 slots")),
        (MAIN, {"native": True}, ("INVALID_ARGUMENT", "native is True, the container asks for volcano.sh/v")),
        ({"main": [("GPU-9", 1)]}, {}, ("FAILED_PRECONDITION", "card GPU-9 is not on this node")),
        ({"main": [("GPU-1", 99000)]}, {}, ("RESOURCE_EXHAUSTED", "99000 MiB do not fit, 0 of 98304 MiB")),
    ],
)  # fmt: skip
def test_what_does_not_belong_together_does_not_start(
    world: Any, planned: Planned, containers: Any, changes: Any, answer: tuple[str, str]
) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", containers, **changes))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, *answer)


def refused(world: Any, code: str, text: str, resource: str = RES, ids: tuple[str, ...] = ("s1",)) -> None:
    files = set((world.root / "cdi").iterdir())
    with pytest.raises(grpc.RpcError) as caught:
        world.kubelet.pre_start(resource, ids)
    assert caught.value.code().name == code, caught.value.details()
    assert text in caught.value.details()
    assert set((world.root / "cdi").iterdir()) == files


def test_no_plan_no_start(world: Any, planned: Planned) -> None:
    import dataclasses

    world.serve()
    world.pods.put(dataclasses.replace(planned("p", "u1", MAIN), cards=None))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, "FAILED_PRECONDITION", "NoPlan: pod ns/p has no annotation egpu.volcano.sh/cards")


@pytest.mark.parametrize(
    "text", ["", "{", '{"version":2}', '{"version":1,"containers":{"main":[{}]}}', "x" * 9999]
)
def test_malformed_annotations(world: Any, planned: Planned, text: str) -> None:
    import dataclasses

    world.serve()
    world.pods.put(dataclasses.replace(planned("p", "u1", MAIN), cards=text))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, "INVALID_ARGUMENT", "pod ns/p, annotation egpu.volcano.sh/cards: ")


def test_slots_that_were_never_promised(world: Any) -> None:
    world.serve()
    refused(world, "FAILED_PRECONDITION", "delete the pod")


def test_slots_that_nobody_holds(world: Any) -> None:
    world.serve()
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.free(owner("p"))
    refused(world, "NOT_FOUND", "the kubelet lists no container with 1 slots of volcano.sh/vgpu-h20")


def test_kubelet_or_api_server_away(world: Any, planned: Planned) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", MAIN), watched=False)
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.pods.away = True
    refused(world, "UNAVAILABLE", "NotNow: pod ns/p could not be read: the API server is away")
    world.kubelet.refuse_lists = 1000
    refused(world, "UNAVAILABLE", "RESOURCE_EXHAUSTED")


def test_ill_and_unoffered_cards(world: Any, planned: Planned) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.change_card("GPU-1", healthy=False, reason="XID 79")
    refused(world, "FAILED_PRECONDITION", "card GPU-1 is ill: XID 79")
    world.change_card("GPU-1", healthy=True, offered=False, reason="another plugin")
    refused(world, "FAILED_PRECONDITION", "card GPU-1 is not offered: another plugin")
    world.change_card("GPU-1", reason="cordoned by the operator")
    world.kubelet.pre_start(RES, ("s1",))
    world.change_card("GPU-1", healthy=False, reason="XID 79")
    refused(world, "FAILED_PRECONDITION", "card GPU-1 is ill: XID 79")


def test_no_room_beside_what_is_in(world: Any, planned: Planned) -> None:
    world.serve()
    world.pods.put(planned("a", "ua", {"main": [("GPU-1", 60000)]}, plan_id="1-1"))
    world.pods.put(planned("b", "ub", {"main": [("GPU-1", 60000)]}, plan_id="9-1"))
    world.kubelet.allocate(owner("a"), RES, ("s1",), "ua")
    world.kubelet.allocate(owner("b"), RES, ("s2",), "ub")
    refused(world, "RESOURCE_EXHAUSTED", "60000 MiB do not fit, 60000 of 98304 MiB are held by pod ub")
    world.pods.watched.pop(("ns", "b"))
    world.kubelet.pre_start(RES, ("s1",))
    refused(world, "RESOURCE_EXHAUSTED", "are held by pod ua", ids=("s2",))


def test_without_the_toolkits_edits_where_they_are_needed(world: Any, planned: Planned) -> None:
    (world.root / "toolkit").mkdir()
    (world.root / "toolkit" / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices: [{name: GPU-7}]\n")
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, "FAILED_PRECONDITION", "knows neither GPU-1 nor card 1: run nvidia-ctk cdi generate again")
    assert world.grants.all() == []
