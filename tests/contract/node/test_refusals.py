"""Containers that do not start, and why: a code and a sentence each, and nothing is left behind."""

import dataclasses
from typing import Any

import grpc
import pytest
from contract.node.node_world import NODE, RES, World, owner, planned
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.containers.identity import Stock

NATIVE_RES = "volcano.sh/gpu-h20"
MAIN = {"main": [("GPU-1", 4000)]}


def refused(world: World, code: str, text: str, resource: str = RES, ids: tuple[str, ...] = ("s1",)) -> None:
    files = set((world.root / "cdi").iterdir())
    with pytest.raises(grpc.RpcError) as caught:
        world.kubelet.pre_start(resource, ids)
    assert caught.value.code().name == code, caught.value.details()
    assert text in caught.value.details()
    assert set((world.root / "cdi").iterdir()) == files


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
    world: World, containers: Any, changes: Any, answer: tuple[str, str]
) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", containers, **changes))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, *answer)


def test_a_card_of_another_model_is_not_what_the_container_asks_for(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.change_card("GPU-1", model="t4")
    refused(world, "INVALID_ARGUMENT", "card GPU-1 is a t4, the container asks for volcano.sh/vgpu-h20")


def test_no_container_of_a_deleted_pod_starts_in_its_successors_name(world: World) -> None:
    """The kubelet still starts the old one, and everybody else knows the new one only."""
    world.serve()
    world.pods.put(planned("p", "new", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "old")
    refused(world, "NOT_FOUND", "the kubelet starts pod UID old, ns/p is new now")
    world.pods.remove(planned("p", "new", MAIN))
    refused(world, "NOT_FOUND", "pod ns/p does not exist any more")


def test_before_the_cards_are_counted_nobody_starts_nor_starts_again(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    counted, world.stock = world.stock, Stock()
    refused(world, "UNAVAILABLE", "the node's cards have not been counted yet")
    assert world.grants.all() == []
    world.stock = counted
    world.kubelet.pre_start(RES, ("s1",))
    world.stock = Stock()
    refused(world, "UNAVAILABLE", "the node's cards have not been counted yet")


def test_no_plan_no_start(world: World) -> None:
    world.serve()
    world.pods.put(dataclasses.replace(planned("p", "u1", MAIN), cards=None))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, "FAILED_PRECONDITION", "NoPlan: pod ns/p has no annotation egpu.volcano.sh/cards")


@pytest.mark.parametrize(
    "text", ["", "{", '{"version":2}', '{"version":1,"containers":{"main":[{}]}}', "x" * 9999]
)
def test_malformed_annotations(world: World, text: str) -> None:
    world.serve()
    world.pods.put(dataclasses.replace(planned("p", "u1", MAIN), cards=text))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, "INVALID_ARGUMENT", "pod ns/p, annotation egpu.volcano.sh/cards: ")


def test_slots_that_were_never_promised(world: World) -> None:
    world.serve()
    refused(world, "FAILED_PRECONDITION", "delete the pod")


def test_slots_that_nobody_holds(world: World) -> None:
    world.serve()
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.free(owner("p"))
    refused(world, "NOT_FOUND", "the kubelet lists no container with 1 slots of volcano.sh/vgpu-h20")


def test_kubelet_or_api_server_away(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", MAIN), watched=False)
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.pods.away = True
    refused(world, "UNAVAILABLE", "NotNow: pod ns/p could not be read: the API server is away")
    world.kubelet.refuse_lists = 1000
    refused(world, "UNAVAILABLE", "RESOURCE_EXHAUSTED")


def test_ill_and_unoffered_cards(world: World) -> None:
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


def test_a_card_that_falls_ill_while_its_room_is_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers are counted one by one. So the cards are looked at again right before files are written."""
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")

    def falls_ill() -> tuple[str, ...]:
        world.change_card("GPU-1", healthy=False, reason="XID 79")
        return ()

    monkeypatch.setattr(world, "suspended", falls_ill)
    refused(world, "FAILED_PRECONDITION", "card GPU-1 is ill: XID 79")
    assert world.grants.all() == [], "nothing of it is counted"


def test_no_room_beside_what_is_in(world: World) -> None:
    world.serve()
    world.pods.put(planned("a", "ua", {"main": [("GPU-1", 60000)]}, plan_id="1-1"))
    world.pods.put(planned("b", "ub", {"main": [("GPU-1", 60000)]}, plan_id="9-1"))
    world.kubelet.allocate(owner("a"), RES, ("s1",), "ua")
    world.kubelet.allocate(owner("b"), RES, ("s2",), "ub")
    refused(world, "RESOURCE_EXHAUSTED", "60000 MiB do not fit, 60000 of 98304 MiB are held by pod ub")
    world.pods.watched.pop(("ns", "b"))
    world.kubelet.pre_start(RES, ("s1",))
    refused(world, "RESOURCE_EXHAUSTED", "are held by pod ua", ids=("s2",))


def let(world: World, name: str, *shares: CardShare) -> tuple[str, ...]:
    """A pod that holds slots for these cards; the slots."""
    cards = Cards(pod_uid=f"u{name}", node=NODE, plan_id="1-1", containers={"main": shares})
    world.pods.put(dataclasses.replace(planned(name, f"u{name}", MAIN), cards=cards.encode()))
    ids = tuple(f"{name}{number}" for number in range(len(shares)))
    world.kubelet.allocate(owner(name), RES, ids, f"u{name}")
    return ids


def limit(world: World, **limits: Any) -> None:
    """The node's cards have other limits from now on."""
    cards = world.stock.node_cards.model_copy(update=limits)
    world.stock = dataclasses.replace(world.stock, node_cards=cards)


@pytest.mark.parametrize(
    ("limits", "cores", "text"),
    [
        ({"max_sharers": 1}, 30, "1 sharers, the limit is 1"),
        ({"memory_ratio": 0.5}, 30, "of 49152 MiB are held by pod ua"),
        ({"core_ratio": 0.5}, 30, "of 50 of class"),
        ({"core_ratio": 1.5, "ratio_class": "low"}, 60, "of 100 of class"),
    ],
)
def test_a_cards_limits_are_those_of_its_node(
    world: World, limits: dict[str, Any], cores: int, text: str
) -> None:
    world.serve()
    share = CardShare(uuid="GPU-1", memory_mib=30000, cores=cores)
    first, second = let(world, "a", share), let(world, "b", share)
    limit(world, **limits)
    world.kubelet.pre_start(RES, first)
    refused(world, "RESOURCE_EXHAUSTED", text, ids=second)


def test_what_may_spill_fits_the_host_even_where_each_card_has_room(world: World) -> None:
    world.serve()
    shares = (CardShare(uuid=f"GPU-{n}", memory_mib=30000, cores=0, physical_mib=29000) for n in (1, 2))
    ids = let(world, "a", *shares)
    limit(world, memory_ratio=2.0, host_memory_mib=1999)
    refused(world, "RESOURCE_EXHAUSTED", "2000 MiB may spill to the host and do not fit", ids=ids)
    limit(world, host_memory_mib=2000)
    world.kubelet.pre_start(RES, ids)


@pytest.mark.parametrize(
    "other", ["ended", "elsewhere", "copied", "garbled", "earlier", "the same pod", "without cards"]
)
def test_who_does_not_come_keeps_no_room(world: World, other: str) -> None:
    """A later leader's pod on the same card goes first only if it is to run here."""
    changes: dict[str, Any] = {"plan_id": "9-1"}
    changes |= {"elsewhere": {"node": "n2"}, "copied": {"pod_uid": "x"}, "earlier": {"plan_id": "0-1"}}.get(
        other, {}
    )
    view = planned("b", "ub", {"main": [("GPU-1", 60000)]}, **changes)
    others: dict[str, dict[str, Any]] = {
        "ended": {"phase": "Succeeded"},
        "garbled": {"cards": "GPU-1 {"},
        "the same pod": {"uid": "ua"},
        "without cards": {"cards": None},
    }
    changed = others.get(other, {})
    world.serve()
    world.pods.put(planned("a", "ua", {"main": [("GPU-1", 60000)]}, plan_id="1-1"))
    world.pods.put(dataclasses.replace(view, **changed))
    world.kubelet.allocate(owner("a"), RES, ("s1",), "ua")
    world.kubelet.pre_start(RES, ("s1",))


def test_without_the_toolkits_edits_where_they_are_needed(world: World) -> None:
    (world.root / "toolkit").mkdir()
    (world.root / "toolkit" / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices: [{name: GPU-7}]\n")
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    refused(world, "FAILED_PRECONDITION", "knows neither GPU-1 nor card 1: run nvidia-ctk cdi generate again")
    assert world.grants.all() == []


def test_who_runs_keeps_its_record_though_its_card_has_another_number_now(world: World) -> None:
    (world.root / "toolkit").mkdir()
    device = "{name: GPU-1, containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}}"
    (world.root / "toolkit" / "nvidia.yaml").write_text(f"kind: nvidia.com/gpu\ndevices: [{device}]\n")
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    world.kubelet.pre_start(RES, ("s1",))
    moved = dataclasses.replace(world.stock.readings["GPU-1"], index=0, numbers={"minor": 0})
    world.stock = dataclasses.replace(world.stock, readings={"GPU-1": moved})
    (grant,) = world.grants.all()
    world.grants.path(grant.name).unlink()
    world.identity.restore(grant)
    assert world.grants.path(grant.name).exists()
    refused(world, "FAILED_PRECONDITION", "opens another card for GPU-1, which is /dev/nvidia0 now")


def test_a_toolkits_spec_of_another_driver_starts_nobody_and_costs_nobody_its_record(world: World) -> None:
    """The libraries that it names are gone: no container would start, and the runtime would not say why."""
    (world.root / "toolkit").mkdir()
    library = "hostPath: /usr/lib/libcuda.so.570.1, containerPath: /usr/lib/libcuda.so.570.1"
    (world.root / "toolkit" / "nvidia.yaml").write_text(
        "kind: nvidia.com/gpu\ndevices: [{name: GPU-1, containerEdits: {}}]\n"
        f"containerEdits: {{mounts: [{{{library}}}]}}\n"
    )
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    limit(world, driver_version="580.1")
    refused(world, "FAILED_PRECONDITION", "was made for driver 570.1, and 580.1 is loaded")
    limit(world, driver_version="570.1")
    world.kubelet.pre_start(RES, ("s1",))
    limit(world, driver_version="580.1")
    (grant,) = world.grants.all()
    world.grants.path(grant.name).unlink()
    world.identity.restore(grant)
    assert world.grants.path(grant.name).exists()
    refused(world, "FAILED_PRECONDITION", "was made for driver 570.1, and 580.1 is loaded")


def test_without_what_limits_them_no_shares_start(world: World) -> None:
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


def test_what_cannot_be_written_nor_removed_starts_later(world: World) -> None:
    world.serve()
    world.pods.put(planned("p", "u1", MAIN))
    name = world.kubelet.allocate(owner("p"), RES, ("s1",), "u1")
    path = world.grants.path(name.rpartition("=")[2])
    path.mkdir()
    refused(world, "UNAVAILABLE", "NotNow: the container's files were not written")
    path.rmdir()
    world.kubelet.pre_start(RES, ("s1",))
    assert "GPU-1" in world.cdi(name)["containerEdits"]["env"][0]
