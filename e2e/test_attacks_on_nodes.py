"""What a tenant tries on nodes with cards, as a user and as a service account, with the webhook and without.

Rows of the table in ``docs/security.md`` that need a container or a card. The tenant's people have
Kubernetes' own role ``edit`` as well.
"""

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attacks.people import Identity, account, person
from localcluster import RealNode
from localcluster.api import wait_until
from localcluster.images import BUSYBOX_IMAGE
from outcomes import disturb
from outcomes.tenants import Tenant, tenant
from outcomes.workload import Task, container, job, pod, shares
from outcomes.world import World, capability
from stack.install import Stack
from stack.kit import is_running
from vc_egpu.kube.resources import PODS, SERVICE_ACCOUNTS
from vc_egpu.volcano.words.names import CDI_KIND, DOMAIN, ENV_CARDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
Json = dict[str, Any]
CARDS: Final = 8
"""Of both nodes."""
STAYS: Final = "mallory.example/stays"
ALL_CARDS: Final = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "all", "containerEdits": {"env": ["MALLORY_HAS=all"]}}],
}
"""As the toolkit of NVIDIA writes it on many nodes."""
BY_ROOT: Final = {"capabilities": {"add": ["MKNOD"]}}
"""Pod Security's level "baseline" lets a container have this; "restricted" does not."""
MINORS: Final = (0, 1, 2, 3, 255)
"""Of the cards of a node and of the one that controls them all; NVIDIA's major number is 195."""
MAKE_DEVICES: Final = f"""
mknod /tmp/null c 1 3 && true < /tmp/null && echo own-null-opens
for minor in {" ".join(map(str, MINORS))}; do
  mknod /tmp/card$minor c 195 $minor; true < /tmp/card$minor && echo opened-$minor
done
"""


@pytest.fixture(scope="module")
def mallory(stack: Stack) -> Iterator[Tenant]:
    """The tenant that attacks; all cards are within its cap."""
    with tenant(stack, "mallory", capability(shares=CARDS)) as found:
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        stack.kit.apply({**account, "metadata": {"name": "pipeline", "namespace": found.name}}, edits(found))
        stack.kit.until(
            "the default account is there",
            SERVICE_ACCOUNTS,
            lambda accounts: "default" in accounts,
            namespace=found.name,
        )
        yield found


def edits(mallory: Tenant) -> Json:
    """The account may do what the team may."""
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "pipeline", "namespace": mallory.name}
    return {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "account-edits", "namespace": mallory.name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
        "subjects": [subject],
    }


def may_create(who: Identity) -> bool:
    return who.kubectl("auth", "can-i", "create", "pods", check=False).returncode == 0


@pytest.fixture(scope="module")
def identities(stack: Stack, mallory: Tenant) -> dict[str, Identity]:
    """Both, by a name that pods may have."""
    groups = (f"{mallory.name}:ml-team", f"{mallory.name}:admin")
    found = {
        "user": person(stack.cluster, mallory.name, f"{mallory.name}-person", groups),
        "account": account(stack.cluster, mallory.name, "pipeline"),
    }
    for one in found.values():
        wait_until(f"the {one.who} has its rights", partial(may_create, one), 30)
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(stack: Stack, mallory: Tenant) -> Iterator[None]:
    """Each attack begins without pods of the tenant."""
    yield
    api = stack.kit.api
    for one in api.list(PODS, mallory.name).items:
        api.patch(PODS, one["metadata"]["name"], {"metadata": {"finalizers": None}}, mallory.name)
    stack.kit.kubectl("delete", "pods", "--all", "-n", mallory.name, "--ignore-not-found", "--wait=false")
    stack.kit.pods_until("its pods are gone", mallory.name, lambda pods: not pods)


@pytest.fixture(params=["up", "away"])
def webhook(request: pytest.FixtureRequest, stack: Stack) -> contextlib.AbstractContextManager[None]:
    """To be entered once all is there that the attack needs."""
    return disturb.webhook_down(stack) if request.param == "away" else contextlib.nullcontext()


def runs(stack: Stack, mallory: Tenant, *names: str) -> None:
    stack.kit.pods_until(
        f"{names} run",
        mallory.name,
        lambda pods: all(name in pods and is_running(pods[name]) for name in names),
        timeout_s=90,
    )


def victim(here: World) -> tuple[Json, RealNode]:
    """A pod of others with a card, and its node."""
    here.submit(job("victim", Task(shares(10_000, 10)), queue=here.queue))
    (found,) = here.runs("victim", 1).values()
    (node,) = (one for one in here.stack.cluster.nodes if one.name == found["spec"]["nodeName"])
    return found, node


def device_of(node: RealNode, found: Json) -> str:
    """Its CDI device, as the kubelet names it to the runtime."""
    for path in node.cdi_dir.glob(f"{CDI_KIND.replace('/', '-')}-*.json"):
        device = json.loads(path.read_text())["devices"][0]
        if json.loads(device["annotations"][f"{DOMAIN}/grant"])["pod_uid"] == found["metadata"]["uid"]:
            return f"{CDI_KIND}={device['name']}"
    raise AssertionError(f"no CDI file of {found['metadata']['name']}")


@contextlib.contextmanager
def all_cards(node: RealNode) -> Iterator[Path]:
    """The node has a CDI file that opens all of its cards."""
    path = node.cdi_dir / "nvidia.yaml"
    path.write_text(json.dumps(ALL_CARDS))
    try:
        yield path
    finally:
        path.unlink()


def test_row_7_an_annotation_of_the_runtime_opens_no_card(
    here: World,
    mallory: Tenant,
    identities: dict[str, Identity],
    webhook: contextlib.AbstractContextManager[None],
) -> None:
    found, node = victim(here)
    device = device_of(node, found)
    annotations = {"cdi.k8s.io/theirs": device, "cdi.k8s.io/all": "nvidia.com/gpu=all"}
    there = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    with all_cards(node):
        control = ("--device", device, "--device", "nvidia.com/gpu=all", BUSYBOX_IMAGE, "control", "env")
        opened = node.run(["ctr", "-n", "k8s.io", "run", "--rm", *control]).stdout
        assert ENV_CARDS in opened, "the runtime itself would give the cards"
        assert "MALLORY_HAS" in opened
        with webhook:
            for name, who in identities.items():
                who.create(pod(name, {}, queue=None, annotations=annotations, **there))
            runs(here.stack, mallory, *identities)
            for name, who in identities.items():
                seen = who.inside(name, "env; ls /dev")
                assert "PATH=" in seen
                assert ENV_CARDS not in seen, f"{who.who}: {seen}"
                assert "MALLORY_HAS" not in seen, f"{who.who}: {seen}"


def test_row_27_a_device_file_of_another_card_does_not_open(
    stack: Stack,
    mallory: Tenant,
    identities: dict[str, Identity],
    webhook: contextlib.AbstractContextManager[None],
) -> None:
    for name, who in identities.items():
        by_root = {**container(limits=shares(1000, 10)), "securityContext": BY_ROOT}
        document = pod(name, queue=mallory.name, containers=[by_root])
        document["spec"]["securityContext"] = {"runAsUser": 0}
        who.create(document)
    runs(stack, mallory, *identities)
    with webhook:
        for name, who in identities.items():
            seen = who.inside(name, MAKE_DEVICES)
            assert "own-null-opens" in seen, f"{who.who} cannot make a device file at all: {seen}"
            assert "opened-" not in seen, f"{who.who}: {seen}"
            assert seen.count("Operation not permitted") == len(MINORS), seen


def test_row_44_a_finalizer_keeps_no_card(
    here: World,
    mallory: Tenant,
    identities: dict[str, Identity],
    webhook: contextlib.AbstractContextManager[None],
) -> None:
    """All cards are its own. Once its containers have ended, others have them, and its cap is free."""
    for name, who in identities.items():
        document = pod(name, shares(cards=CARDS // 2), queue=mallory.name)
        document["metadata"]["finalizers"] = [STAYS]
        who.create(document)
    runs(here.stack, mallory, *identities)
    here.submit(job("next", Task(shares(), replicas=CARDS), queue=here.queue))
    here.waits("next", "WaitingForCards")
    with webhook:
        for name, who in identities.items():
            who.kubectl("delete", "pod", name, "--wait=false")
        here.runs("next", CARDS)
        for name in identities:
            kept = here.kit.api.get(PODS, name, mallory.name)["metadata"]
            assert kept["deletionTimestamp"]
            assert kept["finalizers"] == [STAYS]
