"""Lives of an admission controller whose API server refuses at random; what holds when the trouble is over.

One node with room for 12 members, and more gangs than fit: of Volcano Jobs and of ReplicaSets, of each class,
some of them suspendable, some with full annotations. Time is virtual. Each write is done, each watch event
told and each turn taken when a draw says so. Writes are refused, once or again and again. Answers are lost.

Between turns the invariants hold. Some time after the trouble is over no gang is let go in part, no card is
booked by a plan that is not carried out, and a high gang that can be written to waits behind no low one.

``VC_EGPU_LIVES`` says how many lives there are. The seeds are new in each run. ``VC_EGPU_SEED`` repeats
one, with the same ``PYTHONHASHSEED``.
"""

import copy
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, node, pod
from unit.admission.refusing_api import Refusals, connected
from unit.admission.stage import GROUPS, PODS, REPLICA_SET, LoopStage, StageClock
from unit.admission.test_any_order import Later, gates_that_stand, what_is_left_to_do
from unit.kube.tiny_api import TinyApi
from vc_egpu.admission.decision import Decisions
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.admission.leader import SoleLeader
from vc_egpu.admission.loop import Loop
from vc_egpu.admission.parts import Others, Parts
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.state.answers import bears_order
from vc_egpu.core.check import invariants
from vc_egpu.core.model.cluster import PodPhase, ShareClass, SuspensionState
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano import room
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

LIVES = int(os.environ.get("VC_EGPU_LIVES", "600" if os.environ.get("VC_EGPU_LONG") == "1" else "30"))
BEGAN = 1_790_000_000.0
"""Unix time at which each life begins."""
STEPS = 350
"""Things that happen while there is trouble."""
SEATS = 12
"""Members that the node has room for: three on each card."""
STEP_S = 0.02
"""What one thing takes. Time has to pass: what failed is tried again after up to 30 s."""
JUDGED = 0.3
"""Of the turns: the invariants take as long as a decision."""
AFTER_S = 61.0
ROUNDS = 26
"""So often that much time passes afterwards: longer than any back-off and any refusal that is remembered."""
FOLDERS = {"pods": PODS, "podgroups": GROUPS}


def fresh_seeds(count: int) -> list[int]:
    """Another set in each run; ``VC_EGPU_SEED`` names the one seed to repeat."""
    named = os.environ.get("VC_EGPU_SEED")
    if named is not None:
        return [int(named)]
    first = int.from_bytes(os.urandom(6), "big")
    return [first + number for number in range(count)]


class VirtualClock(StageClock):
    """Time passes when a test says so. The wall clock goes with it."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def passes(self, seconds: float) -> None:
        self.at += seconds

    def wall(self) -> float:
        return BEGAN + self.at


class Never:
    """Nothing stops the controller, and it waits for nothing."""

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> bool:
        del timeout
        return False


class Life:
    """A cluster around the controller. Controllers, scheduler, kubelet and node agent do their part."""

    def __init__(
        self, seed: int, stage: LoopStage, sent: list[Callable[[], None]], refusals: Refusals
    ) -> None:
        self.draw = random.Random(seed)
        self.stage, self.sent, self.refusals = stage, sent, refusals
        self.told: dict[str, list[Change]] = {kind: [] for kind in ("nodes", "pods", "podgroups")}
        self.moves: list[Callable[[], None]] = []
        self.on_their_way: set[str] = set()
        self.evicted: list[str] = []
        self.pads: dict[str, int] = {}
        """Names of pods whose annotations leave only so many bytes."""
        self.able: dict[str, str] = {}
        """Suspendable gangs, and what stands last on each pod of them."""
        self.full: set[str] = set()
        """Gangs whose PodGroup may have no room for a plan."""
        self.born = 0
        self.seen_version = 0

    # --- one thing ---------------------------------------------------------------------------------

    def step(self) -> bool:
        choices: list[Callable[[], None]] = [self._answer] if self.sent else []
        choices += [partial(self._hear, kind) for kind, changes in self.told.items() if changes]
        if self.moves:
            choices.append(self._move)
        if not self.stage.inbox.is_empty():
            choices.append(self.turn)
        if choices:
            self.draw.choice(choices)()
            self.stage.later(STEP_S)
            self._note()
        return bool(choices)

    def turn(self) -> None:
        self.stage.turn(0.0)
        if self.draw.random() >= JUDGED:
            return
        self.judge()

    def judge(self) -> None:
        """The invariants hold."""
        wrong = [
            found
            for found in invariants.check(self.stage.mirror.snapshot())
            if found.rule is not invariants.Rule.GATE or not self._loses_members(found.subject.split()[-1])
        ]
        assert not wrong, "\n".join(map(str, wrong))

    def _loses_members(self, key: str) -> bool:
        """Whether the gang is on its way back, or members went between its plan and their gates."""
        known = self.stage.mirror.groups.get(key)
        planned = known.plan.members.values() if known is not None and known.plan is not None else ()
        gone = any(member.uid not in self.stage.mirror.pods for member in planned)
        return gone or self.stage.conductor.rolling.get(key) is not None

    def _answer(self) -> None:
        self.sent.pop(self.draw.randrange(len(self.sent)))()

    def _move(self) -> None:
        self.moves.pop(self.draw.randrange(len(self.moves)))()

    def _hear(self, kind: str) -> None:
        self.stage.deliver(kind, self.told[kind].pop(0))

    def _note(self) -> None:
        """What changed on the server is told by watches, and done by those who look at it."""
        while self.evicted:
            self._leaves(self.evicted.pop())
        server = self.stage.server
        if server.version == self.seen_version:
            return
        fresh = [
            (int(document["metadata"]["resourceVersion"]), path, document)
            for path, document in server.objects.items()
            if path.startswith((PODS, GROUPS))
            and int(document["metadata"]["resourceVersion"]) > self.seen_version
        ]
        self.seen_version = server.version
        for _, path, document in sorted(fresh, key=lambda entry: entry[0]):
            kind = "pods" if path.startswith(PODS) else "podgroups"
            self.told[kind].append(added(copy.deepcopy(document)))
            if kind == "pods":
                self._react(path, document)

    def _react(self, path: str, document: Json) -> None:
        said, spec = document["metadata"]["annotations"], document["spec"]
        if names.OUT_OF_SYNC in said:
            self._leaves(path)
        elif names.CARDS in said and not spec.get("schedulingGates") and not spec.get("nodeName"):
            self.moves.append(partial(self._binds, path))
        if said.get(names.GROUP_NAME) in self.able and spec.get("nodeName"):
            self.moves.append(self.agent)

    def _leaves(self, path: str) -> None:
        if path not in self.on_their_way and path in self.stage.server.objects:
            self.on_their_way.add(path)
            self.moves.append(partial(self._replaces, path))

    # --- others ------------------------------------------------------------------------------------

    def puts(self, kind: str, document: Json) -> None:
        self.stage.server.put(f"{FOLDERS[kind]}/{document['metadata']['name']}", document)

    def _binds(self, path: str) -> None:
        document = self.stage.server.objects.get(path)
        if document is None or names.CARDS not in document["metadata"]["annotations"]:
            return  # another pod of this name
        if document["spec"].get("nodeName"):
            return
        bound = copy.deepcopy(document)
        bound["spec"]["nodeName"] = Cards.decode(bound["metadata"]["annotations"][names.CARDS]).node
        bound["status"] = {**(bound.get("status") or {}), "phase": "Running"}
        self.puts("pods", bound)

    def _replaces(self, path: str) -> None:
        self.on_their_way.discard(path)
        if path not in self.stage.server.objects:
            return
        gone = self.stage.server.remove(path)
        self.told["pods"].append(deleted(gone))
        said = gone["metadata"]["annotations"]
        self.bear(gone["metadata"]["name"], said[names.GROUP_NAME], int(said[names.TASK_INDEX]), gone)
        self.moves.append(self.agent)

    def bear(self, name: str, gang: str, index: int, like: Json) -> None:
        """A gated pod comes, as its controller makes it."""
        self.born += 1
        cls = like["metadata"]["annotations"].get(names.PRIORITY)
        fresh = pod(
            name,
            gang=gang,
            index=index,
            uid=f"{name}-{self.born}",
            owners=like["metadata"]["ownerReferences"],
            annotations={names.PRIORITY: cls} if cls else {},
        )
        self.puts("pods", self.padded(fresh))

    def padded(self, document: Json) -> Json:
        leave = self.pads.get(document["metadata"]["name"])
        if leave is not None:
            said = document["metadata"]["annotations"]
            said["filler"] = "x" * max(0, room.MAX_BYTES - leave - room.size(said) - len("filler"))
        return document

    def agent(self) -> None:
        """The node's agent carries orders out and says so."""
        pods: dict[str, PodSuspension] = {}
        for path, document in self.stage.server.objects.items():
            said = document["metadata"].get("annotations") or {}
            if not path.startswith(PODS) or said.get(names.GROUP_NAME) not in self.able:
                continue
            if not document["spec"].get("nodeName"):
                continue
            order = SuspendOrder.decode(said[names.SUSPEND]) if names.SUSPEND in said else None
            uid, state = document["metadata"]["uid"], SuspensionState.RUNNING
            if order is not None:
                state = SuspensionState.SUSPENDED
                self.able[uid] = order.plan_id
            pods[uid] = PodSuspension(
                state=state,
                plan_id=order.plan_id if order is not None else "",
                suspendable=True,
                host_mib=30000 if order is not None else 0,
            )
        changed = self.node()
        changed["metadata"]["annotations"][names.NODE_SUSPENSION] = NodeSuspension(pods=pods).encode()
        self.told["nodes"].append(Change(ChangeKind.MODIFIED, changed))

    def node(self) -> Json:
        return node()

    # --- a life ------------------------------------------------------------------------------------

    def gang(self, name: str) -> None:
        """A gang comes."""
        cls = self.draw.choice(("low", "low", "unset", "high"))
        said = {} if cls == "unset" else {names.PRIORITY: cls}
        of_replicas = self.draw.random() < 0.3
        owned = {"owners": REPLICA_SET} if of_replicas else {}
        members = self.draw.choice((1, 2, 2, 3))
        if cls == "low" and self.draw.random() < 0.5:
            self.able[name] = ""
        for index in range(members):
            if self.draw.random() < 0.2:
                self.pads[f"{name}-w-{index}"] = self.draw.choice((5, 30, 600, 3000, 6000, 60_000))
        document = group(name, members=1 if of_replicas else self.draw.randint(1, members))
        if of_replicas:
            document["metadata"]["ownerReferences"][0] |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
        if self.draw.random() < 0.15:
            leave = self.draw.choice((50, 300, 900, 20_000))
            self.full.add(f"default/{name}")
            document["metadata"]["annotations"] = {"filler": "x" * (room.MAX_BYTES - leave - len("filler"))}
        self.puts("podgroups", document)
        for index in range(members):
            fresh = pod(
                f"{name}-w-{index}",
                gang=name,
                index=index,
                uid=f"{name}-{index}-0",
                annotations=said,
                **owned,
            )
            self.moves.append(partial(self.puts, "pods", self.padded(fresh)))

    def troubled(self) -> None:
        """Gangs come while writes are refused."""
        for number in range(9):
            self.moves.append(partial(self.gang, f"gang-{number}"))
        things = [f"gang-{self.draw.randrange(9)}" for _ in range(4)]
        for _ in range(STEPS):
            drawn = self.draw.random()
            if drawn < 0.02:
                self.refusals.begin(things)
            elif drawn < 0.03:
                self.refusals.end()
            elif drawn < 0.1 or not self.step():
                self.stage.later(self.draw.choice((0.1, 1.0, 5.0, 15.0, 61.0)))
                self.turn()

    def calm(self) -> None:
        """The trouble is over; whatever was remembered of it runs out."""
        self.refusals.are_over = True
        for _ in range(ROUNDS):
            for _ in range(5000):
                due = self.stage.work.due()
                if not self.step():
                    if due is None or due > self.stage.clock.now() + AFTER_S:
                        break
                    self.stage.later(max(0.0, due - self.stage.clock.now()))
                    self.turn()
            else:
                raise AssertionError("it does not come to rest")
            self.stage.later(AFTER_S)
            self.turn()

    # --- what holds then ---------------------------------------------------------------------------

    def faults(self) -> list[str]:
        self.judge()
        mirror = self.stage.mirror
        left = [text for text in what_is_left_to_do(self.stage) if text.partition(" ")[0] not in self.full]
        found = [*gates_that_stand(self.stage), *left]
        found += [f"{key} is booked without a plan" for key, known in mirror.groups.items() if known.booked]
        found += [f"{key} has a plan that waits" for key in sorted(mirror.waiting)]
        found += [f"{key} still waits to be withdrawn" for key in self.stage.conductor.members.refused]
        for key, known in sorted(mirror.groups.items()):
            members = mirror.members.get(key, {}).values()
            placed = [m for m in members if m.pod.phase is PodPhase.PLACED]
            if placed and len(placed) < known.decoded.gang.min_member:
                found.append(f"{key} is let go in part: {len(placed)} of {known.decoded.gang.min_member}")
            out = [m for m in placed if bears_order(m)]
            if not known.decoded.gang.single and out and len(out) < len(placed):
                found.append(f"{key} is suspended in part")
        return found + self._behind_low()

    def _behind_low(self) -> list[str]:
        """High gangs that could be written to, and wait although low pods are where they could be."""
        mirror = self.stage.mirror
        low = [
            m.pod.name
            for members in mirror.members.values()
            for m in members.values()
            if m.pod.phase is PodPhase.PLACED and m.pod.runs_as is ShareClass.LOW and not m.pod.asleep
        ]
        seated = [
            m
            for members in mirror.members.values()
            for m in members.values()
            if m.pod.phase is PodPhase.PLACED and not m.pod.asleep
        ]
        free, waits = SEATS - len(seated), list[str]()
        for key, known in sorted(mirror.groups.items()):
            gang, members = mirror.state.gang(key), mirror.members.get(key, {}).values()
            if gang is None or gang.share_class is not ShareClass.HIGH or not members:
                continue
            ready = [m for m in members if m.pod.phase is PodPhase.GATED and not m.problem]
            placed = [m for m in members if m.pod.phase is PodPhase.PLACED]
            is_full = key in self.full
            lacks = known.decoded.gang.min_member - len(placed)
            if 0 < lacks <= len(ready) and not is_full and lacks <= free + len(low):
                waits.append(f"{key} waits behind {', '.join(sorted(low))}: {self.stage.told(key)}")
        return waits


@contextmanager
def life_on(folder: Path, seed: int) -> Iterator[Life]:
    """A life with this seed."""
    server, later, clock = TinyApi(), Later(), VirtualClock()
    random.seed(seed)  # back-offs draw from it
    draw = random.Random(seed * 7 + 1)
    refusals = Refusals(draw, chance=draw.choice((0.0, 0.02, 0.1, 0.25)))
    evicted: list[str] = []
    api = connected(server, refusals, evicted.append)
    settings, leadership = Settings(models=folder, identity="test"), SoleLeader(epoch=5)
    decisions = Decisions(settings.policy, Collector(), most_pause_s=0.0)
    parts = Parts.of(
        api, TABLE, settings, leadership, others=Others(clock=clock, pool=later, decisions=decisions)
    )
    parts.conductor.suspending.telling.wall = clock.wall
    stage = LoopStage(server, parts, settings, Loop(parts, settings, leadership, Never()), clock)
    life = Life(seed, stage, later.sent, refusals)
    life.evicted = evicted
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time", clock.wall)
        yield life
    parts.stop()


def test_whatever_is_refused_ends(tmp_path: Path) -> None:
    """Each run draws new seeds, so all of them are one test: workers must agree on what tests there are."""
    seeds = fresh_seeds(LIVES)
    print(f"{len(seeds)} lives from seed {seeds[0]}")
    wrong: list[str] = []
    for seed in seeds:
        with life_on(tmp_path, seed) as life:
            try:
                life.troubled()
                life.calm()
                found = life.faults()
            except AssertionError as error:
                found = [str(error)]
        wrong += [f"VC_EGPU_SEED={seed}: {fault}" for fault in found]
    assert not wrong, "\n".join(wrong)
