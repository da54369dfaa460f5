"""What is let go, and what never is."""

import dataclasses

import pytest
from contract.node.collecting import MAIN, Cgroups, collector, started
from contract.node.node_world import RES, World, planned
from vc_egpu_node.cards.inventory import Holding
from vc_egpu_node.containers.collector import UNCLAIMED_S, holdings


def test_a_share_ends_when_pod_and_containers_are_gone(world: World, cgroups: Cgroups) -> None:
    world.serve()
    pod = started(world)
    assert cgroups.running is not None
    cgroups.running.add(pod.uid)
    collect = collector(world, cgroups)
    assert collect.collect() == 0
    assert holdings(world.grants.all())["GPU-1"].pods == (pod.uid,)
    world.pods.remove(pod)  # deleted with force: its containers run on
    assert collect.collect() == 1
    assert world.grants.all()
    cgroups.running.clear()
    assert collect.collect() == 0
    assert holdings(world.grants.all()) == {}
    assert list((world.root / "cdi").iterdir()) == []
    assert world.allocations.ids_in_use(RES) == frozenset()


def test_what_is_held_and_how(world: World, cgroups: Cgroups) -> None:
    world.serve()
    started(world)
    (shared,) = world.grants.all()
    other = dataclasses.replace(shared, name="x", pod_uid="u-x")
    assert holdings([shared, other]) == {"GPU-1": Holding(("u-p", "u-x"), containers=2)}
    whole = dataclasses.replace(shared, native=True)
    assert holdings([whole]) == {"GPU-1": Holding(("u-p",), native=True, containers=1)}


def test_a_finished_pod_lets_go(world: World, cgroups: Cgroups) -> None:
    world.serve()
    pod = started(world)
    world.pods.put(dataclasses.replace(pod, phase="Succeeded"))
    collector(world, cgroups).collect()
    assert world.grants.all() == []


def test_files_of_living_pods_stay_whatever_else_is_unknown(world: World, cgroups: Cgroups) -> None:
    world.serve()
    pod = started(world)
    collect = collector(world, cgroups, later_s=10 * UNCLAIMED_S)
    world.kubelet.free(("ns", "p", "main"))
    collect.collect()
    collect.sweep()
    assert [grant.pod_uid for grant in world.grants.all()] == [pod.uid]
    assert world.allocations.ids_in_use(RES) == {"s1"}, "or it could not start again"
    world.pods.synced = False
    world.pods.remove(pod)
    collect.collect()
    collect.sweep()
    assert world.grants.all()


def test_without_cgroups_the_kubelets_list_decides(world: World, cgroups: Cgroups) -> None:
    world.serve()
    pod = started(world)
    cgroups.running = None
    world.pods.remove(pod)
    collect = collector(world, cgroups)
    assert collect.collect() == 1
    world.kubelet.refuse_lists = 1000
    assert collect.collect() == 1
    world.kubelet.refuse_lists = 0
    world.kubelet.free(("ns", "p", "main"))
    assert collect.collect() == 0
    assert world.grants.all() == []


def test_without_cgroups_nor_its_promise_the_kubelets_list_decides_as_well(
    world: World, cgroups: Cgroups
) -> None:
    """An agent that found a full disk could not keep again what its last one had promised."""
    world.serve()
    pod = started(world)
    (grant,) = world.grants.all()
    world.allocations.forget(grant.name)
    cgroups.running = None
    world.pods.remove(pod)
    collect = collector(world, cgroups)
    assert collect.collect() == 1
    collect.sweep()
    assert world.grants.all() == [grant]
    world.kubelet.free(("ns", "p", "main"))
    assert collect.collect() == 0
    assert world.grants.all() == []


def test_a_file_that_cannot_be_removed_keeps_nobody_else(world: World, cgroups: Cgroups) -> None:
    """A disk that turned read-only, say: its share stays held, and all else of the agent's goes on."""
    world.serve()
    stuck, well = started(world, "stuck", "s1"), started(world, "well", "s2")
    names = {grant.pod_uid: grant.name for grant in world.grants.all()}
    path = world.grants.path(names[stuck.uid])
    path.unlink()
    path.mkdir()
    for pod in (stuck, well):
        world.pods.remove(pod)
    collect = collector(world, cgroups)
    assert collect.collect() == 0
    assert [grant.pod_uid for grant in world.grants.all()] == [stuck.uid]
    assert world.allocations.ids_in_use(RES) == {"s1"}
    path.rmdir()
    assert collect.collect() == 0
    assert world.grants.all() == []
    assert world.allocations.all() == []


def test_a_promise_whose_file_stays_keeps_no_other(world: World, cgroups: Cgroups) -> None:
    world.serve()
    for name, slot in (("a", "s1"), ("b", "s2")):
        world.kubelet.allocate(("ns", name, "main"), RES, (slot,), "u")
        world.kubelet.free(("ns", name, "main"))
    for path in (world.root / "allocations").iterdir():
        path.unlink()
        path.mkdir()
    collector(world, cgroups, later_s=2 * UNCLAIMED_S).sweep()
    assert world.allocations.all() == []


def test_promises_that_nobody_claims_are_dropped_late(world: World, cgroups: Cgroups) -> None:
    world.serve()
    world.kubelet.allocate(("ns", "p", "main"), RES, ("s1",), "u")
    collector(world, cgroups, later_s=2 * UNCLAIMED_S).sweep()
    assert len(world.allocations.all()) == 1  # its image is still being pulled
    world.kubelet.free(("ns", "p", "main"))
    collector(world, cgroups).sweep()
    assert len(world.allocations.all()) == 1
    collector(world, cgroups, later_s=2 * UNCLAIMED_S).sweep()
    assert world.allocations.all() == []


def test_a_kubelet_that_starts_again_and_lists_no_pod_yet_drops_no_promise(
    world: World, cgroups: Cgroups
) -> None:
    """It answers before the API server has told it of any pod, for as long as that one is away. A pod whose
    image is still being pulled could never start again, nor a container that was refused so far."""
    world.serve()
    pod = planned("p", "u-p", MAIN)
    world.pods.put(pod)
    world.kubelet.allocate(("ns", "p", "main"), RES, ("s1",), pod.uid)
    listed, world.kubelet.held = world.kubelet.held, {}
    collect = collector(world, cgroups, later_s=2 * UNCLAIMED_S)
    collect.sweep()
    world.kubelet.held = listed
    world.kubelet.pre_start(RES, ("s1",))
    assert [grant.pod_uid for grant in world.grants.all()] == [pod.uid]


@pytest.mark.parametrize("how", ["gone", "ended"])
def test_what_the_kubelets_record_says_of_a_pod_that_is_over_keeps_no_promise(
    world: World, cgroups: Cgroups, how: str
) -> None:
    """It is written when something else is allocated, which may be never."""
    world.serve()
    pod = planned("p", "u-p", MAIN)
    world.pods.put(pod)
    world.kubelet.allocate(("ns", "p", "main"), RES, ("s1",), pod.uid)
    world.kubelet.held = {}
    world.pods.remove(pod)
    if how == "ended":
        world.pods.put(dataclasses.replace(pod, phase="Failed"))
    collector(world, cgroups, later_s=2 * UNCLAIMED_S).sweep()
    assert world.allocations.all() == []


def test_of_two_promises_for_the_same_slots_the_later_one_is_waited_for(
    world: World, cgroups: Cgroups
) -> None:
    """A kubelet that started again before it had written the first one down asks for them anew."""
    world.serve()
    for _ in range(2):
        name = world.kubelet.allocate(("ns", "p", "main"), RES, ("s1",), "u")
    collector(world, cgroups, later_s=2 * UNCLAIMED_S).sweep()
    assert [one.name for one in world.allocations.all()] == [name.rpartition("=")[2]]


def test_before_pods_are_known_no_promise_is_dropped(world: World, cgroups: Cgroups) -> None:
    """Nor does the kubelet list any, while the API server is away from both."""
    world.serve()
    pod = planned("p", "u-p", MAIN)
    world.kubelet.allocate(("ns", "p", "main"), RES, ("s1",), pod.uid)
    listed, world.kubelet.held = world.kubelet.held, {}
    world.pods.synced = False
    collector(world, cgroups, later_s=2 * UNCLAIMED_S).sweep()
    world.pods.put(pod)
    world.kubelet.held = listed
    world.kubelet.pre_start(RES, ("s1",))
    assert [grant.pod_uid for grant in world.grants.all()] == [pod.uid]


def test_of_two_grants_of_a_container_the_one_promised_later_stays(world: World, cgroups: Cgroups) -> None:
    """Also where the clock was set back between them."""
    world.serve()
    started(world)
    (first,) = world.grants.all()
    world.grants.reserve(dataclasses.replace(first, granted_at_s=first.granted_at_s + 7200))
    world.kubelet.free(("ns", "p", "main"))
    world.kubelet.allocate(("ns", "p", "main"), RES, ("s2",), first.pod_uid)
    world.kubelet.pre_start(RES, ("s2",))
    collector(world, cgroups).sweep()
    assert len(world.grants.all()) == 2  # the other's container may still be ending
    collector(world, cgroups, later_s=2 * UNCLAIMED_S).sweep()
    assert [grant.ids for grant in world.grants.all()] == [("s2",)]


def test_folders_that_a_reboot_left_go_with_their_promises(world: World, cgroups: Cgroups) -> None:
    """Specs lie in memory, folders do not: nobody else would know of them, and each reboot leaves more."""
    world.serve()
    gone, here = started(world, "gone", "s1"), started(world, "here", "s2")
    folders = {grant.pod_uid: world.root / "containers" / grant.name for grant in world.grants.all()}
    for path in (world.root / "cdi").iterdir():
        path.unlink()
    world.close()
    world.assemble()
    world.serve()
    world.pods.remove(gone)
    world.kubelet.free(("ns", "gone", "main"))
    collect = collector(world, cgroups, later_s=2 * UNCLAIMED_S)
    for _ in range(2):
        collect.sweep()
    assert not folders[gone.uid].exists()
    world.kubelet.pre_start(RES, ("s2",))
    assert folders[here.uid].exists()


@pytest.mark.parametrize("seen", ["pod", "cgroup", "no cgroup of any pod", "promise", "spec"])
def test_a_folder_stays_while_anything_tells_of_its_container(
    world: World, cgroups: Cgroups, seen: str
) -> None:
    """Another version's records, say, of which this agent cannot read one."""
    world.serve()
    pod = started(world)
    (grant,) = world.grants.all()
    (kept,) = (world.root / "allocations").iterdir()
    if seen == "promise":
        kept.write_text('{"version": 2}')
    else:
        kept.unlink()
    if seen == "spec":
        world.grants.path(grant.name).write_text("{}")
    else:
        world.grants.path(grant.name).unlink()
    world.close()
    world.assemble()
    if seen != "pod":
        world.pods.remove(pod)
    if seen == "cgroup":
        assert cgroups.running is not None
        cgroups.running.add(pod.uid)
    if seen == "no cgroup of any pod":
        cgroups.running = None
    collect = collector(world, cgroups, later_s=2 * UNCLAIMED_S)
    collect.sweep()
    assert (world.root / "containers" / grant.name / "limits.json").exists()
