"""Before removal: every gate of ours is lifted or reported; no pod is left waiting for nobody."""

import logging

from vc_egpu.admission import writes
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.errors import KubeError, NotFound
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.transport import Json
from vc_egpu.volcano import names
from vc_egpu.volcano.model_table import ModelTable
from vc_egpu.volcano.pod_codec import pod

logger = logging.getLogger(__name__)


def drain(api: ApiConnection) -> int:
    """Lift our gate from every pod; 0 when none is left, 1 when some are (they are named in the log)."""
    left: list[str] = []
    for document in api.list(PODS).items:
        gates = (document.get("spec") or {}).get("schedulingGates") or ()
        if not any(gate.get("name") == names.GATE for gate in gates):
            continue
        where = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
        if _ungate(api, document):
            logger.info("pod %s: gate lifted; it waits for cards that no node offers any more", where)
        else:
            left.append(where)
    for where in left:
        logger.error("pod %s: still gated", where)
    return 1 if left else 0


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
