"""An operator from its Go module: its program as an image, its own manifests, until it answers.

Nothing of it is copied here. The program is one of ``localcluster.toolchain.EXTRAS``, and its manifests are
read from Go's cache of modules, at the version that is pinned there.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from localcluster import LocalCluster, toolchain
from localcluster.errors import LocalClusterError
from localcluster.oci import ImageConfig, build_image
from stack.install import Stack
from vc_egpu.kube.resources import DEPLOYMENTS

Json = dict[str, Any]
PROGRAM: Final = "/manager"
"""Where all of their images have it."""
READY_TIMEOUT_S: Final = 180.0
_USER: Final = "65532"
_FIRST: Final = frozenset({"Namespace", "CustomResourceDefinition"})
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""KubeRay's CRDs are a megabyte: that in Python takes minutes of a busy machine."""
_LEFT_OUT: Final = frozenset({"APIService"})
"""Kueue's own API of who waits: the API server would ask for it before there is one."""


class NotBuiltError(RuntimeError):
    """The operator's program has not been built."""


@dataclass(frozen=True, slots=True)
class Operator:
    """How one is set up for gangs."""

    name: str
    """Of its upstream in the toolchain."""
    manifests: tuple[str, ...]
    """Folders of its module for ``kubectl kustomize``."""
    namespace: str
    arguments: tuple[str, ...] = ()
    """Of its program, besides those in its manifests."""
    env: Mapping[str, str] = field(default_factory=dict)
    more: tuple[Json, ...] = ()
    """What its manifests lack."""
    change: Callable[[Json], None] = lambda _document: None
    """An operator's edit of one of its objects."""

    @property
    def image(self) -> str:
        """Under which nodes know it."""
        return f"vc-egpu.local/{self.name}:1"


def install(stack: Stack, operator: Operator) -> None:
    """Build the image, give it to the nodes, apply the manifests, and wait until its Deployments are ready.

    Raises :class:`NotBuiltError` where ``localcluster build --with NAME`` has not been run.
    """
    cluster = stack.cluster
    try:
        program = toolchain.program(operator.name)
    except LocalClusterError as error:
        raise NotBuiltError(str(error)) from error
    config = ImageConfig(entrypoint=(PROGRAM,), user=_USER)
    cluster.import_image(build_image(None, operator.image, files={PROGRAM: program}, config=config))
    documents = list(_documents(cluster, operator))
    first = [one for one in documents if one["kind"] in _FIRST]
    for batch in (first, [one for one in documents if one not in first]):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": batch})
        # Their projects have checked them. For a check of its own kubectl asks for the schemas of all kinds.
        how = ("--server-side", "--force-conflicts", "--validate=false")
        cluster.kubectl("apply", *how, "-f", "-", text_in=text)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    names = {one["metadata"]["name"] for one in documents if one["kind"] == "Deployment"}

    def ready(found: dict[str, Json]) -> bool:
        return all((found[name].get("status") or {}).get("readyReplicas") for name in names)

    what, where = f"{operator.name} is ready", operator.namespace
    stack.kit.until(what, DEPLOYMENTS, ready, namespace=where, timeout_s=READY_TIMEOUT_S)


def _documents(cluster: LocalCluster, operator: Operator) -> Iterator[Json]:
    source = toolchain.source_of(operator.name)
    for folder in operator.manifests:
        rendered = cluster.kubectl("kustomize", str(source / folder)).stdout
        for document in yaml.load_all(rendered, _LOADER):
            if document and document["kind"] not in _LEFT_OUT:
                yield _of_here(document, operator)
    yield from copy.deepcopy(operator.more)


def _of_here(document: Json, operator: Operator) -> Json:
    """In its namespace where it names none, with our image, and with the operator's own settings."""
    if document["kind"] == "Deployment":
        (manager,) = document["spec"]["template"]["spec"]["containers"]
        manager["image"], manager["imagePullPolicy"] = operator.image, "Never"
        manager["args"] = [*manager.get("args", ()), *operator.arguments]
        known = [{"name": name, "value": value} for name, value in operator.env.items()]
        manager["env"] = [*manager.get("env", ()), *known]
        manager.pop("resources", None)  # the machine is small
        for probe in ("readinessProbe", "livenessProbe"):
            manager.get(probe, {}).pop("initialDelaySeconds", None)
        manager.pop("livenessProbe", None)
        manager.get("readinessProbe", {})["periodSeconds"] = 1
    operator.change(document)
    return document
