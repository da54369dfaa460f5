"""What agent and keeper say to each other, and what a container under an MPS server gets. Pure.

A keeper runs the control daemons, in a process that outlives the agent's. Each daemon has a folder::

    <run-dir>/mps/<card UUID>/pipe   where programs find it; a mount of their containers, and of no others
                             /shm    their /dev/shm, which server and programs share
                             /log    the daemon's own
                             /owner  the namespace

Only the host's root reaches the folders. Source: NVIDIA's pages on MPS (interface of version 2) and its
manual page. Not run on hardware.
"""

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.servers import MpsError

FOLDER_NAME: Final = "mps"
SOCKET_NAME: Final = "mps.sock"
"""Both below the folder that is the same on the host, in the agent and in the keeper."""
PIPE_PATH: Final = "/run/egpu/mps"
SHM_PATH: Final = "/dev/shm"  # noqa: S108 - the container's
FAULT: Final = "FAULT"
"""A server's status: it waits until all of its programs have ended, and takes no new ones."""
LONGEST: Final = 1 << 20
_WRITABLE: Final = ("rw", "nosuid", "nodev", "noexec", "bind")


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Server(_Wire):
    """One MPS server, by host PIDs."""

    pid: int
    status: str = ""
    """``INITIALIZING``, ``ACTIVE`` or :data:`FAULT`, as the daemon says it."""
    clients: tuple[int, ...] = ()


class Daemon(_Wire):
    """One control daemon, and its servers."""

    uuid: str
    """The card."""
    namespace: str
    servers: tuple[Server, ...] = ()
    silent: str = ""
    """Why it does not answer; empty: it does."""

    @property
    def faulted(self) -> bool:
        """Whether a fault ended its programs, and some have not left yet."""
        return any(server.status == FAULT for server in self.servers)

    @property
    def clients(self) -> tuple[int, ...]:
        """Host PIDs of all programs."""
        return tuple(pid for server in self.servers for pid in server.clients)


class Ask(_Wire):
    """``serve``: there shall be a daemon for that namespace on the card. ``look``: what there is. ``end``:
    the daemon ends, if no program is left. ``let-go``: what these programs have on the card is taken from
    them, so that others feel nothing of their end."""

    do: Literal["serve", "look", "end", "let-go"]
    uuid: str = ""
    namespace: str = ""
    pids: tuple[int, ...] = ()


class Answer(_Wire):
    """``error``: why it was not done; empty: it was."""

    error: str = ""
    daemons: tuple[Daemon, ...] = ()


def read_ask(line: bytes) -> Ask:
    """Raises :class:`MpsError`."""
    try:
        return Ask.model_validate_json(line)
    except ValidationError as error:
        raise MpsError(f"no question of an agent: {error.errors()[0]['msg']}") from error


def read_answer(line: bytes) -> Answer:
    """Raises :class:`MpsError`."""
    try:
        return Answer.model_validate_json(line)
    except ValidationError as error:
        raise MpsError(f"its answer cannot be read: {error.errors()[0]['msg']}") from error


def numbers(text: str) -> tuple[int, ...]:
    """The PIDs in what a daemon printed, one a line. Other lines are words for people."""
    return tuple(
        int(line) for line in map(str.strip, text.splitlines()) if line.isascii() and line.isdecimal()
    )


def edits(grant: Grant, run_dir: Path) -> dict[str, Any]:
    """Environment and mounts of a container with one share under MPS."""
    (share,) = grant.shares
    folder = run_dir / FOLDER_NAME / share.uuid
    env = [
        f"CUDA_MPS_PIPE_DIRECTORY={PIPE_PATH}",
        f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={share.memory_mib}M",
    ]
    if share.cores:
        env.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={share.cores}")
    mounts = [
        {"hostPath": str(folder / name), "containerPath": path, "options": list(_WRITABLE)}
        for name, path in (("pipe", PIPE_PATH), ("shm", SHM_PATH))
    ]
    return {"env": env, "mounts": mounts}
