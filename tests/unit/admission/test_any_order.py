"""Whatever order answers and watch events come in: who can have cards gets them, though nothing else happens.

A cluster of one node, on which several gangs come at once, and a world that goes on meanwhile. Nothing runs
by itself: each write to the API server is done, its answer told, each watch event delivered and each turn of
the loop taken when a seeded draw says so. Once nothing is left to come, no ready plan has a member whose gate
did not fall, and a decision about everything finds nothing to do: nobody was forgotten.
"""

import copy
import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from unit.admission.build import Json, added, deleted, group, node, pod, queue, version
from unit.admission.stage import GROUPS, PODS, LoopStage, loop_on
from vc_egpu.admission.parts import Others
from vc_egpu.core.decide import decide
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.words import names

SEEDS = int(os.environ.get("VC_EGPU_SEEDS", "1000" if os.environ.get("VC_EGPU_LONG") == "1" else "60"))
GANGS = 8
"""Two more than the node has room for, where none of them is of low priority."""
MEMBERS = 2
STEPS = 2000
"""More than anything here takes."""
FOLDERS = {"pods": PODS, "podgroups": GROUPS}
NO_ANSWER: tuple[int, Json, dict[str, str]] = (
    503,
    {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "no"},
    {},
)


def _kind_of(path: str) -> str:
    return next(kind for kind, folder in FOLDERS.items() if path.startswith(folder))


class Schedule:
    """What is under way, and the draw that says what comes next."""

    def __init__(self, stage: LoopStage, seed: int, sent: list[Callable[[], None]]) -> None:
        self.stage = stage
        self.draw = random.Random(seed)
        self.sent = sent
        """Writes that the API server has not done yet."""
        self.told: dict[str, list[Change]] = {kind: [] for kind in ("nodes", "queues", "pods", "podgroups")}
        """What each kind's watch has still to say, in order."""
        self.moves: list[Callable[[], None]] = []
        """What else is to happen in the world, in order."""
        self.leaving: set[str] = set()
        """Pods whose controller is to replace them."""
        self.number = 0

    def step(self) -> bool:
        """Let one thing happen; whether there was any."""
        choices: list[Callable[[], None]] = [self._answer] if self.sent else []
        choices += [partial(self._hear, kind) for kind, queue in self.told.items() if queue]
        if self.moves:
            choices.append(self._move)
        if not self.stage.inbox.is_empty():
            choices.append(self.stage.turn)
        if choices:
            self.draw.choice(choices)()
        return bool(choices)

    def _answer(self) -> None:
        before = self.stage.server.version
        self.sent.pop(self.draw.randrange(len(self.sent)))()
        self._note(before)
        self._make_go()

    def _move(self) -> None:
        self.moves.pop(0)()

    def _hear(self, kind: str) -> None:
        self.stage.deliver(kind, self.told[kind].pop(0))

    def _note(self, before: int) -> None:
        for path, document in list(self.stage.server.objects.items()):
            watched = path.startswith(tuple(FOLDERS.values()))  # events are nobody's business here
            if watched and int(document["metadata"]["resourceVersion"]) > before:
                self.told[_kind_of(path)].append(added(copy.deepcopy(document)))

    def _make_go(self) -> None:
        """Their controller replaces pods that were marked, as Volcano's does: some time later."""
        marked = [
            path
            for path, document in self.stage.server.objects.items()
            if path.startswith(PODS) and names.OUT_OF_SYNC in document["metadata"]["annotations"]
        ]
        for path in sorted(set(marked) - self.leaving):
            self.leaving.add(path)
            self.moves.append(partial(self.replaces, path))

    def replaces(self, path: str) -> None:
        """A pod goes, and another of its name comes."""
        self.leaving.discard(path)
        if path not in self.stage.server.objects:
            return
        gone = self.stage.server.remove(path)
        self.told["pods"].append(deleted(gone))
        self.number += 1
        metadata = gone["metadata"]
        said = metadata["annotations"]
        kept = {names.PRIORITY: said[names.PRIORITY]} if names.PRIORITY in said else {}
        index, gang = int(said[names.TASK_INDEX]), said[names.GROUP_NAME]
        fresh = pod(metadata["name"], gang=gang, index=index, uid=f"again-{self.number}", annotations=kept)
        self.puts("pods", fresh)

    def is_at_rest(self) -> bool:
        """Whether nothing comes any more; what failed is tried again first."""
        due = self.stage.work.due()
        if due is not None:
            self.stage.later(max(0.0, due - self.stage.clock.now()))
        for _ in range(2):
            self.stage.idle_turn()
        return due is None and not self.sent and self.stage.inbox.is_empty()

    # --- the world -------------------------------------------------------------------------------

    def puts(self, kind: str, document: Json) -> None:
        """Somebody else writes an object."""
        before = self.stage.server.version
        self.stage.server.put(f"{FOLDERS[kind]}/{document['metadata']['name']}", document)
        self._note(before)

    def gang(self, name: str, **annotations: str) -> None:
        """A gang comes, its PodGroup first or last."""
        asked = [
            ("podgroups", group(name, members=MEMBERS)),
            *(
                ("pods", pod(f"{name}-w-{i}", gang=name, index=i, annotations=annotations))
                for i in range(MEMBERS)
            ),
        ]
        if self.draw.random() < 0.3:
            asked.append(asked.pop(0))
        self.moves += [partial(self.puts, kind, document) for kind, document in asked]

    def touches(self) -> None:
        """Somebody writes to an object without saying anything new: our own write on its way is overtaken."""
        paths = [path for path in self.stage.server.objects if path.startswith((PODS, GROUPS))]
        path = self.draw.choice(sorted(paths))
        document = copy.deepcopy(self.stage.server.objects[path])
        document["metadata"].setdefault("annotations", {})["touched"] = version()
        self.puts(_kind_of(path), document)

    def fails(self) -> None:
        """The next request is not answered."""
        self.stage.server.script.append(NO_ANSWER)

    def changes_node(self) -> None:
        """The node has another label, or takes nothing for a while."""
        changed = node(spec={"unschedulable": True} if self.draw.random() < 0.5 else {})
        changed["metadata"]["labels"]["zone"] = version()
        self.told["nodes"].append(Change(ChangeKind.MODIFIED, changed))

    def changes_cap(self) -> None:
        """The queue takes more, or less."""
        self.told["queues"].append(Change(ChangeKind.MODIFIED, queue(cap=self.draw.choice((3, 8, 1000)))))

    def ends(self) -> None:
        """Whoever was let go of some gang runs to its end, or all of a gang is deleted."""
        objects = self.stage.server.objects
        names_there = sorted(path.rsplit("/", 1)[-1] for path in objects if path.startswith(f"{GROUPS}/gang"))
        if not names_there:
            return
        name = self.draw.choice(names_there)
        paths = sorted(path for path in objects if path.startswith(f"{PODS}/{name}-"))
        if self.draw.random() < 0.3:
            for path in [*paths, f"{GROUPS}/{name}"]:
                gone = self.stage.server.remove(path)
                self.told[_kind_of(path)].append(deleted(gone))
        elif paths and not any(objects[path]["spec"].get("schedulingGates") for path in paths):
            for path in paths:
                document = copy.deepcopy(objects[path])
                document["spec"]["nodeName"], document["status"] = "n1", {"phase": "Succeeded"}
                self.puts("pods", document)


class Later:
    """A pool whose work is done when it is drawn."""

    def __init__(self) -> None:
        self.sent: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None], /) -> None:
        self.sent.append(work)

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        """Nothing is under way."""


def gates_that_stand(stage: LoopStage) -> list[str]:
    """Members of ready plans whose gate did not fall."""
    return sorted(
        f"{key} {member}"
        for key, known in stage.mirror.groups.items()
        if known.plan is not None and known.plan.state == "ready"
        for member in known.outstanding
    )


def what_is_left_to_do(stage: LoopStage) -> list[str]:
    """What a decision about everything would still find."""
    plan = decide(stage.mirror.snapshot(), stage.settings.policy, time.time())
    return [
        *(f"{one.gang} is to be admitted" for one in plan.admissions),
        *(f"{one.gang} is ready" for one in plan.ready),
        *(f"{one.gang} loses its plan" for one in plan.withdrawals),
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_is_forgotten_in_any_order(seed: int, tmp_path: Path) -> None:
    later = Later()
    with loop_on(tmp_path, Others(pool=later)) as stage:
        schedule = Schedule(stage, seed, later.sent)
        _plan_moves(schedule, troubled=seed % 3 > 0)
        for _ in range(STEPS):
            if not schedule.step() and schedule.is_at_rest():
                break
        else:
            raise AssertionError("it does not come to rest")
        assert gates_that_stand(stage) == []
        assert what_is_left_to_do(stage) == []


def _plan_moves(schedule: Schedule, *, troubled: bool) -> None:
    draw = schedule.draw
    troubles = (schedule.touches, schedule.fails, schedule.changes_node, schedule.changes_cap, schedule.ends)
    for number in range(GANGS):
        cls = draw.choice(("low", "low", "unset", "high"))
        schedule.gang(f"gang-{number}", **({} if cls == "unset" else {names.PRIORITY: cls}))
        for _ in range(draw.randrange(3) if troubled else 0):
            schedule.moves.insert(draw.randrange(len(schedule.moves) + 1), draw.choice(troubles))
    schedule.moves.append(lambda: schedule.told["nodes"].append(Change(ChangeKind.MODIFIED, node())))
    schedule.moves.append(lambda: schedule.told["queues"].append(Change(ChangeKind.MODIFIED, queue())))
