"""Which container holds which slots, as the kubelet knows it.

Two sources are read together. The PodResources API names pod and container. The kubelet's own checkpoint
also has the pod's UID, which the API lacks. A new pod under an old name must not get the old one's cards.
The API allows 100 calls a second, burst 10, to all its clients together. So one List serves all callers that
wait, but none that asked after the List began.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import orjson
from vc_egpu.kube import TokenBucket

from vc_egpu_node.kubelet_api import podresources_pb2, podresources_pb2_grpc

log = logging.getLogger(__name__)

CHECKPOINT: Final = "kubelet_internal_checkpoint"
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
CALLS_PER_S: Final = 50.0
CALLS_AT_ONCE: Final = 5
"""Half of what the kubelet allows is left to its other clients."""
RETRY_S: Final = 0.05


class PodResourcesError(RuntimeError):
    """The kubelet's PodResources API does not answer."""


class UnknownOwnerError(LookupError):
    """No container, or more than one, holds these slots."""


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """A container by names."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A container and the slots of one resource that it holds."""

    ref: ContainerRef
    resource: str
    """Or the name of a DRA driver."""
    ids: frozenset[str]
    """Or its devices, ``pool/device``."""


def owner(holders: Iterable[Holder], resource: str, ids: Collection[str]) -> ContainerRef:
    """The one container that holds exactly these slots; raises :class:`UnknownOwnerError`."""
    wanted = frozenset(ids)
    touching = [h for h in holders if h.resource == resource and h.ids & wanted]
    exact = [holder.ref for holder in touching if holder.ids == wanted]
    if len(touching) == 1 and exact:
        return exact[0]
    if not touching:
        raise UnknownOwnerError(f"the kubelet lists no container with {len(wanted)} slots of {resource}")
    names = ", ".join(f"{h.ref.namespace}/{h.ref.pod}/{h.ref.container}" for h in touching[:4])
    raise UnknownOwnerError(f"the kubelet lists slots of {resource} under {names}: no single owner")


class PodResources:
    """Calls List, once for all who wait."""

    def __init__(
        self,
        socket: Path,
        *,
        observe: Callable[[str, float, str], None] = lambda _call, _seconds, _outcome: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket
        self._observe = observe
        self._clock = clock
        self._limit = TokenBucket(CALLS_PER_S, CALLS_AT_ONCE)
        self._condition = threading.Condition()
        self._started = 0
        self._finished = 0
        self._busy = False
        self._result: list[Holder] | PodResourcesError = []
        self._channel: grpc.Channel | None = None

    def holders(self, timeout_s: float = 3.0) -> list[Holder]:
        """All holders as of a List that began after this call; raises :class:`PodResourcesError`."""
        deadline = self._clock() + timeout_s
        with self._condition:
            wanted = self._started + 1
            while self._finished < wanted:
                if not self._busy:
                    self._busy = True
                    break
                left = deadline - self._clock()
                if left <= 0 or not self._condition.wait(left):
                    raise PodResourcesError(f"no answer from the kubelet within {timeout_s:.1f} s")
            else:
                return self._checked()
        result: list[Holder] | PodResourcesError
        try:
            result = self._call(deadline)
        except Exception as error:  # whatever it was: the next caller must find no call under way
            log.exception("asking the kubelet failed")
            result = PodResourcesError(f"{self._socket}: {error}")
        with self._condition:
            self._result = result
            self._finished = self._started
            self._busy = False
            self._condition.notify_all()
            return self._checked()

    def close(self) -> None:
        """Close the connection."""
        with self._condition:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _checked(self) -> list[Holder]:
        if isinstance(self._result, PodResourcesError):
            raise self._result
        return self._result

    def _call(self, deadline: float) -> list[Holder] | PodResourcesError:
        """One List; tried again where the kubelet limits the rate or is restarting, as far as time goes."""
        self._limit.take()
        with self._condition:
            self._started += 1  # a caller that asks from here on waits for the next one
        while True:
            began = self._clock()
            try:
                left = max(0.1, deadline - began)
                answer = self._stub().List(podresources_pb2.ListPodResourcesRequest(), timeout=left)
                self._observe("PodResourcesList", self._clock() - began, "ok")
                return holders_in(answer)
            except grpc.RpcError as error:
                if self._clock() + RETRY_S >= deadline:
                    code = error.code() if isinstance(error, grpc.Call) else error
                    return PodResourcesError(f"{self._socket}: {code}")
                self.close()
                time.sleep(RETRY_S)

    def _stub(self) -> Any:
        with self._condition:
            if self._channel is None:
                self._channel = grpc.insecure_channel(
                    f"unix://{self._socket}",
                    options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)],
                )
            return podresources_pb2_grpc.PodResourcesListerStub(self._channel)


def holders_in(answer: Any) -> list[Holder]:
    """Collect the ids: the kubelet lists each as an entry of its own."""
    found: dict[tuple[ContainerRef, str], set[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                ref = ContainerRef(pod.namespace, pod.name, container.name)
                found.setdefault((ref, devices.resource_name), set()).update(devices.device_ids)
            claimed = (one for claim in container.dynamic_resources for one in claim.claim_resources)
            for one in claimed:
                ref = ContainerRef(pod.namespace, pod.name, container.name)
                found.setdefault((ref, one.driver_name), set()).add(f"{one.pool_name}/{one.device_name}")
    return [Holder(ref, resource, frozenset(ids)) for (ref, resource), ids in found.items()]


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """A container by pod UID, and its slots."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]


class Checkpoint:
    """The kubelet's device checkpoint, read again when it changes. Its form is the kubelet's own affair: what
    cannot be read is taken as "not known", and costs one call to the API server."""

    def __init__(self, kubelet_dir: Path) -> None:
        self._path = kubelet_dir / CHECKPOINT
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._entries: list[CheckpointEntry] = []

    def pod_uid(self, resource: str, ids: Collection[str], container: str) -> str | None:
        """UID of the pod whose container holds exactly these slots, if the file says so."""
        wanted = frozenset(ids)
        uids = {
            entry.pod_uid
            for entry in self.entries()
            if entry.resource == resource and entry.ids == wanted and entry.container == container
        }
        return uids.pop() if len(uids) == 1 else None

    def resources(self) -> dict[str, frozenset[str]] | None:
        """Resources of the devices that each pod was given, by the kubelet's UID of the pod, until the pod
        has ended. Their plugin may be gone by then. None: the file does not say."""
        entries = self._read()
        if entries is None:
            return None
        found: dict[str, set[str]] = {}
        for entry in entries:
            found.setdefault(entry.pod_uid, set()).add(entry.resource)
        return {uid: frozenset(names) for uid, names in found.items()}

    def entries(self) -> list[CheckpointEntry]:
        """All that the file says; nothing where it cannot be read."""
        return self._read() or []

    def _read(self) -> list[CheckpointEntry] | None:
        with self._lock:
            try:
                status = self._path.stat()
                stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
                if stamp != self._stamp:
                    self._entries = _entries(orjson.loads(self._path.read_bytes()))
                    self._stamp = stamp
            except (OSError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                log.debug("%s tells nothing: %s", self._path, error)
                self._stamp = None
                return None
            return self._entries


def _entries(document: Any) -> list[CheckpointEntry]:
    return [
        CheckpointEntry(
            pod_uid=str(entry["PodUID"]),
            container=str(entry["ContainerName"]),
            resource=str(entry["ResourceName"]),
            ids=frozenset(str(one) for ids in entry["DeviceIDs"].values() for one in ids),
        )
        for entry in document["Data"]["PodDeviceEntries"] or ()
    ]
