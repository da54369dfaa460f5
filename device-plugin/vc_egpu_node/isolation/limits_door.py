"""Where the runtime's hook asks: a socket on the host, at which a container's limits are set before its
program starts.

The hook sends ``<container> <pid>`` and a line end. The answer is ``ok``, or why the container may not start.
Only the host's root reaches the socket."""

import logging
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

SOCKET_NAME: Final = "limits.sock"
"""In the folder that is the same on the host and in the agent."""
_LONGEST: Final = 512
_PATIENCE_S: Final = 10.0
OK: Final = "ok"


class LimitsDoor:
    """Answers hooks, each in a thread of its own."""

    def __init__(self, path: Path, started: Callable[[str, int], str]) -> None:
        """``started``: a container's name and the PID of its first process on the host to why it may not
        start."""
        self.path = path
        self._started = started
        self._server: socketserver.ThreadingUnixStreamServer | None = None

    def start(self) -> None:
        """Listen. Raises ``OSError``."""
        door = self

        class _Asked(socketserver.StreamRequestHandler):
            timeout = _PATIENCE_S

            def handle(self) -> None:
                name, _, pid = self.rfile.readline(_LONGEST).decode("utf-8", "replace").strip().partition(" ")
                if not name or not pid.isdecimal():
                    return
                self.wfile.write(f"{door.answer(name, int(pid))}\n".encode())

        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        self.path.unlink(missing_ok=True)
        server = socketserver.ThreadingUnixStreamServer(str(self.path), _Asked)
        self.path.chmod(0o600)
        server.daemon_threads = True
        self._server = server
        threading.Thread(target=server.serve_forever, name="limits", daemon=True).start()

    def answer(self, name: str, pid: int) -> str:
        """What the hook is told, on one line."""
        try:
            return " ".join(self._started(name, pid).split()) or OK
        except Exception:
            log.exception("a fault of ours; %s does not start", name)
            return "the node agent has a fault, see its log"

    def stop(self) -> None:
        """End."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self.path.unlink(missing_ok=True)
