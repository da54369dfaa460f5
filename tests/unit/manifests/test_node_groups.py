"""The example of one group of nodes a model: its files fit each other, the model table and our classes."""

from typing import Any

import yaml
from unit.manifests.kustomize import MANIFESTS, of_kind, overlay, pod_specs, rendered
from vc_egpu.admission.growing.node_groups import NodeGroups
from vc_egpu.admission.settings import parse
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import EMPTIED

FOLDER = "manifests/node-groups"


def groups() -> NodeGroups:
    """As the admission controller will read them."""
    (found,) = (
        one
        for one in of_kind(rendered(FOLDER), "ConfigMap")
        if one["metadata"]["name"] == "vc-egpu-node-groups"
    )
    table = ModelTable.from_yaml((MANIFESTS / "base/config/models.yaml").read_text())
    return NodeGroups.from_yaml(found["data"]["groups.yaml"], table)


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((MANIFESTS / "node-groups/autoscaler-values.yaml").read_text())
    return found


def test_the_controller_empties_and_asks() -> None:
    (container,) = pod_specs(rendered(FOLDER))["vc-egpu-admission"]["containers"]
    settings = parse(container["args"][1:])
    assert settings.policy.moving.for_empty
    assert settings.node_groups is not None


def test_each_group_has_a_template_of_a_pool_of_its_own() -> None:
    templates = {
        one["metadata"]["name"]: one["template"]["spec"]
        for one in of_kind(rendered(FOLDER), "PodTemplate")
        if one["metadata"]["name"].startswith("vc-egpu-node-")
    }
    assert {group.pod_template for group in groups().groups} == templates.keys()
    pools = [spec["nodeSelector"]["pool"] for spec in templates.values()]
    assert len(set(pools)) == len(pools) > 1
    for group in groups().groups:
        (container,) = templates[group.pod_template]["containers"]
        assert templates[group.pod_template]["nodeSelector"] == {"pool": group.model}
        assert list(container["resources"]["requests"]) == ["cpu"], "a new node tells of no cards"


def test_the_autoscaler_may_make_as_many_nodes_as_are_asked_for() -> None:
    sizes = {one["name"].removeprefix("gpu-"): one for one in values()["autoscalingGroups"]}
    assert {group.model: group.most_nodes for group in groups().groups} == {
        model: one["maxSize"] for model, one in sizes.items()
    }
    assert all(0 <= one["minSize"] <= one["maxSize"] for one in sizes.values())


def test_the_autoscaler_knows_our_taint_and_spares_low_pods() -> None:
    flags = values()["extraArgs"]
    assert flags["status-taint"] == EMPTIED
    assert flags["enable-provisioning-requests"] is True
    classes = of_kind(overlay("standalone"), "PriorityClass")
    (low,) = (one["value"] for one in classes if one["metadata"]["name"] == "egpu-low")
    assert flags["expendable-pods-priority-cutoff"] <= low
