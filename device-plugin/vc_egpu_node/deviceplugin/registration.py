"""Registration with the kubelet, and again whenever it restarts.

The kubelet sweeps its plugin folder when it starts and makes a new registration socket. Twice a second the
agent looks at the folder (a few stats, some microseconds). It registers again after a new kubelet socket, a
missing one of ours, or a kubelet that no longer follows our slots.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

from vc_egpu_node.deviceplugin.plugin import API_VERSION, SOCKET_PREFIX, Plugin
from vc_egpu_node.kubelet_api import deviceplugin_pb2 as api
from vc_egpu_node.kubelet_api import deviceplugin_pb2_grpc as api_grpc

log = logging.getLogger(__name__)

KUBELET_SOCKET: Final = "kubelet.sock"
POLL_S: Final = 0.5
REGISTER_TIMEOUT_S: Final = 5.0
UNFOLLOWED_LIMIT_S: Final = 10.0
"""The kubelet connects at once; if it does not, the registration was lost."""

Stamp = tuple[int, int, int]


class KubeletLink:
    """Keeps all plugins of this agent registered."""

    def __init__(
        self, folder: Path, make: Callable[[str], Plugin], on_change: Callable[[], None] = lambda: None
    ) -> None:
        """``on_change`` is called when :attr:`follows` changes."""
        self._folder = folder
        self._make = make
        self._on_change = on_change
        self._followed = False
        self._lock = threading.Lock()
        self._plugins: dict[str, Plugin] = {}
        self._registered: dict[str, tuple[Stamp, float]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet-watch", daemon=True)
        self.registrations = 0
        self.beat_s = time.monotonic()
        """When it last looked, once it is started."""
        self._told: dict[str, str] = {}
        """What was said last: of the kubelet, under no name, and of each resource."""

    def start(self) -> None:
        """Remove what a dead predecessor left, then watch."""
        for leftover in self._folder.glob(f"{SOCKET_PREFIX}*.sock"):
            leftover.unlink(missing_ok=True)
        self.beat_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching and serving."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(REGISTER_TIMEOUT_S + 1)
        for plugin in self.plugins():
            plugin.close()

    def plugin(self, resource: str) -> Plugin:
        """The plugin of a resource; a new one is registered at the next look."""
        with self._lock:
            if resource not in self._plugins:
                self._plugins[resource] = self._make(resource)
            return self._plugins[resource]

    def plugins(self) -> list[Plugin]:
        """All plugins so far."""
        with self._lock:
            return list(self._plugins.values())

    @property
    def settled(self) -> bool:
        """Whether the kubelet knows every plugin."""
        with self._lock:
            return all(resource in self._registered for resource in self._plugins)

    @property
    def follows(self) -> bool:
        """Whether the kubelet knows every plugin and listens to its slots; else it refuses pods."""
        return self.settled and all(plugin.followed for plugin in self.plugins())

    def look(self) -> None:
        """Register what needs it."""
        stamp = _stamp(self._folder / KUBELET_SOCKET)
        if stamp is None:
            self._say("", f"no kubelet at {self._folder / KUBELET_SOCKET}")
            with self._lock:
                self._registered.clear()
            return
        for plugin in self.plugins():
            if not self._in_order(plugin, stamp):
                self._register(plugin, stamp)

    def _in_order(self, plugin: Plugin, stamp: Stamp) -> bool:
        with self._lock:
            known = self._registered.get(plugin.resource)
        if known is None or known[0] != stamp or not plugin.serving:
            return False
        return plugin.followed or time.monotonic() - known[1] < UNFOLLOWED_LIMIT_S

    def _register(self, plugin: Plugin, stamp: Stamp) -> None:
        with self._lock:
            self._registered.pop(plugin.resource, None)
        try:
            plugin.start()
            with grpc.insecure_channel(f"unix://{self._folder / KUBELET_SOCKET}") as channel:
                api_grpc.RegistrationStub(channel).Register(
                    api.RegisterRequest(
                        version=API_VERSION,
                        endpoint=plugin.socket.name,
                        resource_name=plugin.resource,
                        options=api.DevicePluginOptions(pre_start_required=True),
                    ),
                    timeout=REGISTER_TIMEOUT_S,
                )
        except (grpc.RpcError, OSError, RuntimeError) as error:
            detail = error.details() if isinstance(error, grpc.Call) else str(error)
            self._say(plugin.resource, f"{plugin.resource} was not registered: {detail}")
            return
        with self._lock:
            self._registered[plugin.resource] = (stamp, time.monotonic())
        self.registrations += 1
        for about in ("", plugin.resource):
            self._told.pop(about, None)
        log.info("registered %s with the kubelet", plugin.resource)

    def _say(self, about: str, text: str) -> None:
        """Once, not twice a second."""
        if text != self._told.get(about):
            log.warning("%s; trying on", text)
            self._told[about] = text

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            self.beat_s = time.monotonic()
            try:
                self.look()
            except Exception:
                log.exception("the look at the kubelet's folder failed")
            if self.follows != self._followed:
                self._followed = not self._followed
                self._on_change()


def _stamp(path: Path) -> Stamp | None:
    """What tells one kubelet's socket from the next one's: inode numbers alone are used again."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_ctime_ns)
