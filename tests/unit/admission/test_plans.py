"""The plan annotation: what goes in comes out, large gangs fit, changed nodes are noticed."""

import uuid

import pytest
from unit.admission import build
from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import (
    Card,
    CardId,
    MemberPlacement,
    Node,
    NodeName,
    PodUid,
    QueueName,
    Resources,
    Share,
    plan_key,
)
from vc_egpu.volcano.codec import plans, pod_codec
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError


def uid() -> PodUid:
    return PodUid(str(uuid.uuid4()))


def node(name: str, cards: int = 8) -> Node:
    return Node(
        NodeName(name),
        Resources(),
        cards=tuple(Card(CardId(f"GPU-{name}-{i}"), i, "h20", 98304) for i in range(cards)),
    )


def placed(on: Node, *indices: int, memory_mib: int = 4096) -> MemberPlacement:
    return MemberPlacement(on.name, tuple(("main", Share(on.cards[i].uuid, memory_mib, 25)) for i in indices))


def record(members: dict[str, PlannedMember], **changes: object) -> PlanRecord:
    values: dict[str, object] = {
        "plan_id": plans.plan_id(3, 17),
        "group_uid": "g-1",
        "state": "ready",
        "members": members,
        **changes,
    }
    return PlanRecord(**values)  # type: ignore[arg-type]


def test_round_trip_with_tasks_bare_pods_and_members_without_cards() -> None:
    a, b = node("a"), node("b", 4)
    bare, odd = uid(), PodUid("not-a-uuid")
    plan = record(
        {
            "worker/0": PlannedMember(placed(a, 0, 7), uid()),
            "worker/1": PlannedMember(placed(b, 3), uid()),
            "ps/0": PlannedMember(MemberPlacement(None), uid()),
            str(bare): PlannedMember(placed(b, 1), bare),
            str(odd): PlannedMember(placed(a, 2), odd),
            "late/0": PlannedMember(placed(a, 5)),
        },
        state="waiting",
        victims=frozenset({uid(), odd}),
        suspends=frozenset({odd}),
        created=1_760_000_000.5,
    )
    nodes = {n.name: n for n in (a, b)}
    assert plans.decode(plans.encode(plan, nodes), nodes) == plan


@pytest.mark.parametrize(
    ("task", "index"),
    [
        ("w", "0"),
        ("w", "1048575"),
        ("w", "1048576"),
        ("a/b", "0"),
        ("w" * 63, "3"),
        ("w" * 64, "3"),
        ("w", "-1"),
        ("", "0"),
    ],
)
def test_whatever_a_pod_says_of_its_place_the_plan_that_names_it_can_be_read(task: str, index: str) -> None:
    """Pods of no Job can say anything: a plan that nobody can read is taken back and made again for ever."""
    a = node("a")
    document = build.pod(annotations={names.TASK_SPEC: task, names.TASK_INDEX: index})
    member = pod_codec.pod(document, build.TABLE).pod
    plan = record({plan_key(member): PlannedMember(placed(a, 0), member.uid)})
    assert plans.decode(plans.encode(plan, {a.name: a}), {a.name: a}) == plan


@pytest.mark.parametrize("cause", Cause)
def test_a_plan_says_why_its_victims_go(cause: Cause) -> None:
    plan = record({}, state="waiting", victims=frozenset({uid()}), cause=cause)
    text = plans.encode(plan, {})
    assert plans.decode(text, {}) == plan
    assert ("cause" in text) is (cause is not Cause.PRIORITY), "such a plan reads as it always did"


def test_a_plan_says_what_queues_have_and_deserve() -> None:
    accounts = (
        Account("research", "volcano.sh/vgpu-h20", 0, 2_000_000),
        Account("serving", "volcano.sh/vgpu-h20", 1 << 61, 0),
    )
    plan = record({}, state="waiting", victims=frozenset({uid()}), cause=Cause.RECLAIM, accounts=accounts)
    assert plans.decode(plans.encode(plan, {}), {}) == plan
    assert not plan.ready().accounts, "nobody goes for it any more"


def test_a_plan_says_in_which_cap_its_victims_make_room() -> None:
    plan = record({}, state="waiting", victims=frozenset({uid()}), relieves=QueueName("org"))
    assert plans.decode(plans.encode(plan, {}), {}) == plan
    assert plan.ready().relieves is None


def test_a_plan_of_a_version_without_causes_makes_room_for_priority() -> None:
    text = '{"version":1,"id":"3-17","group":"g-1","state":"waiting","victims":["=pod"]}'
    assert plans.decode(text, {}).cause is Cause.PRIORITY
    later = plans.decode(text.replace('"state"', '"cause":"greed","state"'), {})
    assert later.cause is Cause.PRIORITY, "a word of a later version spoils nothing else"


def test_whole_and_native_shares_keep_their_kind() -> None:
    a = node("a")
    shares = (
        ("one", Share(a.cards[0].uuid, 98304, 100, whole=True)),
        ("two", Share(a.cards[1].uuid, 98304, 100, native=True)),
        ("two", Share(a.cards[2].uuid, 98304, 100, whole=True, native=True)),
    )
    plan = record({"w/0": PlannedMember(MemberPlacement(a.name, shares), uid())})
    assert plans.decode(plans.encode(plan, {a.name: a}), {a.name: a}) == plan


def test_what_may_spill_keeps_its_part_on_the_card() -> None:
    a = node("a")
    shares = tuple(
        ("main", Share(card.uuid, 4096, 25, physical_mib=part))
        for card, part in zip(a.cards[:3], (2048, 2048, None), strict=True)
    )
    plan = record({"w/0": PlannedMember(MemberPlacement(a.name, shares), uid())})
    nodes = {a.name: a}
    text = plans.encode(plan, nodes)
    assert plans.decode(text, nodes) == plan
    assert '["main",2,4096,25,0,2048],["main",1,4096,25,0]' in text, "who does not spill has a row as before"
    with pytest.raises(AnnotationError, match="5000 of 4096 MiB lie on the card"):
        plans.decode(text.replace("2048", "5000"), nodes)


def test_who_is_suspended_is_a_victim() -> None:
    with pytest.raises(ValueError, match="suspends pods that are no victims"):
        record({}, state="waiting", victims=frozenset({uid()}), suspends=frozenset({uid()}))


def test_the_largest_gang_fits_into_an_annotation() -> None:
    nodes = {
        n.name: n
        for n in (node(f"ip-10-101-{i // 256}-{i % 256}.eu-central-1.compute.internal") for i in range(2048))
    }
    plan = record(
        {f"worker/{i}": PlannedMember(placed(n, *range(8)), uid()) for i, n in enumerate(nodes.values())}
    )
    text = plans.encode(plan, nodes)
    assert len(text) < 256 * 1024
    assert plans.decode(text, nodes) == plan


def test_one_member_more_is_refused_by_name() -> None:
    a = node("a")
    plan = record({f"w/{i}": PlannedMember(placed(a, 0)) for i in range(2049)})
    with pytest.raises(plans.PlanTooLargeError, match="2049 members, the limit is 2048"):
        plans.encode(plan, {a.name: a})


def test_too_many_bytes_are_refused_by_name() -> None:
    nodes = {n.name: n for n in (node(f"{i:04d}-" + "x" * 200) for i in range(2048))}
    plan = record({f"w/{i}": PlannedMember(placed(n, 0)) for i, n in enumerate(nodes.values())})
    with pytest.raises(plans.PlanTooLargeError, match="bytes, the limit is"):
        plans.encode(plan, nodes)


def test_as_many_victims_as_can_be_read_are_written() -> None:
    """One more would be taken off again by whoever reads it, and written anew, without end."""
    victims = [uid() for _ in range(plans.MAX_VICTIMS + 1)]
    member = {"w/0": PlannedMember(MemberPlacement(None), uid())}
    full = record(member, state="waiting", victims=frozenset(victims[1:]))
    assert plans.decode(plans.encode(full, {}), {}).victims == full.victims
    with pytest.raises(plans.PlanTooLargeError, match="8193 victims, the limit is 8192"):
        plans.encode(record(member, state="waiting", victims=frozenset(victims)), {})


def test_a_node_with_other_cards_loses_its_members_only() -> None:
    a, b = node("a"), node("b")
    plan = record({"w/0": PlannedMember(placed(a, 0), uid()), "w/1": PlannedMember(placed(b, 0), uid())})
    text = plans.encode(plan, {a.name: a, b.name: b})
    swapped = Node(b.name, b.allocatable, cards=tuple(reversed(node("c").cards)))
    read = plans.decode(text, {a.name: a, b.name: swapped})
    assert set(read.members) == {"w/0"}
    assert read.lost == {"w/1"}
    assert plans.decode(text, {b.name: b}).lost == {"w/0"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version":2,"id":"1-1","group":"g","state":"ready"}',
        '{"version":1,"id":"x","group":"g","state":"ready"}',
        '{"version":1,"id":"1-1","group":"g","state":"waiting"}',
        '{"version":1,"id":"1-1","group":"g","state":"ready","tasks":{"w":[[0,0,0,"0",""]]}}',
        '{"version":1,"id":"1-1","group":"g","state":"ready","shapes":[[["m",1,1,1,0]]],"tasks":{"w":[[0,-1,0,"00",""]]}}',
        '{"version":1,"id":"1-1","group":"g","state":"ready","shapes":[[["m",1,-5,1,0]]]}',
        '{"version":1,"id":"1-1","group":"g","state":"ready","shapes":[[["m",1,1,1e30,0]]]}',
        '{"version":1,"id":"1-1","group":"g","state":"ready","pods":[["!!",-1,0,""]]}',
        '{"version":1,"id":"1-1","group":"g","state":"ready","shapes":[[]],"tasks":{"w":[[0,-1,0,"",""],[0,-1,0,"",""]]}}',
    ],
)
def test_garbage_is_an_annotation_error(text: str) -> None:
    with pytest.raises(AnnotationError):
        plans.decode(text, {})


def test_the_epoch_is_read_from_the_id() -> None:
    assert plans.epoch_of(plans.plan_id(7, 9)) == 7
    assert plans.epoch_of("forged") == -1
