"""Ways to bind a pod past us, or to forge cards, tried by a tenant's people.

They have the roles of the tenant templates and Kubernetes' own ``edit``. Some may create ``pods/binding`` as
well. Each way is refused. Or the pod is bound, no container of it starts, and it is gone in 30 seconds.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from localcluster.api import wait_until
from outcomes.tenants import Person, Tenant, tenant
from outcomes.workload import Json, Task, job, pod, shares
from stack.install import Stack
from stack.kit import is_gated, running
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano.api.containers import statuses_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
GONE_IN_S: Final = 30.0
CAP = {names.shared_resource("h20"): 2, names.memory_total_resource("h20"): 400_000}
MIRROR: Final = "kubernetes.io/config.mirror"


@pytest.fixture(scope="module")
def team(stack: Stack) -> Iterator[Tenant]:
    """A tenant whose cap is used up, so that each new pod of it waits."""
    with tenant(stack, "bypass", CAP) as found:
        stack.kit.apply(*may_bind(found, found.name))
        found.member.create(job("full", Task(shares(1000), replicas=2), queue=found.name))
        stack.kit.pods_until("its cap is used up", found.name, lambda pods: len(running(pods, "full-")) == 2)
        yield found


@pytest.fixture
def waits(team: Tenant, stack: Stack) -> Iterator[str]:
    """A pod of the tenant that waits for us."""
    yield from waiting(team.member, team.name, stack)


def waiting(person: Person, queue: str, stack: Stack) -> Iterator[str]:
    person.create(pod("waits", shares(1000), queue=queue))
    assert is_gated(stack.kit.api.get(PODS, "waits", person.namespace))
    yield "waits"
    stack.kit.kubectl(
        "delete", "pod", "waits", "-n", person.namespace, "--ignore-not-found", "--grace-period=0"
    )


def may_bind(team: Tenant, namespace: str) -> list[Json]:
    """Leave to bind pods, for the binder of the tenant."""
    api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    metadata = {"name": "binder", "namespace": namespace}
    rule = {"apiGroups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"{team.name}:binders"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "binder"}
    return [
        {**api, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {**api, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [group]},
    ]


def binder(team: Tenant, namespace: str = "") -> Person:
    return Person(team.stack, namespace or team.name, f"{team.name}-eve", f"{team.name}:binders")


def first_node(stack: Stack) -> str:
    return str(stack.cluster.nodes[0].name)


def forged_cards(stack: Stack, uid: str = "u") -> str:
    share = CardShare(uuid="GPU-0", memory_mib=1000, cores=10)
    cards = Cards(pod_uid=uid, node=first_node(stack), plan_id="1-1", containers={"main": (share,)})
    return cards.encode()


# --- pods that are made so --------------------------------------------------------------------------------


def test_a_pod_that_names_its_node(team: Tenant, stack: Stack) -> None:
    body = pod("bad", shares(1000), queue=team.name, nodeName=first_node(stack))
    assert "nodeName" in team.member.refused("create", "-f", "-", text_in=yaml.safe_dump(body))


@pytest.mark.parametrize("name", [names.CARDS, names.PLAN, names.SUSPEND, names.REQUEST])
def test_a_pod_that_brings_what_only_we_write(team: Tenant, stack: Stack, name: str) -> None:
    body = pod("bad", shares(1000), queue=team.name, annotations={name: forged_cards(stack)})
    assert name in team.member.refused("create", "-f", "-", text_in=yaml.safe_dump(body))


def test_a_pod_under_our_name_without_an_ask(team: Tenant) -> None:
    body = pod("bad", queue=team.name, schedulerName=names.SCHEDULER_DIRECT)
    text = team.member.refused("create", "-f", "-", text_in=yaml.safe_dump(body))
    assert "written by the webhook" in text


def test_a_pod_that_calls_itself_a_mirror(team: Tenant, stack: Stack) -> None:
    """The sweep leaves mirrors of static pods to their kubelet."""
    for more in ({}, {"nodeName": first_node(stack)}):
        body = pod("bad", shares(1000), queue=team.name, annotations={MIRROR: "x"}, **more)
        assert team.member.refused("create", "-f", "-", text_in=yaml.safe_dump(body))


# --- pods that wait, and are changed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        {"op": "add", "path": "/metadata/annotations/egpu.volcano.sh~1cards", "value": "{}"},
        {"op": "add", "path": "/spec/nodeName", "value": "any"},
        {"op": "replace", "path": "/spec/schedulerName", "value": "default-scheduler"},
        {"op": "remove", "path": "/metadata/labels/egpu.volcano.sh~1managed"},
    ],
    ids=["cards", "node", "scheduler", "label"],
)
def test_a_waiting_pod_that_is_changed(team: Tenant, waits: str, edit: Json) -> None:
    assert team.member.refused("patch", "pod", waits, "--type=json", "-p", json.dumps([edit]))


# --- bindings ---------------------------------------------------------------------------------------------


def bind_argv(namespace: str, name: str, where: str) -> tuple[str, ...]:
    path = f"/api/v1/namespaces/{namespace}/"
    return (
        "create",
        "--raw",
        path + ("bindings" if where == "bindings" else f"pods/{name}/binding"),
        "-f",
        "-",
    )


def binding(stack: Stack, namespace: str, name: str, **metadata: Any) -> str:
    target = {"apiVersion": "v1", "kind": "Node", "name": first_node(stack)}
    body = {"apiVersion": "v1", "kind": "Binding", "target": target}
    return json.dumps({**body, "metadata": {"name": name, "namespace": namespace, **metadata}})


WAYS = ["pods/binding", "bindings"]


@pytest.mark.parametrize("where", WAYS)
def test_who_has_the_roles_of_the_templates_binds_nothing(
    team: Tenant, stack: Stack, waits: str, where: str
) -> None:
    text = binding(stack, team.name, waits)
    refusal = team.member.refused(*bind_argv(team.name, waits, where), text_in=text)
    assert "cannot create resource" in refusal


@pytest.mark.parametrize("where", WAYS)
@pytest.mark.parametrize(
    "brings",
    [
        {},
        {"annotations": {names.CARDS: "forged"}},
        {"annotations": {names.GROUP_NAME: "another"}},
        {"annotations": {MIRROR: "x"}},
        {"labels": {names.MANAGED_LABEL: "false"}},
    ],
    ids=["nothing", "cards", "group", "mirror", "label"],
)
def test_who_may_bind_by_rbac_binds_nothing_in_a_tenants_namespace(
    team: Tenant, stack: Stack, waits: str, where: str, brings: Json
) -> None:
    found = stack.kit.api.get(PODS, waits, team.name)
    if names.CARDS in (brings.get("annotations") or {}):
        brings = {"annotations": {names.CARDS: forged_cards(stack, found["metadata"]["uid"])}}
    text = binding(stack, team.name, waits, **brings)
    refusal = binder(team).refused(*bind_argv(team.name, waits, where), text_in=text)
    assert "vc-egpu-bindings" in refusal
    assert not stack.kit.api.get(PODS, waits, team.name)["spec"].get("nodeName")


@pytest.fixture(scope="module")
def loose(team: Tenant, stack: Stack) -> Iterator[str]:
    """A namespace that names no queue, in which the same people have the same roles."""
    name = f"{team.name}-loose"
    edit = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"{team.name}:ml-team"}
    stack.kit.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "edit", "namespace": name},
            "roleRef": edit,
            "subjects": [group],
        },
        *may_bind(team, name),
    )
    question = ("auth", "can-i", "create", "pods", "--subresource=binding")
    wait_until("rights arrived", lambda: binder(team, name).kubectl(*question).returncode == 0, 30)
    yield name
    stack.kit.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("brings", [{}, {"annotations": {MIRROR: "x"}}], ids=["nothing", "mirror"])
def test_what_is_bound_past_us_elsewhere_starts_nothing_and_is_gone(
    team: Tenant, stack: Stack, loose: str, brings: Json
) -> None:
    person = Person(stack, loose, team.member.name, team.member.group)
    for name in waiting(person, team.name, stack):
        text = binding(stack, loose, name, **brings)
        done = binder(team, loose).kubectl(*bind_argv(loose, name, "pods/binding"), text_in=text)
        assert done.returncode == 0, done.stderr
        started: list[Json] = []

        def gone(pods: dict[str, Json], name: str = name, started: list[Json] = started) -> bool:
            states = [
                one.get("state") or {} for one in statuses_of((pods.get(name) or {}).get("status") or {})
            ]
            started += [state for state in states if "running" in state or "terminated" in state]
            return name not in pods

        stack.kit.pods_until("it is gone", loose, gone, timeout_s=GONE_IN_S)
        assert not started


@pytest.mark.parametrize("where", WAYS)
def test_cards_are_forged_in_no_namespace(team: Tenant, stack: Stack, loose: str, where: str) -> None:
    person = Person(stack, loose, team.member.name, team.member.group)
    for name in waiting(person, team.name, stack):
        uid = stack.kit.api.get(PODS, name, loose)["metadata"]["uid"]
        text = binding(stack, loose, name, annotations={names.CARDS: forged_cards(stack, uid)})
        assert "vc-egpu-bindings" in binder(team, loose).refused(*bind_argv(loose, name, where), text_in=text)
