"""The pods of this node, from a watch of our own; one GET where the watch has not caught up."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from vc_egpu.kube import ApiConnection, Change, ChangeKind, Reflector
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.api.containers import DEBUG_STATUS, IN_SPEC, IN_STATUS, is_sidecar, statuses_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.other_plugins import asked
from vc_egpu.volcano.words.quantity import QuantityError, parse_whole

log = logging.getLogger(__name__)

TERMINAL: Final = frozenset({"Succeeded", "Failed"})
REMADE_S: Final = 30.0
"""So long after its pod is gone may a container start that the kubelet was at (removal without grace)."""
Json = dict[str, Any]
_MIRROR: Final = "kubernetes.io/config.mirror"
_READ: Final = frozenset(
    {names.CARDS, names.SUSPEND, names.SUSPEND_SIGNAL, names.RESIZED, names.ISOLATION, _MIRROR}
)
"""Annotations that matter here."""
_STATUSES: Final = (*IN_STATUS, DEBUG_STATUS)
"""The last ones hold no cards of ours: who debugs a pod is seen on a card all the same."""


@dataclass(frozen=True, slots=True)
class PodView:
    """What the agent needs of a pod."""

    uid: str
    namespace: str
    name: str
    node: str
    phase: str
    cards: str | None
    """Text of the cards annotation."""
    containers: Mapping[str, str] = field(default_factory=dict)
    """Container id without scheme (``<64 hex>``) to container name."""
    running: frozenset[str] = frozenset()
    """Containers that run now."""
    suspend: str | None = None
    """Text of the order to suspend it."""
    suspend_signal: str = ""
    """At which its program comes to rest, as its owner wrote it; empty: at none."""
    resized: str | None = None
    """Text of the note on its last wish to be resized."""
    terminating: bool = False
    gone_by_s: float = 0.0
    """Unix time when a deleted pod is killed; 0: it is not deleted, or that cannot be read."""
    isolation: str = ""
    """What is to keep it apart, as its user wrote it."""
    asks: frozenset[str] = frozenset()
    """Names of the extended resources that its containers ask for, ours or another plugin's."""
    claims: bool = False
    """It has claims for devices of DRA drivers."""
    kubelet_uid: str = ""
    """What the kubelet calls it: of a static pod the API server has a mirror, with a UID of its own."""

    @property
    def ended(self) -> bool:
        """Succeeded or Failed: no container of it will run again."""
        return self.phase in TERMINAL


def slim(document: Json) -> Json:
    """What is kept in memory of a pod."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    status = document.get("status") or {}
    kept = ("namespace", "name", "uid", "resourceVersion", "deletionTimestamp")
    annotations = metadata.get("annotations") or {}
    return {
        "metadata": {
            **{key: metadata[key] for key in kept if key in metadata},
            "annotations": {k: v for k, v in annotations.items() if k in _READ},
        },
        "spec": {
            "nodeName": spec.get("nodeName"),
            "asks": sorted(asked(spec)),
            "claims": bool(spec.get("resourceClaims") or status.get("extendedResourceClaimStatus")),
            **{kind: _slim_containers(spec.get(kind)) for kind in IN_SPEC},
        },
        "status": {
            "phase": status.get("phase"),
            **{
                key: [
                    {k: one.get(k) for k in ("name", "containerID", "state")} for one in status.get(key) or ()
                ]
                for key in _STATUSES
            },
        },
    }


def _slim_containers(containers: Any) -> list[Json]:
    return [
        {
            "name": one.get("name"),
            "restartPolicy": one.get("restartPolicy"),
            "requests": {
                key: value
                for key, value in ((one.get("resources") or {}).get("requests") or {}).items()
                if key.startswith(names.RESOURCE_PREFIX)
            },
        }
        for one in containers or ()
    ]


def view(document: Json) -> PodView:
    """The view of a (slim) pod document."""
    metadata, status = document["metadata"], document.get("status") or {}
    states = statuses_of(status, debug=True)
    ids = {str(one.get("containerID") or "").rpartition("//")[2]: str(one.get("name")) for one in states}
    ids.pop("", None)
    return PodView(
        uid=str(metadata.get("uid") or ""),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        node=str((document.get("spec") or {}).get("nodeName") or ""),
        phase=str(status.get("phase") or ""),
        cards=(metadata.get("annotations") or {}).get(names.CARDS),
        containers=ids,
        running=frozenset(str(one.get("name")) for one in states if "running" in (one.get("state") or {})),
        suspend=(metadata.get("annotations") or {}).get(names.SUSPEND),
        suspend_signal=str((metadata.get("annotations") or {}).get(names.SUSPEND_SIGNAL) or ""),
        resized=(metadata.get("annotations") or {}).get(names.RESIZED),
        terminating="deletionTimestamp" in metadata,
        gone_by_s=_unix_s(metadata.get("deletionTimestamp")),
        isolation=str((metadata.get("annotations") or {}).get(names.ISOLATION) or ""),
        asks=frozenset((document.get("spec") or {}).get("asks") or ()),
        claims=bool((document.get("spec") or {}).get("claims")),
        kubelet_uid=str((metadata.get("annotations") or {}).get(_MIRROR) or metadata.get("uid") or ""),
    )


def _unix_s(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
    except ValueError:
        return 0.0


def requested(documents: list[Json]) -> dict[str, int]:
    """Sum of what the unfinished pods request of ``volcano.sh/`` resources (sidecars and containers; ordinary
    init containers count where they ask for more)."""
    total: dict[str, int] = {}
    for document in documents:
        if (document.get("status") or {}).get("phase") in TERMINAL:
            continue
        for resource, amount in _pod_requests(document.get("spec") or {}).items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _pod_requests(spec: Json) -> dict[str, int]:
    sums: dict[str, int] = {}
    peaks: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(sums, container)
    for container in spec.get("initContainers") or ():
        if is_sidecar(container):
            _add(sums, container)
            continue
        own: dict[str, int] = {}
        _add(own, container)
        for resource, amount in own.items():
            peaks[resource] = max(peaks.get(resource, 0), amount)
    return {resource: max(sums.get(resource, 0), peaks.get(resource, 0)) for resource in {*sums, *peaks}}


def _add(sums: dict[str, int], container: Json) -> None:
    for resource, raw in container["requests"].items():
        try:
            sums[resource] = sums.get(resource, 0) + parse_whole(raw)
        except QuantityError:
            log.warning("container %s requests %s=%r", container.get("name"), resource, raw)


class NamesInUse:
    """Which names of pods another pod may have had a moment ago. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard_since_s: float | None = None
        self._gone: dict[tuple[str, str], float] = {}

    def may_be_remade(self, namespace: str, name: str) -> bool:
        """Whether another pod may have had this name here within ``REMADE_S``: one was seen to go, or the
        watch is too young to tell."""
        now_s = self._clock()
        with self._lock:
            young = self._heard_since_s is None or now_s - self._heard_since_s < REMADE_S
            return young or now_s - self._gone.get((namespace, name), float("-inf")) < REMADE_S

    def take(self, change: Change) -> None:
        """What the watch tells."""
        metadata, now_s = change.object["metadata"], self._clock()
        replaced = change.old is not None and change.old["metadata"].get("uid") != metadata.get("uid")
        with self._lock:
            if self._heard_since_s is None:  # the first list: at least the agent's own pod is in it
                self._heard_since_s = now_s
            if change.kind is ChangeKind.DELETED or replaced:
                self._gone = {key: at for key, at in self._gone.items() if now_s - at < REMADE_S}
                self._gone[(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))] = now_s


class NodePods:
    """The pods bound to one node. Thread-safe."""

    def __init__(
        self,
        api: ApiConnection,
        node: str,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._listeners = [on_change]
        self._names = NamesInUse(clock)
        self.reflector = Reflector(
            api, PODS, self._changed, field_selector=f"spec.nodeName={node}", transform=slim
        )

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call this too when pods change. Only before the start."""
        self._listeners.append(on_change)

    def start(self) -> None:
        """Begin to watch."""
        self.reflector.start()

    def stop(self) -> None:
        """End the watch."""
        self.reflector.stop()

    @property
    def synced(self) -> bool:
        """Whether the first list came in."""
        return self.reflector.synced.is_set()

    def known(self, namespace: str, name: str) -> PodView | None:
        """The pod as the watch has it."""
        document = self.reflector.get(name, namespace)
        return view(document) if document is not None else None

    def fetch(self, namespace: str, name: str, timeout_s: float) -> PodView | None:
        """The pod as the API server has it now; None if there is none. Raises ``KubeError``."""
        try:
            return view(slim(self._api.get(PODS, name, namespace, timeout_s=timeout_s)))
        except NotFound:
            return None

    def may_be_remade(self, namespace: str, name: str) -> bool:
        """See :meth:`NamesInUse.may_be_remade`."""
        return self._names.may_be_remade(namespace, name)

    def views(self) -> list[PodView]:
        """All pods of the node as last seen."""
        return [view(document) for document in self.reflector.objects()]

    def requested(self) -> dict[str, int]:
        """See :func:`requested`."""
        return requested(self.reflector.objects())

    def _changed(self, change: Change) -> None:
        self._names.take(change)
        if change.kind is ChangeKind.DELETED or change.old is None or _ended(change) or _other_cards(change):
            for told in self._listeners:
                told()


def _ended(change: Change) -> bool:
    before = ((change.old or {}).get("status") or {}).get("phase")
    now = (change.object.get("status") or {}).get("phase")
    return before != now


def _other_cards(change: Change) -> bool:
    """The admission layer changed the limits of a pod that may run already, or ordered it to be suspended."""
    before = ((change.old or {}).get("metadata") or {}).get("annotations") or {}
    return before != (change.object["metadata"].get("annotations") or {})
