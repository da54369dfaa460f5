"""When a gang comes back, what comes back with it, and how long it waits then."""

from dataclasses import replace

import pytest
from unit.admission.build import TABLE, added, group, let_go, pod
from vc_egpu.admission.leader import HealthyClock
from vc_egpu.admission.recovery.rollback import PATIENCE_S, STARVED_S, Watchlist, judge
from vc_egpu.admission.state import backoffs
from vc_egpu.admission.state.backoffs import RolledBack
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import NodeName, PodUid
from vc_egpu.volcano.codec import cluster_codec, pod_codec, trim
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.words import names

GANG = cluster_codec.group(group(members=2)).gang
WAITING = {
    "waiting": {"reason": "CreateContainerConfigError", "message": "PreStartContainer: no plan for it"}
}
PULLING = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}


def member(index: int, *, bound: bool, state: object = None, **status: object) -> DecodedPod:
    raw = pod(f"g-w-{index}", index=index, uid=f"pod-{index}")
    if state is not None:
        status["containerStatuses"] = [{"name": "main", "state": state}]
    return pod_codec.pod(let_go(raw, "5-1", card=f"GPU-n{index}-0", bound=bound, **status), TABLE)


def watch(*pods: DecodedPod, at: float = 0.0) -> tuple[dict[PodUid, DecodedPod], Watchlist]:
    watchlist = Watchlist()
    for found in pods:
        watchlist.note(found, at)
    return {found.pod.uid: found for found in pods}, watchlist


def test_a_gang_that_is_not_bound_in_time_comes_back_whole() -> None:
    members, watchlist = watch(member(0, bound=True), member(1, bound=False))
    assert judge(GANG, members, watchlist, PATIENCE_S - 1) is None
    back = judge(GANG, members, watchlist, PATIENCE_S)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-w-0", "g-w-1"]
    assert back.nodes == {NodeName("n1")}
    assert "g-w-1: not bound 30 s" in back.why


def test_the_clock_runs_from_the_last_gate_that_fell() -> None:
    members, watchlist = watch(member(0, bound=False))
    late = member(1, bound=False)
    watchlist.note(late, 20.0)
    members[late.pod.uid] = late
    assert judge(GANG, members, watchlist, PATIENCE_S + 1) is None
    assert judge(GANG, members, watchlist, PATIENCE_S + 20) is not None


def test_a_large_gang_comes_to_its_nodes_at_the_pace_of_its_scheduler() -> None:
    """Gates fall by the hundred in a second; a kube-scheduler as it comes binds at most fifty."""
    most = 2000
    gang = cluster_codec.group(group(members=most)).gang
    members, watchlist = watch(*(member(i, bound=False) for i in range(most)))
    for i in range(most):
        found = member(i, bound=True)
        watchlist.note(found, i / 50)
        members[found.pod.uid] = found
        if i % 50 == 0:
            assert judge(gang, members, watchlist, i / 50) is None
    assert not watchlist


def test_who_stands_behind_others_at_the_scheduler_waits_for_them_and_no_longer() -> None:
    def other(number: int, *, bound: bool) -> DecodedPod:
        return pod_codec.pod(let_go(pod(f"o-{number}", uid=f"o-{number}"), "5-0", bound=bound), TABLE)

    members, watchlist = watch(member(0, bound=True), member(1, bound=False), at=10.0)
    for number, let_go_at in ((0, 5.0), (1, 20.0)):
        watchlist.note(other(number, bound=False), let_go_at)
    watchlist.note(other(0, bound=True), 35.0)
    assert judge(GANG, members, watchlist, 10.0 + PATIENCE_S) is None, "the scheduler came to it after that"
    watchlist.note(other(1, bound=True), 50.0)
    assert judge(GANG, members, watchlist, 35.0 + PATIENCE_S - 1) is None
    assert judge(GANG, members, watchlist, 35.0 + PATIENCE_S) is not None, "others came after it"


def test_image_pulls_never_count() -> None:
    members, watchlist = watch(member(0, bound=True, state=PULLING), member(1, bound=True, state=PULLING))
    assert judge(GANG, members, watchlist, 10_000) is None


def test_a_container_that_the_agent_keeps_from_starting_counts_after_thirty_seconds() -> None:
    members, watchlist = watch(member(0, bound=True, state=WAITING), member(1, bound=True))
    assert judge(GANG, members, watchlist, PATIENCE_S - 1) is None
    back = judge(GANG, members, watchlist, PATIENCE_S)
    assert back is not None
    assert "no plan for it" in back.why
    assert back.nodes == {NodeName("n0")}


def test_a_sidecar_that_the_agent_keeps_from_starting_counts_as_well() -> None:
    """As it is kept in memory: a gang with a card on a sidecar was never rolled back."""
    raw = let_go(pod("g-w-0", index=0, uid="pod-0"), "5-1", card="GPU-n0-0", bound=True)
    raw["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}]
    raw["status"] |= {
        "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}],
        "initContainerStatuses": [{"name": "side", "state": WAITING}],
    }
    stuck = pod_codec.pod(trim.of("pods", raw), TABLE)
    members, watchlist = watch(stuck, member(1, bound=True))
    assert judge(GANG, members, watchlist, PATIENCE_S - 1) is None
    back = judge(GANG, members, watchlist, PATIENCE_S)
    assert back is not None
    assert "g-w-0: not started for 30 s: PreStartContainer: no plan for it" in back.why
    assert [found.pod.name for found in back.pods] == ["g-w-0", "g-w-1"]


def test_what_the_kubelet_refused_comes_back_at_once() -> None:
    refused = member(0, bound=True, phase="Failed", reason="UnexpectedAdmissionError", message="no slots")
    members, watchlist = watch(refused, member(1, bound=True))
    back = judge(GANG, members, watchlist, 0.0)
    assert back is not None
    assert "no slots" in back.why
    assert len(back.pods) == 2


def test_a_program_that_failed_is_no_refusal() -> None:
    failed = member(0, bound=True, phase="Failed", state={"terminated": {"exitCode": 1}})
    members, watchlist = watch(failed, member(1, bound=True))
    assert judge(GANG, members, watchlist, 10_000) is None


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"),
        ("OutOfcpu", "Node didn't have enough resource: cpu"),
        ("TaintToleration", "Predicate TaintToleration failed"),
        ("NodePorts", "Predicate NodePorts failed"),
        ("NodeShutdown", "Pod was rejected: node is shutting down"),
    ],
)
def test_whatever_lacked_a_refusal_is_one(reason: str, message: str) -> None:
    members, watchlist = watch(member(0, bound=True, phase="Failed", reason=reason, message=message))
    back = judge(replace(GANG, min_member=1), members, watchlist, 0.0)
    assert back is not None
    assert back.refusals == (f"{reason}: {message}",)
    assert back.nodes == {NodeName("n0")}


def test_while_the_node_that_refused_it_is_left_out_no_gang_goes_for_it() -> None:
    """Its plan had room there, and a pod of another scheduler took it: that costs others nothing."""
    record = RolledBack().again(1000.0, frozenset({NodeName("n1")}), "refused", kubelet=True)
    assert backoffs.decode(backoffs.encode(record)) == record
    mirror, key = Mirror(TABLE), "default/g"
    mirror.apply("podgroups", added(group(annotations={names.ROLLED_BACK: backoffs.encode(record)})))
    assert mirror.snapshot().gangs[key].takes_free_room
    mirror.open_nodes(record.nodes_until)
    assert not mirror.snapshot().gangs[key].takes_free_room
    later = record.again(2000.0, frozenset(), "not bound", packed=2)
    assert not later.kubelet


def test_surplus_comes_back_alone() -> None:
    members, watchlist = watch(member(0, bound=True), member(1, bound=True), member(2, bound=False))
    back = judge(GANG, members, watchlist, PATIENCE_S)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-w-2"]


def test_who_has_succeeded_or_is_bound_counts_as_well_and_who_is_in_trouble_does_not() -> None:
    gang = cluster_codec.group(group(members=3)).gang
    done = member(0, bound=True, phase="Succeeded")
    stuck = member(3, bound=False)
    members, watchlist = watch(done, member(1, bound=True), member(2, bound=True), stuck)
    back = judge(gang, members, watchlist, PATIENCE_S)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-w-3"], "it goes on without it"
    for wrong in (member(2, bound=True, state=WAITING), member(2, bound=False)):
        members, watchlist = watch(done, member(1, bound=True), wrong, stuck)
        back = judge(gang, members, watchlist, PATIENCE_S)
        assert back is not None
        assert [found.pod.name for found in back.pods] == ["g-w-1", "g-w-2", "g-w-3"], (
            "nor can it without two"
        )
        assert back.why.startswith("pod g-w-2 (and 1 more): ")


def test_a_gang_that_is_left_without_its_master_comes_back_whole() -> None:
    """By number it has enough without it."""
    gang = replace(cluster_codec.group(group(members=2)).gang, min_task_member={"master": 1})
    master = pod("g-master-0", uid="pod-master", annotations={names.TASK_SPEC: "master"})
    stuck = pod_codec.pod(let_go(master, "5-1", bound=False), TABLE)
    members, watchlist = watch(member(0, bound=True), member(1, bound=True), stuck)
    back = judge(gang, members, watchlist, PATIENCE_S)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-master-0", "g-w-0", "g-w-1"]


def test_of_a_service_each_comes_back_alone() -> None:
    gang = replace(cluster_codec.group(group(members=2)).gang, single=True)
    members, watchlist = watch(member(0, bound=True), member(1, bound=False))
    back = judge(gang, members, watchlist, PATIENCE_S)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-w-1"]
    assert back.why.startswith("pod g-w-1: ")


def test_who_recovers_or_is_gone_counts_no_more() -> None:
    for late in (member(0, bound=True), None):
        members, watchlist = watch(member(0, bound=True, state=WAITING), member(1, bound=True))
        assert watchlist
        if late is not None:
            watchlist.note(late, PATIENCE_S - 1)
            members[late.pod.uid] = late
        else:
            watchlist.forget(PodUid("pod-0"))
        assert not watchlist
        assert judge(GANG, members, watchlist, PATIENCE_S) is None
    refused = member(0, bound=True, phase="Failed", reason="UnexpectedAdmissionError", message="no slots")
    members, watchlist = watch(refused, member(1, bound=True))
    assert watchlist
    watchlist.forget(refused.pod.uid)
    assert not watchlist


def test_a_bare_pod_is_reported_and_left_alone() -> None:
    raw = let_go(pod("bare", uid="bare", owners=[]), "5-1")
    members, watchlist = watch(pod_codec.pod(raw, TABLE))
    back = judge(GANG, members, watchlist, PATIENCE_S)
    assert back is not None
    assert back.pods == ()
    assert [found.pod.name for found in back.left_alone] == ["bare"]
    watchlist.handled([PodUid("bare")])
    watchlist.note(pod_codec.pod(raw, TABLE), 100.0)
    assert judge(GANG, members, watchlist, 10_000) is None, "it is reported once"


def test_a_running_gang_is_given_up_when_its_replacement_found_no_room_for_ten_minutes() -> None:
    members, watchlist = watch(member(0, bound=True))
    watchlist.note_gang(GANG, members, 0.0)
    assert not watchlist, "without a replacement pod nothing is killed"
    replacement = pod_codec.pod(pod("g-w-1", index=1, uid="pod-1"), TABLE)
    members[replacement.pod.uid] = replacement
    watchlist.note_gang(GANG, members, 0.0)
    assert judge(GANG, members, watchlist, STARVED_S - 1) is None
    back = judge(GANG, members, watchlist, STARVED_S)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-w-0"]
    assert back.nodes == frozenset()
    watchlist.note_gang(GANG, {}, STARVED_S)
    assert not watchlist


@pytest.mark.parametrize("task", ["w", "master"])
def test_a_running_gang_whose_only_master_finds_no_room_lacks_it_however_many_others_run(task: str) -> None:
    gang = replace(GANG, min_task_member={"w": 1, "master": 1})
    members, watchlist = watch(member(0, bound=True), member(1, bound=True))
    raw = pod(f"g-{task}-7", index=7, uid="waits", annotations={names.TASK_SPEC: task})
    waiting = pod_codec.pod(raw, TABLE)
    members[waiting.pod.uid] = waiting
    watchlist.note_gang(gang, members, 0.0)
    assert (judge(gang, members, watchlist, STARVED_S) is not None) is (task == "master")


def test_the_wait_doubles_and_the_nodes_add_up() -> None:
    once = RolledBack().again(1000.0, frozenset({NodeName("a")}), "why")
    twice = once.again(1100.0, frozenset({NodeName("b")}), "again")
    assert once.until - 1000.0 == backoffs.FIRST_S
    assert twice.until - 1100.0 == 2 * backoffs.FIRST_S
    assert twice.nodes == {NodeName("a"), NodeName("b")}
    assert backoffs.decode(backoffs.encode(twice)) == twice
    much_later = twice.again(1100.0 + backoffs.FORGET_S + 1, frozenset(), "")
    assert (much_later.count, much_later.nodes) == (1, frozenset())


def test_nodes_that_refused_are_open_again_in_time() -> None:
    """Or a gang that fits nowhere else would never run again because an agent was away for a second."""
    record = RolledBack().again(1000.0, frozenset({NodeName("n1")}), "refused")
    assert record.nodes_until > record.until > 1000.0
    mirror, key = Mirror(TABLE), "default/g"
    rolled_back = {names.ROLLED_BACK: backoffs.encode(record)}
    mirror.apply("podgroups", added(group(annotations=rolled_back)))
    mirror.open_nodes(record.nodes_until - 1)
    assert mirror.snapshot().gangs[key].blocked_nodes == {NodeName("n1")}
    mirror.agenda.take_question()
    mirror.open_nodes(record.nodes_until)
    assert mirror.snapshot().gangs[key].blocked_nodes == frozenset()
    assert mirror.agenda.tries.keys() == {key}
    mirror.apply("podgroups", added(group(annotations=rolled_back)))
    assert mirror.snapshot().gangs[key].blocked_nodes == frozenset(), "the same note shuts nothing again"
    again = record.again(record.nodes_until, frozenset({NodeName("n2")}), "refused")
    mirror.apply("podgroups", added(group(annotations={names.ROLLED_BACK: backoffs.encode(again)})))
    assert mirror.snapshot().gangs[key].blocked_nodes == {NodeName("n1"), NodeName("n2")}


@pytest.mark.parametrize("set_back_s", [30.0, 59.0, 61.0, 3600.0])
def test_a_clock_that_was_set_back_shuts_nodes_no_longer_than_they_would_have_been(set_back_s: float) -> None:
    record = RolledBack().again(10_000.0, frozenset({NodeName("n1")}), "refused")
    assert record.shuts(10_000.0 - set_back_s) is (set_back_s < 60)


def test_a_note_that_shuts_nodes_for_ever_shuts_none() -> None:
    assert not RolledBack(1, 0.0, 1e11, frozenset({NodeName("n1")})).shuts(1e9)


def test_the_wait_has_a_limit() -> None:
    value = RolledBack()
    for i in range(100):
        value = value.again(float(i), frozenset(), "")
    assert value.until - 99.0 == backoffs.MOST_S


@pytest.mark.parametrize("text", ["", "{", '{"count":-1}', '{"nodes":[1]}', '{"until":1e300}'])
def test_a_garbled_back_off_means_none(text: str) -> None:
    assert backoffs.decode(text) == RolledBack()


def test_the_clock_stands_still_while_the_lease_is_not_renewed() -> None:
    class Lease:
        epoch = 1
        left = 10.0

        def remaining_s(self) -> float:
            return self.left

    lease, now = Lease(), [0.0]
    clock = HealthyClock(lease, fresh_s=5.0, monotonic=lambda: now[0])
    clock.now()
    now[0] = 3.0
    assert clock.now() == 3.0
    lease.left, now[0] = 2.0, 33.0
    assert clock.now() == 3.0
    lease.left, now[0] = 9.0, 34.0
    assert clock.now() == 4.0


def replica(index: int, plan_id: str, *, bound: bool = False) -> DecodedPod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "g", "uid": "set-g", "controller": True}
    raw = pod(f"g-{index}", index=index, uid=f"pod-{index}", owners=[owner])
    return pod_codec.pod(let_go(raw, plan_id, card=f"GPU-n{index}-0", bound=bound), TABLE)


def test_gates_that_fall_for_later_plans_give_nobody_more_time() -> None:
    """A Deployment that grows and shrinks all the time: a replica that is stuck comes back all the same."""
    gang = cluster_codec.group(group(name="podgroup-set-g", members=1)).gang
    members, watchlist = watch(replica(0, "5-0", bound=True), replica(1, "5-1"))
    later = replica(2, "5-2")
    watchlist.note(later, PATIENCE_S - 5)
    members[later.pod.uid] = later
    back = judge(gang, members, watchlist, PATIENCE_S)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-1"]


def test_a_replacement_that_waits_for_somebody_else_does_not_starve() -> None:
    runs = member(0, bound=True)
    raw = pod("g-w-1", index=1, uid="pod-1")
    raw["spec"]["schedulingGates"].append({"name": "somebody.else/gate"})
    held_back = pod_codec.pod(raw, TABLE)
    members, watchlist = watch(runs, held_back)
    watchlist.note_gang(GANG, members, 0.0)
    assert judge(GANG, members, watchlist, STARVED_S) is None, "room is not what it lacks"
    free = pod_codec.pod({**raw, "spec": {**raw["spec"], "schedulingGates": [{"name": names.GATE}]}}, TABLE)
    members[free.pod.uid] = free
    watchlist.note_gang(GANG, members, STARVED_S)
    assert judge(GANG, members, watchlist, 2 * STARVED_S - 1) is None
    assert judge(GANG, members, watchlist, 2 * STARVED_S) is not None
