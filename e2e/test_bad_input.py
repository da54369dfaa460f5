"""Bad input through the real API server, as a tenant's people: a clear refusal, and nothing has changed.

Where Kubernetes itself lets it through it changes nothing for others.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from localcluster.api import wait_until
from outcomes.tenants import Tenant, tenant
from outcomes.workload import Json, Task, container, job, pod, shares
from stack.install import Stack
from stack.kit import StoryError, condition
from vc_egpu.kube.resources import POD_GROUPS, PODS, QUEUES
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
CAP = {names.shared_resource("h20"): 6, names.memory_total_resource("h20"): 400_000}


@pytest.fixture(scope="module")
def team(stack: Stack) -> Iterator[Tenant]:
    """A tenant with 6 shares of h20 and 400,000 MiB."""
    with tenant(stack, "bad-input", CAP) as found:
        stack.kit.apply(other_queue(found.name))
        try:
            yield found
        finally:
            stack.kit.kubectl("delete", "queue", f"{found.name}-other", "--wait=false")


def other_queue(name: str) -> Json:
    """Has room for whatever is not let into the tenant's own."""
    return {
        "apiVersion": QUEUES.api_version,
        "kind": "Queue",
        "metadata": {"name": f"{name}-other"},
        "spec": {"weight": 1, "capability": {H20: 64}},
    }


@dataclass(frozen=True)
class Limits:
    """What one container asks for, and which words the refusal must have."""

    limits: Json
    words: tuple[str, ...]


H20 = names.shared_resource("h20")
MEMORY, PERCENT, CORES = names.LIMIT_MEMORY, names.LIMIT_MEMORY_PERCENTAGE, names.LIMIT_CORES
BAD_LIMITS = {
    "unknown model": Limits({"volcano.sh/vgpu-tpu9": 1}, ("vgpu-tpu9", "h20", "v100-32g")),
    "misspelt model": Limits({"volcano.sh/vgpu-h02": 1}, ("vgpu-h02", "did you mean 'h20'")),
    "memory beyond the card": Limits(shares(98_305), (MEMORY, "98305", "98304")),
    "percentage and memory": Limits(shares(1000, percentage=10), (MEMORY, PERCENT)),
    "percentage above 100": Limits(shares(percentage=101), (PERCENT, "101", "100")),
    "cores without memory": Limits(shares(cores=50), (CORES, MEMORY)),
    "no cores": Limits(shares(1000, 0), (CORES, r"\b0\b", "1 to 100")),
    "cores above the card": Limits(shares(1000, 101), (CORES, "101", "100")),
    "negative cores": Limits(shares(1000, -1), (CORES, "-1", "100")),
    "absurd cores": Limits(shares(1000, "1e30"), (CORES, r"1e\+?30|10{30}", "100")),
    "absurd memory": Limits(shares("1e30"), (MEMORY, r"1e\+?30|10{30}", "98304")),
    "negative memory": Limits(shares(-1), (MEMORY, "-1")),
    "fraction of a MiB": Limits(shares("1500m"), (MEMORY, "1500m")),
    "GiB": Limits(shares("4Gi"), (MEMORY, "4Gi", "MiB", "did you mean 4096")),
    "more cards than a node has": Limits(shares(cards=9), (H20, r"\b9\b", r"\b8\b")),
    "minus one card": Limits(shares(1000, cards=-1), (H20, "-1")),
    "half a card": Limits(shares(1000, cards="500m"), (H20, "500m")),
    "two models": Limits(shares(1000) | {"volcano.sh/vgpu-t4": 1}, ("vgpu-h20", "vgpu-t4")),
    "Volcano's own and ours": Limits(shares(1000) | {"volcano.sh/vgpu-number": 1}, ("vgpu-number",)),
    "memory of nothing, with ours": Limits(shares() | {"volcano.sh/gpu-h20": 1}, ("vgpu-h20", "gpu-h20")),
}


def refused(team: Tenant, document: Json, *words: str) -> str:
    """Create it as a member; the refusal has all these words, and nothing has changed."""
    before = team.fingerprint()
    with pytest.raises(StoryError) as caught:
        team.member.create(document)
    message = str(caught.value)
    assert "cannot create resource" not in message, "refused by missing rights, which says nothing about us"
    for word in words:
        assert re.search(word, message), f"{word!r} is not in: {message}"
    assert team.fingerprint() == before
    return message


@pytest.mark.parametrize("story", BAD_LIMITS)
@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_limits(team: Tenant, kind: str, story: str) -> None:
    bad = BAD_LIMITS[story]
    if kind == "Job":
        refused(team, job("bad", Task(bad.limits), queue=team.name), 'tasks."worker"', *bad.words)
    else:
        refused(team, pod("bad", bad.limits, queue=team.name), 'containers."main"', *bad.words)


def job_of(team: Tenant, *, queue: str | None = "", priority: str = "", **more: Any) -> Json:
    return job(
        "bad", Task(shares(1000), priority=priority, **more), queue=team.name if queue == "" else queue
    )


def test_a_gang_beyond_its_queues_cap(team: Tenant) -> None:
    seven = job("bad", Task(shares(1000), replicas=7), queue=team.name)
    refused(team, seven, "minAvailable|replicas", r"\b7\b", r"\b6\b", H20, team.name)
    heavy = job("bad", Task(shares(90_000), replicas=5), queue=team.name)
    refused(team, heavy, "450000", "400000", names.memory_total_resource("h20"))
    other = job("bad", Task(shares(1000, model="t4")), queue=team.name)
    refused(team, other, "t4", team.name)


def test_an_unknown_queue(team: Tenant) -> None:
    near = team.name.replace("bad", "bda")
    refused(team, job_of(team, queue=near), "spec.queue", near, team.name)


def test_somebody_elses_queue(team: Tenant) -> None:
    refused(team, job_of(team, queue=f"{team.name}-other"), "spec.queue", "may not use", f"use: {team.name}")


def test_no_queue_named(team: Tenant, stack: Stack) -> None:
    """Volcano's default names no model, and the tenant may not use it."""
    refused(team, job_of(team, queue=None), "queue", "default", team.name)
    key = f"{names.QUEUE_NAME}-"
    bad = pod("bad", shares(1000), queue=None)
    stack.kit.kubectl("annotate", "namespace", team.name, key)
    try:
        # The webhook sees the namespace change a moment later: asked until then without making the pod.
        wait_until("the namespace names no queue any more", lambda: not team.member.tries(bad), 60)
        refused(team, bad, "queue", team.name)
    finally:
        stack.kit.kubectl("annotate", "namespace", team.name, f"{key[:-1]}={team.name}")


def test_a_closed_queue(team: Tenant) -> None:
    """Closed and opened by its own admin, with Commands, as in Volcano."""
    team.admin.create(team.command("CloseQueue"))
    team.wait_state("Closed")
    try:
        refused(team, job_of(team), "queue", team.name, "[Cc]losed")
        refused(team, pod("bad", shares(1000), queue=team.name), "queue", team.name, "[Cc]losed")
    finally:
        team.admin.create(team.command("OpenQueue"))
        team.wait_state("Open")


FORGED = {
    "cards": (names.CARDS, '{"version":1,"podUid":"x","node":"n","planId":"1-1","containers":{}}'),
    "plan": (names.PLAN, '{"version":1}'),
    "request": (names.REQUEST, '{"version":1,"containers":{}}'),
}


@pytest.mark.parametrize("story", FORGED)
def test_forged_annotations(team: Tenant, story: str) -> None:
    key, value = FORGED[story]
    forged = pod("bad", shares(1000), queue=team.name, annotations={key: value})
    refused(team, forged, "metadata.annotations", key)
    plain = pod("bad", {}, queue=team.name, annotations={key: value})
    refused(team, plain, "metadata", key if story != "request" else "egpu.volcano.sh")


def test_high_without_leave(team: Tenant) -> None:
    refused(team, job_of(team, priority="high"), names.PRIORITY, "egpu-high", "use")
    unknown = job_of(team, priority="urgent")
    refused(team, unknown, names.PRIORITY, "urgent", "high", "low")
    named = job_of(team, more={"priorityClassName": "system-node-critical"})
    refused(team, named, "priorityClassName", "system-node-critical")


def test_one_gang_has_one_class(team: Tenant) -> None:
    two = job(
        "bad",
        Task(shares(1000), name="a", priority="low"),
        Task(shares(1000), name="b"),
        queue=team.name,
    )
    refused(team, two, names.PRIORITY, "low")


def test_empty_node_affinity_terms(team: Tenant) -> None:
    affinity: Json = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    }
    refused(team, job_of(team, more={"affinity": affinity}), "nodeSelectorTerms")
    refused(team, pod("bad", shares(1000), queue=team.name, affinity=affinity), "nodeSelectorTerms")


def test_a_node_named_past_the_scheduler(team: Tenant, stack: Stack) -> None:
    node = stack.cluster.nodes[0].name
    refused(team, pod("bad", shares(1000), queue=team.name, nodeName=node), "spec.nodeName")
    refused(team, job_of(team, more={"nodeName": node}), "nodeName")
    refused(team, pod("bad", shares(1000), queue=team.name, schedulerName="mine"), "schedulerName", "mine")


def test_init_containers_with_cards(team: Tenant) -> None:
    more: Json = {"initContainers": [container("fetch", shares(1000))]}
    words = ('initContainers."fetch"', "init containers cannot have cards")
    refused(team, job_of(team, more=more), *words)
    refused(team, pod("bad", shares(1000), queue=team.name, **more), *words)


def test_knobs_with_odd_values_are_refused_by_name(team: Tenant) -> None:
    unsure = pod("bad", shares(1000), queue=team.name, annotations={names.OVERSUBSCRIBE: "maybe"})
    refused(team, unsure, names.OVERSUBSCRIBE, "maybe", "true", "false")
    odd = pod("bad", shares(1000), queue=team.name, annotations={names.CORE_POLICY: "firm"})
    refused(team, odd, names.CORE_POLICY, "firm", "hard", "soft")


@pytest.fixture
def waiting(team: Tenant, stack: Stack) -> Iterator[str]:
    """A pod of the tenant that waits behind the gate: no node has a t4, and it names a claim."""
    stack.kit.api.patch(QUEUES, team.name, {"spec": {"capability": CAP | {"volcano.sh/vgpu-t4": 1}}})
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    body = pod("waits", shares(1000, model="t4"), queue=team.name, volumes=[claim])
    team.member.create(body)
    try:
        yield "waits"
    finally:
        stack.kit.kubectl("delete", "pod", "waits", "-n", team.name)
        stack.kit.api.patch(QUEUES, team.name, {"spec": {"capability": {"volcano.sh/vgpu-t4": None}}})


def test_a_gate_is_not_lifted_and_nothing_of_ours_is_changed_by_a_tenant(
    team: Tenant, stack: Stack, waiting: str
) -> None:
    annotation = "/metadata/annotations/egpu.volcano.sh~1"
    edits = {
        "schedulingGates": {"op": "remove", "path": "/spec/schedulingGates"},
        names.CARDS: {"op": "add", "path": f"{annotation}cards", "value": "{}"},
        names.REQUEST: {"op": "replace", "path": f"{annotation}request", "value": "{}"},
        names.MANAGED_LABEL: {"op": "remove", "path": "/metadata/labels/egpu.volcano.sh~1managed"},
    }
    for what, edit in edits.items():
        text = team.member.refused("patch", "pod", waiting, "--type=json", "-p", json.dumps([edit]))
        assert what in text, text
    found = stack.kit.api.get(PODS, waiting, team.name)
    assert found["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert names.CARDS not in found["metadata"]["annotations"]


def test_a_pod_that_joins_somebody_elses_gang(team: Tenant, stack: Stack) -> None:
    gang = job("owner", Task(shares(90_000), replicas=2), queue=team.name)
    team.member.create(gang)
    try:
        name = stack.kit.pods_until("its pods are there", team.name, group_name)
        joined = pod("bad", shares(1000), queue=team.name, annotations={names.GROUP_NAME: name})
        with pytest.raises(StoryError, match=re.escape(names.GROUP_NAME)) as caught:
            team.member.create(joined)
        assert name in str(caught.value)
        assert "bad" not in {p["metadata"]["name"] for p in stack.kit.api.list(PODS, team.name).items}
    finally:
        stack.kit.kubectl("delete", "vcjob", "owner", "-n", team.name)
        stack.kit.pods_until("its pods are gone", team.name, lambda pods: not pods)


def group_name(pods: dict[str, Json]) -> str | None:
    groups = [p["metadata"].get("annotations", {}).get(names.GROUP_NAME) for p in pods.values()]
    return str(groups[0]) if groups and groups[0] else None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capability": {H20: 7}}, ("6", "7", "set-cap", H20)),
        ({"capability": {H20: None}}, ("set-cap", H20)),
        ({"capability": {"volcano.sh/vgpu-t4": 1}}, ("set-cap", "t4")),
        ({"weight": 5}, ("weight", "set-cap")),
        ({"deserved": {H20: 6}}, ("deserved", "set-cap")),
        ({"parent": "elsewhere"}, ("parent",)),
        ({"capability": {H20: -1}}, (H20, "-1")),
        ({"capability": {"volcano.sh/vgpu-hh20": 1}}, ("hh20",)),
    ],
)
def test_a_cap_raised_by_a_tenants_admin(team: Tenant, change: Json, words: tuple[str, ...]) -> None:
    before = team.fingerprint()
    patch = json.dumps({"spec": change})
    text = team.admin.refused("patch", "queue", team.name, "--type=merge", "-p", patch)
    for word in words:
        assert re.search(word, text), f"{word!r} is not in: {text}"
    assert team.fingerprint() == before


def test_an_admin_closes_no_other_queue(team: Tenant) -> None:
    other = f"{team.name}-other"
    command = yaml.safe_dump(team.command("CloseQueue", other))
    text = team.admin.refused("create", "-f", "-", text_in=command)
    assert f"may not CloseQueue Queue '{other}'" in text
    text = team.member.refused("create", "-f", "-", text_in=yaml.safe_dump(team.command("CloseQueue")))
    assert f"may not CloseQueue Queue '{team.name}'" in text


@pytest.fixture
def makes_groups(team: Tenant, stack: Stack) -> Iterator[Tenant]:
    """The tenant, whose people may make and delete PodGroups meanwhile; what they made goes at the end."""
    kubectl, where, groups = stack.kit.kubectl, ("-n", team.name), f"{POD_GROUPS.plural}.{POD_GROUPS.group}"
    kubectl("create", "role", "groups", *where, "--verb=create,delete", f"--resource={groups}")
    kubectl("create", "rolebinding", "groups", *where, "--role=groups", f"--group={team.member.group}")
    try:
        wait_until("the right has come", lambda: team.member.may("delete", groups), 30)
        yield team
    finally:
        kubectl("delete", "pods,podgroups", "--all", *where)
        kubectl("delete", "role,rolebinding", "groups", *where)


def test_a_podgroup_made_anew_in_somebody_elses_queue(makes_groups: Tenant, stack: Stack) -> None:
    """Its pods, running or waiting, count to the queue that they were checked for, and say so."""
    team, other = makes_groups, f"{makes_groups.name}-other"
    told = {"runs": "Admitted", "waits": "WaitingForQuota"}
    # A PodGroup goes after its owner, and until then it counts as one that waits for members.
    stack.kit.until("former gangs are gone", POD_GROUPS, lambda groups: not groups, namespace=team.name)
    for name, reason in told.items():
        team.member.create(pod_group(name, team.name))
        four = pod(name, shares(1000, cards=4), queue=team.name, annotations={names.GROUP_NAME: name})
        team.member.create(four)
        assert verdict(stack, team, name)["reason"] == reason
    for name, reason in told.items():
        former = stack.kit.api.get(POD_GROUPS, name, team.name)["metadata"]["uid"]
        assert team.member.kubectl("delete", "podgroup", name).returncode == 0
        team.member.create(pod_group(name, other))
        assert verdict(stack, team, name, former)["reason"] == reason
    sentence = f"the queue {team.name} has 2 of 6 left"
    assert sentence in verdict(stack, team, "waits")["message"]
    why = stack.egpu("why", "waits", "-n", team.name, "-o", "json")
    assert json.loads(why)[0]["queue"] == team.name
    rows = {row["name"]: row for row in json.loads(stack.egpu("queues", "-o", "json"))["queues"]}
    used = {name: {a["resource"]: a["used"] for a in row["amounts"]} for name, row in rows.items()}
    assert (used[team.name][H20], used[other][H20]) == (4, 0)
    assert (rows[team.name]["waiting"], rows[other]["waiting"]) == ({"WaitingForQuota": 1}, {})


def pod_group(name: str, queue: str) -> Json:
    spec = {"minMember": 1, "queue": queue}
    kind = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def verdict(stack: Stack, team: Tenant, name: str, former: str = "") -> Json:
    """What is said of a PodGroup that is not the former one, once its pod is judged."""

    def said(groups: dict[str, Json]) -> Json | None:
        group = groups.get(name) or {"metadata": {"uid": former}}
        return condition(group, names.CONDITION_ADMITTED) if group["metadata"]["uid"] != former else None

    return stack.kit.until(f"{name} is judged", POD_GROUPS, said, namespace=team.name)
