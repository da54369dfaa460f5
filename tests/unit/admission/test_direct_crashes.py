"""The leader dies before and after each write that admits a gang of both ways; the next one finishes it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import TABLE, Json, added, group, node, pod, queue
from unit.admission.stage import BROKEN, GROUPS, KEY, PODS
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.admission.decision import Decisions
from vc_egpu.admission.execution.steps import Authority
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.admission.leader import SoleLeader
from vc_egpu.admission.loop import Loop
from vc_egpu.admission.parts import Others, Parts
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.state.agenda import Why
from vc_egpu.core.check import invariants
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

DIRECT: Json = {"schedulerName": names.SCHEDULER_DIRECT, "schedulingGates": []}
MEMBERS = 4
WRITES = 1 + MEMBERS
"""The plan, then a Binding or a patch for each member."""
TURNS = 200


@dataclass
class Death:
    """The process dies at the write of this number: that is done or not, and no later one is."""

    number: int
    is_done: bool
    seen: int = 0
    struck: threading.Event = field(default_factory=threading.Event)

    def refuses(self, server: TinyApi) -> Any:
        def answer(method: str, path: str, body: Any) -> Any:
            if method == "GET" or "/events" in path:
                return None
            self.seen += 1
            if self.seen <= self.number:
                return None
            if self.seen == self.number + 1 and self.is_done:
                server.refuses = None
                server.answer(method, path, body)
                server.refuses = answer
            self.struck.set()
            return BROKEN[:2]

        return answer


@contextmanager
def life(server: TinyApi, folder: Path, epoch: int) -> Iterator[tuple[Loop, Parts]]:
    """One leadership on what the API server holds."""
    api = ApiConnection.connect(server.kubeconfig(folder), timeout_s=30)
    settings, leadership = Settings(models=folder, identity=f"life-{epoch}"), SoleLeader(epoch=epoch)
    others = Others(decisions=Decisions(settings.policy, Collector(), most_pause_s=0.0))
    parts = Parts.of(api, TABLE, settings, leadership, others=others)
    loop = Loop(parts, settings, leadership, threading.Event())
    for plural, document in (("nodes", node()), ("queues", queue())):
        parts.mirror.apply(plural, added(document))
    for plural, folder_path in (("pods", PODS), ("podgroups", GROUPS)):
        for path, document in sorted(server.objects.items()):
            if path.startswith(f"{folder_path}/"):
                parts.mirror.apply(plural, added(document))
    adopted = {found.plan.plan_id for found in parts.mirror.groups.values() if found.plan is not None}
    parts.conductor.take_over(Authority(epoch=epoch, adopted=adopted))
    parts.mirror.agenda.try_all(Why.FIRST_LISTS)
    parts.mirror.agenda.look_at(*parts.mirror.groups)
    try:
        yield loop, parts
    finally:
        parts.stop()
        api.close()


def all_placed(parts: Parts) -> bool:
    phases = [member.pod.phase for member in parts.mirror.members.get(KEY, {}).values()]
    return phases == [PodPhase.PLACED] * MEMBERS


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(WRITES))
def test_the_next_leader_finishes_or_begins_again(tmp_path: Path, number: int, *, is_done: bool) -> None:
    with tiny_api() as server:
        for index in range(MEMBERS):
            spec = DIRECT if index % 2 else {}
            document = pod(f"g-w-{index}", index=index, uid=f"pod-{index}", spec=spec)
            server.put(f"{PODS}/g-w-{index}", document)
        server.put(f"{GROUPS}/g", group(members=MEMBERS))
        death = Death(number, is_done)
        server.refuses = death.refuses(server)
        with life(server, tmp_path, 5) as (loop, _):
            for _ in range(TURNS):
                loop.turn(0.02)
                if death.struck.is_set():
                    break
            assert death.struck.is_set(), f"there were {death.seen} writes"
        server.refuses = None
        with life(server, tmp_path, 6) as (loop, parts):
            for _ in range(TURNS):
                if all_placed(parts):
                    break
                loop.turn(0.05)
            assert all_placed(parts)
            assert not invariants.check(parts.mirror.snapshot())
        check(server)


def check(server: TinyApi) -> None:
    """One plan for all, and each pod where that plan has it, by the way that it was made for."""
    text = server.objects[f"{GROUPS}/g"]["metadata"]["annotations"][names.PLAN]
    for index in range(MEMBERS):
        found = server.objects[f"{PODS}/g-w-{index}"]
        cards = Cards.decode(found["metadata"]["annotations"][names.CARDS])
        assert f'"{cards.plan_id}"' in text
        assert plans.epoch_of(cards.plan_id) in {5, 6}
        if index % 2:
            assert found["spec"]["nodeName"] == cards.node == "n1"
            assert "affinity" not in found["spec"]
        else:
            assert not found["spec"].get("nodeName")
            assert "n1" in str(found["spec"]["affinity"])
    bound = [path for method, path, _ in server.requests if method == "POST" and "/binding" in path]
    assert len(bound) <= MEMBERS + 2, "none is bound over and over"
