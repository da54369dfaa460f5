"""Gangs that are planned before they have pods: what a Job's template says of those."""

from collections.abc import Mapping
from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, let_go, pod, version
from unit.admission.test_steps import planned
from unit.admission.test_surroundings import world
from vc_egpu.admission.inqueue import enqueue
from vc_egpu.admission.state.gangs import NO_TEMPLATE
from vc_egpu.core.books.capacity import MANY
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.policy import Policy
from vc_egpu.volcano.codec import plans, trim
from vc_egpu.volcano.words import names


def job(memory: str = "30000") -> dict[str, Any]:
    limits = {"volcano.sh/vgpu-h20": "1", "volcano.sh/vgpu-memory": memory, "volcano.sh/vgpu-cores": "30"}
    container = {"name": "main", "resources": {"limits": limits, "requests": {"cpu": "2"}}}
    metadata = {"labels": {names.MANAGED_LABEL: "true"}, "annotations": {names.PRIORITY: "high"}}
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "g", "namespace": "default", "uid": "job-g", "resourceVersion": version()},
        "spec": {"tasks": [{"name": "w", "replicas": 2, "template": template}]},
    }


def test_a_gang_whose_pods_nobody_makes_is_planned_from_its_template() -> None:
    mirror = world()
    mirror.apply("podgroups", added(group(phase="Pending")))
    pending = enqueue.Pending()
    pending.look("default/g", mirror, 0.0)
    assert pending.due(10.0) == [], "without its Job nobody knows that it is ours"
    mirror.apply("jobs", added(job()))
    pending.look("default/g", mirror, 0.0)
    assert pending.due(1.0) == []
    assert pending.due(enqueue.GRACE_S) == ["default/g"]
    template = enqueue.template(job(), TABLE)
    [(task, replicas, shape)] = template.rows
    assert template.share_class is ShareClass.HIGH
    assert (task, replicas) == ("w", 2)
    assert [(ask.model, ask.memory_mib, ask.cores_percent) for ask in shape.asks] == [("h20", 30000, 30)]
    assert shape.requests.cpu_milli == 2000
    assert not shape.requests.scalars, "no node offers the limits per card"
    mirror.set_template("default/g", template)
    assert mirror.snapshot().gangs["default/g"].share_class is ShareClass.HIGH
    mirror.apply("pods", added(pod(uid="p")))
    pending.look("default/g", mirror, 5.0)
    assert pending.due(10.0) == []


def test_a_gang_whose_pods_are_never_made_does_not_keep_its_cards_for_good() -> None:
    """A quota keeps them out, say. They wait as any others do once somebody lets them in."""
    mirror = world()
    mirror.apply("jobs", added(job()))
    mirror.apply("podgroups", added(group(phase="Pending")))
    pending = enqueue.Pending()
    pending.look("default/g", mirror, 0.0)
    pending.plan_from_templates(mirror, enqueue.GRACE_S)
    assert decide(mirror.snapshot(), Policy(), 0.0).admissions
    text = plans.encode(planned(uids=False), mirror.nodes)
    for clock, phase in ((10.0, "Inqueue"), (100.0, "Pending"), (9.0 + enqueue.UNMADE_S, "Inqueue")):
        mirror.apply("podgroups", added(group(annotations={names.PLAN: text}, phase=phase)))
        pending.look("default/g", mirror, clock)
        pending.give_up(mirror, clock)
        assert not decide(mirror.snapshot(), Policy(), clock).withdrawals
    pending.give_up(mirror, 10.0 + enqueue.UNMADE_S)
    [withdrawal] = decide(mirror.snapshot(), Policy(), 10.0 + enqueue.UNMADE_S).withdrawals
    assert withdrawal.gang == "default/g"
    # Its controller is told of the phase once more: others are not evicted a second time.
    again = 100.0 + enqueue.UNMADE_S
    mirror.apply("podgroups", added(group(phase="Pending")))
    pending.look("default/g", mirror, again)
    pending.plan_from_templates(mirror, again + enqueue.GRACE_S)
    assert not decide(mirror.snapshot(), Policy(), again).admissions
    assert pending.unplanned(mirror, again + enqueue.GRACE_S) == ["default/g"], "it is enqueued as it is"
    mirror.apply("pods", added(pod(uid="p")))
    pending.look("default/g", mirror, again)
    assert not pending.given_up
    assert not pending


def test_what_is_planned_from_a_template_counts_to_the_queue_of_its_job() -> None:
    """That one was checked; the PodGroup may have been made anew, before there are pods."""
    mirror = world()
    elsewhere = group(phase="Pending")
    elsewhere["spec"]["queue"] = "theirs"
    mirror.apply("podgroups", added(elsewhere))
    asked = job()
    asked["spec"]["queue"] = "mine"
    mirror.set_template("default/g", enqueue.template(asked, TABLE))
    assert mirror.snapshot().gangs["default/g"].queue == "mine"


@pytest.mark.parametrize(
    ("requests", "pod_level", "taken"),
    [
        ({}, {"limits": {"cpu": "8", "memory": "64Gi"}}, (8000, 64 << 30)),
        ({"cpu": "2"}, {"limits": {"cpu": "8", "memory": "64Gi"}}, (2000, 64 << 30)),
        ({"cpu": "2"}, {"limits": {"cpu": "8"}, "requests": {"cpu": "3", "memory": "1Gi"}}, (3000, 1 << 30)),
    ],
    ids=["limits alone", "what containers request", "requests"],
)
def test_a_templates_limits_for_the_pod_as_a_whole_are_what_its_pods_will_request(
    requests: Any, pod_level: Any, taken: tuple[int, int]
) -> None:
    """As the API server fills it in: else others are sent away for a plan that does not fit its node."""
    asked = job()
    spec = asked["spec"]["tasks"][0]["template"]["spec"]
    spec["resources"] = pod_level
    spec["containers"][0]["resources"]["requests"] = requests
    [(_, _, shape)] = enqueue.template(asked, TABLE).rows
    assert (shape.requests.cpu_milli, shape.requests.memory_bytes) == taken


@pytest.mark.parametrize("in_hosts_network", [True, False])
def test_in_the_hosts_network_a_templates_ports_are_the_hosts(*, in_hosts_network: bool) -> None:
    asked = job()
    spec = asked["spec"]["tasks"][0]["template"]["spec"]
    spec["hostNetwork"] = in_hosts_network
    spec["containers"][0]["ports"] = [{"containerPort": 22}, {"containerPort": 80, "hostPort": 8080}]
    [(_, _, shape)] = enqueue.template(trim.of("jobs", asked), TABLE).rows
    assert shape.host_ports == ((("", "TCP", 22),) if in_hosts_network else ()) + (("", "TCP", 8080),)


@pytest.mark.parametrize(
    ("plugins", "ports"),
    [
        ({"pytorch": []}, [80, 23456]),
        ({"pytorch": ["--port=80"]}, [80]),
        ({"pytorch": ["-port", "29500"], "env": [], "svc": None}, [80, 29500]),
        ({"pytorch": None, "mpi": ["--port=0x"]}, [80, 23456, 22]),
        ({"tensorflow": [], "hcclrank": [], "ssh": []}, [80]),
        ({"ray": ["--head=w", "--headContainer=main", "--clientPort=1"]}, [80, 6379, 8265, 1]),
        ({"ray": ["--head=w"]}, [80]),
        ({"ray": ["--headContainer=main"]}, [80]),
        ("words", [80]),
    ],
)
def test_in_the_hosts_network_the_ports_of_plugins_are_the_hosts_too(plugins: Any, ports: list[int]) -> None:
    """Else two members are planned on a node with room for one."""
    asked = job()
    asked["spec"]["plugins"] = plugins
    spec = asked["spec"]["tasks"][0]["template"]["spec"]
    spec |= {"hostNetwork": True}
    spec["containers"] = [*spec["containers"], {"name": "log", "ports": [{"containerPort": 80}]}]
    for document in (asked, trim.of("jobs", asked)):
        [(_, _, shape)] = enqueue.template(document, TABLE).rows
        assert sorted(port for _, _, port in shape.host_ports) == sorted(ports)
    spec["hostNetwork"] = False
    [(_, _, shape)] = enqueue.template(trim.of("jobs", asked), TABLE).rows
    assert shape.host_ports == ()


KATA: dict[str, Any] = {
    "metadata": {"name": "kata", "uid": "rc", "resourceVersion": "1"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    "scheduling": {
        "nodeSelector": {"kata": "yes"},
        "tolerations": [{"key": "kata", "operator": "Exists", "effect": "NoSchedule"}],
    },
}


def of_kata() -> dict[str, Any]:
    asked = job()
    asked["spec"]["tasks"][0]["template"]["spec"] |= {
        "runtimeClassName": "kata",
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    return trim.of("jobs", asked)


def test_what_a_runtime_class_adds_to_pods_is_known_before_they_are_made() -> None:
    mirror = world()
    mirror.apply("runtimeclasses", added(trim.of("runtimeclasses", KATA)))
    [(_, _, shape)] = enqueue.template(of_kata(), TABLE, mirror.around.runtime_classes).rows
    assert (shape.requests.cpu_milli, shape.requests.memory_bytes) == (2250, 120 << 20)
    assert shape.node_selector == (("kata", "yes"), ("pool", "a"))
    assert [toleration.key for toleration in shape.tolerations] == ["gpu", "kata"]
    [(_, _, plain)] = enqueue.template(trim.of("jobs", job()), TABLE, mirror.around.runtime_classes).rows
    assert (plain.requests.cpu_milli, plain.tolerations) == (2000, ())


def test_a_runtime_class_that_changes_is_read_again() -> None:
    mirror = world()
    mirror.apply("jobs", added(of_kata()))
    mirror.apply("podgroups", added(group(phase="Pending")))
    pending = enqueue.Pending()

    def cpu_milli(clock: float) -> int:
        pending.look("default/g", mirror, clock)
        pending.plan_from_templates(mirror, clock + enqueue.GRACE_S)
        [(_, _, shape)] = mirror.templates["default/g"].rows
        return shape.requests.cpu_milli

    assert cpu_milli(0.0) == 2000, "there is none of this name yet"
    mirror.apply("runtimeclasses", added(KATA))
    assert cpu_milli(1.0) == 2250
    more = {**KATA, "overhead": {"podFixed": {"cpu": "1"}}}
    mirror.apply("runtimeclasses", added({**more, "metadata": {**KATA["metadata"], "resourceVersion": "2"}}))
    assert cpu_milli(2.0) == 3000
    gone = {**KATA, "metadata": {**KATA["metadata"], "resourceVersion": "3"}}
    mirror.apply("runtimeclasses", deleted(gone))
    assert cpu_milli(3.0) == 2000


@pytest.mark.parametrize("part", ["overhead", "scheduling"])
def test_a_runtime_class_without_these_adds_nothing(part: str) -> None:
    less = {"kata": {key: value for key, value in KATA.items() if key != part}}
    [(_, _, shape)] = enqueue.template(of_kata(), TABLE, less).rows
    assert shape.requests.cpu_milli == (2000 if part == "overhead" else 2250)
    assert len(shape.tolerations) == (1 if part == "scheduling" else 2)


def test_a_template_that_cannot_be_read_plans_nothing() -> None:
    assert enqueue.template(job(memory="lots"), TABLE) == NO_TEMPLATE
    for name in ("a/b", "x" * 64, ""):
        assert enqueue.template(with_tasks(task(name)), TABLE) == NO_TEMPLATE, "nobody can make its pods"


@pytest.mark.parametrize(
    ("part", "odd"),
    [
        ("template", {"metadata": "words", "spec": {}}),
        ("template", {"metadata": {"labels": "words"}, "spec": {}}),
        ("template", {"metadata": {"labels": {names.MANAGED_LABEL: "true"}, "annotations": 7}, "spec": {}}),
        ("nodeSelector", {"pool": {"a": 1}}),
        ("nodeSelector", {"pool": ["a"]}),
        ("tolerations", [{"key": {"a": 1}}]),
        ("replicas", 2_000_000_000),
    ],
)
def test_a_template_may_hold_anything_and_stops_nobody(part: str, odd: Any) -> None:
    """The API server does not look into a Job's templates."""
    mirror = world()
    mirror.apply("podgroups", added(group(phase="Pending")))
    asked = job()
    task = asked["spec"]["tasks"][0]
    (task["template"]["spec"] if part in {"nodeSelector", "tolerations"} else task)[part] = odd
    mirror.apply("jobs", added(asked))
    pending = enqueue.Pending()
    pending.look("default/g", mirror, 0.0)
    pending.plan_from_templates(mirror, 10.0)
    assert decide(mirror.snapshot(), Policy(), 0.0).verdicts


def task(name: str = "w", replicas: int = 1, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One of the Job's tasks, with annotations of ours."""
    [made] = job()["spec"]["tasks"]
    metadata = {**made["template"]["metadata"], "annotations": dict(annotations or {})}
    return {
        **made,
        "name": name,
        "replicas": replicas,
        "template": {**made["template"], "metadata": metadata},
    }


def with_tasks(*tasks: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    document = job()
    return {"metadata": {**document["metadata"], **metadata}, "spec": {"tasks": list(tasks)}}


@pytest.mark.parametrize("said", ["true", "false", ""])
def test_a_template_says_whether_memory_may_spill(said: str) -> None:
    [(_, _, shape)] = enqueue.template(with_tasks(task(annotations={names.OVERSUBSCRIBE: said})), TABLE).rows
    assert [ask.spill for ask in shape.asks] == [said == "true"]


def test_of_two_classes_in_a_template_the_lower_one_counts() -> None:
    high, low = (
        task(name, annotations={names.PRIORITY: said}) for name, said in (("a", "high"), ("b", "low"))
    )
    for tasks in ((high, low), (low, high)):
        assert enqueue.template(with_tasks(*tasks), TABLE).share_class is ShareClass.LOW


def test_a_template_has_no_more_members_than_a_gang_may_have() -> None:
    rows = enqueue.template(with_tasks(task("a", MANY - 1), task("b", 9), task("c", 9)), TABLE).rows
    assert [(name, replicas) for name, replicas, _ in rows] == [("a", MANY - 1), ("b", 1), ("c", 0)]


def held_back(document: dict[str, Any]) -> bool:
    """Whether a PodGroup of the Job ``g`` waits for being enqueued by us."""
    mirror = world()
    mirror.apply("podgroups", added(group(phase="Pending")))
    mirror.apply("jobs", added(document))
    pending = enqueue.Pending()
    pending.look("default/g", mirror, 0.0)
    return bool(pending.due(enqueue.GRACE_S))


def test_only_gangs_of_a_job_with_a_task_of_ours_are_enqueued() -> None:
    plain = task("plain")
    plain["template"]["metadata"]["labels"] = {}
    assert held_back(with_tasks(plain, task()))
    assert not held_back(with_tasks(plain))
    assert not held_back(with_tasks(task(), uid="another")), "one that has its name by now"


def test_what_is_planned_goes_by_the_job_as_it_is_now() -> None:
    mirror, pending = world(), enqueue.Pending()
    mirror.apply("podgroups", added(group(phase="Pending")))

    def members() -> list[int]:
        pending.look("default/g", mirror, 0.0)
        pending.plan_from_templates(mirror, enqueue.GRACE_S)
        return [replicas for _, replicas, _ in mirror.snapshot().gangs["default/g"].template]

    mirror.apply("jobs", added(with_tasks(task(replicas=2))))
    assert members() == members() == [2]
    mirror.apply("jobs", added(with_tasks(task(replicas=3))))
    assert members() == [3]
    mirror.apply("podgroups", added(group(phase="Inqueue")))
    assert members() == [], "its pods are being made, and speak for themselves"


def test_a_gang_that_was_planned_from_its_template_and_ended_waits_for_nothing() -> None:
    """Its PodGroup stands until its controller has seen that: others wait for the cards."""
    mirror, pending = world(), enqueue.Pending()
    mirror.apply("jobs", added(job()))
    mirror.apply("podgroups", added(group(phase="Pending")))
    pending.look("default/g", mirror, 0.0)
    pending.plan_from_templates(mirror, enqueue.GRACE_S)
    text = plans.encode(planned(), mirror.nodes)
    for phase, status in (
        ("Inqueue", {}),
        ("Running", {"phase": "Running"}),
        ("Running", {"phase": "Succeeded"}),
    ):
        mirror.apply("podgroups", added(group(annotations={names.PLAN: text}, phase=phase)))
        for i in range(2):
            raw = pod(f"g-w-{i}", index=i, uid=f"pod-{i}")
            mirror.apply("pods", added(let_go(raw, "5-1", bound=True, **status) if status else raw))
        pending.look("default/g", mirror, 5.0)
    plan = decide(mirror.snapshot(), Policy(), 5.0)
    assert not plan.admissions
    assert "default/g" not in plan.verdicts


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_leader_that_takes_over_expects_the_pods_of_a_plan_from_a_template(phase: str) -> None:
    """Victims have gone for it: it is not given up because nobody knows yet what it was made from."""
    mirror, pending = world(), enqueue.Pending()
    mirror.apply("jobs", added(job()))
    text = plans.encode(planned(uids=False), mirror.nodes)
    mirror.apply("podgroups", added(group(annotations={names.PLAN: text}, phase=phase)))
    pending.look("default/g", mirror, 0.0)
    assert not decide(mirror.snapshot(), Policy(), 1.0).withdrawals
    assert mirror.snapshot().gangs["default/g"].share_class is ShareClass.HIGH
