"""The rules of placement as the manifests have them: a file, a mount, and the example."""

import pytest
from unit.manifests.kustomize import composed, of_kind, overlay, pod_specs
from vc_egpu.admission.settings import parse
from vc_egpu.volcano.profiles.table import table_of

NAME = "vc-egpu-admission"


@pytest.mark.parametrize(("component", "rules"), [("", 0), ("placement-rules", 6)])
def test_the_process_reads_the_file_that_is_mounted(component: str, rules: int) -> None:
    objects = composed(component) if component else overlay("standalone")
    spec = pod_specs(objects)[NAME]
    (container,) = spec["containers"]
    path = parse(container["args"][1:]).placement
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "placement")
    (volume,) = (one for one in spec["volumes"] if one["name"] == "placement")
    assert str(path.parent) == mount["mountPath"]
    assert volume["configMap"]["optional"]
    (document,) = (
        one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == volume["configMap"]["name"]
    )
    assert len(table_of(document["data"][path.name]).rules) == rules


def test_the_component_changes_only_the_table() -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in composed("placement-rules")}
    assert {key for key in new if plain.get(key) != new[key]} == {("ConfigMap", "vc-egpu-placement")}
