"""What an agent takes in anew that has lost its records, or that begins with its kubelet."""

import dataclasses

import pytest
from contract.node.collecting import Cgroups, collector, started
from contract.node.node_world import RES, World, planned
from vc_egpu_node.kubelet.podresources import CHECKPOINT


def test_promises_are_taken_from_the_specs_when_their_records_are_lost(
    world: World, cgroups: Cgroups
) -> None:
    world.serve()
    started(world)
    world.close()
    for path in (world.root / "allocations").iterdir():
        path.unlink()
    world.assemble()
    world.serve()
    assert collector(world, cgroups).recover() == 0
    assert world.allocations.ids_in_use(RES) == {"s1"}
    world.kubelet.pre_start(RES, ("s1",))


def test_what_could_not_be_taken_from_the_specs_is_tried_again(world: World, cgroups: Cgroups) -> None:
    world.serve()
    started(world)
    world.close()
    (record,) = (world.root / "allocations").iterdir()
    record.unlink()
    world.assemble()
    world.serve()
    record.mkdir()
    collect = collector(world, cgroups)
    assert (collect.recover(), collect.recovered) == (0, False)
    record.rmdir()
    assert (collect.recover(), collect.recovered) == (0, True)
    assert world.allocations.ids_in_use(RES) == {"s1"}


def test_who_is_counted_is_not_counted_again_nor_who_was_never_promised_anything(
    world: World, cgroups: Cgroups
) -> None:
    world.serve()
    pod, lost = started(world, "p", "s1"), started(world, "lost", "s2")
    for grant in world.grants.all():
        if grant.pod_uid == lost.uid:
            world.grants.release(grant.name)
            world.allocations.forget(grant.name)
    world.kubelet.allocate(("ns", "unknown", "main"), RES, ("s3",), "u-unknown")
    world.close()
    world.assemble()
    world.serve()
    before = world.grants.all()
    for one in (pod, lost):
        world.pods.put(dataclasses.replace(one, running=frozenset({"main"}), phase="Running"))
    collect = collector(world, cgroups)
    assert (collect.recover(), collect.recovered) == (0, True)
    assert world.grants.all() == before
    assert [grant.pod_uid for grant in before] == [pod.uid]


@pytest.mark.parametrize("record", ["well", "unreadable"])
def test_containers_that_run_without_a_record_are_counted_again(
    world: World, cgroups: Cgroups, record: str
) -> None:
    """Of the kubelet's own record that is said."""
    world.serve()
    pod = started(world)
    waiting = planned("w", "u-w", {"main": [("GPU-2", 1)]})
    world.pods.put(waiting)
    world.kubelet.allocate(("ns", "w", "main"), RES, ("s2",), waiting.uid)
    for path in (world.root / "cdi").iterdir():
        path.unlink()
    world.close()
    world.assemble()
    world.serve()
    assert world.grants.all() == []
    world.pods.put(dataclasses.replace(pod, running=frozenset({"main"}), phase="Running"))
    if record == "unreadable":
        (world.kubelet.folder / CHECKPOINT).write_text("{ not what it was")
    assert collector(world, cgroups).recover() == 1
    assert [grant.pod_uid for grant in world.grants.all()] == [pod.uid]
    assert len(list((world.root / "cdi").iterdir())) == 1


def test_a_kubelet_that_starts_with_the_agent_is_asked_again(world: World, cgroups: Cgroups) -> None:
    world.serve()
    pod = started(world)
    for path in (world.root / "cdi").iterdir():
        path.unlink()
    world.close()
    world.assemble()
    world.serve()
    world.pods.put(dataclasses.replace(pod, running=frozenset({"main"}), phase="Running"))
    collect = collector(world, cgroups)
    world.kubelet.refuse_lists = 1000
    assert (collect.recover(), collect.recovered) == (0, False)
    world.kubelet.refuse_lists = 0
    listed, world.kubelet.held = world.kubelet.held, {}  # it answers before it has heard of any pod
    assert (collect.recover(), collect.recovered) == (0, False)
    world.kubelet.held = listed
    assert (collect.recover(), collect.recovered) == (1, True)
    assert [grant.pod_uid for grant in world.grants.all()] == [pod.uid]


def test_a_pod_made_anew_is_not_counted_as_the_one_that_ran_before(world: World, cgroups: Cgroups) -> None:
    """The kubelet names no UID, and the watch still has the old one: its successor would get its cards."""
    world.serve()
    old = planned("p", "u-old", {"main": [("GPU-1", 4000)]})
    world.pods.put(planned("p", "u-new", {"main": [("GPU-2", 4000)]}))
    world.kubelet.allocate(("ns", "p", "main"), RES, ("s1",), "u-new")
    world.pods.watched["ns", "p"] = dataclasses.replace(old, running=frozenset({"main"}), phase="Running")
    assert collector(world, cgroups).recover() == 0
    world.kubelet.pre_start(RES, ("s1",))
    (grant,) = world.grants.all()
    assert (grant.pod_uid, grant.shares[0].uuid) == ("u-new", "GPU-2")
