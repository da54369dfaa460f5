"""The priority classes: their order, and what others make of their values."""

from unit.manifests.kustomize import of_kind, overlay

AUTOSCALER_CUTOFF = -10
"""cluster-autoscaler's default: it kills pods of a lower priority with their node, as if it were empty."""


def test_the_classes_stand_in_their_order_and_no_pod_of_theirs_is_expendable() -> None:
    values = {
        found["metadata"]["name"]: found["value"] for found in of_kind(overlay("standalone"), "PriorityClass")
    }
    assert AUTOSCALER_CUTOFF <= values["egpu-low"] < values["egpu-standard"] < values["egpu-high"]
