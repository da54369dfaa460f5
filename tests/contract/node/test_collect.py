"""What is let go, and what never is."""

import dataclasses
import time
from collections.abc import Collection
from typing import Any

import pytest
from contract.node.node_world import RES, World, planned
from vc_egpu_node.collect import UNCLAIMED_S, Collector, holdings
from vc_egpu_node.inventory import Holding
from vc_egpu_node.podresources import CHECKPOINT, Checkpoint

MAIN = {"main": [("GPU-1", 4000)]}


class Cgroups:
    """Pods whose containers run; None: nothing can be seen."""

    def __init__(self) -> None:
        self.running: set[str] | None = set()

    def living(self, uids: Collection[str]) -> frozenset[str] | None:
        """Of these, the ones that run."""
        return None if self.running is None else frozenset(self.running & set(uids))


@pytest.fixture
def cgroups() -> Cgroups:
    return Cgroups()


def collector(world: World, cgroups: Cgroups, later_s: float = 0.0) -> Collector:
    return Collector(
        allocations=world.allocations,
        grants=world.grants,
        pods=world.pods,  # type: ignore[arg-type]
        pod_resources=world.pod_resources,
        checkpoint=Checkpoint(world.kubelet.folder),
        cgroups=cgroups,  # type: ignore[arg-type]
        identity=world.identity,
        clock=lambda: time.time() + later_s,
    )


def started(world: World, name: str = "p", slot: str = "s1") -> Any:
    pod = planned(name, f"u-{name}", MAIN)
    world.pods.put(pod)
    world.kubelet.allocate(("ns", name, "main"), RES, (slot,), pod.uid)
    world.kubelet.pre_start(RES, (slot,))
    return pod


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
    assert holdings([shared, other]) == {"GPU-1": Holding(("u-p", "u-x"))}
    assert holdings([dataclasses.replace(shared, native=True)]) == {"GPU-1": Holding(("u-p",), native=True)}


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
