"""Pods that come to another gang, or to none, after they were made.

Policies keep everybody but controllers from that. Cluster administrators may do without policies, and of what
other operators make a PodGroup's name may come onto a pod late, by its controller.
"""

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, let_go, node, pod, queue, version
from unit.admission.test_steps import planned
from vc_egpu.admission.execution.steps import Authority, next_step
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.words import names

OLD, NEW = "default/g", "default/h"


def moved(document: Json, *, gang: str = "h", managed: bool = True) -> Json:
    """The same pod, after somebody wrote to it."""
    metadata = document["metadata"]
    annotations = {**metadata["annotations"], names.GROUP_NAME: gang}
    labels = metadata["labels"] if managed else {}
    fields = {"annotations": annotations, "labels": labels, "resourceVersion": version()}
    return {**document, "metadata": {**metadata, **fields}}


def member(index: int) -> Json:
    return pod(f"g-w-{index}", index=index, uid=f"pod-{index}")


def mirror_of(*documents: Json, text: str = "", members: int = 2) -> Mirror:
    """Two gangs and these pods."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("queues", added(queue()))
    for document in documents:
        mirror.apply("pods", added(document))
    annotations = {names.PLAN: text} if text else {}
    mirror.apply("podgroups", added(group("g", members=members, annotations=annotations)))
    mirror.apply("podgroups", added(group("h", members=1)))
    return mirror


def books(mirror: Mirror) -> tuple[object, ...]:
    """All that is kept of gangs by their pods."""
    members = {key: set(found) for key, found in mirror.members.items()}
    tallies = {key: tally.rank(0) for key, tally in mirror.tallies.items()}  # type: ignore[arg-type]
    outstanding = {key: set(found.outstanding) for key, found in mirror.groups.items()}
    return members, tallies, outstanding, mirror.snapshot().gangs, mirror.snapshot().pods


RUNS = let_go(member(0), "5-1", bound=True, phase="Running")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (member(0), moved(member(0))),
        (RUNS, moved(RUNS)),
        (RUNS, moved(RUNS, managed=False)),
        (moved(RUNS, managed=False), moved(RUNS)),
    ],
    ids=["gated", "running", "managed no more", "managed again"],
)
def test_its_books_are_those_of_whoever_sees_it_for_the_first_time(before: Json, after: Json) -> None:
    mirror = mirror_of(before, member(1))
    mirror.agenda.take_looks()
    mirror.agenda.take_question()
    now = {**after, "metadata": {**after["metadata"], "resourceVersion": version()}}
    mirror.apply("pods", added(now))
    assert books(mirror) == books(mirror_of(now, member(1)))
    assert mirror.agenda.looks
    mirror.apply("pods", deleted(now))
    mirror.apply("pods", deleted(member(1)))
    assert (mirror.members, mirror.pods) == ({}, {})


def test_the_plan_of_the_gang_that_it_left_is_not_its_own() -> None:
    documents = (member(0), member(1))
    text = plans.encode(planned(), mirror_of().nodes)
    mirror = mirror_of(*documents, text=text)
    assert mirror.groups[OLD].outstanding == {"w/0", "w/1"}
    mirror.agenda.take_question()
    mirror.apply("pods", added(moved(member(0))))
    assert mirror.groups[OLD].outstanding == {"w/1"}
    assert {OLD, NEW} <= mirror.agenda.looks
    assert NEW in mirror.agenda.tries
    next_step(mirror.groups[OLD], mirror.members[OLD], Authority(epoch=5))
    mirror.apply("podgroups", added(group("g", annotations={names.PLAN: text})))
    assert mirror.groups[OLD].outstanding == {"w/1"}
    assert PodUid("pod-0") in mirror.members[NEW]
