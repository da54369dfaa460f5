"""Gangs on cards that are cut into slices of fixed size, next to cards that are shared by size."""

from dataclasses import replace

import layout_tables
import sliced
from unit.core import make
from unit.core.asked import ask
from vc_egpu.core.check.invariants import check
from vc_egpu.core.layouts.table import Held, Layout, Template
from vc_egpu.core.model.cluster import (
    CardAsk,
    Gang,
    Node,
    NodeName,
    Pod,
    PodShape,
    Queue,
    QueueName,
    Share,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.topology.groups import GroupRule

Wanted = tuple[Gang, list[Pod]]
MIG = layout_tables.mig("mig", 81920)
ALL = Queue(
    QueueName("all"), capability={f"volcano.sh/vgpu-{m}": 1000 for m in ("h100", "910b3", "h20", "cut")}
)


def cards_of(plan: Plan, gang: str) -> list[tuple[str, str, int]]:
    """(card, template, start) of each member."""
    (admission,) = [one for one in plan.admissions if one.gang == gang]
    return [(s.card, s.slice, s.start) for m in admission.members.values() for _, s in m.shares]


def wanting(key: str, *shapes: PodShape, share_class: ShareClass = ShareClass.UNSET) -> Wanted:
    gang = make.gang(key, least=len(shapes), share_class=share_class)
    members = [make.pods(key, 1, one, task=f"t{i}")[0] for i, one in enumerate(shapes)]
    return gang, members


def world(nodes: list[Node], *wanted: Wanted) -> Snapshot:
    return make.snapshot(
        nodes, [gang for gang, _ in wanted], [pod for _, pods in wanted for pod in pods], [ALL]
    )


def mig_node(name: str = "m", cards: int = 1) -> Node:
    return sliced.node(name, MIG, cards=cards, model="h100", mib=81920)


def mig(name: str) -> PodShape:
    return sliced.shape(sliced.slice_ask(MIG, name, model="h100"))


def test_three_two_and_one_lie_on_one_card_without_overlap() -> None:
    snapshot = world([mig_node()], wanting("g", mig("3g"), mig("2g"), mig("1g")))
    plan = ask(snapshot)
    held = [Held(template, start) for _, template, start in cards_of(plan, "g")]
    assert len(held) == 3
    assert not MIG.misfit(held)


def test_what_no_card_holds_together_waits() -> None:
    plan = ask(world([mig_node()], wanting("g", mig("4g"), mig("3g"), mig("1g"))))
    assert plan.verdicts["g"].reason is Reason.WAITING_FOR_CARDS
    assert "1 slice 3g of h100" in plan.verdicts["g"].message


def test_a_second_card_takes_what_the_first_does_not_hold() -> None:
    plan = ask(world([mig_node(cards=2)], wanting("g", mig("4g"), mig("3g"), mig("1g"))))
    assert len({card for card, _, _ in cards_of(plan, "g")}) == 2


def test_a_share_of_any_size_does_not_lie_on_a_cut_card() -> None:
    loose = sliced.shape(CardAsk("main", "h100", 1, 1024, 10))
    plan = ask(world([mig_node()], wanting("g", loose)))
    assert plan.verdicts["g"].reason is Reason.WAITING_FOR_CARDS


def test_a_slice_does_not_lie_on_a_card_that_is_shared_by_size() -> None:
    whole = sliced.node("n", None, model="h100", mib=81920)
    plan = ask(world([whole], wanting("g", mig("1g"))))
    assert plan.verdicts["g"].reason is Reason.WAITING_FOR_CARDS


def npu(*names: str) -> list[PodShape]:
    layout = layout_tables.ASCEND_910B3
    return [sliced.shape(sliced.slice_ask(layout, name, model="910b3")) for name in names]


def npu_node(cards: int = 1) -> Node:
    return sliced.node("a", layout_tables.ASCEND_910B3, cards=cards, model="910b3")


def test_two_small_and_one_large_slice_fill_an_npu() -> None:
    small, large = "vir05_1c_16g", "vir10_3c_32g"
    plan = ask(world([npu_node()], wanting("g", *npu(small, small, large))))
    assert len(cards_of(plan, "g")) == 3
    refused = ask(world([npu_node()], wanting("g", *npu(small, small, small, large))))
    assert refused.verdicts["g"].reason is Reason.WAITING_FOR_CARDS


def test_a_whole_card_is_given_where_no_slice_lies() -> None:
    whole = sliced.shape(CardAsk("main", "910b3", 1, sliced.CARD_MIB, 100, whole=True))
    plan = ask(world([npu_node(2)], wanting("g", whole, *npu("vir05_1c_16g"))))
    assert len({card for card, _, _ in cards_of(plan, "g")}) == 2
    full = ask(world([npu_node(1)], wanting("g", whole, *npu("vir05_1c_16g"))))
    assert full.verdicts["g"].reason is Reason.WAITING_FOR_CARDS


def flat_node() -> Node:
    """One cut card whose slices are small in memory, so that cores alone decide."""
    layout = Layout("flat", {"n": 4}, (Template("half", 1024, 60, {"n": 1}),))
    return sliced.node("f", layout, cards=1)


def test_high_does_not_run_over_low_on_a_card_that_does_not_stack() -> None:
    layout = flat_node().cards[0].layout
    assert layout is not None
    one = sliced.shape(sliced.slice_ask(layout, "half"))
    snapshot = world(
        [flat_node()],
        wanting("high", one, share_class=ShareClass.HIGH),
        wanting("low", one, share_class=ShareClass.LOW),
    )
    plan = ask(snapshot)
    assert [admission.gang for admission in plan.admissions] == ["high"]


def test_three_kinds_of_cards_live_in_one_cluster() -> None:
    h20 = make.node("h", 1)
    snapshot = world(
        [mig_node(), npu_node(), h20],
        wanting("mig", mig("3g")),
        wanting("npu", *npu("vir10_3c_32g")),
        wanting("gpu", make.shape(1024, 10)),
    )
    plan = ask(snapshot)
    assert sorted(admission.gang for admission in plan.admissions) == ["gpu", "mig", "npu"]
    where = {one.gang: {member.node for member in one.members.values()} for one in plan.admissions}
    assert where == {"mig": {NodeName("m")}, "npu": {NodeName("a")}, "gpu": {NodeName("h")}}


def test_slices_that_overlap_break_a_rule() -> None:
    gang, (first, second) = wanting("g", mig("3g"), mig("2g"))
    placed = []
    for pod, template, start in ((first, "3g", 4), (second, "2g", 4)):
        size = MIG.template(template)
        assert size is not None
        share = Share(
            mig_node().cards[0].uuid, size.memory_mib, size.cores_percent, slice=template, start=start
        )
        placed.append(make.placed(pod, "m/0", node=NodeName("m"), shares=(("main", share),)))
    snapshot = make.snapshot([mig_node()], [gang], placed, [ALL])
    assert any("overlaps another slice" in str(found) for found in check(snapshot))


def box(free: range) -> Node:
    """Sixteen whole cards in two halves; only these are free."""
    plain = sliced.node("box", layout_tables.ASCEND_910B3, cards=16, model="910b3")
    rule = GroupRule(within=8, even=True)
    cards = tuple(
        replace(card, group=card.index // 8, rule=rule, usable=card.index in free) for card in plain.cards
    )
    return replace(plain, cards=cards)


def whole(cards: int) -> PodShape:
    return sliced.shape(CardAsk("main", "910b3", cards, sliced.CARD_MIB, 100, whole=True))


def test_a_gang_of_whole_cards_lies_inside_one_group() -> None:
    plan = ask(world([box(range(3, 16))], wanting("g", whole(8))))
    assert {card for card, _, _ in cards_of(plan, "g")} == {f"box-{n}" for n in range(8, 16)}


def test_a_gang_waits_where_no_group_has_so_many_cards_left() -> None:
    plan = ask(world([box(range(3, 13))], wanting("g", whole(8))))
    assert plan.verdicts["g"].reason is Reason.WAITING_FOR_CARDS
    apart = "There, free cards would be enough for 1, but not in a set that may go together"
    assert apart in plan.verdicts["g"].message
    plan = ask(world([box(range(3, 10))], wanting("g", whole(8))))
    assert "in a set" not in plan.verdicts["g"].message, "no eight are free"


VDCU = Layout(
    "vdcu",
    {"cu": 120, "slices": 4},
    (
        Template("cu15", 8190, 12, {"cu": 15, "slices": 1}),
        Template("cu90", 49140, 75, {"cu": 90, "slices": 1}),
    ),
)


def test_a_slice_waits_where_a_card_takes_no_more_and_has_memory_left() -> None:
    small = sliced.shape(sliced.slice_ask(VDCU, "cu15"))
    node = sliced.node("n", VDCU, cards=1)
    plan = ask(world([node], wanting("g", *[small] * 5)))
    told = plan.verdicts["g"].message
    assert "4 of 5 members would find a place now on 1 node with cut" in told
    assert "no place for" not in told, "it has, until the others are there"
    held = make.gang("held", least=4)
    there = [
        make.placed(
            pod,
            f"n/{n}",
            node=NodeName("n"),
            shares=(("main", Share(node.cards[0].uuid, 8190, 12, slice="cu15")),),
        )
        for n, pod in enumerate(make.pods("held", 4, small))
    ]
    fifth, waiting = wanting("g", small)
    told = ask(make.snapshot([node], [held, fifth], [*there, *waiting], [ALL])).verdicts["g"].message
    assert "1 card has memory and cores left, but no place for a slice cu15" in told


def test_a_gang_larger_than_a_group_takes_as_many_of_each() -> None:
    plan = ask(world([box(range(1, 15))], wanting("g", whole(12))))
    taken = [int(card.removeprefix("box-")) for card, _, _ in cards_of(plan, "g")]
    assert sorted(col // 8 for col in taken) == [0] * 6 + [1] * 6
