"""Cards won back on the full openb cluster for each pod that moves: three rules on the same begin.

The begin is the published protocol up to 100 % arrived (:mod:`vc_egpu.sim.openb`). Then one rule may move
pods. After that the pods that were dropped are offered again, in the order in which they came, and what is
placed of them stays.

``nothing``   no pod moves.
``authors``   the descheduler of the simulator in which the trace was published, by its rule ``fragMultiPod``.
              Of the node with the largest fragment the pod goes without which the fragment is smallest, again
              and again, up to a part of all pods. Then all that went are placed in that order. Fragments are
              those of FGD for usual pods. This is our own writing of it: each further pod of a node is judged
              without those that went before.
``fragments`` ours, for less that is left over: up to the same number of pods, each with its new place first.
``waiting``   ours, for gangs that wait: each dropped pod may have others moved, all of which find a place.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import Gang, PodPhase, PodUid, ShareClass, Snapshot
from vc_egpu.core.model.policy import FGD, OURS, Mix, Moving, Policy
from vc_egpu.core.placing.learning import kind_of
from vc_egpu.core.placing.outlook import outlook_of
from vc_egpu.core.placing.scores import FGD_RULE
from vc_egpu.core.trial.trial import Trial
from vc_egpu.sim.load import Work
from vc_egpu.sim.openb import KNOWS_THE_MIX, Trace, mix_of
from vc_egpu.sim.replay import Replay, Terms
from vc_egpu.sim.table import CARD_MILLI
from vc_egpu.whatif.hypothesis import Hypothesis
from vc_egpu.whatif.moves import carry_out

RULES: Final = ("nothing", "authors", "fragments", "waiting")
_ENDLESS: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Begin:
    """The cluster at 100 % arrived."""

    snapshot: Snapshot
    policy: Policy
    mix: Mix
    """How often each class of pods comes in the trace."""
    dropped: tuple[Work, ...]
    held_milli: int
    cards_milli: int

    @property
    def pods(self) -> int:
        """Those that run on cards."""
        return sum(1 for pod in self.snapshot.pods.values() if pod.phase is PodPhase.PLACED and pod.shares)


def begin(folder: Path, name: str, seed: int, placement: str) -> Begin:
    """Fill the cluster by a placement policy. All pods are of low priority, so that any may move."""
    trace = Trace.of(folder, name)
    load, known = trace.load(seed), mix_of(trace.pod_rows())
    all_milli = CARD_MILLI * sum(len(node.cards) for node in load.nodes)
    works: list[Work] = []
    arrived = 0
    for work in load.works:
        if arrived >= all_milli:
            break
        works.append(replace(work, share_class=ShareClass.LOW))
        arrived += work.gpu_milli
    mix = known if placement in KNOWS_THE_MIX else None
    replay = Replay(
        replace(load, works=tuple(works)), Terms(placement, waits=False, mix=mix, preemption=False)
    )
    replay.run()
    snapshot = replay.world.snapshot()
    dropped = tuple(work for work in works if work.key not in snapshot.gangs and work.gpu_milli)
    moving = Moving(per_hour=_ENDLESS, after_s=0.0, least_won_milli=1)
    policy = replace(replay.world.policy, preemption=True, min_runtime_s=0.0, moving=moving)
    return Begin(snapshot, policy, known, dropped, replay.totals.held_milli, all_milli)


@dataclass(slots=True)
class _Cluster:
    """The begin, and what a rule makes of it."""

    paper: Hypothesis
    begun: Begin
    moved: int = 0
    held_milli: int = 0
    lost: int = 0

    @classmethod
    def of(cls, begun: Begin) -> "_Cluster":
        paper = Hypothesis(begun.snapshot, begun.policy, 1e6)
        return cls(paper, begun, held_milli=begun.held_milli)

    def offer(self, work: Work) -> bool:
        """Whether the pod finds a place. It is gone otherwise."""
        gang = Gang(work.key, work.key, work.queue, work.share_class, 0, 1, 0.0)
        self.paper.submit(gang, work.tasks)
        only = None if self.paper.policy.moving.on else {work.key}
        plan = self.paper.decide(only)
        for key, move in plan.moves.items():
            if move.places:
                self.moved += len(move.pods)
                carry_out(self.paper, key, move)
        if plan.moves:
            plan = self.paper.decide({work.key})
        admission = next((one for one in plan.admissions if one.gang == work.key), None)
        if admission is None:
            self.paper.end(work.key)
            return False
        self.paper.start(admission)
        self.held_milli += work.gpu_milli
        return True

    def offer_all(self, works: Sequence[Work]) -> None:
        """Each once; one like another that found no place is not tried before something has changed."""
        hopeless: set[object] = set()
        for work in works:
            shape = work.tasks[0][2]
            alike = (kind_of(shape), shape.requests.memory_bytes)
            if alike in hopeless:
                continue
            moved = self.moved
            if not self.offer(work):
                hopeless.add(alike)
            elif self.moved != moved:
                hopeless.clear()


def measure(begun: Begin, rule: str, part: float) -> dict[str, float]:
    """What one rule wins: percent of all cards, pods moved, cards won for each of them, pods lost.

    ``part`` of the pods may move at most, under the rule of the authors and by fragments.
    """
    cluster = _Cluster.of(begun)
    most = int(part * begun.pods) + 1
    if rule == "authors":
        _authors(cluster, most)
    elif rule == "fragments":
        _by_fragments(cluster, most)
    elif rule == "waiting":
        cluster.paper.policy = _with(begun.policy, for_waiting=True)
    cluster.offer_all(begun.dropped)
    won = cluster.held_milli - begun.held_milli
    return {
        "begin": 100 * begun.held_milli / begun.cards_milli,
        "end": 100 * cluster.held_milli / begun.cards_milli,
        "cards_won": won / CARD_MILLI,
        "moved": float(cluster.moved),
        "won_per_move": won / CARD_MILLI / cluster.moved if cluster.moved else 0.0,
        "lost": float(cluster.lost),
    }


def _with(policy: Policy, *, for_waiting: bool = False, for_fragments: bool = False) -> Policy:
    moving = replace(policy.moving, for_waiting=for_waiting, for_fragments=for_fragments)
    return replace(policy, moving=moving)


def _by_fragments(cluster: _Cluster, most: int) -> None:
    """One move after the other, while any wins something."""
    policy = cluster.paper.policy
    mix = policy.mix if policy.mix.classes else cluster.begun.mix
    cluster.paper.policy = replace(_with(policy, for_fragments=True), binpack=OURS, mix=mix)
    while cluster.moved < most:
        moves = list(cluster.paper.decide().moves.items())
        if not moves:
            break
        for key, move in moves:
            cluster.moved += len(move.pods)
            carry_out(cluster.paper, key, move)
    cluster.paper.policy = policy


def _authors(cluster: _Cluster, most: int) -> None:
    """All go, then all are placed, in the order in which they went."""
    paper = cluster.paper
    snapshot = paper.snapshot()
    going = list(_leaving(snapshot, replace(paper.policy, binpack=FGD, mix=cluster.begun.mix), most))
    works = []
    for uid in going:
        pod = snapshot.pods[uid]
        gang = snapshot.gangs[str(pod.gang)]
        milli = CARD_MILLI * sum(ask.cards for ask in pod.shape.asks)
        works.append(Work(gang.key, ((pod.task, 1, pod.shape),), milli, gang.queue, gang.share_class))
        paper.end(gang.key)
        cluster.held_milli -= milli
    cluster.moved = len(works)
    cluster.lost = sum(not cluster.offer(work) for work in works)


def _leaving(snapshot: Snapshot, policy: Policy, most: int) -> Iterator[PodUid]:
    index = index_of(snapshot)
    trial = Trial(index, policy, 1e6)
    outlook = outlook_of(trial, FGD_RULE)
    there = {
        row: [uid for uid in index.pods_on.get(name, ()) if index.pods[uid].shares]
        for name, row in trial.ledger.rows.items()
    }
    heap = [(-int(value), row) for row, value in enumerate(outlook.fragments(trial).tolist()) if row in there]
    heapq.heapify(heap)
    count = 0
    while heap and count < most:
        before, row = heapq.heappop(heap)
        best: tuple[int, PodUid] | None = None
        for uid in there[row]:
            lifted = trial.lift([uid])
            after = int(outlook.fragments(trial)[row])
            trial.put_back(lifted)
            if after < -before and (best is None or after < best[0]):
                best = (after, uid)
        if best is not None:
            there[row].remove(best[1])
            trial.lift([best[1]])
            heapq.heappush(heap, (-best[0], row))
            count += 1
            yield best[1]
    trial.close()
