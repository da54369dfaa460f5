"""What is done next about a plan, for everything that can be found on the API server."""

import orjson
import pytest
from unit.admission.build import TABLE, added, deleted, group, let_go, node, pod, queue
from vc_egpu.admission.execution.steps import Authority, BindToPods, Carry, Enqueue, Evict, Strip, next_step
from vc_egpu.admission.state.gangs import plan_for
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodUid, Share
from vc_egpu.core.model.policy import Policy
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest, Request

KEY = "default/g"
MINE = Authority(epoch=5)


def world(
    *, members: int = 2, plan: PlanRecord | None = None, text: str = "", phase: str = "Inqueue"
) -> Mirror:
    """A node, a queue, a gang of gated pods, and a plan on its PodGroup."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("queues", added(queue()))
    for index in range(members):
        mirror.apply("pods", added(pod(f"g-w-{index}", index=index, uid=f"pod-{index}")))
    if plan is not None:
        text = plans.encode(plan, mirror.nodes)
    annotations = {names.PLAN: text} if text else {}
    mirror.apply("podgroups", added(group(annotations=annotations, phase=phase)))
    return mirror


def planned(*, members: int = 2, uids: bool = True, epoch: int = 5, **changes: object) -> PlanRecord:
    share = Share(CardId("GPU-n1-0"), 30000, 30)
    values: dict[str, object] = {
        "plan_id": plans.plan_id(epoch, 1),
        "group_uid": "group-g",
        "state": "ready",
        "members": {
            f"w/{i}": PlannedMember(
                MemberPlacement(NodeName("n1"), (("main", share),)),
                PodUid(f"pod-{i}") if uids else plans.NO_UID,
            )
            for i in range(members)
        },
        **changes,
    }
    return PlanRecord(**values)  # type: ignore[arg-type]


def step(mirror: Mirror, authority: Authority = MINE) -> object:
    return next_step(mirror.groups[KEY], mirror.members.get(KEY, {}), authority)


def test_nothing_without_a_plan() -> None:
    assert step(world()) is None


def test_a_ready_plan_is_carried_out() -> None:
    found = step(world(plan=planned()))
    assert isinstance(found, Carry)
    assert [(key, member.pod.name) for key, member, _ in found.members] == [
        ("w/0", "g-w-0"),
        ("w/1", "g-w-1"),
    ]


def test_what_is_carried_out_is_not_done_again() -> None:
    mirror = world(plan=planned())
    mirror.apply("pods", added(let_go(pod("g-w-0", uid="pod-0"), "5-1")))
    found = step(mirror)
    assert isinstance(found, Carry)
    assert [key for key, _, _ in found.members] == ["w/1"]
    mirror.apply("pods", added(let_go(pod("g-w-1", index=1, uid="pod-1"), "5-1")))
    assert step(mirror) is None
    assert mirror.snapshot().gangs[KEY].plan is None, "a plan that is carried out is not in force"


def test_a_waiting_plan_lets_no_gate_fall() -> None:
    plan = planned(state="waiting", victims=frozenset({PodUid("victim")}))
    assert step(world(plan=plan)) == Evict(frozenset({PodUid("victim")}))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "malformed"),
        ('{"version":1,"id":"5-1","group":"another","state":"ready"}', "another PodGroup"),
        ('{"version":1,"id":"4-9","group":"group-g","state":"ready"}', "void"),
    ],
)
def test_a_plan_that_must_not_be_followed_is_stripped(text: str, why: str) -> None:
    found = step(world(text=text))
    assert isinstance(found, Strip)
    assert why in found.why


def test_an_earlier_leaders_plan_is_followed_if_it_was_found_at_the_take_over() -> None:
    mirror = world(plan=planned(epoch=4))
    assert isinstance(step(mirror), Strip)
    assert isinstance(step(mirror, Authority(5, adopted={"4-1"})), Carry)


def test_a_plan_whose_write_was_given_up_is_void_when_it_turns_up_all_the_same() -> None:
    assert isinstance(step(world(plan=planned()), Authority(5, dropped={"5-1"})), Strip)


def test_another_pod_under_the_same_key_is_not_the_one_that_was_planned() -> None:
    mirror = world(plan=planned())
    mirror.apply("pods", deleted(pod("g-w-1", index=1, uid="pod-1")))
    mirror.apply("pods", added(pod("g-w-1", index=1, uid="pod-1b")))
    found = step(mirror)
    assert isinstance(found, Strip), "one of two members is too few to let the first gate fall"


def test_no_gate_falls_where_a_task_has_lost_the_members_that_it_needs() -> None:
    """By number the plan has enough without it."""
    mirror = world(members=3, plan=planned(members=3))
    needs = group(members=2)
    needs["spec"]["minTaskMember"] = {"w": 2, "master": 0}
    needs["metadata"]["annotations"] = {names.PLAN: plans.encode(planned(members=3), mirror.nodes)}
    mirror.apply("podgroups", added(needs))
    mirror.apply("pods", deleted(pod("g-w-1", index=1, uid="pod-1")))
    assert isinstance(step(mirror), Carry), "two workers are left"
    needs = group(members=2)
    needs["spec"]["minTaskMember"] = {"master": 1}
    needs["metadata"]["annotations"] = {names.PLAN: plans.encode(planned(members=3), mirror.nodes)}
    mirror.apply("podgroups", added(needs))
    assert isinstance(step(mirror), Strip), "and no master"


def test_the_rest_goes_on_when_some_gates_fell_before_a_member_was_replaced() -> None:
    mirror = world(members=3, plan=planned(members=3))
    mirror.apply("pods", added(let_go(pod("g-w-0", uid="pod-0"), "5-1")))
    mirror.apply("pods", deleted(pod("g-w-1", index=1, uid="pod-1")))
    found = step(mirror)
    assert isinstance(found, Carry)
    assert [key for key, _, _ in found.members] == ["w/2"]


def test_other_cards_on_a_planned_node_strip_the_plan() -> None:
    mirror = world(plan=planned())
    mirror.apply("nodes", added(node(cards=3)))
    assert isinstance(step(mirror), Strip)


def test_a_node_that_is_gone_strips_the_plan() -> None:
    mirror = world(plan=planned())
    mirror.apply("nodes", deleted(node()))
    assert isinstance(step(mirror), Strip)


def test_a_plan_made_from_a_template_is_enqueued_then_bound_to_the_pods() -> None:
    plan = planned(uids=False)
    mirror = world(members=0, plan=plan, phase="Pending")
    assert step(mirror) == Enqueue()
    mirror.apply("pods", added(pod("g-w-0", uid="pod-0")))
    assert not isinstance(step(mirror), Carry)
    mirror.apply("pods", added(pod("g-w-1", index=1, uid="pod-1")))
    assert step(mirror) == BindToPods({"w/0": PodUid("pod-0"), "w/1": PodUid("pod-1")})


def test_a_pod_with_a_malformed_request_is_no_member() -> None:
    mirror = world()
    broken = pod("g-w-1", index=1, uid="pod-1", annotations={names.REQUEST: "{"})
    mirror.apply("pods", added(broken))
    assert "malformed" in mirror.pods[PodUid("pod-1")].problem
    assert PodUid("pod-1") not in mirror.snapshot().pods


def test_an_older_version_never_replaces_a_newer_one() -> None:
    mirror = world()
    old = pod("g-w-0", uid="pod-0")
    mirror.apply("pods", added(let_go(old, "5-1")))
    mirror.apply("pods", added(old))
    assert mirror.pods[PodUid("pod-0")].waiting is False


def test_garbage_of_any_kind_is_left_out_and_raises_nothing() -> None:
    mirror = world()
    for plural, document in (
        ("pods", {"metadata": {"uid": "x", "resourceVersion": "9999999"}}),
        (
            "queues",
            {"metadata": {"name": "q", "resourceVersion": "9"}, "spec": {"capability": {"cpu": "many"}}},
        ),
        ("nodes", {"metadata": None}),
        ("podgroups", {"metadata": {"name": "x", "resourceVersion": "not a number"}}),
    ):
        mirror.apply(plural, added(document))
    assert set(mirror.snapshot().gangs) == {KEY}


def test_a_node_with_a_garbled_inventory_takes_nothing_and_says_why() -> None:
    mirror = world()
    mirror.apply("nodes", added(node("n2", inventory=orjson.dumps({"cards": [{"uuid": 1}]}).decode())))
    found = mirror.snapshot().nodes[NodeName("n2")]
    assert found.cards == ()
    assert "malformed" in found.problem


@pytest.mark.parametrize("first", ["small", "large"])
def test_of_two_pods_in_one_place_the_plan_names_the_one_that_it_was_made_for(first: str) -> None:
    """Whoever makes pods may write any task and index on them; the other one asks for something else."""
    mirror = world(members=0)
    ask = {"small": ("pod-a", 1000), "large": ("pod-z", 98304)}
    for size in (first, *(ask.keys() - {first})):
        uid, memory_mib = ask[size]
        containers = {"main": ContainerRequest(model="h20", cards=1, memory_mib=memory_mib, cores_percent=1)}
        request = {names.REQUEST: Request(containers=containers).encode()}
        mirror.apply("pods", added(pod(size, uid=uid, annotations=request)))
    mirror.apply("podgroups", added(group(members=1)))
    [admission] = decide(mirror.snapshot(), Policy(), 0.0).admissions
    [member] = plan_for(admission, mirror.groups[KEY], mirror.members[KEY], "5-1", 0.0).members.values()
    [(_, share)] = member.placement.shares
    assert (member.uid, share.memory_mib) in ask.values()


@pytest.mark.parametrize("task", ["a/b", "x" * 64, "", "/"])
def test_what_is_no_name_of_a_task_is_none(task: str) -> None:
    """A plan that names it could not be read again: it would be taken back, and made anew, for ever."""
    mirror = world(members=0)
    mirror.apply("pods", added(pod(uid="pod-0", annotations={names.TASK_SPEC: task})))
    mirror.apply("podgroups", added(group(members=1)))
    [admission] = decide(mirror.snapshot(), Policy(), 0.0).admissions
    plan = plan_for(admission, mirror.groups[KEY], mirror.members[KEY], "5-1", 0.0)
    assert plans.decode(plans.encode(plan, mirror.nodes), mirror.nodes).members == plan.members


def test_no_gate_falls_for_a_template_whose_pods_others_hold_back() -> None:
    mirror = world(members=1, plan=planned(members=1, uids=False))
    assert isinstance(step(mirror), BindToPods)
    gates = [{"name": names.GATE}, {"name": "somebody.else/gate"}]
    mirror.apply("pods", added(pod(uid="pod-0", spec={"schedulingGates": gates})))
    assert step(mirror) is None
