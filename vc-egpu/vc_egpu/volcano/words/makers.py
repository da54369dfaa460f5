"""Which controller made an object: one reader of owner references. Users may write anything there."""

from collections.abc import Mapping
from typing import Any, Final

_TEMPLATE_HASH: Final = "pod-template-hash"


def controller_in(metadata: object) -> dict[str, Any]:
    """The reference to the controller, or an empty one.

    What is no object is passed over. A reference that does not say ``true``, as the API server writes it, is
    passed over too.
    """
    references = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller") is True:
            return reference
    return {}


def controller_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The reference to the controller of a whole object, or an empty one."""
    return controller_in(document.get("metadata"))


def deployment_behind(kind: str, name: str, labels: Mapping[str, str]) -> str:
    """The Deployment behind a pod whose controller is this, by how Deployments name their ReplicaSets; empty
    where there is none."""
    hashed = labels.get(_TEMPLATE_HASH)
    if kind != "ReplicaSet" or not hashed or not name.endswith(f"-{hashed}"):
        return ""
    return name.removesuffix(f"-{hashed}")


def called(namespace: str, kind: str, name: str, labels: Mapping[str, str]) -> str:
    """What people call the gang of a controller whose pods have these labels: ``Deployment infer/chat``."""
    deployment = deployment_behind(kind, name, labels)
    return f"Deployment {namespace}/{deployment}" if deployment else f"{kind} {namespace}/{name}"
