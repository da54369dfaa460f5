"""Which container a process on a card belongs to: host PID to cgroup to pod and container id."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vc_egpu_node.pods import PodView
from vc_egpu_node.vendors.base import ProcessSample

_CONTAINER_ID: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Use:
    """What one container uses of one card."""

    namespace: str
    pod: str
    container: str
    uuid: str
    memory_mib: int
    sm_percent: int


class ContainerOfProcess:
    """Looks PIDs up in the host's process tree."""

    def __init__(self, proc_dir: Path) -> None:
        self._proc_dir = proc_dir

    def container_id(self, pid: int) -> str | None:
        """64 hex digits, or None for a process that is in no container (or is gone)."""
        try:
            text = (self._proc_dir / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        found = _CONTAINER_ID.findall(text)
        return found[-1] if found else None

    def uses(
        self, processes: Mapping[str, Iterable[ProcessSample]], pods: Iterable[PodView]
    ) -> tuple[Use, ...]:
        """Memory and compute by container and card; processes outside of this node's pods are left out."""
        owners = {identity: (pod, name) for pod in pods for identity, name in pod.containers.items()}
        sums: dict[tuple[str, str, str, str], tuple[int, int]] = {}
        for uuid, samples in processes.items():
            for sample in samples:
                identity = self.container_id(sample.pid)
                if identity is None or identity not in owners:
                    continue
                pod, name = owners[identity]
                key = (pod.namespace, pod.name, name, uuid)
                memory_mib, percent = sums.get(key, (0, 0))
                sums[key] = (memory_mib + sample.memory_mib, percent + sample.sm_percent)
        return tuple(Use(*key, *value) for key, value in sorted(sums.items()))
