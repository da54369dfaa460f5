"""Before removal: no pod goes on waiting for a product that is gone.

Each gate of ours is lifted, and each suspended pod is told to come back. The node's agent sees for itself
whether a suspended pod has room on its cards. A waiting pod that names us as its scheduler is deleted, since
that name cannot change: its controller makes it again. One that no controller makes again is reported.
"""

import logging
from collections.abc import Callable

from vc_egpu.admission.execution import writes
from vc_egpu.admission.taints import write
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.kube.wire.errors import KubeError, NotFound
from vc_egpu.kube.wire.transport import Json
from vc_egpu.volcano.codec import cluster_codec, trim
from vc_egpu.volcano.codec.pod_codec import pod
from vc_egpu.volcano.podspec.sums import is_over
from vc_egpu.volcano.podspec.way import is_direct, waits_for_us
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of
from vc_egpu.volcano.words.model_table import ModelTable

logger = logging.getLogger(__name__)


def drain(api: ApiConnection, *, direct_only: bool = False) -> int:
    """Take our gates and orders to suspend off all pods, and our taint off all nodes.

    0 when none is left, else 1: the log names them.
    ``direct_only``: only waiting pods that name us as their scheduler go. An earlier version of ours knows
    gates and orders, and not that name.
    """
    left: list[str] = []
    for document in api.list(PODS, transform=_if_concerned).items:
        if _bears_order(document) and not direct_only:
            left += _called_back(api, document)
        if not _waits(document) or (direct_only and not is_direct(document["spec"])):
            continue
        where = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
        if is_direct(document["spec"]):
            left += _made_again(api, document, where)
        elif _ungate(api, document):
            logger.info("pod %s: gate lifted; it waits for cards that no node offers any more", where)
        else:
            left.append(where)
    if not direct_only:
        left += _opened(api)
    for where in left:
        logger.error("%s: still waits for us, is suspended, or bears our taint", where)
    return 1 if left else 0


def _opened(api: ApiConnection) -> list[str]:
    """Take our taint off all nodes; the names of those where that failed."""
    left = []
    for document in api.list(NODES, transform=trim.node).items:
        name = document["metadata"]["name"]
        if cluster_codec.bears_our_taint(document):
            try:
                write(api, name, None)
            except KubeError as error:
                logger.warning("node %s: %s", name, error)
                left.append(f"node {name}")
            else:
                logger.info("node %s: our taint is gone", name)
    return left


def _if_concerned(document: Json) -> Json:
    """Nothing is kept of all other pods of the cluster."""
    return document if _bears_order(document) or _waits(document) else {"metadata": {}}


def _bears_order(document: Json) -> bool:
    return names.SUSPEND in (document["metadata"].get("annotations") or {})


def _waits(document: Json) -> bool:
    return waits_for_us(document.get("spec") or {}) and not is_over(document.get("status") or {})


def _made_again(api: ApiConnection, document: Json, where: str) -> list[str]:
    """Delete a pod that only we could bind; its name where no controller makes it again, or that failed."""
    metadata = document["metadata"]
    if not controller_of(document):
        logger.warning("pod %s: only we could bind it, and no controller makes it again: delete it", where)
        return [where]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    said = "deleted, since only we could bind it; its controller makes it again"
    return _tried(where, lambda: api.delete(PODS, name, namespace, uid=uid), said)


def _called_back(api: ApiConnection, document: Json) -> list[str]:
    """Take the order off; the pod's name where that failed."""
    metadata = document["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}"
    body = {"metadata": {"uid": metadata["uid"], "annotations": {names.SUSPEND: None}}}
    name, namespace = metadata["name"], metadata["namespace"]
    return _tried(where, lambda: api.patch(PODS, name, body, namespace), "told to come back to its cards")


def _tried(where: str, write: Callable[[], object], said: str) -> list[str]:
    """One write to a pod, and what to say of it; the pod's name where it failed, but not if it is gone."""
    try:
        write()
    except NotFound:
        return []
    except KubeError as error:
        logger.warning("pod %s: %s", where, error)
        return [where]
    logger.info("pod %s: %s", where, said)
    return []


def _ungate(api: ApiConnection, document: Json) -> bool:
    name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
    for _ in range(3):
        try:
            api.patch(PODS, name, writes.ungate_patch(pod(document, ModelTable())), namespace)
        except NotFound:
            return True
        except KubeError as error:
            logger.warning("pod %s/%s: %s", namespace, name, error)
            try:
                document = api.get(PODS, name, namespace)
            except NotFound:
                return True
            except KubeError:
                continue
        else:
            return True
    return False
