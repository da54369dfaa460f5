"""Rules between pods, from what pods say about themselves to where a decision puts them."""

from typing import Any, Final

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, let_go, node, pod, queue
from vc_egpu.admission.inqueue import enqueue
from vc_egpu.admission.state.agenda import Why
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.state.rules import MOST_RULES
from vc_egpu.core.decide import decide
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.volcano.codec import trim
from vc_egpu.volcano.words import names

HOSTNAME: Final = "kubernetes.io/hostname"
OWN: Final = {"matchLabels": {"app": "web"}}


def apart(selector: Json | None = None, **more: Any) -> Json:
    """A spec that keeps the pod off nodes with pods of this selector."""
    term = {"topologyKey": HOSTNAME, "labelSelector": selector or OWN, **more}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def even(**more: Any) -> Json:
    """A spec that spreads pods of its label over nodes."""
    rule = {
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "maxSkew": 1,
        "labelSelector": OWN,
        **more,
    }
    return {"topologySpreadConstraints": [rule]}


def world(nodes: int) -> Mirror:
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    for number in range(nodes):
        mirror.apply("nodes", added(node(f"n{number}")))
    return mirror


def member(gang: str, index: int, spec: Json, labels: Json | None = None) -> Json:
    found = pod(f"{gang}-w-{index}", gang, index, spec=spec)
    found["metadata"]["labels"] |= {"app": "web"} if labels is None else labels
    return found


def submit(mirror: Mirror, gang: str, members: int, spec: Json, labels: Json | None = None) -> None:
    mirror.apply("podgroups", added(group(gang, members)))
    for index in range(members):
        mirror.apply("pods", added(member(gang, index, spec, labels)))


def nodes_of(plan: Plan) -> list[str]:
    return sorted(str(place.node) for entry in plan.admissions for place in entry.members.values())


def asked(mirror: Mirror) -> Plan:
    return decide(mirror.snapshot(), Policy(), 0.0)


def test_a_gang_whose_members_keep_apart_gets_different_nodes_at_once() -> None:
    mirror = world(4)
    submit(mirror, "g", 2, apart())
    assert nodes_of(asked(mirror)) == ["n0", "n1"]


def test_eight_gangs_of_one_label_get_eight_nodes_at_once() -> None:
    mirror = world(8)
    for number in range(8):
        submit(mirror, f"g{number}", 1, apart())
    assert nodes_of(asked(mirror)) == [f"n{number}" for number in range(8)]


def test_one_node_too_few_is_said_so() -> None:
    mirror = world(3)
    submit(mirror, "g", 4, apart())
    plan = asked(mirror)
    assert not plan.admissions
    verdict = plan.verdicts["default/g"]
    assert verdict.reason is Reason.WAITING_FOR_CARDS
    assert "needs 4 different nodes by its pod anti-affinity, and 3 have room" in verdict.message


def test_members_that_run_already_keep_their_nodes_to_themselves() -> None:
    mirror = world(2)
    there = member("old", 0, apart())
    mirror.apply("podgroups", added(group("old", 1)))
    mirror.apply("pods", added(let_go(there, "5-1", card="GPU-n0-0", bound=True, phase="Running")))
    submit(mirror, "g", 1, apart())
    assert nodes_of(asked(mirror)) == ["n1"]
    submit(mirror, "h", 1, apart({"matchLabels": {"app": "other"}}), {"app": "other"})
    assert nodes_of(asked(mirror)) == ["n0", "n1"], "a rule about other labels keeps nothing from it"


@pytest.mark.parametrize(
    ("there", "comes"),
    [
        ((apart(), {"app": "db"}), ({}, {"app": "web"})),  # what is there does not want it
        (({}, {"app": "web"}), (apart(), {"app": "db"})),  # it does not want what is there
    ],
)
def test_a_rule_of_either_side_keeps_them_apart(there: tuple[Json, Json], comes: tuple[Json, Json]) -> None:
    mirror = world(2)
    mirror.apply("podgroups", added(group("old", 1)))
    running = let_go(member("old", 0, *there), "5-1", card="GPU-n0-0", bound=True, phase="Running")
    mirror.apply("pods", added(running))
    submit(mirror, "g", 1, *comes)
    assert nodes_of(asked(mirror)) == ["n1"]
    other = member("h", 0, *comes)
    other["metadata"]["namespace"] = "elsewhere"
    elsewhere = group("h", 1)
    elsewhere["metadata"]["namespace"] = "elsewhere"
    mirror.apply("podgroups", added(elsewhere))
    mirror.apply("pods", added(other))
    assert nodes_of(asked(mirror)) == ["n0", "n1"], "rules without namespaces are about their own"


@pytest.mark.parametrize(("members", "nodes", "counts"), [(4, 4, [1, 1, 1, 1]), (5, 2, [2, 3])])
def test_members_that_are_to_be_spread_are_spread_at_once(
    members: int, nodes: int, counts: list[int]
) -> None:
    mirror = world(nodes)
    submit(mirror, "g", members, even())
    placed = nodes_of(asked(mirror))
    assert sorted(placed.count(name) for name in set(placed)) == counts


def test_a_rule_that_goes_lets_others_in_again() -> None:
    mirror = world(1)
    mirror.apply("podgroups", added(group("old", 1)))
    running = let_go(member("old", 0, apart()), "5-1", card="GPU-n0-0", bound=True, phase="Running")
    mirror.apply("pods", added(running))
    submit(mirror, "g", 1, {})
    assert not nodes_of(asked(mirror))
    mirror.apply("pods", deleted(running))
    assert nodes_of(asked(mirror)) == ["n0"]
    assert not any(pod.shape.neighbours.selected_by for pod in mirror.snapshot().pods.values())


def test_beyond_so_many_rules_of_a_namespace_pods_have_their_own_alone() -> None:
    mirror = world(1)
    mirror.apply("podgroups", added(group("old", 1)))
    for number in range(MOST_RULES + 1):
        rule = apart({"matchExpressions": [{"key": f"no-{number}", "operator": "DoesNotExist"}]})
        there = let_go(member("old", number, rule), "5-1", card="GPU-n0-0", bound=True, phase="Running")
        mirror.apply("pods", added(there))
    submit(mirror, "g", 1, apart())
    shapes = {pod.gang: pod.shape.neighbours for pod in mirror.snapshot().pods.values()}
    assert len(shapes["default/g"].selected_by) == MOST_RULES + 1, "and its own"


def test_a_rule_is_held_against_the_members_of_a_job_that_has_no_pods_yet() -> None:
    mirror = world(2)
    ours = {names.MANAGED_LABEL: "true"}
    limits = {"volcano.sh/vgpu-h20": "1", "volcano.sh/vgpu-memory": "30000", "volcano.sh/vgpu-cores": "30"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    rule = apart({"matchLabels": {names.JOB_NAME: "g", names.TASK_SPEC: "w"}})
    template = {"metadata": {"labels": ours}, "spec": {**spec, **rule}}
    job = {
        "metadata": {"name": "g", "namespace": "default", "uid": "job-g", "resourceVersion": "1"},
        "spec": {"tasks": [{"name": "w", "replicas": 2, "template": template}]},
    }
    mirror.apply("podgroups", added(group("g", 2, phase="Pending")))
    mirror.set_template("default/g", enqueue.template(trim.of("jobs", job), TABLE))
    assert nodes_of(asked(mirror)) == ["n0", "n1"]


def foreign(name: str, where: str, spec: Json, labels: Json, namespace: str = "default") -> Json:
    """A pod that is not ours and runs on a node."""
    found = pod(name, name, spec=spec)
    found["metadata"] |= {"labels": labels, "annotations": {}, "ownerReferences": [], "namespace": namespace}
    found["spec"] = {**found["spec"], "schedulingGates": [], "nodeName": where}
    return {**found, "status": {"phase": "Running"}}


def zoned(*zones: str) -> Mirror:
    """A node n0, n1, ... in each of these zones."""
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    for number, zone in enumerate(zones):
        made = node(f"n{number}")
        made["metadata"]["labels"]["zone"] = zone
        mirror.apply("nodes", added(made))
    return mirror


BY_ZONE: Final[dict[str, Any]] = {"topologyKey": "zone"}
NEAR_WEB: Final = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": OWN}]
        }
    }
}


@pytest.mark.parametrize("kept", [False, True], ids=["as it comes", "as it is kept"])
def test_a_pod_that_is_not_ours_keeps_members_away_and_is_kept_away_from(kept: bool) -> None:
    of = trim.pod if kept else dict
    for there, comes in (
        ((apart(**BY_ZONE), {"app": "db"}), ({}, {"app": "web"})),
        (({}, {"app": "web"}), (apart(**BY_ZONE), {"app": "db"})),
    ):
        mirror = zoned("a", "a", "b")
        mirror.apply("pods", added(of(foreign("other", "n0", *there))))
        submit(mirror, "g", 1, *comes)
        assert nodes_of(asked(mirror)) == ["n2"]


def test_a_rule_is_about_the_namespaces_that_it_selects_by_their_labels() -> None:
    mirror = world(2)
    rule = apart(namespaceSelector={"matchLabels": {"team": "a"}})
    mirror.apply("pods", added(foreign("far", "n0", rule, {}, namespace="elsewhere")))
    submit(mirror, "g", 1, {})
    assert nodes_of(asked(mirror)) == ["n0"]
    space = {"name": "default", "uid": "ns", "resourceVersion": "1", "labels": {"team": "a"}}
    mirror.apply("namespaces", added({"metadata": space}))
    assert nodes_of(asked(mirror)) == ["n1"]
    mirror.apply("namespaces", deleted({"metadata": {**space, "resourceVersion": "2"}}))
    assert nodes_of(asked(mirror)) == ["n0"]


def test_members_follow_a_pod_to_its_zone() -> None:
    mirror = zoned("a", "b")
    submit(mirror, "follower", 1, NEAR_WEB, {"app": "db"})
    assert not nodes_of(asked(mirror))
    submit(mirror, "first", 1, {"nodeSelector": {"zone": "b"}})
    assert nodes_of(asked(mirror)) == ["n1", "n1"], "both at once, one after the other"
    mirror.agenda.take_question()
    there = let_go(member("first", 0, {}), "5-1", card="GPU-n1-0", bound=True, phase="Running")
    mirror.apply("pods", added(there))
    assert mirror.agenda.all_for is Why.NEIGHBOUR
    assert nodes_of(asked(mirror)) == ["n1"]


def test_a_spread_does_not_count_pods_that_are_told_to_go() -> None:
    mirror = zoned("a", "b")
    mirror.apply("podgroups", added(group("old", 1)))
    running = let_go(member("old", 0, {}), "5-1", card="GPU-n0-0", bound=True, phase="Running")
    mirror.apply("pods", added(running))
    submit(mirror, "h", 1, {**even(nodeAffinityPolicy="Ignore", **BY_ZONE), "nodeSelector": {"zone": "a"}})
    plan = asked(mirror)
    assert not nodes_of(plan)
    assert "topology spread leaves places for 0 of 1" in plan.verdicts["default/h"].message
    running["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "999999"}
    mirror.apply("pods", added(running))
    assert nodes_of(asked(mirror)) == ["n0"]


def test_a_preferred_zone_comes_first_and_holds_nobody_up() -> None:
    wish = {"weight": 50, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": OWN}}
    near = {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}
    away = {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}
    for spec, expected in (
        (near, ["n1"]),
        (away, ["n0"]),
        (even(whenUnsatisfiable="ScheduleAnyway"), ["n0"]),
    ):
        mirror = zoned("a", "b")
        mirror.apply("pods", added(foreign("web", "n1", {}, {"app": "web"})))
        submit(mirror, "g", 1, spec, {"app": "db"})
        assert nodes_of(asked(mirror)) == expected
    mirror = zoned("a")
    submit(mirror, "g", 1, near)
    assert nodes_of(asked(mirror)) == ["n0"]


def test_a_preferred_node_comes_first() -> None:
    terms = [
        {
            "weight": 9,
            "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        }
    ]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}
    mirror = zoned("a", "b", "a")
    submit(mirror, "g", 1, spec)
    assert nodes_of(asked(mirror)) == ["n1"]


def test_a_job_without_pods_is_held_against_the_rules_of_others() -> None:
    mirror = world(2)
    selector = {"matchLabels": {names.JOB_NAME: "g"}}
    mirror.apply("pods", added(foreign("other", "n0", apart(selector), {})))
    limits = {"volcano.sh/vgpu-h20": "1", "volcano.sh/vgpu-memory": "30000", "volcano.sh/vgpu-cores": "30"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    template = {"metadata": {"labels": {names.MANAGED_LABEL: "true"}}, "spec": spec}
    job = {
        "metadata": {"name": "g", "namespace": "default", "uid": "job-g", "resourceVersion": "1"},
        "spec": {"tasks": [{"name": "w", "replicas": 1, "template": template}]},
    }
    mirror.apply("podgroups", added(group("g", 1, phase="Pending")))
    read = enqueue.template(trim.of("jobs", job), TABLE, among=mirror.rules.enter)
    mirror.set_template("default/g", read)
    assert nodes_of(asked(mirror)) == ["n1"]
