"""The kubelet's side of the device plugin and PodResources APIs, on real sockets, played by a test."""

import json
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from vc_egpu_node.kubelet.podresources import CHECKPOINT
from vc_egpu_node.kubelet_api import deviceplugin_pb2 as dp
from vc_egpu_node.kubelet_api import deviceplugin_pb2_grpc as dp_grpc
from vc_egpu_node.kubelet_api import podresources_pb2 as pr
from vc_egpu_node.kubelet_api import podresources_pb2_grpc as pr_grpc

Owner = tuple[str, str, str]
"""Namespace, pod, container."""


class FakeKubelet(
    dp_grpc.RegistrationServicer,  # type: ignore[misc]  # generated code has no types
    pr_grpc.PodResourcesListerServicer,  # type: ignore[misc]
):
    """Registers plugins, allocates slots, and tells who holds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pod_resources_socket = folder / "pr.sock"
        self.registered = threading.Semaphore(0)
        self.endpoints: dict[str, str] = {}
        self.held: dict[Owner, tuple[str, tuple[str, ...]]] = {}
        """Owner to resource and slots."""
        self.uids: dict[Owner, str] = {}
        self.envs: dict[Owner, dict[str, str]] = {}
        """Variables that plugins set, by owner."""
        self.lists = 0
        self.refuse_lists = 0
        """So many Lists are refused, as by the rate limit."""
        self.list_delay_s = 0.0
        self._server: Any = None

    # --- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """As the real one: sweep the plugin folder (all but the checkpoint), then listen."""
        for path in self.folder.iterdir():
            if path.name != CHECKPOINT:
                path.unlink()
        server = grpc.server(futures.ThreadPoolExecutor(16))
        dp_grpc.add_RegistrationServicer_to_server(self, server)
        pr_grpc.add_PodResourcesListerServicer_to_server(self, server)
        server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        server.add_insecure_port(f"unix://{self.pod_resources_socket}")
        server.start()
        self._server = server

    def stop(self) -> None:
        """End it; its sockets vanish."""
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    # --- what it serves --------------------------------------------------------------------------

    def Register(self, request: Any, context: Any) -> Any:  # noqa: N802  gRPC's name
        """Keep the endpoint."""
        assert request.version == "v1beta1"
        assert request.options.pre_start_required
        self.endpoints[request.resource_name] = request.endpoint
        self.registered.release()
        return dp.Empty()

    def List(self, request: Any, context: Any) -> Any:  # noqa: N802  gRPC's name
        """Each id as an entry of its own, like the real one."""
        self.lists += 1
        if self.refuse_lists > 0:
            self.refuse_lists -= 1
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by the rate limit")
        snapshot = dict(self.held)
        time.sleep(self.list_delay_s)
        pods: dict[tuple[str, str], Any] = {}
        for (namespace, pod, container), (resource, ids) in snapshot.items():
            entry = pods.setdefault((namespace, pod), pr.PodResources(namespace=namespace, name=pod))
            devices = [pr.ContainerDevices(resource_name=resource, device_ids=[one]) for one in ids]
            entry.containers.append(pr.ContainerResources(name=container, devices=devices))
        return pr.ListPodResourcesResponse(pod_resources=pods.values())

    # --- what it asks ----------------------------------------------------------------------------

    def plugin(self, resource: str) -> tuple[Any, Any]:
        """(channel, stub) of a registered plugin."""
        channel = grpc.insecure_channel(f"unix://{self.folder}/{self.endpoints[resource]}")
        return channel, dp_grpc.DevicePluginStub(channel)

    def allocate(self, owner: Owner, resource: str, ids: tuple[str, ...], uid: str = "") -> str:
        """Give slots to a container; the CDI device name that the plugin answers."""
        channel, stub = self.plugin(resource)
        with channel:
            request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
            answer = stub.Allocate(request, timeout=30)
        self.held[owner] = (resource, ids)
        self.uids[owner] = uid
        self.envs[owner] = dict(answer.container_responses[0].envs)
        self.write_checkpoint()
        return str(answer.container_responses[0].cdi_devices[0].name)

    def pre_start(self, resource: str, ids: tuple[str, ...]) -> None:
        """Just before the container is created; raises what the plugin answers."""
        channel, stub = self.plugin(resource)
        with channel:
            stub.PreStartContainer(dp.PreStartContainerRequest(devices_ids=ids), timeout=30)

    def free(self, owner: Owner) -> None:
        """The container is gone."""
        del self.held[owner]
        self.uids.pop(owner, None)
        self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """In the kubelet's own form."""
        entries = [
            {
                "PodUID": self.uids[owner],
                "ContainerName": owner[2],
                "ResourceName": resource,
                "DeviceIDs": {"-1": list(ids)},
                "AllocResp": "",
            }
            for owner, (resource, ids) in self.held.items()
            if self.uids.get(owner)
        ]
        document = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
        path = self.folder / f"{CHECKPOINT}.new"
        path.write_text(json.dumps(document))
        path.replace(self.folder / CHECKPOINT)
