"""Slots: an ill card takes free slots away, never one that is in use."""

from hypothesis import given
from hypothesis import strategies as st
from vc_egpu_node.cards.inventory import Offer, slot_id, slots


def test_all_slots_of_all_cards() -> None:
    result = slots(Offer(2, 0), 3, frozenset())
    assert [slot.id for slot in result] == ["s0", "s1", "s2", "s3", "s4", "s5"]
    assert all(slot.healthy for slot in result)


def test_an_ill_card_takes_the_last_free_slots() -> None:
    result = slots(Offer(2, 1), 3, frozenset({"s4", "s5"}))
    assert [slot.id for slot in result if not slot.healthy] == ["s1", "s2", "s3"]


def test_what_runs_on_an_ill_card_takes_none_of_another_ones_slots() -> None:
    """Whole cards have a slot each: the one that is free stays free beside one that fell ill while held."""
    result = slots(Offer(2, 1, out_held=1), 1, frozenset({"s0"}))
    assert [(slot.id, slot.healthy) for slot in result] == [("s0", True), ("s1", True)]
    result = slots(Offer(2, 1, out_held=1), 3, frozenset({"s0", "s1"}))
    assert [slot.id for slot in result if not slot.healthy] == ["s4", "s5"]
    result = slots(Offer(1, beside=1), 1, frozenset({"s0"}))  # the ill one is not even listed any more
    assert [(slot.id, slot.healthy) for slot in result] == [("s0", True), ("s1", True)]


def test_slots_in_use_stay_although_the_cards_are_gone() -> None:
    result = slots(Offer(0, 0), 100, frozenset({"s150", "s7"}))
    assert [(slot.id, slot.healthy) for slot in result] == [("s7", True), ("s150", True)]


@given(
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 120),
    st.integers(1, 12),
    st.sets(st.integers(0, 120)),
)
def test_rules(cards: int, out: int, held: int, per_card: int, used: set[int]) -> None:
    out = min(out, cards)
    held = min(held, len(used)) if out else 0
    in_use = frozenset(slot_id(number) for number in used)
    result = slots(Offer(cards, out, held), per_card, in_use)
    healthy = {slot.id for slot in result if slot.healthy}
    listed = {slot.id for slot in result}
    everything = {slot_id(number) for number in range(cards * per_card)}
    assert len(listed) == len(result)
    assert listed == everything | in_use
    assert in_use <= healthy
    free = everything - in_use
    assert len(listed) - len(healthy) == min(max(0, out * per_card - held), len(free))
