"""To which containers the processes on the cards belong, and what the containers' libraries know of them."""

from collections.abc import Iterable, Mapping
from typing import Final

from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import ContainerOfProcess, Host
from vc_egpu_node.isolation.accounts import Usage
from vc_egpu_node.isolation.unseen_memory import Process, Shown
from vc_egpu_node.wall.offences import Seen

MIB: Final = 1024 * 1024


class OwnersOfProcesses:
    """One thread calls it."""

    def __init__(self, hosts: ContainerOfProcess) -> None:
        self._hosts = hosts
        self._tells_host_pids = False
        """Whether the driver tells PIDs of the host. It does once it told a container's process, on a card
        of that container, by a number that differs inside. Then a number that no process of the host has
        belongs to a dead process, not to one inside a container."""

    def look(
        self,
        observation: Observation,
        grants: Iterable[Grant],
        views: Iterable[PodView],
        usages: Mapping[str, Usage | None],
    ) -> tuple[list[Seen], Shown]:
        """Processes of pods, and the bytes of each by container and card. ``usages``: by container with a
        page that can be read."""
        samples = [(uuid, one) for uuid, several in observation.processes.items() for one in several]
        pods = {pod.uid: pod for pod in views}
        by_container = {(one.pod_uid, one.container): one for one in grants}
        hosts = self._hosts.hosts((one.pid for _, one in samples), inner=not self._tells_host_pids)
        found = []
        for uuid, sample in samples:
            host = hosts.get(sample.pid)
            pod = pods.get(host.pod_uid) if host is not None else None
            container = container_of(host, pod, by_container) if host and pod else None
            if host is None or pod is None or container is None:
                continue
            grant = by_container.get((pod.uid, container))
            if grant is not None and sample.pid == host.pid != host.own_pid:
                self._tells_host_pids |= any(share.uuid == uuid for share in grant.shares)
            registered = None
            if grant is not None and grant.name in usages:
                registered = _registered(grant, uuid, host, usages[grant.name])
            owner = grant.name if grant is not None else f"{pod.namespace}/{pod.name}/{container}/{pod.uid}"
            numbers = (host.pid, host.start_ticks, sample.memory_mib, sample.sm_percent)
            found.append((sample.pid, Seen(uuid, *numbers, owner, registered, mps=sample.through == "mps")))
        seen = [one for told, one in found if told == one.pid or not self._tells_host_pids]
        return seen, _shown(seen, {host.pid: host for host in hosts.values()})


def _shown(seen: Iterable[Seen], hosts: Mapping[int, Host]) -> Shown:
    """What goes through an MPS server is the server's as much as the program's: it is left out."""
    shown: dict[tuple[str, str], dict[Process, int]] = {}
    for one in seen:
        if not one.mps:
            processes = shown.setdefault((one.owner, one.uuid), {})
            process = (hosts[one.pid].own_pid, one.start_ticks)
            processes[process] = processes.get(process, 0) + one.memory_mib * MIB
    return shown


def container_of(host: Host, pod: PodView, granted: Iterable[tuple[str, str]]) -> str | None:
    """Name of the container that a process belongs to. The pod's status may not name a container that has
    just begun. Then it is the one container with cards that the status does not name, if there is only one.
    """
    known = pod.containers.get(host.container_id)
    if known is not None:
        return known
    missing = [name for uid, name in granted if uid == pod.uid and name not in pod.containers.values()]
    return missing[0] if len(missing) == 1 else None


def _registered(grant: Grant, uuid: str, host: Host, usage: Usage | None) -> bool:
    card = next((index for index, share in enumerate(grant.shares) if share.uuid == uuid), None)
    if usage is None or card is None:
        return False
    slot = usage.slot_of(host.own_pid, host.start_ticks)
    return slot is not None and slot.uses(card)
