"""One control daemon: started in a mount namespace of its own, asked by its own program, ended when empty."""

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vc_egpu_node.containers.servers import MpsError
from vc_egpu_node.mps.words import Daemon, Server, numbers

log = logging.getLogger(__name__)

CONTROL: Final = "nvidia-cuda-mps-control"
OWNER_NAME: Final = "owner"
BEGIN_S: Final = 15.0
"""A daemon that does not answer after so long is given up."""
ASK_S: Final = 5.0
END_S: Final = 20.0
"""The daemon itself gives its servers half of it."""
_LOOK_AGAIN_S: Final = 0.05
OWN_SHM: Final = (sys.executable, "-m", "vc_egpu_node.mps.own_shm")
"""Before a folder and a command: the command sees the folder as ``/dev/shm``, and nobody else does."""


class Control:
    """The daemon of one card. One thread at a time."""

    def __init__(self, folder: Path, program: str, before: Sequence[str]) -> None:
        """``folder``: the card's. ``before``: see :data:`OWN_SHM`; empty: all share one."""
        self.folder = folder
        self._program = program
        self._before = before
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uuid(self) -> str:
        """The card."""
        return self.folder.name

    @property
    def namespace(self) -> str:
        """Whose it is; empty: nobody's."""
        try:
            return (self.folder / OWNER_NAME).read_text(encoding="utf-8")
        except OSError:
            return ""

    def serve(self, namespace: str) -> None:
        """Have it run for that namespace. Raises :class:`MpsError` and ``OSError``."""
        owner = self.namespace
        if owner and owner != namespace:
            raise MpsError(f"card {self.uuid} is served for namespace {owner}")
        if owner and not self.silent():
            return
        self._stop()
        self._make_folders()
        command = [self._program, "-f"]
        if self._before:
            command = [*self._before, str(self.folder / "shm"), *command]
        self._process = subprocess.Popen(
            command, env=self._environment(), stdin=subprocess.DEVNULL, start_new_session=True
        )
        until_s = time.monotonic() + BEGIN_S
        while why := self.silent():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > until_s:
                self._stop()
                raise MpsError(f"the MPS control daemon of card {self.uuid} does not answer: {why}")
            time.sleep(_LOOK_AGAIN_S)
        (self.folder / OWNER_NAME).write_text(namespace, encoding="utf-8")
        log.info("card %s is served for namespace %s", self.uuid, namespace)

    def silent(self) -> str:
        """Why it does not answer; empty: it does."""
        try:
            self._ask("get_server_list")
        except MpsError as error:
            return str(error)
        return ""

    def look(self) -> Daemon:
        """What it has now."""
        try:
            servers = tuple(
                Server(
                    pid=pid,
                    status=self._ask(f"get_server_status {pid}").strip().upper(),
                    clients=numbers(self._ask(f"get_client_list {pid}")),
                )
                for pid in numbers(self._ask("get_server_list"))
            )
        except MpsError as error:
            return Daemon(uuid=self.uuid, namespace=self.namespace, silent=str(error))
        return Daemon(uuid=self.uuid, namespace=self.namespace, servers=servers)

    def let_go(self, pids: Sequence[int]) -> None:
        """Take what these programs have on the card from them. Raises :class:`MpsError`."""
        for server in self.look().servers:
            for pid in sorted({*pids} & {*server.clients}):
                self._ask(f"terminate_client {server.pid} {pid}")

    def end(self) -> None:
        """End it, where no program is left. Raises :class:`MpsError`."""
        clients = self.look().clients
        if clients:
            raise MpsError(f"card {self.uuid} still serves {len(clients)} programs")
        try:
            self._ask(f"quit -t {END_S / 2:.0f}", END_S)
        except MpsError as error:
            log.warning("%s", error)
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self) -> None:
        """See the end of the process, if it is a child of this one."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(0 if process.poll() is not None else ASK_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(ASK_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _make_folders(self) -> None:
        """Those that are there stay: containers have them mounted."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, mode in (("pipe", 0o777), ("shm", 0o1777), ("log", 0o700)):
            path = self.folder / name
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        for left in (self.folder / "pipe").iterdir():
            left.unlink(missing_ok=True)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": self.uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log"),
        }

    def _ask(self, command: str, timeout_s: float = ASK_S) -> str:
        """What it prints. Raises :class:`MpsError`."""
        if not (self.folder / "pipe").is_dir():
            raise MpsError("it was not started")
        try:
            ran = subprocess.run(
                [self._program],
                input=command + "\n",
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
                env=self._environment(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsError(f"{command}: {error}") from error
        if ran.returncode:
            said = " ".join((ran.stderr or ran.stdout).split())[:200]
            raise MpsError(f"{command}: exit code {ran.returncode}: {said}")
        return ran.stdout
