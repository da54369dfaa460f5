"""Containers that run: they get more or less, and keep what they have whatever becomes of their card."""

import dataclasses

import grpc
import pytest
from contract.node.node_world import RES, World, running
from vc_egpu_node.containers.admission import NotAdmittedError
from vc_egpu_node.containers.cdi import Grant


def with_memory(grant: Grant, memory_mib: int) -> Grant:
    shares = tuple(share.model_copy(update={"memory_mib": memory_mib}) for share in grant.shares)
    return dataclasses.replace(grant, shares=shares)


def test_who_runs_gets_more_where_there_is_room_and_less_always(world: World) -> None:
    world.serve()
    first, second = running(world, "a", 60000), running(world, "b", 30000)
    for more in ([with_memory(first, 70000)], [with_memory(first, 60000), with_memory(second, 39000)]):
        with pytest.raises(NotAdmittedError, match="do not fit"):
            world.identity.change(more)
        assert world.grants.all() == [first, second], "all or none"
    moved = [with_memory(first, 30000), with_memory(second, 68000)]
    world.identity.change(moved)
    assert world.grants.all() == moved
    cards = world.stock.node_cards.model_copy(update={"memory_ratio": 0.5})
    world.stock = dataclasses.replace(world.stock, node_cards=cards)
    less = with_memory(second, 67000)
    world.identity.change([less])
    assert world.grants.get(second.name) == less, "above the card's limit, as before, and less than before"
    with pytest.raises(NotAdmittedError, match="do not fit"):
        world.identity.change([dataclasses.replace(less, name="unknown")])


def test_who_runs_is_counted_again_and_keeps_its_files_whatever_became_of_its_card(world: World) -> None:
    world.serve()
    grant = running(world, "a", 60000)
    world.change_card("GPU-1", healthy=False, reason="XID 79")
    world.grants.path(grant.name).unlink()
    world.identity.restore(grant)
    assert world.grants.path(grant.name).exists()
    world.stock = dataclasses.replace(world.stock, problem="CDI is off")
    less = with_memory(grant, 50000)
    world.identity.rewrite(less)
    assert "50000" in world.grants.path(grant.name).read_text()
    world.grants.path(grant.name).unlink()
    world.closed = "the isolation library cannot be used"
    world.identity.restore(less)
    assert not world.grants.path(grant.name).exists(), "its next start would go without limits"
    assert world.grants.all() == [less]
    native = dataclasses.replace(grant, native=True)
    world.identity.restore(native)
    assert world.grants.path(grant.name).exists(), "which native cards do not need"


def test_who_runs_on_a_card_that_is_gone_keeps_its_record_and_gets_no_more(world: World) -> None:
    """The driver may list it again."""
    world.serve()
    grant = running(world, "a", 60000)
    cards = tuple(card for card in world.stock.node_cards.cards if card.uuid != "GPU-1")
    world.stock = dataclasses.replace(
        world.stock, node_cards=world.stock.node_cards.model_copy(update={"cards": cards})
    )
    world.grants.path(grant.name).unlink()
    world.identity.restore(grant)
    assert world.grants.path(grant.name).exists()
    with pytest.raises(NotAdmittedError, match="card GPU-1 is not on this node"):
        world.identity.change([with_memory(grant, 61000)])
    with pytest.raises(grpc.RpcError) as caught:
        world.kubelet.pre_start(RES, ("a",))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "card GPU-1 is not on this node" in caught.value.details()
