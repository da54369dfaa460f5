"""Caps, and reasons for waiting: each rule is broken on purpose, and said to be."""

from dataclasses import replace
from typing import Any

from unit.core import make
from unit.core.test_invariants import LOW, M, but, plan_on, rules, running
from vc_egpu.core.check.invariants import Rule, check
from vc_egpu.core.model.cluster import PodPhase, Queue, QueueName
from vc_egpu.core.model.reasons import Reason


def test_caps() -> None:
    cap = {"volcano.sh/vgpu-h20": 1}
    queues = [
        make.queue("org", capability=cap),
        make.queue("all", parent=QueueName("org"), capability={"volcano.sh/vgpu-h20": 5}),
    ]
    snapshot = running((LOW, 1024, 1, "n1/0"), (LOW, 1024, 1, "n1/0"))
    snapshot = replace(snapshot, queues={queue.name: queue for queue in queues})
    found = check(snapshot)
    assert [str(violation) for violation in found] == [
        "queue org: uses 2 of 1 volcano.sh/vgpu-h20 (rule: no cap exceeded by an admission)"
    ]
    memory = "volcano.sh/vgpu-h20-memory"
    two = make.queue("org", capability={memory: 2047, "volcano.sh/vgpu-h20": 1, "cpu": 10**6})
    found = check(replace(snapshot, queues={two.name: two, QueueName("all"): queues[1]}))
    assert [violation.message for violation in found] == [
        "uses 2 of 1 volcano.sh/vgpu-h20", f"uses 2048 of 2047 {memory}"
    ]  # fmt: skip
    assert rules(snapshot, lowered={"org"}) == set()
    assert rules(snapshot, before=snapshot) == set(), "it did not get more"
    one_less = but(snapshot, 1, phase=PodPhase.GATED)
    assert rules(one_less) == set()
    assert rules(snapshot, before=one_less) == {Rule.CAP}
    unknown = replace(snapshot, gangs={"g0": snapshot.gangs["g0"]})
    assert rules(but(unknown, 1, queue=QueueName("all"))) == {Rule.CAP}, "it counts where it was checked for"


def test_a_model_that_a_queue_does_not_name_is_not_allowed() -> None:
    snapshot = running((LOW, 1024, 1, "n1/0"))

    def among(*queues: Queue, **more: Any) -> list[str]:
        found = check(replace(snapshot, queues={queue.name: queue for queue in queues}), **more)
        return [violation.subject for violation in found]

    silent = make.queue(capability={"volcano.sh/vgpu-h20-memory": 10**6, "cpu": 10**6})
    assert among(silent) == ["queue all"]
    assert among(silent, lowered={"all"}) == among(silent, unnamed_unlimited=True) == []
    assert among(make.queue(capability={"volcano.sh/gpu-h20": 1})) == ["queue all"], "these are shares"
    org = QueueName("org")
    assert among(make.queue(parent=org), make.queue("org", capability={})) == [], "it leaves models to others"
    other = make.queue("org", capability={"volcano.sh/vgpu-t4": 1})
    assert among(make.queue(parent=org), other) == ["queue org"]


def test_caps_count_what_is_planned() -> None:
    allowed = make.queue(capability={"volcano.sh/vgpu-h20": 1})
    ready = replace(plan_on(running()), queues={allowed.name: allowed})
    assert rules(ready) == set()
    none = make.queue(capability={"volcano.sh/vgpu-h20": 0})
    assert rules(replace(ready, queues={none.name: none})) == {Rule.CAP}
    waiting = make.pods("g", 2, make.shape(M // 2, 50))[1]
    more = replace(ready, pods={**ready.pods, waiting.uid: waiting})
    assert rules(more) == set(), "who is in no plan uses nothing yet"
    ended = {uid: replace(pod, phase=PodPhase.SUCCEEDED) for uid, pod in ready.pods.items()}
    assert rules(replace(ready, pods=ended, queues={none.name: none})) == set(), "nor does who has ended"
    strangers = make.pods("nobody", 1, make.shape(M // 2, 50))[0]
    found = make.placed(replace(strangers, gang=None), "n1/1")
    assert rules(replace(ready, pods={**ready.pods, found.uid: found})) == set(), "of no queue"
    loop = make.queue("all", parent=QueueName("all"), capability={"volcano.sh/vgpu-h20": 1})
    assert rules(replace(ready, queues={loop.name: loop})) == set()


def test_reasons() -> None:
    snapshot = make.snapshot([make.node()], [make.gang("g")], make.pods("g", 1, make.shape(1024, 0)))
    assert rules(snapshot, reasons={}) == {Rule.REASON}
    assert rules(snapshot, reasons={"g": Reason.WAITING_FOR_CARDS}) == set()
    assert rules(running((LOW, 1, 1, "n1/0")), reasons={}) == set(), "who runs needs none"
    nobodys = {uid: replace(pod, gang=None) for uid, pod in snapshot.pods.items()}
    assert rules(replace(snapshot, pods=nobodys), reasons={}) == set(), "we do not answer for others'"
