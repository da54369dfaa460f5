"""The kubelet's device plugin service (v1beta1) of one resource, on a socket of its own."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, Final

import grpc

from vc_egpu_node.cards.inventory import Slot
from vc_egpu_node.containers.admission import NotAdmittedError, Why
from vc_egpu_node.containers.identity import Identity
from vc_egpu_node.kubelet_api import deviceplugin_pb2 as api
from vc_egpu_node.kubelet_api import deviceplugin_pb2_grpc as api_grpc
from vc_egpu_node.vendors.registry import HIDE

log = logging.getLogger(__name__)

API_VERSION: Final = "v1beta1"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
MAX_THREADS: Final = 40
"""More pods than this starting at the same moment queue up."""
MAX_SLOTS_PER_CONTAINER: Final = 64
SOCKET_PREFIX: Final = "vc-egpu-"

_CODES: Final = {
    Why.NO_PROMISE: grpc.StatusCode.FAILED_PRECONDITION,
    Why.NO_OWNER: grpc.StatusCode.NOT_FOUND,
    Why.NO_PLAN: grpc.StatusCode.FAILED_PRECONDITION,
    Why.WRONG_PLAN: grpc.StatusCode.INVALID_ARGUMENT,
    Why.CARD_NOT_USABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Why.NO_ROOM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Why.TOOLKIT: grpc.StatusCode.FAILED_PRECONDITION,
    Why.SLICE: grpc.StatusCode.FAILED_PRECONDITION,
    Why.NOT_NOW: grpc.StatusCode.UNAVAILABLE,
}

Observe = Callable[[str, float, str], None]
"""(call, seconds, outcome): ``ok`` or a :class:`Why` value."""


class SlotBoard:
    """The slots as last decided; streams to the kubelet follow it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._slots: tuple[Slot, ...] = ()
        self._version = 0
        self._closed = False

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The present slots."""
        with self._condition:
            return self._slots

    def post(self, slots: tuple[Slot, ...]) -> None:
        """Replace the slots; equal ones wake no follower."""
        with self._condition:
            if slots != self._slots or self._version == 0:
                self._slots = slots
                self._version += 1
                self._condition.notify_all()

    def follow(self, is_active: Callable[[], bool]) -> Iterator[tuple[Slot, ...]]:
        """The present slots, then every change, until closed or no longer active."""
        seen = 0
        while True:
            with self._condition:
                while not self._closed and is_active() and self._version <= seen:
                    self._condition.wait()
                if self._closed or not is_active():
                    return
                seen, slots = self._version, self._slots
            yield slots

    def wake(self) -> None:
        """Let followers look whether they are still active."""
        with self._condition:
            self._condition.notify_all()

    def close(self) -> None:
        """End all followers."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()


class _Service(api_grpc.DevicePluginServicer):  # type: ignore[misc]  # generated code has no types
    """The calls. Every failure is a status with a sentence: the kubelet puts it into the pod's event."""

    def __init__(self, resource: str, board: SlotBoard, identity: Identity, observe: Observe) -> None:
        self._resource = resource
        self._board = board
        self._identity = identity
        self._observe = observe
        self._following: set[object] = set()
        """A token for each stream. Streams begin and end on threads of their own. With a count that is off
        by one, the plugin would be registered again and again, or never."""

    @property
    def followed(self) -> bool:
        """Whether the kubelet listens to the slots."""
        return bool(self._following)

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002 - gRPC's
        """PreStartContainer is what identity hangs on."""
        return api.DevicePluginOptions(pre_start_required=True)

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802, ARG002 - gRPC's
        """All slots, and again on every change."""
        context.add_callback(self._board.wake)
        stream = object()
        self._following.add(stream)
        try:
            for slots in self._board.follow(context.is_active):
                devices = [api.Device(ID=s.id, health=HEALTHY if s.healthy else UNHEALTHY) for s in slots]
                yield api.ListAndWatchResponse(devices=devices)
        finally:
            self._following.discard(stream)

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """One CDI device name for each container."""
        began = time.monotonic()
        try:
            answers = []
            for container in request.container_requests:
                name = self._identity.promise(self._resource, _checked(container.devices_ids))
                # The variables stand in the spec too: these are for a runtime that does not read it.
                answers.append(
                    api.ContainerAllocateResponse(cdi_devices=[api.CDIDevice(name=name)], envs=HIDE)
                )
        except NotAdmittedError as error:
            self._refuse(context, "Allocate", began, error)
        self._observe("Allocate", time.monotonic() - began, "ok")
        return api.AllocateResponse(container_responses=answers)

    def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Prove who this is, and write its CDI spec."""
        began = time.monotonic()
        try:
            grant = self._identity.admit(self._resource, _checked(request.devices_ids))
        except NotAdmittedError as error:
            self._refuse(context, "PreStartContainer", began, error)
        took_s = time.monotonic() - began
        self._observe("PreStartContainer", took_s, "ok")
        who = f"{grant.namespace}/{grant.pod}/{grant.container}"
        cards = ", ".join(share.uuid for share in grant.shares)
        log.info("%s starts on %s (%.2f ms)", who, cards, took_s * 1000)
        return api.PreStartContainerResponse()

    def _refuse(self, context: Any, call: str, began: float, error: NotAdmittedError) -> None:
        self._observe(call, time.monotonic() - began, error.why.value)
        log.warning("%s of %s refused (%s): %s", call, self._resource, error.why.value, error)
        context.abort(_CODES[error.why], f"{error.why.value}: {error}")


def _checked(ids: Any) -> frozenset[str]:
    wanted = frozenset(str(one) for one in ids)
    if not 1 <= len(wanted) <= MAX_SLOTS_PER_CONTAINER:
        raise NotAdmittedError(Why.WRONG_PLAN, f"{len(wanted)} slots for one container")
    return wanted


class Plugin:
    """Serves one resource; can be started again after the kubelet swept its folder."""

    def __init__(self, resource: str, folder: Path, identity: Identity, observe: Observe) -> None:
        self.resource = resource
        self.board = SlotBoard()
        self.socket = folder / f"{SOCKET_PREFIX}{resource.rpartition('/')[2]}.sock"
        self._service = _Service(resource, self.board, identity, observe)
        self._server: Any = None

    @property
    def serving(self) -> bool:
        """Whether the socket is there and answered."""
        return self._server is not None and self.socket.exists()

    @property
    def followed(self) -> bool:
        """Whether the kubelet listens to the slots."""
        return self._service.followed

    def start(self) -> None:
        """Listen, on a fresh socket."""
        self.stop()
        self.socket.unlink(missing_ok=True)
        server = grpc.server(
            futures.ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=self.resource.rpartition("/")[2]),
            options=[("grpc.so_reuseport", 0)],
        )
        api_grpc.add_DevicePluginServicer_to_server(self._service, server)
        server.add_insecure_port(f"unix://{self.socket}")
        server.start()
        self._server = server

    def stop(self, grace_s: float = 0.0) -> None:
        """Stop listening; calls in flight get ``grace_s`` to end."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(grace_s).wait()
            self.board.wake()

    def close(self) -> None:
        """Stop; this plugin does not start again."""
        self.board.close()
        self.stop(grace_s=1.0)
        self.socket.unlink(missing_ok=True)
