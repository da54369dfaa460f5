"""Gangs whose pods are still being made: when a decision is worth it, and whose pods are to be made next."""

from typing import Any

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, let_go, node, pod, queue
from vc_egpu.admission.inqueue import filling
from vc_egpu.admission.inqueue.enqueue import Pending
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.volcano.codec import trim
from vc_egpu.volcano.words import names

KEY = "default/g"


def gathering(members: int, there: int, **changes: Any) -> Mirror:
    """A gang of so many members of which some are there, decided about already."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("queues", added(queue()))
    mirror.apply("podgroups", added(group(members=members, **changes)))
    for i in range(there):
        mirror.apply("pods", added(pod(f"g-w-{i}", index=i)))
    mirror.agenda.take_question()
    return mirror


@pytest.mark.parametrize(("there", "decides"), [(0, True), (1, False), (2, False), (3, True), (4, True)])
def test_a_gang_is_decided_about_at_its_first_pod_and_once_it_is_complete(there: int, decides: bool) -> None:
    mirror = gathering(4, there)
    mirror.apply("pods", added(pod(f"g-w-{there}", index=there)))
    assert (KEY in mirror.agenda.tries) is decides
    assert len(mirror.snapshot().pods) == there + 1
    assert KEY in mirror.agenda.looks


def test_a_replacement_in_a_gang_that_lacks_members_is_decided_about_at_once() -> None:
    mirror = gathering(4, 0)
    for i in range(2):
        runs = let_go(pod(f"g-w-{i}", index=i), "4-1", bound=True, phase="Running")
        mirror.apply("pods", added(runs))
    mirror.agenda.take_question()
    mirror.apply("pods", added(pod("g-w-2", index=2)))
    assert mirror.agenda.tries.keys() == {KEY}


@pytest.mark.parametrize(
    "document",
    [
        pod("g-w-2", index=2, annotations={names.REQUEST: "{"}),
        pod("g-w-2", index=2, annotations={names.PRIORITY: "low"}),
        pod("g-w-2", index=2, spec={"priority": 7}),
    ],
    ids=["malformed", "class", "priority"],
)
def test_a_pod_unlike_the_others_is_no_mere_number(document: Json) -> None:
    mirror = gathering(5, 2)
    mirror.apply("pods", added(document))
    assert mirror.agenda.tries.keys() == {KEY}
    in_it = {member.share_class for member in mirror.members[KEY].values()}
    known = mirror.state.gang(KEY)
    assert known is not None
    assert known.share_class == min((c for c in in_it if c is not None), default=0)


def test_one_that_goes_or_changes_is_no_mere_number() -> None:
    mirror = gathering(5, 3)
    mirror.apply("pods", deleted(pod("g-w-2", index=2)))
    assert mirror.agenda.tries.keys() == {KEY}
    mirror.agenda.take_question()
    mirror.apply("pods", added(let_go(pod("g-w-1", index=1), "4-1")))
    assert mirror.members[KEY].keys() and not mirror.agenda.tries, "it goes where it was planned"
    assert {m.pod.phase for m in mirror.members[KEY].values()} == {PodPhase.GATED, PodPhase.PLACED}


# --- whose pods are made next ------------------------------------------------------------------------


def job(name: str, priority: str, namespace: str = "default") -> Json:
    template = {
        "metadata": {"labels": {names.MANAGED_LABEL: "true"}, "annotations": {names.PRIORITY: priority}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"volcano.sh/vgpu-h20": "1"}}}]},
    }
    metadata = {"name": name, "namespace": namespace, "uid": f"job-{name}", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"tasks": [{"name": "w", "replicas": 2, "template": template}]}}


def standing_in_line(*gangs: tuple[str, str], members: int) -> tuple[Pending, Mirror]:
    mirror, pending = Mirror(TABLE), Pending()
    for at, (name, priority) in enumerate(gangs):
        mirror.apply("jobs", added(job(name, priority)))
        mirror.apply("podgroups", added(group(name, members=members, phase="Pending")))
        pending.look(f"default/{name}", mirror, float(at))
    return pending, mirror


def test_high_priority_goes_first_then_the_oldest_as_many_as_may_be_made_at_once() -> None:
    line = [("a", "low"), ("b", "high"), ("c", ""), ("d", "high"), ("e", "")]
    pending, mirror = standing_in_line(*line, members=filling.MOST_FILLING // 3 + 1)
    chosen = ["default/b", "default/d", "default/a"]
    assert pending.admit(mirror, 10.0) == chosen
    assert pending.admit(mirror, 11.0) == chosen, "until the API server says that they are enqueued"


def test_the_next_follow_as_these_fill_or_when_they_take_too_long() -> None:
    pending, mirror = standing_in_line(("a", ""), ("b", ""), ("c", ""), members=filling.MOST_FILLING)
    assert pending.admit(mirror, 10.0) == ["default/a"]
    mirror.apply("podgroups", added(group("a", members=1, phase="Inqueue")))
    mirror.apply("pods", added(pod("a-w-0", gang="a")))
    pending.look("default/a", mirror, 11.0)
    assert pending.admit(mirror, 11.0) == ["default/b"]
    mirror.apply("podgroups", added(group("b", members=filling.MOST_FILLING, phase="Inqueue")))
    pending.look("default/b", mirror, 11.0)
    assert pending.admit(mirror, 12.0) == [], "its pods are being made"
    assert pending.admit(mirror, 11.0 + filling.FILLED_BY_S) == ["default/c"]


@pytest.mark.parametrize("priority", ["", "high"])
def test_gangs_that_cannot_be_enqueued_keep_nobody_out(priority: str) -> None:
    ill = [("a", priority), ("b", priority)]  # the API server refuses each write to their PodGroups
    pending, mirror = standing_in_line(*ill, ("c", ""), ("d", "high"), members=filling.MOST_FILLING // 2)
    turns = [pending.admit(mirror, 10.0 + turn * filling.FILLED_BY_S) for turn in range(3)]
    first = ["default/a", "default/b"] if priority else ["default/d", "default/a"]
    assert turns[0] == first
    assert set(turns[0]) | set(turns[1]) == {f"default/{name}" for name in "abcd"}
    assert turns[2] == turns[0], "they are tried again when it is their turn"


class Line:
    """Gangs of several namespaces, each in a second of its own."""

    def __init__(self) -> None:
        self.mirror, self.pending, self.clock = Mirror(TABLE), Pending(), 0.0

    def joins(self, *gangs: str, members: int) -> None:
        for namespace, name in (gang.split("/") for gang in gangs):
            self.mirror.apply("jobs", added(job(name, "", namespace)))
            self.says(namespace, name, members, "Pending")

    def says(self, namespace: str, name: str, members: int, phase: str) -> Json:
        document = group(name, members=members, phase=phase)
        document["metadata"]["namespace"] = namespace
        self.mirror.apply("podgroups", added(document))
        self.pending.look(f"{namespace}/{name}", self.mirror, self.clock)
        return document

    def makes(self, namespace: str, name: str, gang: str) -> None:
        document = pod(name, gang=gang)
        document["metadata"] |= {"namespace": namespace, "uid": f"{namespace}-{name}"}
        self.mirror.apply("pods", added(document))

    def turn(self, members: int, *, after_s: float = 0.0) -> list[str]:
        """Who is enqueued after so long; the API server takes each of these writes."""
        self.clock += after_s
        chosen = self.pending.admit(self.mirror, self.clock)
        for key in chosen:
            namespace, name = key.split("/")
            self.says(namespace, name, members, "Inqueue")
        return chosen


def test_a_namespace_whose_pods_are_refused_holds_up_nobody_but_itself() -> None:
    """A quota, say: each of its gangs took five seconds of all others'."""
    line, half = Line(), filling.MOST_FILLING // 2
    line.joins(*(f"full/g{i}" for i in range(100)), members=half)
    assert line.turn(half) == ["full/g0", "full/g1"]
    line.joins("other/a", "other/b", "other/c", members=half)
    assert line.turn(half, after_s=filling.FILLED_BY_S) == ["full/g2", "full/g3"], "nobody knows yet"
    assert line.turn(half, after_s=filling.UNMOVED_S) == ["full/g4", "other/a", "other/b"]
    assert line.turn(half) == []
    line.mirror.apply("podgroups", deleted(line.says("other", "a", half, "Inqueue")))
    assert line.turn(half) == ["other/c"], "and of its own one after the other"


def test_one_that_is_only_behind_others_keeps_its_turns() -> None:
    """Whoever makes the pods has much to do: they come, but not all in five seconds."""
    line, half = Line(), filling.MOST_FILLING // 2
    line.joins(*(f"busy/g{i}" for i in range(9)), members=half)
    line.turn(half)
    line.turn(half, after_s=filling.FILLED_BY_S)
    for name in ("g0", "g1"):
        line.makes("busy", f"{name}-w-0", name)
    assert line.turn(half, after_s=filling.UNMOVED_S) == ["busy/g4", "busy/g5"]


def test_the_namespace_has_its_turns_again_once_a_gang_of_it_is_there() -> None:
    line = Line()
    line.joins(*(f"full/g{i}" for i in range(9)), members=1)
    line.pending.filling.slow["full"] = 0.0
    assert line.turn(1) == ["full/g0"]
    line.makes("full", "g0-w-0", "g0")
    assert line.turn(1) == [f"full/g{i}" for i in range(1, 9)]


def test_nor_is_it_slow_for_ever() -> None:
    line = Line()
    line.joins("full/a", "full/b", members=1)
    line.pending.filling.slow["full"] = 0.0
    assert line.turn(1, after_s=filling.SLOW_FOR_S) == ["full/a", "full/b"]
    assert not line.pending.filling.slow


def test_nobody_makes_way_for_a_job_that_is_being_deleted() -> None:
    """A finalizer may keep it for ever, and its controller makes none of its pods."""
    pending, mirror = standing_in_line(("a", "high"), members=2)
    assert pending.due(10.0) == ["default/a"]
    going = job("a", "high")
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "2"}
    mirror.apply("jobs", added(trim.of("jobs", going)))
    pending.look("default/a", mirror, 10.0)
    assert pending.due(10.0) == []
    assert pending.admit(mirror, 10.0) == []
