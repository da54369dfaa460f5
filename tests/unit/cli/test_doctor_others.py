"""`kubectl egpu doctor`: who else offers cards, who holds cards of others, and which cards nobody gets."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.cli.test_doctor import NOW, bad, healthy, said
from unit.kube.tiny_api import status, tiny_api
from vc_egpu.cli.doctor import checkup, facts
from vc_egpu.cli.doctor.facts import Facts
from vc_egpu.cli.world import Listing
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.words import names


def with_resource(name: str, capacity: str, allocatable: str) -> docs.Json:
    node = docs.node("n1", docs.card("GPU-a"))
    node["status"]["capacity"] = {name: capacity}
    node["status"]["allocatable"][name] = allocatable
    return node


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "aliyun.com/gpu-mem"])
@pytest.mark.parametrize("allocatable", ["8", "0"], ids=["runs", "restarts"])
def test_another_plugin_on_the_same_cards(name: str, allocatable: str) -> None:
    """One that restarts has a capacity, and nothing that is allocatable."""
    (found,) = bad(replace(healthy(), nodes=Listing([with_resource(name, "8", allocatable)])))
    assert (found.level, found.text) == ("fail", f"n1 offers 8 {name} by another plugin")
    assert "one owner per node" in found.hint


def test_a_resource_that_a_plugin_left_behind_is_no_plugin() -> None:
    assert bad(replace(healthy(), nodes=Listing([with_resource("nvidia.com/gpu", "0", "0")]))) == []


def test_cards_with_two_owners_are_told_with_who_runs_there() -> None:
    ours = [
        docs.pod("train", cards={"GPU-a": (1, 0)}),
        docs.pod("over", cards={"GPU-a": (1, 0)}, phase="Failed"),
    ]
    node = with_resource("nvidia.com/gpu", "8", "8")
    (found,) = bad(replace(healthy(), nodes=Listing([node]), pods=Listing(ours)))
    assert found.text == (
        "n1 offers 8 nvidia.com/gpu by another plugin, and our pods ml/train run there: "
        "a card may have two owners"
    )


def test_cards_under_dynamic_resource_allocation() -> None:
    """Nothing on the Node tells of them."""
    pool = {"name": "n1", "generation": 1}
    found = {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": pool, "devices": [{}, {}]}}
    (told,) = bad(replace(healthy(), slices=Listing([found])))
    assert (told.level, told.text) == ("fail", "n1 offers 2 gpu.nvidia.com by another plugin")
    channels = {"spec": {**found["spec"], "driver": "compute-domain.nvidia.com"}}
    assert bad(replace(healthy(), slices=Listing([channels]))) == []
    unseen = bad(replace(healthy(), slices=Listing((), "you may not list resourceslices")))
    assert said(unseen).startswith("warn other plugins: you may not list resourceslices")


def test_pods_that_outlive_their_plugin_are_named() -> None:
    left = {**docs.pod("left"), "spec": {"nodeName": "n1", "asks": ["nvidia.com/gpu"]}}
    (found,) = bad(replace(healthy(), pods=Listing([left])))
    assert (found.level, found.text) == ("warn", "ml/left on n1 hold cards of a plugin that is gone")
    assert bad(replace(healthy(), pods=Listing([{**left, "status": {"phase": "Succeeded"}}]))) == []


def a_claim(driver: str = "gpu.nvidia.com", uid: str = "uid-left", **result: object) -> docs.Json:
    """A ResourceClaim that pod ml/left holds."""
    user = {"resource": "pods", "name": "left", "uid": uid}
    devices = {"results": [{"driver": driver, "pool": "n1", "device": "gpu-0", **result}]}
    return {
        "metadata": {"name": "c", "namespace": "ml"},
        "status": {"allocation": {"devices": devices}, "reservedFor": [user]},
    }


def by_claim(claim: docs.Json, *slices: docs.Json) -> Facts:
    left = {**docs.pod("left"), "spec": {"nodeName": "n1"}}
    return replace(healthy(), pods=Listing([left]), claims=Listing([claim]), slices=Listing(slices))


def test_pods_that_hold_cards_through_claims_are_named() -> None:
    (found,) = bad(by_claim(a_claim()))
    assert (found.level, found.text) == ("warn", "ml/left on n1 hold cards of a plugin that is gone")
    devices = {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [{}, {}]}
    (found,) = bad(by_claim(a_claim(), {"spec": devices}))
    offers = "n1 offers 2 gpu.nvidia.com by another plugin, whose cards ml/left hold"
    assert (found.level, found.text) == ("fail", offers)
    unseen = replace(healthy(), claims=Listing((), "you may not list resourceclaims"))
    assert said(bad(unseen)).startswith("warn other plugins: you may not list resourceclaims")


@pytest.mark.parametrize(
    "claim",
    [
        a_claim("compute-domain.nvidia.com"),
        a_claim(uid="uid-of-an-earlier-one"),
        a_claim(adminAccess=True),
        {"metadata": {"name": "c", "namespace": "ml"}, "status": {}},
        {"metadata": {"name": "c", "namespace": "ml"}},
    ],
    ids=["channels", "earlier", "looks on", "not allocated", "new"],
)
def test_claims_that_hold_no_cards(claim: docs.Json) -> None:
    assert bad(by_claim(claim)) == []


def test_claims_are_read(tmp_path: Path) -> None:
    with tiny_api() as server:
        server.put("/version", {"gitVersion": "v1.36.3"})
        server.put("/apis/resource.k8s.io/v1/resourceclaims/c", a_claim() | {"spec": {"devices": {}}})
        with closing(ApiConnection.connect(server.kubeconfig(tmp_path))) as api:
            (read,) = facts.read(api).claims.items
    assert bad(by_claim(read)) != []
    assert "spec" not in read


def test_cards_of_a_node_that_is_not_ready_are_not_counted() -> None:
    """It said that all cards are offered while half of them take nothing new."""
    nodes = [docs.node("n1", docs.card("GPU-a")), docs.node("n2", docs.card("GPU-b"), ready="Unknown")]
    found = checkup.examine(
        replace(healthy(), nodes=Listing(nodes), kubelet_configs={"n1": {}, "n2": {}}), NOW
    )
    assert "warn cards: n2 is not ready: nothing new goes onto its cards (1)" in said(found)
    assert "ok cards: 1 cards are offered" in said(found)


@pytest.mark.parametrize(("code", "level"), [(404, "fail"), (403, "ok")])
def test_a_model_table_that_is_not_there_is_told_of(code: int, level: str, tmp_path: Path) -> None:
    """Webhook and controllers run on until their next start, which never ends."""
    with tiny_api() as server:
        server.put("/version", {"gitVersion": "v1.36.3"})
        refused = status(code, "NotFound" if code == 404 else "Forbidden")
        with closing(ApiConnection.connect(server.kubeconfig(tmp_path))) as api:
            server.script = [(code, refused, {})]
            models = facts.config_text(api, names.MODELS_CONFIG_MAP, "models.yaml")
    assert checkup.verdict(checkup.examine(replace(healthy(), models=models), NOW)) == level


def test_hypernodes_are_looked_at() -> None:
    def hypernode(name: str, tier: object, *nodes: str) -> docs.Json:
        members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes]
        return {"metadata": {"name": name}, "spec": {"tier": tier, "members": members}}

    known = [node["metadata"]["name"] for node in healthy().nodes.items]
    good = hypernode("good", 1, known[0])
    assert bad(replace(healthy(), hypernodes=Listing([good]))) == []
    circle = hypernode("circle", 1)
    circle["spec"]["members"] = [{"type": "HyperNode", "selector": {"exactMatch": {"name": "circle"}}}]
    wrong = [good, hypernode("text", "one"), circle, hypernode("gone", 1, "n77", "n78")]
    found = bad(replace(healthy(), hypernodes=Listing(wrong)))
    assert [one.level for one in found] == ["warn"] * 3
    assert [one.text.split(":")[0].split(" is ")[0].split(" names ")[0] for one in found] == [
        "HyperNode text",
        "HyperNode circle",
        "HyperNode gone",
    ]
    assert "n77, n78" in found[2].text
    unseen = bad(replace(healthy(), hypernodes=Listing((), "you may not list hypernodes")))
    assert said(unseen).strip() == "warn network: you may not list hypernodes"
