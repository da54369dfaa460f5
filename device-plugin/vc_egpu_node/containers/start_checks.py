"""Whether containers were started as their CDI specs say.

A runtime in which CDI is switched off (containerd 1.7 by default) starts a container without the edits that
it was asked for. The container has no cards, or no limits where it finds cards in another way. Neither
kubelet nor user is told. But the agent can see from outside what is mounted in a container.

It is no proof: programs in a container can have mounts of their own, a sandbox's or to do harm. So it counts
only where the runtime may have CDI off.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from vc_egpu.core.model.words import few

from vc_egpu_node.api.notices import PodEvents
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.cdi import LIMITS_FOLDER, Grant
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.containers.runtime import may_lack_cdi

log = logging.getLogger(__name__)

LOOKS: Final = 3
"""A container of which no process can be seen (in a virtual machine) is looked for so often."""


class StartChecks:
    """Looks at each container once, soon after it began: later its programs may have mounted what they like.
    One thread calls it."""

    def __init__(self, hosts: ContainerOfProcess, events: PodEvents, runtime_configs: Sequence[Path]) -> None:
        self._hosts = hosts
        self._configs = runtime_configs
        self._events = events
        self._right: dict[str, bool] = {}
        """By container id."""
        self._looks: dict[str, int] = {}

    def look(self, grants: Iterable[Grant], pods: Iterable[PodView], runtime: str) -> str:
        """Why no container may start here, or an empty text: containers run that were started without their
        edits. ``runtime`` is its name and version."""
        running = _running(grants, pods)
        self._right = {one: right for one, right in self._right.items() if one in running}
        self._looks = {one: number for one, number in self._looks.items() if one in running}
        new = {one for one in running if one not in self._right and self._looks.get(one, 0) < LOOKS}
        if new:
            self._judge(new, running, runtime)
        wrong = sorted({f"{pod.namespace}/{pod.name}" for one, (pod, _) in running.items()
                        if not self._right.get(one, True)})  # fmt: skip
        if not wrong:
            return ""
        return (
            f"{runtime} starts containers without their cards and limits: CDI is off there. Switch it on "
            f"(enable_cdi = true), restart it, delete these pods: {few(wrong)}"
        )

    def _judge(self, new: Iterable[str], running: dict[str, tuple[PodView, str]], runtime: str) -> None:
        mounted = self._hosts.mounted(frozenset(new))
        for one in new:
            self._looks[one] = self._looks.get(one, 0) + 1
            if one not in mounted:
                continue
            self._right[one] = LIMITS_FOLDER in mounted[one] or not may_lack_cdi(self._configs, runtime)
            if not self._right[one]:
                pod, container = running[one]
                text = f"{container}: {runtime} started it without its cards and limits: CDI is off there"
                log.error("%s/%s: %s", pod.namespace, pod.name, text)
                self._events.warn(pod.namespace, pod.name, pod.uid, "StartedWithoutCards", text)


def _running(grants: Iterable[Grant], pods: Iterable[PodView]) -> dict[str, tuple[PodView, str]]:
    """Containers with cards that run, by id: pod and name."""
    granted = {(grant.pod_uid, grant.container) for grant in grants}
    return {
        identity: (pod, name)
        for pod in pods
        for identity, name in pod.containers.items()
        if name in pod.running and (pod.uid, name) in granted
    }
