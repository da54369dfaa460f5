"""Before removal: every gate of ours is lifted or reported, every suspended pod is told to come back.

No pod goes on waiting for a product that is gone. The node's agent sees for itself whether a suspended pod
has room on its cards.
"""

import logging

from vc_egpu.admission.execution import writes
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import KubeError, NotFound
from vc_egpu.kube.wire.transport import Json
from vc_egpu.volcano.codec.pod_codec import pod
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

logger = logging.getLogger(__name__)


def drain(api: ApiConnection) -> int:
    """Take our gates and orders to suspend off all pods; 0 when none is left, else 1 (see the log)."""
    left: list[str] = []
    for document in api.list(PODS, transform=_if_concerned).items:
        if _bears_order(document):
            left += _called_back(api, document)
        if not _is_gated(document):
            continue
        where = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
        if _ungate(api, document):
            logger.info("pod %s: gate lifted; it waits for cards that no node offers any more", where)
        else:
            left.append(where)
    for where in left:
        logger.error("pod %s: still gated or suspended", where)
    return 1 if left else 0


def _if_concerned(document: Json) -> Json:
    """Nothing is kept of all other pods of the cluster."""
    return document if _bears_order(document) or _is_gated(document) else {"metadata": {}}


def _bears_order(document: Json) -> bool:
    return names.SUSPEND in (document["metadata"].get("annotations") or {})


def _is_gated(document: Json) -> bool:
    gates = (document.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == names.GATE for gate in gates)


def _called_back(api: ApiConnection, document: Json) -> list[str]:
    """Take the order off; the pod's name where that failed."""
    metadata = document["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}"
    body = {"metadata": {"uid": metadata["uid"], "annotations": {names.SUSPEND: None}}}
    try:
        api.patch(PODS, metadata["name"], body, metadata["namespace"])
    except NotFound:
        return []
    except KubeError as error:
        logger.warning("pod %s: %s", where, error)
        return [where]
    logger.info("pod %s: told to come back to its cards", where)
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
