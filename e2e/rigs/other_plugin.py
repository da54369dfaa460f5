"""Another device plugin on a real kubelet: it offers cards, gives nothing to containers, and may leave."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from vc_egpu_node.kubelet_api import deviceplugin_pb2 as api
from vc_egpu_node.kubelet_api import deviceplugin_pb2_grpc as api_grpc


class OtherPlugin(api_grpc.DevicePluginServicer):  # type: ignore[misc]  # generated code has no types
    """As NVIDIA's does it: devices named by UUID, one stream, no word at the end."""

    def __init__(self, folder: Path, resource: str, uuids: list[str]) -> None:
        """``folder``: the kubelet's plugin folder."""
        self._folder = folder
        self._resource = resource
        self._uuids = uuids
        self._left = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))

    def start(self) -> None:
        """Serve, and register with the kubelet."""
        socket = self._folder / "another.sock"
        socket.unlink(missing_ok=True)
        api_grpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{socket}")
        self._server.start()
        with grpc.insecure_channel(f"unix://{self._folder / 'kubelet.sock'}") as channel:
            request = api.RegisterRequest(
                version="v1beta1",
                endpoint=socket.name,
                resource_name=self._resource,
                options=api.DevicePluginOptions(),
            )
            api_grpc.RegistrationStub(channel).Register(request, timeout=10)

    def stop(self) -> None:
        """Leave, as a pod of a DaemonSet that is replaced or deleted."""
        self._left.set()
        self._server.stop(0).wait()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002 - gRPC's
        """None."""
        return api.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802, ARG002 - gRPC's
        """All are well, until it leaves."""
        yield api.ListAndWatchResponse(
            devices=[api.Device(ID=uuid, health="Healthy") for uuid in self._uuids]
        )
        self._left.wait()

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002 - gRPC's
        """Containers start with what their image has."""
        count = len(request.container_requests)
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()] * count)
