"""The room check: the ledger's rules once more, at the door of the node."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.containers.admission import (
    CardLimits,
    HeldShare,
    ShareClass,
    asks_more,
    asleep,
    host_refusal,
    planned,
    refusal,
    rivals,
)

CARD = CardLimits("GPU-0", memory_mib=98304)
GIB = 1024


def share(pod: str, gib: int, cores: int = 0, klass: str = "unset", **changes: object) -> HeldShare:
    values = {
        "pod_uid": pod,
        "container": "main",
        "uuid": "GPU-0",
        "memory_mib": gib * GIB,
        "cores_percent": cores,
        "share_class": klass,
        **changes,
    }
    return HeldShare(**values)  # type: ignore[arg-type]


def test_high_takes_the_time_of_low() -> None:
    """The example of the design: training 60 GiB and 100 cores, inference 30 GiB and 50 cores."""
    training = share("t", 60, 100, "low")
    assert refusal(CARD, [training], share("i", 30, 50, "high")) == ""
    assert refusal(CARD, [training], share("i", 48, 50, "high")) == (
        "card GPU-0: 49152 MiB do not fit, 61440 of 98304 MiB are held by pod t"
    )


def test_nobody_takes_the_time_of_unset() -> None:
    held = [share("u", 10, 60, "unset")]
    no_room = "41 cores do not fit, 60 of 100 of class"
    assert f"{no_room} high and unset" in refusal(CARD, held, share("h", 1, 41, "high"))
    assert f"{no_room} unset and low" in refusal(CARD, held, share("l", 1, 41, "low"))
    assert refusal(CARD, held, share("h", 1, 40, "high")) == ""


def test_a_whole_card_share_stands_alone() -> None:
    whole = share("w", 96, 100)
    assert refusal(CARD, [], whole) == ""
    assert refusal(CARD, [share("x", 1)], whole)
    assert refusal(CARD, [whole], share("x", 1))


def test_native_stands_alone_even_with_room() -> None:
    native = share("n", 10, 0, native=True)
    assert "asked for as a whole, but pod x hold shares" in refusal(CARD, [share("x", 1)], native)
    assert "held as a whole by pod n" in refusal(CARD, [native], share("x", 1))


def test_sharers_and_ratios() -> None:
    few = CardLimits("GPU-0", 98304, max_sharers=2)
    assert "2 sharers, the limit is 2" in refusal(few, [share("a", 1), share("b", 1)], share("c", 1))
    half = CardLimits("GPU-0", 98304, memory_ratio=0.5)
    assert "of 49152 MiB" in refusal(half, [share("a", 40)], share("b", 9))
    wide = CardLimits("GPU-0", 98304, core_ratio=1.1)
    assert refusal(wide, [share("a", 1, 100)], share("b", 1, 10)) == ""
    assert refusal(wide, [share("a", 1, 100)], share("b", 1, 11))


@pytest.mark.parametrize(("named", "other"), [("low", "high"), ("high", "low")])
def test_a_ratio_that_is_for_one_class(named: ShareClass, other: ShareClass) -> None:
    """In whatever order they come: the sum without that class stays within what there is."""
    card = CardLimits("GPU-0", 98304, core_ratio=1.5, ratio_class=named)
    mine, theirs = share("a", 1, 80, named), share("b", 1, 80, other)
    plain = share("c", 1, 70)
    assert refusal(card, [mine], plain) == refusal(card, [plain], mine) == ""
    assert "of 100 of class" in refusal(card, [theirs], plain)
    assert "of 100 of class" in refusal(card, [plain], theirs)
    assert "of 150 of class" in refusal(card, [mine, plain], share("d", 1, 1, named))


def test_the_later_leader_wins_among_newcomers_but_what_is_in_stays() -> None:
    held = share("in", 60, epoch=1)
    late = share("late", 30, epoch=3)
    new = share("new", 30, epoch=2)
    assert {s.pod_uid for s in rivals([held], [late], new)} == {"in", "late"}
    assert refusal(CARD, rivals([held], [late], new), new)
    assert refusal(CARD, rivals([held], [new], late), late) == ""
    elsewhere = share("late", 90, epoch=3, uuid="GPU-1")
    assert rivals([held], [elsewhere], new) == [held], "one pod may wait for several cards"


def test_a_container_is_no_rival_of_itself() -> None:
    again = share("p", 96, 100, epoch=2)
    assert rivals([again], [share("p", 96, 100, epoch=3)], again) == []
    assert rivals([share("p", 10, container="other")], [], again) != []


def test_newcomers_are_what_their_plans_say() -> None:
    spilling = CardShare(uuid="GPU-0", memory_mib=4000, cores=25, physical_mib=3000)
    cards = Cards(pod_uid="p", node="n", plan_id="7-1", share_class="low", containers={"main": (spilling,)})
    expected = HeldShare("p", "main", "GPU-0", 4000, 25, share_class="low", epoch=7, physical_mib=3000)
    assert planned(cards) == [expected]
    whole = CardShare(uuid="GPU-1", memory_mib=98304, cores=0)
    (native,) = planned(cards.model_copy(update={"native": True, "containers": {"main": (whole,)}}))
    assert native.native


def test_who_takes_more_of_any_card_takes_more() -> None:
    def held(first: int, second: int, **changes: Any) -> list[HeldShare]:
        return [share("p", first, **changes), share("p", second, uuid="GPU-1", **changes)]

    before = held(10, 10)
    assert not asks_more(before, held(10, 9))
    assert asks_more(before, held(9, 11))
    assert asks_more(before, held(11, 9))
    assert asks_more(before, held(9, 9, cores=1))
    assert asks_more(before, held(9, 9, klass="low")), "low takes of others what unset did not"
    assert asks_more(held(10, 10), held(10, 10, physical_mib=GIB)), "of the host's memory"
    assert asks_more(held(10, 10, physical_mib=GIB), held(10, 10)), "of the card's"


@pytest.mark.parametrize(("memory", "cores"), [(0, 0), (-1, 0), (1, 101), (1, -1)])
def test_shares_that_cannot_be(memory: int, cores: int) -> None:
    with pytest.raises(ValueError, match="a share of"):
        HeldShare("p", "c", "GPU-0", memory, cores)


_SHARES = st.builds(
    lambda gib, cores, klass: (gib, cores, klass),
    st.integers(1, 50),
    st.integers(0, 100),
    st.sampled_from(["high", "unset", "low"]),
)


@given(st.lists(_SHARES, max_size=8), st.randoms())
def test_what_gets_in_one_by_one_fits_in_any_order(asked: list[tuple[int, int, str]], rng: object) -> None:
    held: list[HeldShare] = []
    for number, (gib, cores, klass) in enumerate(asked):
        new = share(f"p{number}", gib, cores, klass)
        if not refusal(CARD, held, new):
            held.append(new)
    assert sum(s.memory_mib for s in held) <= CARD.memory_mib
    for low_or_high in ("high", "low"):
        assert sum(s.cores_percent for s in held if s.share_class in (low_or_high, "unset")) <= 100
    for order in itertools.islice(itertools.permutations(held), 4):
        for position, one in enumerate(order):
            assert refusal(CARD, order[:position], one) == ""


# --- memory that may spill to the host ---------------------------------------------------------------

TWICE = CardLimits("GPU-0", 98304, memory_ratio=2.0)


def spilling(pod: str, gib: int, on_card_gib: int, **changes: Any) -> HeldShare:
    return share(pod, gib, physical_mib=on_card_gib * GIB, **changes)


def test_two_that_each_want_the_whole_card_share_it_where_they_may_spill() -> None:
    first = spilling("a", 96, 48)
    assert refusal(TWICE, [first], spilling("b", 96, 48)) == ""
    assert refusal(TWICE, [first], share("b", 48)) == ""
    assert refusal(TWICE, [first], share("b", 49)) == (
        "card GPU-0: 50176 MiB on the card do not fit, 49152 of 98304 MiB are held by pod a"
    )
    assert "1024 MiB do not fit, 196608 of 196608" in refusal(
        TWICE, [first, spilling("b", 96, 48)], spilling("c", 1, 1)
    )


def test_what_spills_fits_the_hosts_memory() -> None:
    held = [spilling("a", 96, 48), share("plain", 10)]
    assert host_refusal(96 * GIB, held, [spilling("b", 96, 48)]) == ""
    assert host_refusal(96 * GIB - 1, held, [spilling("b", 96, 48)]) == (
        "49152 MiB may spill to the host and do not fit, 49152 of 98303 MiB are held by pod a"
    )
    assert host_refusal(0, [], [spilling("b", 2, 1)]) == (
        "1024 MiB may spill to the host and do not fit, 0 of 0 MiB are free"
    )
    assert host_refusal(0, held, [share("b", 96)]) == "", "what does not spill asks nothing of the host"
    more = [spilling("a", 96, 47)]
    assert host_refusal(49 * GIB, [*held, *more], more) == "", "who asks for more is not counted twice"


def test_suspended_shares_leave_the_card_and_take_the_host() -> None:
    low = share("low", 96, 100, "low")
    whole = share("high", 96, 100, "high")
    assert refusal(CARD, [low], whole)
    gone = asleep([low], {"low"})
    assert refusal(CARD, gone, whole) == ""
    assert refusal(CARD, gone, share("native", 96, 100, native=True)) == ""
    assert [one.host_mib for one in gone] == [96 * GIB]
    assert "1 sharers" in refusal(CardLimits("GPU-0", 98304, max_sharers=1), gone, whole)


@pytest.mark.parametrize("physical", [0, -1, 2])
def test_parts_on_the_card_that_cannot_be(physical: int) -> None:
    with pytest.raises(ValueError, match="on the card"):
        HeldShare("p", "c", "GPU-0", 1, 0, physical_mib=physical)
    assert HeldShare("p", "c", "GPU-0", 2, 0, physical_mib=1).host_mib == 1
