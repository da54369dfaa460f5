"""The admission policies on a real API server: who writes Nodes, and what of them."""

import pytest
from rigs.team import NAMESPACE, Json
from rigs.webhook import Rig
from stack.identity import bound_token_kubeconfig
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.kube.wire.errors import Forbidden

pytestmark = pytest.mark.cluster


def test_each_agent_writes_only_its_own_node(webhook_rig: Rig) -> None:
    """And there nothing that would draw others' pods: with root on the node goes the agent's account."""
    api, cluster = webhook_rig.kit.api, webhook_rig.cluster
    for name in ("n1", "n2"):
        api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    agent_pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent", "namespace": "vc-egpu-system"},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "vc-egpu-node-agent",
            "containers": [{"name": "c", "image": "none"}],
        },
    }
    api.create(PODS, agent_pod)
    bound = bound_token_kubeconfig(cluster, "vc-egpu-system", "vc-egpu-node-agent", "agent")
    agent = ApiConnection.connect(bound)
    unbound = webhook_rig.tenant("vc-egpu-node-agent", "vc-egpu-system")
    inventory = {"metadata": {"annotations": {"egpu.volcano.sh/node-cards": "{}"}}}
    assert agent.patch(NODES, "n1", inventory)
    for name in ("node-suspension", "node-use"):
        assert agent.patch(NODES, "n1", {"metadata": {"annotations": {f"egpu.volcano.sh/{name}": "{}"}}})
    with pytest.raises(Forbidden, match="writes only the Node it runs on"):
        agent.patch(NODES, "n2", inventory)
    with pytest.raises(Forbidden, match="writes only the Node it runs on"):
        unbound.patch(NODES, "n1", inventory)
    with pytest.raises(Forbidden, match="not its spec"):
        agent.patch(NODES, "n1", {"spec": {"unschedulable": True}})
    with pytest.raises(Forbidden, match="writes only the Node"):
        agent.delete(NODES, "n1")
    found = {"model.egpu.volcano.sh/h20": "8", "nvidia.com/gpu.count": "8"}
    assert agent.patch(NODES, "n1", {"metadata": {"labels": found}})
    assert agent.patch(NODES, "n1", {"metadata": {"labels": dict.fromkeys(found)}})
    api.patch(NODES, "n1", {"metadata": {"labels": {"theirs": "1"}}})
    drawn: tuple[dict[str, str | None], ...] = (
        {"node-restriction.kubernetes.io/team": "a"},
        {"node-role.kubernetes.io/control-plane": ""},
        {"theirs": "2"},
        {"theirs": None},
    )
    for labels in drawn:
        for subresource in (None, "status"):
            with pytest.raises(Forbidden, match="labels: a node agent writes"):
                agent.patch(NODES, "n1", {"metadata": {"labels": labels}}, subresource=subresource)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "0f0f"}
    for field in ({"ownerReferences": [owner]}, {"finalizers": ["a.example/b"]}):
        with pytest.raises(Forbidden, match="ownerReferences and finalizers"):
            agent.patch(NODES, "n1", {"metadata": field})
    assert agent.patch_status(NODES, "n1", {"status": {"capacity": {"volcano.sh/vgpu-h20-memory": "5"}}})


def test_only_the_agent_writes_the_inventory(webhook_rig: Rig) -> None:
    """Operators who may patch Nodes keep labels and cordoned cards, also by way of the status."""
    api, cluster = webhook_rig.kit.api, webhook_rig.cluster
    cluster.kubectl("create", "serviceaccount", "operator", "-n", NAMESPACE)
    cluster.kubectl("create", "clusterrole", "nodes", "--verb=*", "--resource=nodes,nodes/status")
    cluster.kubectl(
        "create", "clusterrolebinding", "nodes", "--clusterrole=nodes",
        f"--serviceaccount={NAMESPACE}:operator",
    )  # fmt: skip
    operator = webhook_rig.tenant("operator", NAMESPACE)

    def node(name: str, **annotations: str) -> Json:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}

    inventory = {"egpu.volcano.sh/node-cards": "{}"}
    with pytest.raises(Forbidden, match="by the node's agent"):
        operator.create(NODES, node("n3", **inventory))
    operator.create(NODES, node("n3"))
    for subresource in ("", "status"):
        with pytest.raises(Forbidden, match="by the node's agent"):
            operator.patch(NODES, "n3", {"metadata": {"annotations": inventory}}, subresource=subresource)
    api.patch(NODES, "n3", {"metadata": {"annotations": inventory}})
    with pytest.raises(Forbidden, match="by the node's agent"):
        operator.patch(NODES, "n3", {"metadata": {"annotations": {"egpu.volcano.sh/node-cards": None}}})
    for name in ("node-suspension", "node-use"):
        with pytest.raises(Forbidden, match="by the node's agent"):
            said = {f"egpu.volcano.sh/{name}": "{}"}
            operator.patch(NODES, "n3", {"metadata": {"annotations": said}})
    theirs = {"annotations": {"egpu.volcano.sh/cordoned-cards": "GPU-0"}, "labels": {"a": "b"}}
    assert operator.patch(NODES, "n3", {"metadata": theirs})
    assert operator.patch(NODES, "n3", {"status": {"capacity": {"a.example/b": "1"}}}, subresource="status")
    operator.delete(NODES, "n3")
