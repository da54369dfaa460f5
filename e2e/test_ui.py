"""Component ui as it is installed: a tenant signs in with its token, and sees no names of others."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import urllib3
from localcluster.api import wait_until
from outcomes.workload import Task, job, shares
from outcomes.world import World, world
from stack.install import NAMESPACE, REPOSITORY, Stack
from stack.kit import is_true
from vc_egpu.kube.resources import PODS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
PUBLIC: Final = "http://localhost:9450"
COMPONENT: Final = REPOSITORY / "manifests" / "components" / "ui" / "ui.yaml"
ROLES: Final = REPOSITORY / "queues" / "base" / "roles.yaml"
USED, UNSEEN, AT_LEAST = 3, 9, 10
"""Where a card's row says so: MiB in use, pods without a name, and whether others may hold more."""


@dataclass
class Visit:
    """What a browser would send to the page's pod."""

    address: str
    cookie: str = ""
    pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False, timeout=20))

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and bytes of the answer."""
        headers = {"Host": PUBLIC.removeprefix("http://"), "Origin": PUBLIC, "Cookie": self.cookie}
        text = None if body is None else json.dumps(body).encode()
        answer = self.pool.request(method, f"http://{self.address}:9450{path}", body=text, headers=headers)
        self.cookie = (answer.headers.get("Set-Cookie") or self.cookie).partition(";")[0]
        return answer.status, answer.data

    def sign_in(self, token: str, namespaces: str) -> int:
        """The status of the answer."""
        return self.send("POST", "/api/sign-in", {"token": token, "namespaces": namespaces})[0]

    def shows(self, path: str) -> Any:
        """A document of the page."""
        status, data = self.send("GET", path)
        assert status == 200, data
        return json.loads(data)

    def card(self, node: str, index: int) -> list[Any]:
        """A card's row; empty: the page does not know the card yet."""
        cards = {name: cards for name, _, cards in self.shows("/api/state")["nodes"]}.get(node) or []
        return list(cards[index]) if len(cards) > index else []


@pytest.fixture(scope="module")
def page(stack: Stack) -> Iterator[str]:
    """The address of the page's pod. Its objects are those of the component, with the image of the stack."""
    kit = stack.kit
    deployed = kit.kubectl("get", "deployment", "vc-egpu-webhook", "-n", NAMESPACE, "-o", "json").stdout
    image = json.loads(deployed)["spec"]["template"]["spec"]["containers"][0]["image"]
    text = COMPONENT.read_text().replace("image: vc-egpu\n", f"image: {image}\n")
    kit.apply(text, ROLES)

    def ready(pods: dict[str, Any]) -> str | None:
        found = [
            pod for name, pod in pods.items() if name.startswith("vc-egpu-ui-") and is_true(pod, "Ready")
        ]
        return found[0]["status"]["podIP"] if found else None

    yield kit.until("the page is ready", PODS, ready, namespace=NAMESPACE, timeout_s=120)
    kit.kubectl("delete", "-f", "-", "--ignore-not-found", text_in=text)


@pytest.fixture
def token(here: World) -> Iterator[str]:
    """Of an account with the roles of an ML team: it may read its namespace, nodes and queues."""
    rbac = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": "viewer", "namespace": here.namespace}]
    within = {"name": "viewer", "namespace": here.namespace}
    everywhere = {"name": f"{here.namespace}-viewer"}
    made: list[Any] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within}]
    for kind, metadata, role in (("", within, "vc-egpu-ml-team"), ("Cluster", everywhere, "vc-egpu-viewer")):
        binding = {"apiVersion": f"{rbac}/v1", "kind": f"{kind}RoleBinding", "metadata": metadata}
        given = {"apiGroup": rbac, "kind": "ClusterRole", "name": role}
        made.append({**binding, "roleRef": given, "subjects": subjects})
    here.kit.apply(*made)
    yield str(here.kit.kubectl("create", "token", "viewer", "-n", here.namespace).stdout).strip()
    here.kit.kubectl("delete", "clusterrolebinding", everywhere["name"])


def test_a_tenant_signs_in_with_its_token_and_sees_others_as_numbers(
    stack: Stack, here: World, page: str, token: str
) -> None:
    """Both tenants have a share of the same card; the leader tells how much the other one holds."""
    node = stack.cluster.nodes[0].name
    with world(stack, "quagga") as other:
        pinned = {"nodeSelector": {"kubernetes.io/hostname": node}}
        for one, name in ((here, "mine"), (other, "theirs")):
            one.submit(job(name, Task(shares(3_000), more=pinned), queue=one.queue))
            one.runs(name, 1)
        ((own,),) = here.cards("mine").values()
        assert list(other.cards("theirs").values()) == [[own]], "they share a card"
        index = next(int(row["index"]) for uuid, row in here.card_rows().items() if uuid == own)
        visit, card = Visit(page), f"/api/card?node={node}&index={index}"
        assert visit.send("GET", "/api/state")[0] == 401
        assert visit.sign_in("a.b.c", here.namespace) == 401
        assert visit.sign_in(token, here.namespace) == 200
        assert here.namespace in visit.shows("/api/session")["user"]

        def all_told() -> bool:
            row = visit.card(node, index)
            return bool(row) and [row[at] for at in (USED, UNSEEN, AT_LEAST)] == [6_000, 1, False]

        wait_until("both shares count, and one has no name", all_told, 60)
        assert "mine-" in json.dumps(visit.shows(card))
        state = visit.shows("/api/state")
        assert "quagga" in json.dumps(state["lists"].pop("queues")), "its role may read the names of queues"
        for told in map(json.dumps, (state, visit.shows(card), visit.shows("/api/session"))):
            assert "theirs" not in told
            assert "quagga" not in told


def test_the_page_s_own_account_may_nothing(stack: Stack, page: str) -> None:
    assert Visit(page).send("GET", "/healthz")[0] == 200
    who = f"system:serviceaccount:{NAMESPACE}:vc-egpu-ui"
    for what in ("pods", "nodes", "queues.scheduling.volcano.sh", "secrets"):
        done = stack.kit.kubectl("auth", "can-i", "list", what, "--as", who, check=False)
        assert done.stdout.strip() == "no", what
