"""Whatever order answers and watch events come in: who was promised cards gets them, though nothing else happens.

A cluster of one node, on which several gangs come at once. Nothing runs by itself: each write to the API server
is done, its answer told, each watch event delivered and each turn of the loop taken when a seeded draw says so.
Once nothing is left to come, no ready plan has a member whose gate did not fall.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import Json, added, group, pod
from unit.admission.test_conduct import GROUPS, PODS
from unit.admission.test_loop import Stage, stage_on
from vc_egpu.admission.execution.executor import Done, Executor
from vc_egpu.admission.loop import _Question
from vc_egpu.volcano import names

GANGS = 5
MEMBERS = 2
ROUNDS = 400
"""More than anything here takes."""


class Schedule:
    """What is under way, and the draw that says what comes next."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.draw = random.Random(seed)
        self.sent: list[Callable[[], None]] = []
        """Writes that the API server has not done yet."""
        self.told: dict[str, list[tuple[str, Json]]] = {"pods": [], "podgroups": []}
        """What each kind's watch has still to say, in order."""

    def submit(self, _pool: object, work: Callable[[], Done], _failed: Done) -> None:
        """In place of the executor's threads."""

        def run() -> None:
            before = self.stage.server.version
            done = work()
            self._note(before)
            self.stage.loop._inbox.put(done)

        self.sent.append(run)

    def comes(self, plural: str, document: Json) -> None:
        """Somebody else makes an object."""
        before = self.stage.server.version
        folder = GROUPS if plural == "podgroups" else PODS
        self.stage.server.put(f"{folder}/{document['metadata']['name']}", document)
        self._note(before)

    def _note(self, before: int) -> None:
        changed = [
            (path, document)
            for path, document in self.stage.server.objects.items()
            if int(document["metadata"]["resourceVersion"]) > before
        ]
        for path, document in changed:
            plural = "pods" if "/pods/" in path else "podgroups"
            self.told[plural].append((plural, document))

    def step(self) -> bool:
        """Let one thing happen; whether there was any."""
        choices: list[Callable[[], None]] = [self._answer] if self.sent else []
        choices += [lambda queue=queue: self._hear(queue) for queue in self.told.values() if queue]
        if not self.stage.loop._inbox.empty():
            choices.append(self.stage.turn)
        if choices:
            self.draw.choice(choices)()
        return bool(choices)

    def _answer(self) -> None:
        self.sent.pop(self.draw.randrange(len(self.sent)))()

    def _hear(self, queue: list[tuple[str, Json]]) -> None:
        plural, document = queue.pop(0)
        self.stage.loop._inbox.put((plural, added(document)))

    def look(self) -> None:
        """A turn in which nothing happened."""
        self.stage.loop._inbox.put(_Question())
        self.stage.turn()


def gates_that_stand(stage: Stage) -> list[str]:
    """Members of ready plans whose gate did not fall."""
    return sorted(
        f"{key} {member}"
        for key, known in stage.mirror.groups.items()
        if known.plan is not None and known.plan.state == "ready"
        for member in known.outstanding
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_ready_plan_is_carried_out_in_any_order(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage_on(tmp_path) as stage:
        schedule = Schedule(stage, seed)
        monkeypatch.setattr(Executor, "_submit", lambda _, *args: schedule.submit(*args))
        for number in range(GANGS):
            changes: dict[str, Any] = {"annotations": {names.PRIORITY: "low"}} if number % 2 else {}
            schedule.comes("podgroups", group(f"gang-{number}", members=MEMBERS))
            for i in range(MEMBERS):
                schedule.comes("pods", pod(f"gang-{number}-w-{i}", gang=f"gang-{number}", index=i, **changes))
        for _ in range(ROUNDS):
            if not schedule.step():
                schedule.look()
                if not schedule.sent and stage.loop._inbox.empty():
                    break
        else:
            raise AssertionError("it does not come to rest")
        assert len(stage.mirror.members) == GANGS + 1
        assert gates_that_stand(stage) == []
