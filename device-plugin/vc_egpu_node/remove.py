"""Removal: nothing of the agent stays on the node, and no container loses its cards by it."""

import logging
import shutil
from typing import Any

from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.volcano import names

from vc_egpu_node.cdi import FILE_PREFIX
from vc_egpu_node.config import Settings
from vc_egpu_node.inventory import is_counter
from vc_egpu_node.node import FIELD_MANAGER, SHARED_LABELS, WRITTEN, slim
from vc_egpu_node.pages import KINDS
from vc_egpu_node.plugin import SOCKET_PREFIX
from vc_egpu_node.pods import PodView, view
from vc_egpu_node.pods import slim as slim_pod

log = logging.getLogger(__name__)


class StillUsedError(RuntimeError):
    """Pods still hold cards; the text names them."""


def remove(settings: Settings, api: ApiConnection, *, force: bool) -> None:
    """Take back all that the agent wrote: on the Node, in the CDI folder, its state, its sockets.

    Refused with :class:`StillUsedError` while pods hold cards: without their files they could not restart.
    ``force`` does it all the same. Raises ``KubeError`` and ``OSError``.
    """
    users = _users(settings, api)
    if users and not force:
        named = ", ".join(f"{pod.namespace}/{pod.name}" for pod in users[:5])
        more = ", ..." if len(users) > 5 else ""
        raise StillUsedError(f"{len(users)} pods hold cards of {settings.node_name}: {named}{more}")
    document = slim(api.get(NODES, settings.node_name))
    patch, status = removal_patches(document)
    if patch:
        api.patch(NODES, settings.node_name, patch, field_manager=FIELD_MANAGER)
    if status:
        api.patch(NODES, settings.node_name, status, subresource="status", field_manager=FIELD_MANAGER)
    for path in settings.cdi_dir.glob(f"{FILE_PREFIX}*.json"):
        path.unlink(missing_ok=True)
    for path in settings.kubelet_dir.glob(f"{SOCKET_PREFIX}*.sock"):
        path.unlink(missing_ok=True)
    pages = [settings.run_dir / kind.name for kind in KINDS]
    for path in (*settings.state_dir.glob("*"), *(one for one in pages if one.is_dir())):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    log.info("nothing of the agent is left on %s", settings.node_name)


def removal_patches(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge patches of the (slim) Node's metadata and status; empty where nothing of ours is there."""
    metadata = document["metadata"]
    ours = set(metadata["ownedByUs"])
    labels = {
        name: None
        for name in metadata.get("labels") or {}
        if name.startswith(names.MODEL_LABEL_PREFIX) or (name in SHARED_LABELS and name in ours)
    }
    patch: dict[str, Any] = {}
    written = [name for name in WRITTEN if name in (metadata.get("annotations") or {})]
    if written:
        patch["annotations"] = dict.fromkeys(written)
    if labels:
        patch["labels"] = labels
    status = {
        key: {name: None for name in document["status"][key] if is_counter(name)}
        for key in ("capacity", "allocatable")
    }
    status = {key: value for key, value in status.items() if value}
    return ({"metadata": patch} if patch else {}), ({"status": status} if status else {})


def _users(settings: Settings, api: ApiConnection) -> list[PodView]:
    listed = api.list(PODS, field_selector=f"spec.nodeName={settings.node_name}").items
    pods = [view(slim_pod(item)) for item in listed]
    return [pod for pod in pods if pod.cards is not None and not pod.ended]
