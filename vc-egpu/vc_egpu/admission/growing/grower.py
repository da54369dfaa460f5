"""Keeps one ProvisioningRequest for each model of which gangs lack cards, on a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from vc_egpu.admission.growing.need import Empty, need, nodes_of
from vc_egpu.admission.growing.node_groups import NodeGroup, NodeGroups
from vc_egpu.admission.growing.steps import Make, Memory, Remove, Request, Stand, stand_of, step
from vc_egpu.admission.view import View
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PROVISIONING_REQUESTS
from vc_egpu.kube.wire.errors import KubeError, LeaseLost, NotFound
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

LOOK_EVERY_S: Final = 10.0
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "vc-egpu"
MODEL_LABEL: Final = f"{names.DOMAIN}/model"

Json = dict[str, Any]
logger = logging.getLogger(__name__)


class Grower:
    """One leadership's. ``view``: a moment of the cluster, or None while there is none."""

    def __init__(
        self,
        api: ApiConnection,
        namespace: str,
        groups: NodeGroups,
        *,
        table: ModelTable,
        view: Callable[[], View | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._groups = groups.groups
        self._table = table
        self._view = view
        self._monotonic = monotonic
        self._memories: dict[str, Memory] = {}
        self._told: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="growing", daemon=True)

    def start(self) -> None:
        """Look every :data:`LOOK_EVERY_S` until :meth:`stop`. Without a group there is nothing to look at."""
        if self._groups:
            self._thread.start()

    def stop(self) -> None:
        """Begin nothing any more. Requests that stand are left to the next leader."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def look(self) -> None:
        """Take one step for each model. Raises nothing for what the API server does."""
        view = self._view()
        if view is None:
            return
        try:
            standing = self._standing()
        except KubeError as error:
            self._tell("", f"requests for nodes cannot be read: {error}")
            return
        self._tell("", "")
        for group in self._groups:
            self._look_at(group, view, standing.pop(group.model, None))
        for model, request in standing.items():  # its group is not in the file any more
            self._remove(model, request.name)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            try:
                self.look()
            except LeaseLost:
                return
            except Exception:
                logger.exception("a look at nodes that are missing failed")

    def _look_at(self, group: NodeGroup, view: View, request: Request | None) -> None:
        row = self._table.get(group.model)
        if row is None:
            return
        empty = Empty(group.cards_per_node or row.cards_per_node, row.memory_mib)
        wanted = need(view.snapshot, view.verdicts if view.admitting else {}, group.model, empty)
        room = group.most_nodes - nodes_of(view.snapshot, group.model)
        memory = self._memories.get(group.model, Memory())
        memory, action = step(memory, wanted, room, request, self._monotonic())
        self._memories[group.model] = memory
        view.figures.asked_for(group.model, wanted.nodes, request.nodes if request is not None else 0)
        if isinstance(action, Make):
            self._make(group, action.nodes, wanted.gangs)
        elif isinstance(action, Remove):
            if request is not None and request.stand is Stand.FAILED:
                logger.warning("no nodes of model %s came: %s", group.model, request.message)
            self._remove(group.model, action.name)

    def _standing(self) -> dict[str, Request]:
        """Ours, by model."""
        found: dict[str, Request] = {}
        selector = f"{MANAGED_BY}={MANAGER}"
        for document in self._api.list(PROVISIONING_REQUESTS, self._namespace, label_selector=selector).items:
            metadata = document["metadata"]
            model = str((metadata.get("labels") or {}).get(MODEL_LABEL, ""))
            if metadata["name"] == name_of(model):
                stand, message = stand_of(document)
                found[model] = Request(name_of(model), _count(document), stand, message)
        return found

    def _make(self, group: NodeGroup, nodes: int, gangs: tuple[str, ...]) -> None:
        body: Json = {
            "apiVersion": PROVISIONING_REQUESTS.api_version,
            "kind": PROVISIONING_REQUESTS.kind,
            "metadata": {
                "name": name_of(group.model),
                "namespace": self._namespace,
                "labels": {MANAGED_BY: MANAGER, MODEL_LABEL: group.model},
            },
            "spec": {
                "provisioningClassName": group.provisioning_class,
                "parameters": dict(group.parameters),
                "podSets": [{"podTemplateRef": {"name": group.pod_template}, "count": nodes}],
            },
        }
        try:
            self._api.create(PROVISIONING_REQUESTS, body, self._namespace)
        except LeaseLost:
            raise
        except KubeError as error:
            self._tell(group.model, f"nodes of model {group.model} could not be asked for: {error}")
            return
        self._tell(group.model, "")
        shown = ", ".join(gangs[:3]) + (f" and {len(gangs) - 3} more" if len(gangs) > 3 else "")
        logger.info("asked for %d nodes of model %s, for %s", nodes, group.model, shown)

    def _remove(self, model: str, name: str) -> None:
        try:
            self._api.delete(PROVISIONING_REQUESTS, name, self._namespace)
        except NotFound:
            return
        except LeaseLost:
            raise
        except KubeError as error:
            self._tell(model, f"the request {name} for nodes could not be taken back: {error}")

    def _tell(self, model: str, problem: str) -> None:
        """Warn once of each problem."""
        if problem and self._told.get(model) != problem:
            logger.warning("%s", problem)
        self._told[model] = problem


def name_of(model: str) -> str:
    """The name of its request, always the same: two leaders never make two."""
    return f"vc-egpu-{model}"


def _count(document: Json) -> int:
    sets = (document.get("spec") or {}).get("podSets") or [{}]
    return int(sets[0].get("count") or 0)
