"""The webhook as the API server knows it: whether it is asked, and a while without it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import KubeError

NAMESPACE = "vc-egpu-system"
CONFIGURATIONS = ("mutatingwebhookconfiguration/vc-egpu", "validatingwebhookconfiguration/vc-egpu")
_WRITTEN_BY_THE_SERVER = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")


def refusal(api: ApiConnection) -> str:
    """What stands in the way of a Command for nothing: "" where the API server asks no webhook."""
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "probe", "namespace": NAMESPACE},
        "target": {"apiVersion": "v1", "kind": "Nothing", "name": "nothing", "uid": "0"},
    }
    path = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/commands"
    try:
        api.request("POST", path, body, query={"dryRun": "All"})
    except KubeError as error:
        return str(error)
    return ""


def answers(api: ApiConnection) -> bool:
    """True while a Command for nothing is refused by us: by nobody else it is."""
    return "target.kind" in refusal(api)


@contextmanager
def uninstalled(kubectl: Callable[..., Any]) -> Iterator[None]:
    """Its configurations are gone, so that only the policies stand; they come back as they were.

    The API server may ask the old ones for a moment more.
    """
    saved = [yaml.safe_load(kubectl("get", name, "-o", "yaml").stdout) for name in CONFIGURATIONS]
    kubectl("delete", *CONFIGURATIONS)
    try:
        yield
    finally:
        for document in saved:
            for field in _WRITTEN_BY_THE_SERVER:
                document["metadata"].pop(field, None)
            kubectl("create", "-f", "-", text_in=yaml.safe_dump(document))
