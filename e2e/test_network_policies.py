"""Network policies of tenants on a network that enforces them: who is reached, and who is not.

Row 37 of the table in ``docs/security.md``. Nothing of ours runs here: neither webhook nor agent takes part.
``python -m localcluster build --with kube-network-policies`` builds what enforces them.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from attacks.people import Identity, account, person
from localcluster.api import wait_until
from localcluster.errors import LocalClusterError
from outcomes.tenants import ROLES, document_of, wait_until_counted
from rigs.network import (
    METADATA,
    OUTSIDE,
    PORT,
    Network,
    default_account,
    name_server,
    network,
    on_the_node,
    pod,
)
from rigs.webhook import BASE, REPOSITORY
from vc_egpu.kube.resources import SERVICES
from vc_egpu.tenants import render
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]
Json = dict[str, Any]
MINE: Final = "mallory"
OTHERS: Final = "victim"
OPEN: Final = "surfer"
"""A tenant with profile ``internet``."""
FREE: Final = "free"
"""A namespace without policies."""
KUBELET: Final = 10250
MODELS: Final = {"h20": {"shares": 1}}


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    """Three tenants and their servers; a server of the node; the cluster's name server."""
    try:
        with network("network") as found:
            _tenants(found)
            here, there = found.node(0), found.node(1)
            found.run(
                *(pod(FREE, name, node) for name, node in (("here", here), ("there", there))),
                *(pod(OTHERS, name, node) for name, node in (("here", here), ("there", there))),
                *(pod(MINE, name, node) for name, node in (("peer-here", here), ("peer-there", there))),
                pod(OPEN, "caller", here),
                on_the_node(there),
                name_server(there),
            )
            found.kit.apply(_service_of_dns())
            yield found
    except LocalClusterError as error:
        if "has not been built" not in str(error):
            raise
        pytest.skip(str(error))


def _tenants(found: Network) -> None:
    found.kit.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "manifests" / "crds"))
    table = ModelTable.from_yaml((BASE / "config" / "models.yaml").read_text())
    documents = [
        document_of(MINE, models=MODELS),
        document_of(OTHERS, models=MODELS),
        document_of(OPEN, models=MODELS, network={"profile": "internet"}),
    ]
    found.kit.apply(ROLES.read_text(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FREE}})
    for one in documents:
        found.kit.apply(*render.objects(one, table))
        wait_until_counted(found.kit, one, table)
    accounts = {"apiVersion": "v1", "kind": "ServiceAccount"}
    found.kit.apply({**accounts, "metadata": {"name": "pipeline", "namespace": MINE}}, _edits())
    for namespace in (MINE, OTHERS, OPEN, FREE, "kube-system"):
        default_account(found, namespace)


def _edits() -> Json:
    """Both identities may make pods."""
    rbac = "rbac.authorization.k8s.io"
    group = {"apiGroup": rbac, "kind": "Group", "name": f"{MINE}:ml-team"}
    pipeline = {"kind": "ServiceAccount", "name": "pipeline", "namespace": MINE}
    return {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "edit", "namespace": MINE},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
        "subjects": [group, pipeline],
    }


def _service_of_dns() -> Json:
    ports = [{"name": p.lower(), "protocol": p, "port": 53} for p in ("UDP", "TCP")]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "names", "namespace": "kube-system"},
        "spec": {"selector": {"k8s-app": "kube-dns"}, "ports": ports},
    }


def forbidden(net: Network) -> dict[str, str]:
    """What a tenant's pod on the first node must not reach, by name."""
    api = net.addresses
    server = net.cluster.context.port("kube-apiserver")
    return {
        "api-server": f"{api.kubernetes_service} 443",
        "api-server-itself": f"{api.host} {server}",
        "metadata": f"{METADATA} 80",
        "kubelet": f"{net.node(1).ip} {KUBELET}",
        "server-of-a-node": f"{net.node(1).ip} {PORT}",
        "others-here": f"{net.wait(OTHERS, 'here')} {PORT}",
        "others-there": f"{net.wait(OTHERS, 'there')} {PORT}",
        "free": f"{net.wait(FREE, 'there')} {PORT}",
        "name-server-by-another-port": f"{net.wait('kube-system', 'dns')} {PORT}",
    }


def allowed(net: Network) -> dict[str, str]:
    """What it must reach."""
    service = net.kit.api.get(SERVICES, "names", "kube-system")["spec"]["clusterIP"]
    return {
        "peer-here": f"{net.wait(MINE, 'peer-here')} {PORT}",
        "peer-there": f"{net.wait(MINE, 'peer-there')} {PORT}",
        "name-server": f"{net.wait('kube-system', 'dns')} 53",
        "name-server-by-service": f"{service} 53",
    }


@pytest.fixture(params=["user", "account"])
def caller(net: Network, request: pytest.FixtureRequest) -> Iterator[str]:
    """A pod on the first node that such an identity made."""
    who: Identity
    if request.param == "user":
        who = person(net.cluster, MINE, "mallory", (f"{MINE}:ml-team",))
    else:
        who = account(net.cluster, MINE, "pipeline")
    may = ("auth", "can-i", "create", "pods")
    wait_until("it may make pods", lambda: who.kubectl(*may, check=False).returncode == 0, 30)
    name = f"by-{request.param}"
    wait_until("its pod is made", lambda: who.creates(pod(MINE, name, net.node(0))), 120)
    net.wait(MINE, name)
    yield name
    who.kubectl("delete", "pod", name, "--wait=false")


def test_without_policies_all_of_it_is_reached(net: Network) -> None:
    """But other tenants: nothing comes in to them, whoever calls."""
    targets = {**forbidden(net), "outside": f"{OUTSIDE} 80", "name-server": allowed(net)["name-server"]}
    others = {"others-here", "others-there"}
    assert net.reached(FREE, "here", targets) == set(targets) - others


def test_row_37_a_tenant_reaches_its_own_and_names_and_nothing_else(net: Network, caller: str) -> None:
    targets = {**forbidden(net), **allowed(net), "outside": f"{OUTSIDE} 80"}
    assert net.reached(MINE, caller, targets) == set(allowed(net))
    service = allowed(net)["name-server-by-service"].split()[0]
    assert "192.0.2.7" in net.lookup(MINE, caller, service)


def test_the_internet_is_no_way_to_nodes_or_metadata(net: Network) -> None:
    targets = {**forbidden(net), "outside": f"{OUTSIDE} 80", "name-server": allowed(net)["name-server"]}
    assert net.reached(OPEN, "caller", targets) == {"outside", "name-server"}


def test_the_node_of_a_pod_is_always_reached(net: Network) -> None:
    """So Kubernetes defines it: the kubelet there, and what listens on the node, have to ask who calls."""
    assert net.reached(MINE, "peer-here", {"own": f"{net.node(0).ip} {KUBELET}"}) == {"own"}
