"""The agent's part in time that MPS shares.

It has a server started before a container starts. Every two seconds it looks at all of them, and ends those
that nobody needs.

After a fault a server takes no new programs until the old ones have ended. So long its card is ill, and all
pods that fell with it are named.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import Host
from vc_egpu_node.containers.servers import MpsError
from vc_egpu_node.mps.words import LONGEST, SOCKET_NAME, Answer, Ask, Daemon, edits, read_answer

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
LET_GO_S: Final = 5.0
"""So long before a pod is killed, what its programs have on the card is taken from them."""
_PATIENCE_S: Final = 20.0
FAULTED: Final = "MpsFault"
NAMED: Final = 12
"""Pods that a sentence names at most."""


class Link:
    """The keeper's socket."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / SOCKET_NAME

    def is_there(self) -> bool:
        """Whether some keeper has made it."""
        return self._path.exists()

    def ask(self, ask: Ask) -> Answer:
        """Raises :class:`MpsError` where nobody answers, or where it was not done."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(_PATIENCE_S)
                line.connect(str(self._path))
                line.sendall(ask.model_dump_json().encode() + b"\n")
                with line.makefile("rb") as told:
                    answer = read_answer(told.readline(LONGEST))
        except OSError as error:
            raise MpsError(f"no MPS keeper answers at {self._path} (components/mps): {error}") from error
        if answer.error:
            raise MpsError(answer.error)
        return answer


class Hosts(Protocol):
    """:class:`vc_egpu_node.containers.processes.ContainerOfProcess`."""

    def hosts(self, pids: Iterable[int], *, inner: bool = True) -> dict[int, Host]:
        """Processes by the PIDs that were told."""


class MpsRoom:
    """See the module. Thread-safe."""

    def __init__(
        self,
        run_dir: Path,
        *,
        pods: Callable[[], Iterable[PodView]],
        hosts: Hosts,
        tell: Callable[[str, str, str, str, str], None],
        count: Callable[[], None],
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``tell``: namespace, pod, UID, reason and text of an event. ``count``: one more fault.
        ``clock``: Unix time."""
        self._run_dir = run_dir
        self._link = Link(run_dir)
        self._pods = pods
        self._hosts = hosts
        self._tell = tell
        self._count = count
        self._on_change = on_change
        self._clock = clock
        self._wanted: Callable[[], bool] = lambda: False
        self._grants: Callable[[], Iterable[Grant]] = tuple
        self._lock = threading.Lock()
        self._faults: dict[str, str] = {}
        self._daemons: tuple[Daemon, ...] = ()
        self._served: set[str] = set()
        """Cards that had a daemon when they were last seen."""
        self._trouble = "no MPS keeper was asked yet"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mps", daemon=True)

    # --- what others see ---------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Why no container can have an MPS server here; empty: it can."""
        return self._trouble

    @property
    def faults(self) -> Mapping[str, str]:
        """By card UUID: which pods fell with its server. Until their programs have ended."""
        return self._faults

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        """As last seen."""
        return self._daemons

    # --- a container's life ------------------------------------------------------------------------

    def prepare(self, grant: Grant) -> dict[str, Any]:
        """Have its card served, and say what the container needs for it. Raises :class:`MpsError`."""
        if grant.compute != "mps":
            return {}
        (share,) = grant.shares
        with self._lock:
            self._link.ask(Ask(do="serve", uuid=share.uuid, namespace=grant.namespace))
            self._served.add(share.uuid)
        return edits(grant, self._run_dir)

    def record(self, grant: Grant) -> dict[str, Any]:
        """What a container that runs was given."""
        return edits(grant, self._run_dir) if grant.compute == "mps" else {}

    # --- the look ----------------------------------------------------------------------------------

    def start(self, grants: Callable[[], Iterable[Grant]], wanted: Callable[[], bool]) -> None:
        """Begin to look. ``wanted``: the node's policy wants MPS."""
        self._grants, self._wanted = grants, wanted
        self._served = set(_by_card(grants()))
        self._thread.start()

    def stop(self) -> None:
        """Servers and programs stay as they are."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(LOOK_S + 1)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look(self._grants, wanted=self._wanted())
            except Exception:
                log.exception("a fault of ours; MPS servers are looked at again")
            self._stopping.wait(LOOK_S)

    def look(self, grants: Callable[[], Iterable[Grant]], *, wanted: bool) -> None:
        """One turn. Without pods under MPS, a wish for it, and a keeper, nobody is asked."""
        before = (self._trouble, self._faults)
        with self._lock:
            here = _by_card(grants())
            if here or wanted or self._link.is_there():
                self._turn(here)
        if before != (self._trouble, self._faults):
            self._on_change()

    def _turn(self, here: Mapping[str, list[Grant]]) -> None:
        try:
            self._daemons = self._link.ask(Ask(do="look")).daemons
        except MpsError as error:
            self._trouble = str(error)
            return
        self._trouble = ""
        daemons = {daemon.uuid: daemon for daemon in self._daemons}
        faults = {}
        for uuid, grants in sorted(here.items()):
            daemon = daemons.get(uuid)
            if daemon is None or daemon.silent:
                self._serve_again(uuid, grants)
                continue
            self._served.add(uuid)
            if daemon.faulted:
                faults[uuid] = _fell(uuid, grants)
                if uuid not in self._faults:
                    self._say(grants, faults[uuid])
        self._faults = faults
        self._let_go(daemons, here)
        self._served &= here.keys()
        for uuid in daemons.keys() - here.keys():
            self._try(Ask(do="end", uuid=uuid))

    def _serve_again(self, uuid: str, grants: list[Grant]) -> None:
        """The daemon is gone, and with it all programs there. Containers that start again need one. Where
        none was there yet, a container is about to start."""
        if uuid in self._served:
            self._served.discard(uuid)
            self._say(grants, f"the MPS daemon is gone; {_fell(uuid, grants)}")
        self._try(Ask(do="serve", uuid=uuid, namespace=grants[0].namespace))

    def _say(self, grants: list[Grant], text: str) -> None:
        log.error("%s", text)
        self._count()
        told = {(one.namespace, one.pod, one.pod_uid) for one in grants}
        for namespace, pod, uid in sorted(told):
            self._tell(namespace, pod, uid, FAULTED, text)

    def _let_go(self, daemons: Mapping[str, Daemon], here: Mapping[str, list[Grant]]) -> None:
        """A program that is killed in the midst of work may end its neighbours. So what has not ended shortly
        before its pod is killed lets go of the card first."""
        soon_s = self._clock() + LET_GO_S
        leaving = {pod.uid for pod in self._pods() if pod.terminating and pod.gone_by_s <= soon_s}
        for uuid, daemon in sorted(daemons.items()):
            if not leaving & {one.pod_uid for one in here.get(uuid, ())}:
                continue
            hosts = self._hosts.hosts(daemon.clients, inner=False)
            pids = tuple(sorted(pid for pid, host in hosts.items() if host.pod_uid in leaving))
            if pids:
                self._try(Ask(do="let-go", uuid=uuid, pids=pids))

    def _try(self, ask: Ask) -> None:
        try:
            self._link.ask(ask)
        except MpsError as error:
            log.warning("%s", error)


def without_servers(seen: Observation, daemons: Iterable[Daemon]) -> Observation:
    """The cards without the servers' own processes, which no container answers for."""
    servers = {server.pid for daemon in daemons for server in daemon.servers}
    if not servers:
        return seen
    kept = {
        uuid: tuple(one for one in several if one.pid not in servers)
        for uuid, several in seen.processes.items()
    }
    return replace(seen, processes=kept)


def _by_card(grants: Iterable[Grant]) -> dict[str, list[Grant]]:
    """Grants under MPS."""
    found: dict[str, list[Grant]] = {}
    for grant in grants:
        for share in grant.shares if grant.compute == "mps" else ():
            found.setdefault(share.uuid, []).append(grant)
    return found


def _fell(uuid: str, grants: Iterable[Grant]) -> str:
    names = sorted({f"{one.namespace}/{one.pod}" for one in grants})
    more = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    return f"the MPS server of card {uuid} failed, and with it fell {', '.join(names[:NAMED])}{more}"
