"""Budgets, volumes, shares that agents still hold, and what a pod requests."""

from collections.abc import Mapping
from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, let_go, node, pod, queue, version
from unit.kept import sizes
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodUid, Requirement, Resources
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.podspec.selectors import Selector
from vc_egpu.volcano.podspec.sums import pod_requests
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards, Request


def world() -> Mirror:
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("queues", added(queue()))
    mirror.apply("podgroups", added(group()))
    return mirror


def budget(allowed: int, selector: Any, name: str = "b") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": version(), "generation": 1
        },
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }  # fmt: skip


def test_a_budget_protects_until_it_allows_a_disruption() -> None:
    mirror = world()
    mirror.apply("pods", added(pod(uid="p")))
    selector = {"matchLabels": {names.MANAGED_LABEL: "true"}}
    assert mirror.snapshot().pods[PodUid("p")].protected is False
    mirror.apply("poddisruptionbudgets", added(budget(0, selector)))
    assert mirror.snapshot().pods[PodUid("p")].protected is True
    mirror.apply("poddisruptionbudgets", added(budget(1, selector)))
    assert mirror.snapshot().pods[PodUid("p")].protected is False


def test_whom_two_budgets_guard_nobody_can_evict_whatever_they_allow() -> None:
    mirror = world()
    mirror.apply("pods", added(pod(uid="p")))
    mirror.apply("poddisruptionbudgets", added(budget(5, {})))
    assert mirror.snapshot().pods[PodUid("p")].protected is False
    mirror.apply("poddisruptionbudgets", added(budget(5, {}, name="another")))
    assert mirror.snapshot().pods[PodUid("p")].protected is True
    mirror.apply("poddisruptionbudgets", deleted(budget(5, {}, name="another")))
    assert mirror.snapshot().pods[PodUid("p")].protected is False


def test_a_budget_that_counts_has_nobody_read_anew_but_the_pods_that_may_go_or_stay() -> None:
    """Each replica that becomes ready changes its count; ten thousand gangs may be in that namespace."""
    mirror = world()
    for uid, app in (("p", "chat"), ("q", "other")):
        labels = {names.MANAGED_LABEL: "true", "app": app}
        mirror.apply("pods", added(pod(f"pod-{uid}", uid=uid, metadata={"labels": labels})))
    looked_at: list[PodUid] = []
    mirror.enter_again = looked_at.extend  # type: ignore[method-assign, assignment]
    chat = {"matchLabels": {"app": "chat"}}
    for allowed, expected in ((3, ["p"]), (2, []), (1, []), (0, ["p"]), (1, ["p"])):
        mirror.apply("poddisruptionbudgets", added(budget(allowed, chat)))
        assert looked_at == expected
        looked_at.clear()
    mirror.apply("poddisruptionbudgets", added(budget(1, {"matchLabels": {"app": "other"}})))
    assert sorted(looked_at) == ["p", "q"], "one is guarded no longer, the other is now"


def test_a_pod_is_held_against_the_budgets_of_its_labels() -> None:
    """One second for each event of a namespace of ten thousand gangs and some hundred services, otherwise."""
    mirror = world()
    for number in range(300):
        selector = {"matchLabels": {"app": f"app-{number}"}}
        mirror.apply("poddisruptionbudgets", added(budget(1, selector, name=f"b-{number}")))
    asked: list[Selector] = []
    matches = Selector.matches

    def counted(one: Selector, labels: Mapping[str, str]) -> bool:
        asked.append(one)
        return matches(one, labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selector, "matches", counted)
        assert not mirror.around.forbids("default", {"app": "app-7", "pod": "p"})
    assert len(asked) == 1


def test_a_budget_does_not_bring_back_a_pod_that_cannot_be_read() -> None:
    mirror = world()
    mirror.apply("pods", added(pod(uid="p", annotations={names.REQUEST: "{"})))
    assert PodUid("p") not in mirror.snapshot().pods
    mirror.apply("poddisruptionbudgets", added(budget(0, {})))
    assert PodUid("p") not in mirror.snapshot().pods


def test_a_member_without_cards_has_its_plan_after_a_first_load_too() -> None:
    """Pods are loaded before the PodGroup that tells the plan of a member without an annotation."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("queues", added(queue()))
    master = pod("g-m-0", uid="m", annotations={names.REQUEST: Request(containers={}).encode()})
    del master["spec"]["schedulingGates"]
    mirror.apply("pods", added(master))
    plan = PlanRecord(
        plan_id="5-1",
        group_uid="group-g",
        state="ready",
        members={"w/0": PlannedMember(MemberPlacement(None), PodUid("m"))},
    )
    annotations = {names.PLAN: plans.encode(plan, mirror.nodes)}
    mirror.apply("podgroups", added(group(members=1, annotations=annotations)))
    mirror.settle_all()
    assert mirror.snapshot().pods[PodUid("m")].plan_id == "5-1"
    (member,) = mirror.members["default/g"].values()
    assert member.pod.plan_id == "5-1"
    revision = mirror.pods[PodUid("m")]
    mirror.settle_all()
    assert mirror.pods[PodUid("m")] is revision


def test_a_bare_pod_is_known_as_one() -> None:
    mirror = world()
    mirror.apply("pods", added(pod(uid="p", owners=[])))
    assert mirror.snapshot().pods[PodUid("p")].bare is True
    assert mirror.snapshot().pods[PodUid("p")].protected is False


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ({}, {"a": "1"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {"a": "1"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
    ],
)
def test_selectors(selector: dict[str, Any], labels: dict[str, str], matches: bool) -> None:
    found = Selector.of(selector)
    assert found is not None
    assert found.matches(labels) is matches


def volume(name: str, *zones: str, key: str = "zone") -> dict[str, Any]:
    """With a term for each zone, as provisioners write them."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]} for zone in zones]
    where = {"nodeSelectorTerms": terms}
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": version()},
        "spec": {"nodeAffinity": {"required": where}},
    }


def claim(name: str, volume: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"claim-{name}", "resourceVersion": version()}
    return {"metadata": metadata, "spec": {"volumeName": volume} if volume else {}}


def with_claims(*claims: str, uid: str) -> dict[str, Any]:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return pod(f"pod-{uid}", uid=uid, spec={"volumes": [*volumes, {"name": "scratch", "emptyDir": {}}]})


def zones(mirror: Mirror, uid: str) -> tuple[Any, ...]:
    terms = mirror.snapshot().pods[PodUid(uid)].shape.affinity_terms
    return tuple(requirement.values[0] for term in terms for requirement in term)


def test_the_volume_that_a_claim_is_bound_to_says_where_a_pod_may_go() -> None:
    mirror = world()
    mirror.apply("pods", added(with_claims("data", uid="p")))
    assert mirror.snapshot().pods[PodUid("p")].shape.affinity_terms == ()
    mirror.apply("persistentvolumes", added(volume("pv", "a")))
    mirror.apply("persistentvolumeclaims", added(claim("data", "pv")))
    shape = mirror.snapshot().pods[PodUid("p")].shape
    assert shape.affinity_terms == ((Requirement("zone", "In", ("a",)),),)


def test_the_claim_that_kubernetes_makes_for_a_pod_alone_is_one_of_its_claims() -> None:
    mirror = world()
    template = {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Ti"}}}}}
    volumes = [{"name": "scratch", "ephemeral": template}]
    mirror.apply("pods", added(pod("pod-p", uid="p", spec={"volumes": volumes})))
    mirror.apply("persistentvolumes", added(volume("pv", "a")))
    mirror.apply("persistentvolumeclaims", added(claim("pod-p-scratch", "pv")))
    assert zones(mirror, "p") == ("a",)


def test_volumes_that_come_and_go_have_nobody_read_anew_but_their_own_pods() -> None:
    mirror = world()
    mirror.apply("pods", added(with_claims("mine", "shared", uid="p")))
    mirror.apply("pods", added(with_claims("other", uid="q")))
    mirror.apply("persistentvolumeclaims", added(claim("mine")))
    before = {uid: mirror.pods[PodUid(uid)] for uid in "pq"}
    mirror.apply("persistentvolumes", added(volume("pv", "a")))
    assert all(mirror.pods[PodUid(uid)] is before[uid] for uid in "pq")  # nobody is bound to it
    mirror.apply("persistentvolumeclaims", added(claim("mine", "pv")))
    assert zones(mirror, "p") == ("a",)
    assert mirror.pods[PodUid("q")] is before["q"]
    mirror.apply("persistentvolumes", added(volume("pv", "b")))
    mirror.apply("persistentvolumes", added(volume("pv-2", "c")))
    mirror.apply("persistentvolumeclaims", added(claim("shared", "pv-2")))
    assert zones(mirror, "p") == ("b", "c")
    assert mirror.pods[PodUid("q")] is before["q"]
    mirror.apply("persistentvolumeclaims", deleted(claim("shared", "pv-2")))
    mirror.apply("persistentvolumes", deleted(volume("pv", "b")))
    assert zones(mirror, "p") == ()


def test_many_volumes_that_two_zones_reach_are_no_million_of_terms() -> None:
    """Each of twenty is a choice of its own. They hold up neither the pod nor all others."""
    mirror = world()
    names_of = [f"data-{number}" for number in range(20)]
    for number, name in enumerate(names_of):
        both = ("a", "b") if number % 2 else ("b", "a")
        mirror.apply("persistentvolumes", added(volume(f"pv-{name}", *both)))
        mirror.apply("persistentvolumeclaims", added(claim(name, f"pv-{name}")))
    mirror.apply("pods", added(with_claims(*names_of, uid="p")))
    assert sorted(zones(mirror, "p")) == ["a", "b"]


def test_volumes_that_say_too_much_together_keep_their_pod_waiting_and_nobody_else() -> None:
    mirror = world()
    names_of = [f"data-{number}" for number in range(20)]
    for name in names_of:
        mirror.apply("persistentvolumes", added(volume(f"pv-{name}", "a", "b", key=name)))
        mirror.apply("persistentvolumeclaims", added(claim(name, f"pv-{name}")))
    mirror.apply("pods", added(with_claims(*names_of, uid="p")))
    assert "leave more than 1024 alternatives" in mirror.pods[PodUid("p")].problem
    assert PodUid("p") not in mirror.snapshot().pods


def test_of_pods_and_claims_that_are_gone_nothing_is_left() -> None:
    mirror = world()
    before = sizes(mirror.around)
    mirror.apply("pods", added(with_claims("data", uid="p")))
    mirror.apply("persistentvolumes", added(volume("pv", "a")))
    mirror.apply("persistentvolumeclaims", added(claim("data", "pv")))
    assert sizes(mirror.around) != before
    mirror.apply("pods", deleted(with_claims("data", uid="p")))
    mirror.apply("persistentvolumeclaims", deleted(claim("data", "pv")))
    mirror.apply("persistentvolumes", deleted(volume("pv", "a")))
    assert sizes(mirror.around) == before


def held(*uids: str) -> str:
    card = NodeCard(uuid="GPU-n1-0", index=0, model="h20", memory_mib=98304, held=uids)
    return NodeCards(cards=(card,)).encode()


def test_a_share_ends_when_the_object_is_gone_and_the_agent_let_go() -> None:
    mirror = world()
    raw = let_go(pod(uid="p"), "5-1", bound=True)
    mirror.apply("pods", added(raw))
    mirror.apply("nodes", added(node(inventory=held("p"))))
    mirror.apply("pods", deleted(raw))
    [(uid, share)] = mirror.snapshot().held[CardId("GPU-n1-0")]
    assert (uid, share.memory_mib, share.cores_percent) == ("p", 30000, 30)
    mirror.apply("nodes", added(node(inventory=held())))
    assert not mirror.snapshot().held.get(CardId("GPU-n1-0"))


def test_of_who_went_before_its_node_nothing_is_remembered() -> None:
    """Nodes come and go with the load, for years."""
    mirror = world()
    for uid in "pq":
        mirror.apply("pods", added(let_go(pod(f"pod-{uid}", uid=uid), "5-1", bound=True)))
    mirror.apply("nodes", added(node(inventory=held("p", "q"))))
    mirror.apply("pods", deleted(pod("pod-p", uid="p")))
    mirror.apply("nodes", deleted(node()))
    assert mirror.inventory.holdings.remembered == {"q"}
    mirror.apply("pods", deleted(pod("pod-q", uid="q")))
    assert not mirror.inventory.holdings.remembered


def test_what_nobody_remembers_is_all_that_the_others_leave() -> None:
    mirror = world()
    mirror.apply("pods", added(let_go(pod(uid="p"), "5-1", bound=True)))
    mirror.apply("nodes", added(node(inventory=held("p", "unknown"))))
    shares = dict(mirror.snapshot().held[CardId("GPU-n1-0")])
    assert shares[PodUid("unknown")].memory_mib == 98304 - 30000
    assert shares[PodUid("unknown")].cores_percent == 70


def requests(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def test_pods_request_what_the_scheduler_counts() -> None:
    spec = {
        "containers": [requests("500m"), requests("1")],
        "initContainers": [requests("300m", restartPolicy="Always"), requests("3"), requests("1")],
        "overhead": {"cpu": "50m", "memory": "1Mi"},
    }
    assert pod_requests(spec) == Resources(3350, 1 << 20, 0, 1, {})
    shared = {"requests": {"volcano.sh/vgpu-h20": "1", "volcano.sh/vgpu-h20-memory": "9", "x.io/nic": "2"}}
    assert pod_requests({"containers": [{"resources": shared}]}).scalars == {"x.io/nic": 2}
    level = {"containers": [requests("1")], "resources": {"requests": {"cpu": "4"}}}
    assert pod_requests(level).cpu_milli == 4000


def test_heartbeats_of_nodes_change_nothing() -> None:
    mirror = world()
    before = mirror.snapshot().nodes[NodeName("n1")]
    mirror.agenda.take_question()
    mirror.apply("nodes", added(node(images=[{"names": ["x"]}])))
    assert mirror.snapshot().nodes[NodeName("n1")] is before
    assert mirror.agenda.all_for is None
