"""The component that empties nodes: a flag, and the least rights."""

from unit.manifests.kustomize import composed, overlay, pod_specs
from vc_egpu.admission.settings import parse

NAME = "vc-egpu-admission"


def test_it_changes_only_the_admission_controller() -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in composed("node-emptying")}
    assert {key for key in plain if new.get(key) != plain[key]} == {("Deployment", NAME)}
    assert set(new) - set(plain) == {
        ("ClusterRole", "vc-egpu-node-emptying"),
        ("ClusterRoleBinding", "vc-egpu-node-emptying"),
    }


def test_the_process_empties_nodes() -> None:
    (container,) = pod_specs(composed("node-emptying"))[NAME]["containers"]
    assert parse(container["args"][1:]).policy.moving.for_empty
    (plain,) = pod_specs(overlay("standalone"))[NAME]["containers"]
    assert not parse(plain["args"][1:]).policy.moving.on
