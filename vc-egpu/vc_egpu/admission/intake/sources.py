"""The watches that feed the loop."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from vc_egpu.admission.intake.watch_gaps import StalledWatches
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    HYPER_NODES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    QUEUES,
    RUNTIME_CLASSES,
    VOLCANO_JOBS,
    Resource,
)
from vc_egpu.kube.watch import Change, Reflector, drop_managed_fields
from vc_egpu.kube.wire.transport import Json
from vc_egpu.volcano.codec import trim
from vc_egpu.volcano.words import names

WATCHED: Final = (
    HYPER_NODES,
    RUNTIME_CLASSES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    QUEUES,
    PODS,
    POD_GROUPS,
    VOLCANO_JOBS,
)
OPTIONAL: Final = frozenset({HYPER_NODES})
"""Kinds that a cluster may lack: then there are none of them, until it has the kind."""

Arrival = tuple[str, Change]
"""A kind (its plural) and what happened to one of it."""

logger = logging.getLogger(__name__)


class Sources:
    """One reflector per kind; ``tell`` gets every change, on that one's thread."""

    def __init__(self, api: ApiConnection, tell: Callable[[Arrival], None], namespace: str) -> None:
        self._tell = tell
        self._stalled = StalledWatches()
        self._reflectors = {
            r.plural: Reflector(
                api, r, self._into(r), transform=partial(_keep, r.plural), optional=r in OPTIONAL
            )
            for r in WATCHED
        }
        self._reflectors[CONFIG_MAPS.plural] = Reflector(
            api,
            CONFIG_MAPS,
            self._into(CONFIG_MAPS),
            namespace=namespace,
            field_selector=f"metadata.name={names.SWITCHES_CONFIG_MAP}",
        )

    def start(self) -> None:
        """Begin all watches."""
        for reflector in self._reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """End all watches, side by side."""
        threads = [threading.Thread(target=r.stop) for r in self._reflectors.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def missing(self) -> list[str]:
        """Kinds whose first list has not arrived."""
        return [plural for plural, reflector in self._reflectors.items() if not reflector.synced.is_set()]

    def silent_s(self) -> float:
        """Seconds since anything of these arrived; infinite before that."""
        return min((self._reflectors[plural].silent_s() for plural in self.missing()), default=0.0)

    def behind_s(self) -> dict[str, float]:
        """Seconds since each watch was last heard, by kind; kinds that were never heard are left out."""
        heard = {plural: reflector.silent_s() for plural, reflector in self._reflectors.items()}
        return {plural: seconds for plural, seconds in heard.items() if seconds != float("inf")}

    def wait(self, timeout_s: float) -> None:
        """Wait a while for a list that is missing."""
        end = time.monotonic() + timeout_s
        for plural in self.missing():
            self._reflectors[plural].wait_synced(max(0.0, end - time.monotonic()))

    def answered(self, plural: str, document: Json) -> None:
        """The API server says that this object is so: the watch of its kind will say so too."""
        self._stalled.answered(plural, str(document["metadata"].get("resourceVersion") or ""))

    def list_those_behind(self, clock: float) -> list[str]:
        """Kinds whose watch stands still though there is news; all of them is listed again."""
        reached = {plural: reflector.reached() for plural, reflector in self._reflectors.items()}
        behind = self._stalled.standing(reached, clock)
        for plural in behind:
            logger.warning("the watch of %s stands still at version %s: listing", plural, reached[plural])
            self._reflectors[plural].list_again()
        return behind

    def _into(self, resource: Resource) -> Callable[[Change], None]:
        plural = resource.plural
        return lambda change: self._tell((plural, change))


def _keep(plural: str, document: Json) -> Json:
    """The whole cluster is kept in memory: only what is read of it."""
    return trim.of(plural, drop_managed_fields(document))
