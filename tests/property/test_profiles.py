"""Rules of placement against a dumb oracle; and what no rule may change: which gangs fit, and that equal
questions have equal answers."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from unit.core import make
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import Gang, ShareClass
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.profiles.runs import WORDS
from vc_egpu.core.profiles.table import ANY, Moment, Range, Rule, Table, Traits, Work
from vc_egpu.volcano.profiles.table import POLICIES

OWNERS, KEYS, VALUES = ("Deployment", "Job", "VolcanoJob"), ("a", "b"), ("x", "y")
CLASSES = ("high", "standard", "low")


def a_range(dice: random.Random, most: int) -> Range:
    if dice.random() < 0.5:
        return Range()
    least = dice.randint(0, most)
    return Range(least, dice.choice([None, dice.randint(least, most)]))


def some(dice: random.Random, words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(dice.sample(words, dice.choice([0, 0, 1, 2])))


def a_rule(dice: random.Random, number: int) -> Rule:
    labels = tuple((key, dice.choice([*VALUES, ANY])) for key in KEYS if dice.random() < 0.2)
    return Rule(
        f"r{number}",
        dice.choice(["", *POLICIES]),
        dice.choice(["", *POLICIES]),
        some(dice, CLASSES),
        some(dice, OWNERS),
        labels,
        a_range(dice, 9),
        a_range(dice, 16),
        a_range(dice, 100),
        dice.choice([None, None, (dice.randint(0, 23), dice.randint(0, 24))]),
        a_range(dice, 100),
        some(dice, WORDS),
    )


def a_table(dice: random.Random) -> Table:
    return Table(tuple(a_rule(dice, number) for number in range(dice.randint(1, 6))))


def some_work(dice: random.Random) -> Work:
    pairs = tuple((key, dice.choice(VALUES)) for key in KEYS if dice.random() < 0.5)
    traits = Traits(dice.choice(OWNERS), pairs, tuple(sorted(some(dice, WORDS))))
    models = dice.choice([(), ("h20",), ("h20", "t4")])
    return Work(
        dice.choice(CLASSES), dice.randint(1, 9), dice.randint(0, 16), dice.randint(0, 100), models, traits
    )


def named_by(table: Table, work: Work, hour: int, full: dict[str, int]) -> str:
    """One question after the other, with sets of whole numbers."""

    def within(amounts: Range, amount: int) -> bool:
        return amount in range(amounts.least, 10_000 if amounts.most is None else amounts.most + 1)

    for rule in table.rules:
        held = []
        if rule.classes:
            held.append(work.share_class in rule.classes)
        if rule.owners:
            held.append(work.traits.owner in rule.owners)
        for key, value in rule.labels:
            has = dict(work.traits.labels).get(key)
            held.append(has is not None and value in {ANY, has})
        held += [within(rule.members, work.members), within(rule.card_count, work.cards)]
        held.append(within(rule.part_percent, work.part_percent))
        if rule.hours is not None:
            begin, end = rule.hours
            hours = [*range(begin, end)] if begin <= end else [*range(begin, 24), *range(end)]
            held.append(hour in hours)
        if rule.allocation_percent != Range():
            fullest = sorted(full[model] for model in work.models)[-1:]
            held.append(any(within(rule.allocation_percent, percent) for percent in fullest))
        if rule.earlier:
            held.append(bool(rule.earlier & set(work.traits.earlier)))
        if all(held):
            return rule.name
    return ""


@given(st.integers(0, 1 << 32))
def test_the_first_rule_that_matches_counts(seed: int) -> None:
    dice = random.Random(seed)
    table, full = a_table(dice), {"h20": dice.randint(0, 100), "t4": dice.randint(0, 100)}
    for _ in range(20):
        work, hour = some_work(dice), dice.randint(0, 23)
        found = table.first(work, Moment(float(hour), full.__getitem__))
        assert found.rule == named_by(table, work, hour, full)


@given(st.integers(0, 1 << 32))
def test_no_rule_refuses_what_fits(seed: int) -> None:
    """A gang of alike members on a cluster that is partly taken is placed under any rules, or under none."""
    dice = random.Random(seed)
    nodes = [make.node(f"n{number}", cards=dice.randint(1, 4)) for number in range(dice.randint(1, 5))]
    there = [make.pods(f"t{i}", 1, make.shape(dice.choice([20_000, 60_000, 98_304]), 10)) for i in range(4)]
    members = dice.randint(1, 8)
    gang = make.gang(
        "g", share_class=dice.choice([ShareClass.HIGH, ShareClass.UNSET]), least=members, single=members == 1
    )
    pods = make.pods("g", members, make.shape(dice.choice([10_000, 40_000, 90_000]), dice.choice([5, 60])))
    gangs: list[Gang] = [make.gang(f"t{i}") for i in range(4)]
    snapshot = make.snapshot(nodes, gangs, [pod for some in there for pod in some])
    plain = Policy()
    taken = decide(snapshot, plain, 0.0)
    held = {
        admission.gang: [share.card for member in admission.members.values() for _, share in member.shares]
        for admission in taken.admissions
    }
    placed = [make.placed(some[0], *held[f"t{i}"]) for i, some in enumerate(there) if f"t{i}" in held]
    snapshot = make.snapshot(nodes, [*gangs, gang], [*placed, *pods])
    now = float(dice.randint(0, 86_400))
    ruled = replace(plain, profiles=a_table(dice))
    before, after = decide(snapshot, plain, now, {"g"}), decide(snapshot, ruled, now, {"g"})
    assert bool(before.admissions) == bool(after.admissions)
    assert decide(snapshot, ruled, now, {"g"}) == after
    for admission in after.admissions:
        assert len(admission.members) == members
