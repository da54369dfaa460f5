"""A gang that the scheduler refused is packed otherwise, and costs no victim for the same refusal again."""

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.model.cluster import Gang, Node, NodeName, Pod, Snapshot
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason

SMALL = make.shape(8192, 10)
WHOLE = make.shape(make.H20_MIB, 100)
REFUSED = frozenset({NodeName("n0")})


def nodes(count: int, cards: int = 4) -> list[Node]:
    return [make.node(f"n{number}", cards) for number in range(count)]


def per_node(plan: Plan) -> list[int]:
    (admission,) = plan.admissions
    placed = [place.node for place in admission.members.values()]
    return sorted(placed.count(node) for node in set(placed))


@pytest.mark.parametrize(("most", "count"), [(0, [8]), (4, [4, 4]), (1, [1] * 8)])
def test_fewer_members_go_to_one_node(most: int, count: list[int]) -> None:
    gang = make.gang("g", least=8, most_per_node=most)
    assert per_node(ask(make.snapshot(nodes(9), [gang], make.pods("g", 8, SMALL)))) == count


def test_members_of_several_shapes_count_together() -> None:
    gang = make.gang("g", least=4, most_per_node=2)
    members = [*make.pods("g", 2, SMALL), *make.pods("g", 2, WHOLE, task="big")]
    assert per_node(ask(make.snapshot(nodes(4), [gang], members))) == [2, 2]


def test_members_that_run_count_as_well() -> None:
    gang = make.gang("g", least=3, most_per_node=1)
    first, *rest = make.pods("g", 3, SMALL)
    plan = ask(make.snapshot(nodes(3), [gang], [make.placed(first, "n0/0"), *rest]))
    (admission,) = plan.admissions
    assert sorted(str(place.node) for place in admission.members.values()) == ["n1", "n2"]


def test_the_node_that_refused_is_left_out_where_there_are_others() -> None:
    gang = make.gang("g", least=2, most_per_node=1, blocked_nodes=REFUSED)
    for count, expected in ((3, ["n1", "n2"]), (2, ["n0", "n1"])):
        (admission,) = ask(make.snapshot(nodes(count), [gang], make.pods("g", 2, SMALL))).admissions
        assert sorted(str(place.node) for place in admission.members.values()) == expected


@pytest.mark.parametrize("minimum", [1, 2])
def test_no_more_is_charged_for_looking_twice(minimum: int) -> None:
    """Members above the minimum are charged while room is looked for."""
    gang = make.gang("g", least=minimum, most_per_node=1, blocked_nodes=REFUSED)
    there = [make.placed(pod, f"n1/{at}") for at, pod in enumerate(make.pods("g", minimum, SMALL, "old"))]
    queue = make.queue(capability={"volcano.sh/vgpu-h20": minimum + 1})
    found = make.snapshot(nodes(2), [gang], [*there, *make.pods("g", 2, SMALL)], [queue])
    (admission,) = ask(found).admissions
    assert [place.node for place in admission.members.values()] == ["n0"]


def test_the_sentence_says_that_fewer_go_to_one_node() -> None:
    gang = make.gang("g", least=3, most_per_node=1)
    verdict = ask(make.snapshot(nodes(2), [gang], make.pods("g", 3, SMALL))).verdicts["g"]
    assert verdict.reason is Reason.WAITING_FOR_CARDS
    assert "fewer members go to one node since some were refused, and 2 have room" in verdict.message


def contest(gang: Gang, *more: Node) -> Snapshot:
    """Low training holds both cards; the gang wants one of them."""
    low: list[Pod] = [make.placed(pod, f"n0/{at}") for at, pod in enumerate(make.pods("low", 2, WHOLE))]
    others = [make.gang("low", share_class=LOW, least=2), gang]
    return make.snapshot([*nodes(1, 2), *more], others, [*low, *make.pods("g", 1, WHOLE)])


def test_a_gang_that_was_refused_after_others_went_takes_free_room_only() -> None:
    assert ask(contest(make.gang("g", share_class=HIGH))).admissions[0].evictions
    plan = ask(contest(make.gang("g", share_class=HIGH, spares_since=50.0)))
    assert not plan.admissions
    assert "The scheduler refused it after others had gone for it" in plan.verdicts["g"].message
    free = contest(make.gang("g", share_class=HIGH, spares_since=50.0), make.node("n9", 1))
    (admission,) = ask(free).admissions
    assert not admission.evictions


@pytest.mark.parametrize(("created", "cards", "goes"), [(60.0, 1, True), (40.0, 1, False), (60.0, 0, False)])
def test_a_node_that_came_since_and_takes_it_is_an_answer(created: float, cards: int, goes: bool) -> None:
    gang = make.gang("g", share_class=HIGH, spares_since=50.0)
    found = contest(gang, make.node("n9", cards, created=created))
    taken = make.placed(make.pods("other", 1, WHOLE)[0], "n9/0")
    pods = {**found.pods, **({taken.uid: taken} if cards else {})}
    plan = ask(
        make.snapshot(found.nodes.values(), [*found.gangs.values(), make.gang("other")], pods.values())
    )
    assert bool(plan.admissions) is goes


def test_a_gang_that_a_node_refused_takes_free_room_only() -> None:
    plan = ask(contest(make.gang("g", share_class=HIGH, takes_free_room=True)))
    assert not plan.admissions
    said = "A node refused a pod of it although the plan had room there. It takes free room only"
    assert said in plan.verdicts["g"].message
    free = contest(make.gang("g", share_class=HIGH, takes_free_room=True), make.node("n9", 1))
    (admission,) = ask(free).admissions
    assert not admission.evictions


def test_who_may_evict_nobody_is_not_told_of_it() -> None:
    plan = ask(contest(make.gang("g", share_class=LOW, takes_free_room=True)))
    assert "free room only" not in plan.verdicts["g"].message
