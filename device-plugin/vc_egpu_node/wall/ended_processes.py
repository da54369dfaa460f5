"""Usage pages without what processes that ended left there.

The library in the container clears the slots of the dead when memory is asked for or told of. Until the next
program comes, the last one's memory would count as charged. Managed or shared memory of no living process
would keep its pod from being suspended. So the agent reads past it.

The library cannot judge processes of another PID namespace than its own. A sandbox in the container may have
left such slots, or an earlier start of the container. They would count for ever. So the agent tells the
library which of them it may judge.

In doubt a slot counts: a process without a start time, or one whose pod shows no process at all. The latter
happens where the agent does not see the host's processes.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import ContainerOfProcess, Host
from vc_egpu_node.isolation.accounts import Slot, Usage
from vc_egpu_node.isolation.unseen_memory import Shown, owner_of

AGAIN_S: Final = 10.0
"""All processes of the host are read no more often: a container may write of a new one at each look."""
Key = tuple[str, int]
"""(name of the container, owner as its slot names it)."""


class EndedProcesses:
    """One thread calls it."""

    def __init__(self, hosts: ContainerOfProcess, clock: Callable[[], float] = time.monotonic) -> None:
        self._hosts = hosts
        self._clock = clock
        self._found: dict[Key, tuple[int, int] | None] = {}
        """(PID on the host, start) of each process that was looked for; None: it has ended."""
        self._walked_s = float("-inf")
        self.foreign: Mapping[str, list[int]] = {}
        """By container: places of slots of the dead that say of which PID namespace they are."""

    def without(
        self, usages: Mapping[str, Usage | None], grants: Iterable[Grant], shown: Shown
    ) -> dict[str, Usage | None]:
        """The pages by container, without slots of the dead. ``shown``: the processes that the driver names
        now; all of them live. The pages must have been read before."""
        pods = {grant.name: grant.pod_uid for grant in grants}
        listed = {
            (name, pid, ticks & 0xFFFFFFFF)
            for (name, _uuid), processes in shown.items()
            for pid, ticks in processes
        }
        doubtful = {
            (name, owner_of(slot)): slot
            for name, usage in usages.items()
            for slot in (usage.claiming() if usage is not None else ())
            if slot.start_ticks and (name, slot.pid, slot.start_ticks) not in listed
        }
        self._found = {key: process for key, process in self._found.items() if key in doubtful}
        for key, process in self._found.items():
            if process is not None and not self._hosts.lives(*process):
                self._found[key] = None
        self._look_for({key: slot for key, slot in doubtful.items() if key not in self._found}, pods)
        dead: dict[str, set[int]] = {}
        foreign: dict[str, list[int]] = {}
        for key, slot in doubtful.items():
            if self._found.get(key, ()) is None:
                dead.setdefault(key[0], set()).add(slot.index)
                if slot.namespace:
                    foreign.setdefault(key[0], []).append(slot.index)
        self.foreign = foreign
        return {
            name: usage.without(dead[name]) if usage is not None and name in dead else usage
            for name, usage in usages.items()
        }

    def _look_for(self, unknown: Mapping[Key, Slot], pods: Mapping[str, str]) -> None:
        now_s = self._clock()
        if not unknown or now_s - self._walked_s < AGAIN_S:
            return
        self._walked_s = now_s
        # By what slots name: a container may write many of them and have many processes.
        of_pod: dict[str, dict[tuple[int, int], Host]] = {}
        for host in self._hosts.living():
            named = (host.own_pid, host.start_ticks & 0xFFFFFFFF)
            of_pod.setdefault(host.pod_uid, {}).setdefault(named, host)
        for key, slot in unknown.items():
            hosts = of_pod.get(pods.get(key[0], ""))
            if hosts:
                same = hosts.get((slot.pid, slot.start_ticks))
                self._found[key] = (same.pid, same.start_ticks) if same is not None else None
