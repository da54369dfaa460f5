"""A real API server in place of the simulator's cluster, for a day that is played on it in fast motion.

Time stands still while the controllers work. It goes on when the leading admission controller has nothing to
do any more: the same decision on the leader's own snapshot plans nothing.
"""

import time
import urllib.request
from dataclasses import dataclass, field
from typing import Final

from localcluster.api import wait_until
from outcomes.workload import container, pod_spec, shares
from stack.kit import StoryError
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import CardAsk, Gang, Pod, PodPhase, ShareClass, Snapshot
from vc_egpu.core.model.gangs import OVER
from vc_egpu.core.model.policy import Policy
from vc_egpu.kube.resources import VOLCANO_JOBS
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.report import snapshot_codec
from vc_egpu.sim.world import Tasks
from vc_egpu.volcano.words import names

from rigs.one_team import NAMESPACE, OneTeam
from rigs.volcano_job import volcano_job

SETTLED_S: Final = 120.0
_AGAIN: Final = {"maxRetry": 1000, "policies": [{"event": "PodEvicted", "action": "RestartJob"}]}
_PRIORITY: Final = {ShareClass.HIGH: "high", ShareClass.LOW: "low"}


@dataclass
class RealCluster:
    """Each gang is a Volcano Job of the team; what the player of a day asks of a cluster."""

    team: OneTeam
    now: float = 0.0
    """Seconds of the day."""
    settled: int = 0
    """How often the controllers were waited for."""
    _members: dict[str, int] = field(default_factory=dict)
    _changed: bool = True
    _pods: dict[str, list[Pod]] = field(default_factory=dict)

    def submit(self, gang: Gang, tasks: Tasks) -> None:
        """Make the Job."""
        ((_, members, shape),) = tasks
        (ask,) = shape.asks
        priority = _PRIORITY.get(gang.share_class, "")
        template = {
            "metadata": {"annotations": {names.PRIORITY: priority} if priority else {}},
            "spec": pod_spec(container(limits=_limits(ask))) | {"restartPolicy": "Never"},
        }
        body = volcano_job(_name(gang.key), "team", members, template, **_AGAIN)
        body["metadata"]["namespace"] = NAMESPACE
        self.team.stack.kit.api.create(VOLCANO_JOBS, body)
        self._members[gang.key] = members
        self._changed = True

    def finish(self, key: str) -> None:
        """It is done: its Job goes."""
        try:
            self.team.stack.kit.api.delete(VOLCANO_JOBS, _name(key), NAMESPACE)
        except KubeError as error:
            raise StoryError(f"{key} cannot be removed: {error}") from error
        del self._members[key]
        self._changed = True

    def tick(self, seconds: float) -> None:
        """Let time of the day pass."""
        self.now += seconds

    def settle(self) -> None:
        """Wait until all that was asked for is decided and done."""
        if not self._changed:
            return
        wait_until("the controllers have nothing to do", self._look, SETTLED_S, self.team.stack.check_alive)
        self._changed = False
        self.settled += 1

    def pods_of(self, key: str) -> list[Pod]:
        """As they stood when all was settled."""
        return self._pods.get(key, [])

    def _look(self) -> bool:
        snapshot = self._snapshot()
        found: dict[str, list[Pod]] = {key: [] for key in self._members}
        by_name = {_name(key): key for key in self._members}
        for pod in snapshot.pods.values():
            if pod.namespace != NAMESPACE or pod.phase in OVER:
                continue
            key = by_name.get(pod.name.rpartition("-w-")[0])
            if key is None or pod.phase is PodPhase.TERMINATING or pod.gang not in snapshot.gangs:
                return False
            found[key].append(pod)
        self._pods = found
        complete = all(len(found[key]) == members for key, members in self._members.items())
        return complete and _has_nothing_to_do(snapshot)

    def _snapshot(self) -> Snapshot:
        port = self.team.stack.ports["admission"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/snapshot", timeout=10) as answer:
            return snapshot_codec.from_json(answer.read())


def _has_nothing_to_do(snapshot: Snapshot) -> bool:
    if any(gang.plan is not None for gang in snapshot.gangs.values()):
        return False
    plan = decide(snapshot, Policy(), time.time())
    return not (plan.admissions or plan.withdrawals or plan.ready or plan.evictions or plan.suspensions)


def _limits(ask: CardAsk) -> dict[str, int]:
    if ask.whole:
        return dict(shares())
    return dict(shares(ask.memory_mib, ask.cores_percent))


def _name(key: str) -> str:
    """``train/train-3`` is the Job ``train-train-3``."""
    return key.replace("/", "-")
