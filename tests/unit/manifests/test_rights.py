"""Each account may do what its process does, and nothing else: roles against the calls in the source."""

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml
from unit.manifests.kustomize import MANIFESTS, REPOSITORY, Json, composed, of_kind, overlay
from vc_egpu.admission.intake.sources import WATCHED
from vc_egpu.jobs.objects import services
from vc_egpu.jobs.workers import groupworker
from vc_egpu.kube import resources
from vc_egpu.kube.resources import Resource
from vc_egpu.webhook.protocol.questions import MAKERS

Right = tuple[str, str, str]
"""Group, resource, verb."""
CALLS = {verb: verb for verb in ("get", "list", "create", "update", "patch", "delete")} | {
    "patch_status": "patch /status",
    "update_status": "update /status",
}
REFLECTORS = {"Reflector", "_reflect", "_by_name", "_by_key"}
FOLDERS = {
    "vc-egpu-admission": "vc-egpu/vc_egpu/admission",
    "vc-egpu-webhook": "vc-egpu/vc_egpu/webhook",
    "vc-egpu-jobs": "vc-egpu/vc_egpu/jobs",
    "vc-egpu-node-agent": "device-plugin/vc_egpu_node",
}
EVICTS = ("", "pods/eviction", "create")
BINDS = ("", "pods/binding", "create")


def rights(resource: Resource, *verbs: str) -> set[Right]:
    found = ((*verb.split(), "")[:2] for verb in verbs)
    return {(resource.group, resource.plural + where, verb) for verb, where in found}


BY_NAME = {name: value for name, value in vars(resources).items() if isinstance(value, Resource)}
IN_LOOPS: dict[str, set[Right]] = {
    "vc-egpu-admission": {right for one in WATCHED for right in rights(one, "list", "watch")},
    "vc-egpu-webhook": {right for one in (*MAKERS.values(), resources.QUEUES) for right in rights(one, "get")}
    | {
        right
        for one in (resources.MUTATING_WEBHOOKS, resources.VALIDATING_WEBHOOKS)
        for right in rights(one, "get", "patch")
    },
    "vc-egpu-jobs": {right for one in groupworker.OWNERS.values() for right in rights(one, "get")}
    | {right for one in services.MADE.values() for right in rights(one, "get", "create")}
    | rights(resources.CONFIG_MAPS, "patch")  # alone among these has data that change
    # Owner references that block deletion need these where the API server enforces it.
    | {
        (one.group, f"{one.plural}/finalizers", "update")
        for one in (*groupworker.OWNERS.values(), resources.VOLCANO_JOBS)
    },
    "vc-egpu-node-agent": rights(resources.RESOURCE_SLICES[0], "list", "watch")
    | rights(resources.NODES, "patch /status"),
}
"""Calls that name their resource by a variable."""


def calls(folder: Path) -> Iterator[tuple[str, list[ast.expr]]]:
    """Name and arguments of every call."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield getattr(node.func, "attr", "") or getattr(node.func, "id", ""), node.args


def used(account: str) -> set[Right]:
    found = set(IN_LOOPS[account])
    for name, arguments in calls(REPOSITORY / FOLDERS[account]):
        if name == "evict":
            found.add(EVICTS)
        if name == "bind":
            found.add(BINDS)
        if name == "EventRecorder":
            found |= rights(resources.EVENTS, "create", "patch")
        if name == "LeaderLease":
            found |= rights(resources.LEASES, "get", "create", "update")
        for argument in arguments[:2]:
            resource = BY_NAME.get(getattr(argument, "id", ""))
            if resource is not None and name in REFLECTORS:
                found |= rights(resource, "list", "watch")
            elif resource is not None and name in CALLS:
                found |= rights(resource, CALLS[name])
    return found


def granted(account: str, objects: tuple[Json, ...]) -> set[Right]:
    return {
        right
        for role in of_kind(objects, "Role", "ClusterRole")
        if role["metadata"]["name"] == account
        for rule in role["rules"]
        for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


@pytest.mark.parametrize("account", FOLDERS)
def test_an_account_may_do_what_its_process_does(account: str) -> None:
    helper = tuple(yaml.safe_load_all((MANIFESTS / "components/suspension/rbac.yaml").read_text()))
    held = granted(account, overlay("standalone"))
    if account == "vc-egpu-node-agent":
        held |= granted("vc-egpu-checkpoint", helper)
    if account == "vc-egpu-admission":
        held |= granted("vc-egpu-node-growth", composed("node-growth"))
        held |= granted("vc-egpu-node-emptying", composed("node-emptying"))
    assert sorted(held - used(account)) == [], "rights that nobody needs"
    assert sorted(used(account) - held) == [], "calls that would be refused"
