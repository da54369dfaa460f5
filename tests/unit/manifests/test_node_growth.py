"""The component that asks for nodes: a file, a mount, and the least rights."""

from unit.manifests.kustomize import composed, of_kind, overlay, pod_specs
from vc_egpu.admission.growing.node_groups import NodeGroups
from vc_egpu.admission.settings import parse
from vc_egpu.volcano.words.model_table import ModelTable

NAME = "vc-egpu-admission"


def test_it_changes_only_the_admission_controller() -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in composed("node-growth")}
    assert {key for key in plain if new.get(key) != plain[key]} == {("Deployment", NAME)}
    assert set(new) - set(plain) == {
        ("ConfigMap", "vc-egpu-node-groups"),
        ("Role", "vc-egpu-node-growth"),
        ("RoleBinding", "vc-egpu-node-growth"),
    }


def test_the_process_reads_the_file_that_is_mounted() -> None:
    objects = composed("node-growth")
    spec = pod_specs(objects)[NAME]
    (container,) = spec["containers"]
    path = parse(container["args"][1:]).node_groups
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "node-groups")
    (volume,) = (one for one in spec["volumes"] if one["name"] == "node-groups")
    assert path is not None
    assert str(path.parent) == mount["mountPath"]
    (document,) = (
        one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == volume["configMap"]["name"]
    )
    assert NodeGroups.from_yaml(document["data"][path.name], ModelTable()).groups == ()
