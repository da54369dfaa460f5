"""Gangs that come and go all day: whatever their number, nothing of them stays with the controller."""

import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.admission.build import Json, deleted, group, pod, version
from unit.admission.stage import GROUPS, PODS, LoopStage, loop_on
from unit.kept import sizes
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest, Request

REMEMBERED = ("._gone", "._due")
"""Kept on purpose: UIDs of what is gone (50,000 at most), and what is not due any more, until its time."""
MEMBERS = 2
TOO_MANY = ContainerRequest(model="h20", cards=64, memory_mib=30000, cores_percent=30)
FATES = {
    "unset": {},
    "low": {names.PRIORITY: "low"},
    "high": {names.PRIORITY: "high"},
    "waits": {names.REQUEST: Request(containers={"main": TOO_MANY}).encode()},
}


class Day:
    """Gangs one after the other, each with its fate."""

    def __init__(self, stage: LoopStage) -> None:
        self.stage = stage
        self._number = 0
        self._goes([f"{PODS}/g-w-{i}" for i in range(MEMBERS)])  # the stage's own

    def pass_by(self, gangs: int) -> None:
        """So many come, wait or run to their end, and are removed."""
        for _ in range(gangs):
            self._number += 1
            self._passes(f"day-{self._number}", list(FATES)[self._number % len(FATES)])
        self._until(self.stage.is_quiet)

    def _passes(self, name: str, fate: str) -> None:
        paths = self._comes(name, fate)
        if fate == "waits":
            self._until(lambda: self.stage.said(f"default/{name}") is not None)
        else:
            self._until(lambda: all(self._is_let_go(path) for path in paths))
            self._runs(paths, "Running")
            self._runs(paths, "Succeeded")
        self._goes([*paths, f"{GROUPS}/{name}"])

    def _comes(self, name: str, fate: str) -> list[str]:
        self.stage.arrives("podgroups", group(name, members=MEMBERS))
        for i in range(MEMBERS):
            one = pod(f"{name}-w-{i}", gang=name, index=i, annotations=FATES[fate])
            self.stage.arrives("pods", one)
        return [f"{PODS}/{name}-w-{i}" for i in range(MEMBERS)]

    def _is_let_go(self, path: str) -> bool:
        return not self.stage.server.objects[path]["spec"].get("schedulingGates")

    def _runs(self, paths: list[str], phase: str) -> None:
        for path in paths:
            document = self._later(path)
            document["spec"]["nodeName"] = "n1"
            document["status"] = {"phase": phase}
            self.stage.deliver("pods", Change(ChangeKind.MODIFIED, document))
        self.stage.turn()

    def _goes(self, paths: list[str]) -> None:
        for path in paths:
            gone = self._later(path)
            del self.stage.server.objects[path]
            self.stage.deliver("podgroups" if GROUPS in path else "pods", deleted(gone))
        self.stage.turn()

    def _later(self, path: str) -> Json:
        document: Json = copy.deepcopy(self.stage.server.objects[path])
        number = int(document["metadata"]["resourceVersion"])
        document["metadata"]["resourceVersion"] = str(max(number + 1, int(version())))
        self.stage.server.objects[path] = document
        return copy.deepcopy(document)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline
            self.stage.turn()


@pytest.fixture
def day(tmp_path: Path) -> Iterator[Day]:
    with loop_on(tmp_path) as stage:
        yield Day(stage)


def test_gangs_that_come_and_go_leave_nothing_behind(day: Day) -> None:
    day.pass_by(4)
    first = sizes(day.stage.loop, *REMEMBERED)
    assert sum(first.values()) > 100, "nothing was looked at"
    day.pass_by(12)
    after = sizes(day.stage.loop, *REMEMBERED)
    grown = {way: (first[way], count) for way, count in after.items() if count > first[way]}
    assert grown == {}
