"""Whose turn it is: by stories, and in worlds where programs begin, idle and hand over as they like."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from vc_egpu_node.swapping.turns import Member, Place, Rules, Turn, turn

STAY_S = 60.0
RULES = Rules(min_stay_s=STAY_S, host_mib=200_000)
M = 96_000
DAY = Member("day", "ns/day", frozenset({"GPU-0"}), M, Place.CARD, since_s=0.0, active=True)
NIGHT = Member("night", "ns/night", frozenset({"GPU-0"}), M, Place.AWAY, since_s=0.0)
WANTS = replace(NIGHT, wanted_s=10.0)
NOBODY = frozenset[str]()


def test_nobody_moves_while_the_other_one_idles() -> None:
    assert turn([DAY, NIGHT], RULES, 10_000.0) == Turn()


def test_the_idle_one_leaves_for_the_one_that_wants() -> None:
    due = turn([replace(DAY, active=False), WANTS], RULES, STAY_S)
    assert due == Turn(frozenset({"day"}), NOBODY, frozenset({"night"}), due.reasons)


def test_the_next_one_comes_once_the_card_is_free() -> None:
    for place in (Place.LEAVING, Place.COMING, Place.CARD):
        assert turn([replace(DAY, place=place), WANTS], RULES, 30.0).come == NOBODY
    assert turn([replace(DAY, place=Place.AWAY), WANTS], RULES, 30.0).come == {"night"}
    assert turn([WANTS], RULES, 30.0).come == {"night"}


def test_one_that_nobody_shares_with_comes_by_itself() -> None:
    assert turn([NIGHT], RULES, 0.0).come == {"night"}
    assert turn([NIGHT, replace(DAY, cards=frozenset({"GPU-1"}))], RULES, 0.0).come == {"night"}
    both_idle = [NIGHT, replace(DAY, place=Place.AWAY)]
    assert turn(both_idle, RULES, 0.0) == Turn(), "neither wants it, and the first that does gets it"


def test_both_at_work_take_turns_of_the_least_stay() -> None:
    early = turn([DAY, WANTS], RULES, STAY_S - 1)
    assert early.leave == NOBODY
    assert early.reasons["night"] == ("ns/day works on the card, and both want it: they take turns of 60 s")
    assert turn([DAY, WANTS], RULES, STAY_S).leave == {"day"}


def test_a_clock_that_was_set_back_keeps_nobody_for_longer() -> None:
    assert turn([replace(DAY, since_s=10_000.0), WANTS], RULES, 0.0).leave == {"day"}


def test_what_keeps_one_from_leaving_is_said_by_name() -> None:
    bound = replace(DAY, bound="it holds 5 MiB of managed memory")
    due = turn([bound, WANTS], RULES, 1_000.0)
    assert due.leave == NOBODY
    assert due.reasons["night"] == "ns/day cannot leave the card: it holds 5 MiB of managed memory"


def test_at_a_hand_over_both_lie_on_the_host() -> None:
    due = turn([DAY, WANTS], Rules(STAY_S, 2 * M - 1), 1_000.0)
    assert due.leave == NOBODY
    assert "needs 192000 MiB of host memory" in due.reasons["night"]
    assert "191999 MiB are set aside" in due.reasons["night"]


def test_the_one_that_waits_longest_is_next() -> None:
    third = replace(WANTS, uid="third", name="ns/third", wanted_s=5.0)
    free = replace(DAY, place=Place.AWAY)
    due = turn([free, WANTS, third], Rules(STAY_S, 3 * M), 1_000.0)
    assert due.come == {"third"}
    assert due.reasons["night"] == "ns/third waits longer for the same card"


def test_one_that_needs_several_cards_is_not_overtaken() -> None:
    both = frozenset({"GPU-0", "GPU-1"})
    wide = replace(WANTS, uid="wide", name="ns/wide", cards=both, wanted_s=1.0)
    other = replace(DAY, uid="other", name="ns/other", cards=frozenset({"GPU-1"}), since_s=50.0)
    late = replace(WANTS, uid="late", cards=frozenset({"GPU-1"}), wanted_s=2.0)
    rules = Rules(STAY_S, 10 * M)
    assert turn([DAY, other, wide, late], rules, 70.0).leave == NOBODY, "one leaves only with the other"
    assert turn([DAY, other, wide, late], rules, 120.0).leave == {"day", "other"}


# --- worlds ----------------------------------------------------------------------------------------


@dataclass
class World:
    """Programs that work and idle at random, hand-overs of random length, some that cannot leave for a
    while. It keeps books of its own, second by second."""

    random: Random
    rules: Rules
    members: dict[str, Member]
    works_until: dict[str, float] = field(default_factory=dict)
    moves_until: dict[str, float] = field(default_factory=dict)
    now_s: float = 0.0
    waited: dict[str, float] = field(default_factory=dict)

    def second(self) -> None:
        for uid, one in self.members.items():
            if self.works_until.get(uid, 0.0) <= self.now_s and self.random.random() < 0.02:
                self.works_until[uid] = self.now_s + self.random.choice((1, 20, 300))
            works = self.works_until.get(uid, 0.0) > self.now_s
            place, since_s = one.place, one.since_s
            if place in (Place.LEAVING, Place.COMING) and self.moves_until[uid] <= self.now_s:
                place = Place.AWAY if place is Place.LEAVING else Place.CARD
                since_s = self.now_s
            away = place is Place.AWAY
            wanted_s = (one.wanted_s if one.wanted_s is not None else self.now_s) if away and works else None
            self.members[uid] = replace(
                one, place=place, since_s=since_s, wanted_s=wanted_s, active=works and place is Place.CARD
            )
        self.act(turn(list(self.members.values()), self.rules, self.now_s))
        self.now_s += 1.0

    def act(self, due: Turn) -> None:
        for uid in due.leave:
            one = self.members[uid]
            assert one.place is Place.CARD
            assert self.now_s - one.since_s >= self.rules.min_stay_s, "it has stayed its time"
            assert any(
                other.wanted_s is not None and other.cards & one.cards and other.place is Place.AWAY
                for other in self.members.values()
            ), "it leaves for somebody"
            self.move(uid, Place.LEAVING)
        for uid in due.come:
            assert self.members[uid].place is Place.AWAY
            self.move(uid, Place.COMING)

    def move(self, uid: str, place: Place) -> None:
        self.members[uid] = replace(self.members[uid], place=place, since_s=self.now_s)
        self.moves_until[uid] = self.now_s + self.random.choice((1, 2, 5))

    def check(self) -> None:
        """The dumb way: each pair, each sum, each wait."""
        everyone = list(self.members.values())
        there = [one for one in everyone if one.place is not Place.AWAY]
        for one in there:
            for other in there:
                assert one is other or not one.cards & other.cards, "never two at once"
        on_host = sum(one.memory_mib for one in everyone if one.place is not Place.CARD)
        assert on_host <= self.rules.host_mib
        for uid, one in self.members.items():
            waits = one.place is Place.AWAY and one.wanted_s is not None
            self.waited[uid] = self.waited.get(uid, 0.0) + 1.0 if waits else 0.0
            # Each of the others has one stay, and each hand-over is two moves of 5 s and two looks.
            most_s = len(everyone) * (self.rules.min_stay_s + 12.0)
            assert self.waited[uid] <= most_s, f"{uid} starves"


@pytest.mark.parametrize("seed", range(60))
def test_random_worlds(seed: int) -> None:
    random = Random(seed)
    count, cards = random.choice((2, 2, 3, 4)), random.choice((1, 1, 2))
    places = [f"GPU-{index}" for index in range(cards)]
    members = {
        f"m{index}": Member(
            f"m{index}",
            f"ns/m{index}",
            frozenset(random.sample(places, random.randint(1, cards))),
            random.choice((1_000, 50_000, 96_000)),
            Place.AWAY,
            since_s=0.0,
        )
        for index in range(count)
    }
    total = sum(one.memory_mib for one in members.values())
    world = World(random, Rules(random.choice((1.0, 7.0, 60.0)), total), members)
    for _ in range(3_000):
        world.second()
        world.check()


@pytest.mark.parametrize("seed", range(20))
def test_too_little_host_memory_moves_nobody_beyond_it(seed: int) -> None:
    random = Random(seed)
    members = {
        f"m{index}": Member(f"m{index}", f"ns/m{index}", frozenset({"GPU-0"}), 96_000, Place.AWAY, 0.0)
        for index in range(2)
    }
    members["m0"] = replace(members["m0"], place=Place.CARD)
    world = World(random, Rules(7.0, 96_000 + random.randint(0, 95_999)), members)
    for _ in range(500):
        world.second()
        assert world.members["m0"].place is Place.CARD
