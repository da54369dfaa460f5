"""On what it is played: which stack, beside what."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from localcluster import LocalCluster
from stack.install import ISOLATED, OVERLAY, VOLCANO, VOLCANO_ISOLATED, Stack
from volcano.conf import ConfName
from volcano.processes import Volcano, VolcanoProcesses

KUBERNETES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True)
class Ground:
    """An installed stack and what is beside it."""

    stack: Stack
    programs: bool = False
    """There is a (fake) driver in containers: what runs there can be suspended."""
    volcano: VolcanoProcesses | None = None
    """Unmodified Volcano; without it our own Job controller."""

    @classmethod
    def lay(
        cls, cluster: LocalCluster, *, isolated: bool, conf: ConfName | None, say: Callable[[str], None]
    ) -> Self:
        """Install; ``conf`` names Volcano's configuration where its programs are to be there.

        ``VC_EGPU_E2E_CLUSTER``: what is installed already is used.
        """
        if os.environ.get("VC_EGPU_E2E_CLUSTER"):
            return cls(Stack.of(cluster), isolated)
        if conf is None:
            overlay = ISOLATED if isolated else OVERLAY
            return cls(Stack.install(cluster, overlay=overlay, say=say), isolated)
        volcano = Volcano.from_environment()
        volcano.install_crds(cluster)
        processes = VolcanoProcesses.of(cluster, volcano, conf)
        processes.start()
        overlay = VOLCANO_ISOLATED if isolated else VOLCANO
        return cls(Stack.install(cluster, overlay=overlay, say=say), isolated, processes)

    def revive(self) -> list[str]:
        """Start programs that ended by themselves, as who supervises them would; their names.

        The kube-scheduler does so where a pod comes back under its name while it sees nothing.
        """
        ended = []
        for name in KUBERNETES:
            part = self.stack.cluster.component(name)
            if not part.process.alive():
                part.start()
                ended.append(name)
        if self.volcano is not None:
            for process in (self.volcano.controllers, self.volcano.scheduler):
                if not process.alive:
                    process.start()
                    ended.append(process.name)
        return ended
