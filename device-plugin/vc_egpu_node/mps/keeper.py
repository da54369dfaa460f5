"""The keeper of a node's MPS control daemons. It does what the agent asks at its socket, and nothing by
itself.

It is a process of its own, so that programs notice nothing of an agent's restart. A keeper that ends takes
its daemons along, and with them all programs under MPS on the node.
"""

import argparse
import logging
import shutil
import socketserver
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vc_egpu import logs
from vc_egpu.kube.signals import when_told_to_end

from vc_egpu_node.containers.servers import MpsError
from vc_egpu_node.mps.control import CONTROL, OWN_SHM, Control
from vc_egpu_node.mps.words import FOLDER_NAME, LONGEST, SOCKET_NAME, Answer, Ask, read_ask

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 30.0


class Keeper:
    """All daemons of the node. Thread-safe."""

    def __init__(self, folder: Path, program: str, *, own_shm: bool = True) -> None:
        """``folder`` holds a folder a card. Daemons of an earlier keeper that still answer go on.
        ``own_shm``: each has a ``/dev/shm`` of its own, which takes the right to mount."""
        self._folder = folder
        self._program = program
        self._before = OWN_SHM if own_shm else ()
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._controls = {path.name: self._control(path.name) for path in folder.iterdir() if path.is_dir()}

    def answer(self, ask: Ask) -> Answer:
        """Do it."""
        with self._lock:
            try:
                return self._done(ask)
            except (MpsError, OSError) as error:
                log.warning("%s %s: %s", ask.do, ask.uuid, error)
                return Answer(error=str(error))

    def _done(self, ask: Ask) -> Answer:
        if ask.do == "look":
            return Answer(daemons=tuple(one.look() for _, one in sorted(self._controls.items())))
        if not ask.uuid or "/" in ask.uuid or ask.uuid.startswith("."):
            raise MpsError(f"{ask.uuid!r} is no card")
        if ask.do == "serve":
            self._controls.setdefault(ask.uuid, self._control(ask.uuid)).serve(ask.namespace)
        elif ask.uuid in self._controls and ask.do == "let-go":
            self._controls[ask.uuid].let_go(ask.pids)
        elif ask.uuid in self._controls:
            self._controls[ask.uuid].end()
            del self._controls[ask.uuid]
        return Answer()

    def _control(self, uuid: str) -> Control:
        return Control(self._folder / uuid, self._program, self._before)


class KeeperDoor:
    """Where the agent asks: a line of JSON in, a line out. Only the host's root reaches the socket."""

    def __init__(self, path: Path, keeper: Keeper) -> None:
        self.path = path

        class _Asked(socketserver.StreamRequestHandler):
            timeout = _PATIENCE_S

            def handle(self) -> None:
                try:
                    answer = keeper.answer(read_ask(self.rfile.readline(LONGEST)))
                except MpsError as error:
                    answer = Answer(error=str(error))
                self.wfile.write(answer.model_dump_json().encode() + b"\n")

        path.unlink(missing_ok=True)
        self._server = socketserver.ThreadingUnixStreamServer(str(path), _Asked)
        path.chmod(0o600)
        self._server.daemon_threads = True

    def run(self) -> None:
        """Until :meth:`stop`."""
        self._server.serve_forever()

    def stop(self) -> None:
        """From another thread."""
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; 1 where there is no control program."""
    parser = argparse.ArgumentParser(prog="vc-egpu mps-keeper", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run-dir", type=Path, default=Path("/run/vc-egpu"), help="the agent's")
    parser.add_argument("--program", default=CONTROL, help=f"default: {CONTROL}")
    parser.add_argument(
        "--shared-shm", action="store_true", help="without the right to mount: for tests only"
    )
    parser.add_argument("--log-level", default="INFO")
    given = parser.parse_args(arguments)
    logs.begin(given.log_level)
    program = shutil.which(given.program)
    if program is None:
        log.critical("%s is not here: the driver's compute part is missing", given.program)
        return 1
    try:
        keeper = Keeper(given.run_dir / FOLDER_NAME, program, own_shm=not given.shared_shm)
        door = KeeperDoor(given.run_dir / SOCKET_NAME, keeper)
    except OSError as error:
        log.critical("%s", error)
        return 1
    when_told_to_end(lambda _number: threading.Thread(target=door.stop).start())
    log.info("MPS daemons are kept for the agent at %s", door.path)
    door.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
