"""One owner, pods of two classes one after the other: each runs as what it was given its cards for."""

import random
from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, let_go, node, pod, queue, version
from vc_egpu.admission.state.gangs import NO_TEMPLATE, gang_of
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.state.tally import Tally
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    MemberPlacement,
    NodeName,
    PodUid,
    Share,
    ShareClass,
    class_of,
)
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words import names

Json = dict[str, Any]
KEY = "default/g"
LOW, UNSET, HIGH = ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH


def member(number: int, share_class: str) -> Json:
    annotations = {names.PRIORITY: share_class} if share_class else {}
    return pod(f"g-w-{number}", index=number, uid=f"pod-{number}", annotations=annotations)


def world(*pods: Json) -> Mirror:
    mirror = Mirror(TABLE)
    for kind, document in (("nodes", node()), ("queues", queue()), ("podgroups", group(members=1))):
        mirror.apply(kind, added(document))
    for document in pods:
        mirror.apply("pods", added(document))
    return mirror


def gang(mirror: Mirror) -> Gang:
    return mirror.snapshot().gangs[KEY]


def runs_as(mirror: Mirror, number: int) -> ShareClass | None:
    snapshot = mirror.snapshot()
    return class_of(snapshot.pods[PodUid(f"pod-{number}")], snapshot.gangs[KEY], None)


@pytest.mark.parametrize(("before", "now"), [("high", "low"), ("low", "high"), ("high", "")])
def test_who_waits_is_placed_as_what_it_asks_for_and_who_runs_stays_what_it_is(before: str, now: str) -> None:
    words = {"high": HIGH, "low": LOW, "": UNSET}
    mirror = world(let_go(member(0, before), "1-1", phase="Running"), member(1, now))
    assert gang(mirror).share_class is words[now]
    assert runs_as(mirror, 0) is words[before]
    assert runs_as(mirror, 1) is words[now]


def test_who_waits_is_not_served_by_the_priority_of_another_class() -> None:
    inference, training = member(0, "high"), member(1, "low")
    inference["spec"]["priority"], training["spec"]["priority"] = 1000, -10
    mirror = world(let_go(inference, "1-1", phase="Running"), training)
    assert gang(mirror).priority_value == -10


def test_once_nobody_waits_a_gang_of_two_classes_has_the_lower_one() -> None:
    waiting = member(1, "high")
    mirror = world(let_go(member(0, "low"), "1-1", phase="Running"), waiting)
    mirror.apply("pods", added(let_go(waiting, "1-2", phase="Running")))
    assert gang(mirror).share_class is LOW
    assert (runs_as(mirror, 0), runs_as(mirror, 1)) == (LOW, HIGH)


def test_of_two_that_wait_nobody_gets_the_higher_class() -> None:
    assert gang(world(member(0, "high"), member(1, "low"))).share_class is LOW


def test_who_needs_no_cards_and_names_no_class_changes_nothing() -> None:
    mirror = world(let_go(member(0, "low"), "1-1", phase="Running"))
    helper = member(1, "")
    del helper["metadata"]["annotations"][names.REQUEST]
    mirror.apply("pods", added(helper))
    assert gang(mirror).share_class is LOW


def planned(mirror: Mirror, *numbers: int) -> None:
    shares = (("main", Share(CardId("GPU-n1-0"), 30000, 30)),)
    placement = MemberPlacement(node=NodeName("n1"), shares=shares)
    members = {f"w/{n}": PlannedMember(placement, PodUid(f"pod-{n}")) for n in numbers}
    record = PlanRecord(plan_id="1-1", group_uid="group-g", state="ready", members=members)
    text = plans.encode(record, mirror.nodes)
    mirror.apply("podgroups", added(group(members=1, annotations={names.PLAN: text})))


def test_a_plan_is_carried_out_to_its_end_as_what_it_was_made_for() -> None:
    """Once the lower one of two has gone, the other must not become more than what it was booked as."""
    first = member(0, "low")
    mirror = world(first, member(1, "high"))
    planned(mirror, 0, 1)
    mirror.apply("pods", added(let_go(first, "1-1", phase="Running")))
    assert gang(mirror).plan is not None
    assert gang(mirror).share_class is LOW


def test_a_plan_is_looked_at_again_when_its_gang_becomes_of_another_class() -> None:
    mirror = world(member(0, "high"))
    planned(mirror, 0)
    mirror.agenda.reviewed()
    mirror.apply("pods", added(member(1, "low")))
    assert gang(mirror).share_class is LOW
    assert mirror.agenda.unreviewed == {"n1"}


@pytest.mark.parametrize("seed", range(60))
def test_what_is_known_of_a_gang_is_what_its_members_say(seed: int) -> None:
    """It is read again only where a change may matter: after each it is as if it had been."""
    rng = random.Random(seed)
    mirror, there = world(), dict[int, Json]()
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "set", "uid": "set", "controller": True}
    few = rng.choice([["low"], ["high", "low", ""]])
    for _ in range(40):
        number = rng.randrange(5)
        known = there.get(number)
        if known is None:
            annotations = {names.PRIORITY: said} if (said := rng.choice(few)) else {}
            annotations |= {names.QUEUE_NAME: rng.choice(["team", "other"])} if rng.random() < 0.3 else {}
            document = pod(f"g-{number}", uid=f"pod-{number}", annotations=annotations, owners=[owner])
            document["spec"]["priority"] = rng.choice([-10, 0, 1000])
            if rng.random() < 0.2:
                del document["metadata"]["annotations"][names.REQUEST]
        elif rng.random() < 0.3:
            mirror.apply("pods", deleted(there.pop(number)))
            document = None
        elif "schedulingGates" in known["spec"]:
            document = let_go(known, "1-1", phase="Running")
        else:
            ended = rng.choice(["Running", "Succeeded", "Failed"])
            document = {**known, "metadata": {**known["metadata"], "resourceVersion": version()}}
            document["status"] = {"phase": ended}
        if document is not None:
            there[number] = document
            mirror.apply("pods", added(document))
        members = mirror.members.get(KEY, {})
        if KEY in mirror.snapshot().gangs:
            tally = Tally()
            for member_now in members.values():
                tally.change(None, member_now)
            assert gang(mirror) == gang_of(mirror.groups[KEY], members, tally, NO_TEMPLATE)
