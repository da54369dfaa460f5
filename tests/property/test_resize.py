"""Wishes for other sizes, held against an oracle that adds up all shares of each card and of each queue."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from unit.core import make
from unit.core.asked import ask
from vc_egpu.core.model.cluster import Pod, QueueName, ShareClass, Snapshot

CARD_MIB = make.H20_MIB
CLASSES = st.sampled_from(list(ShareClass))
SIZES = st.tuples(st.integers(1, 8), st.integers(0, 5))
"""(eighths of a card's memory, twenties of cores)."""


@dataclass(frozen=True)
class Member:
    """One pod of a gang of its own, and what is wished for it."""

    card: int
    size: tuple[int, int]
    share_class: ShareClass
    wish: tuple[int, int] | None


MEMBERS = st.builds(Member, st.integers(0, 1), SIZES, CLASSES, st.none() | SIZES)


def amount(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] * CARD_MIB // 8, size[1] * 20


def fits(members: Iterable[Member]) -> bool:
    """The card's rules: memory of all; cores of high and unset, and of unset and low."""
    there = list(members)
    sums = (
        (sum(amount(one.size)[0] for one in there), CARD_MIB),
        (sum(amount(one.size)[1] for one in there if one.share_class >= ShareClass.UNSET), 100),
        (sum(amount(one.size)[1] for one in there if one.share_class <= ShareClass.UNSET), 100),
    )
    return all(used <= most for used, most in sums)


def built(members: list[Member], cap_mib: int) -> Snapshot:
    pods: list[Pod] = []
    gangs = []
    for number, member in enumerate(members):
        key = f"g{number:02}"
        (pod,) = make.pods(key, 1, make.shape(*amount(member.size)))
        pod = make.placed(pod, f"n1/{member.card}")
        if member.wish is not None:
            pod = replace(pod, resize=(("main", *amount(member.wish)),))
        pods.append(pod)
        gangs.append(make.gang(key, share_class=member.share_class))
    queue = make.queue("all", capability={"volcano.sh/vgpu-h20": 99, "volcano.sh/vgpu-h20-memory": cap_mib})
    return make.snapshot([make.node()], gangs, pods, [replace(queue, name=QueueName("all"))])


def expected(members: list[Member], cap_mib: int) -> list[bool]:
    """Whether each wish is granted: one after the other, each on what the ones before left. Until a limit is
    lowered the larger of both sizes counts."""
    now, granted = list(members), []
    for number, member in enumerate(members):
        if member.wish is None:
            continue
        most = max(member.size[0], member.wish[0]), max(member.size[1], member.wish[1])
        tried = [*now]
        tried[number] = replace(member, size=most)
        grows = most != member.size
        on_card = [one for one in tried if one.card == member.card]
        used_mib = sum(amount(one.size)[0] for one in tried)
        within = used_mib <= cap_mib or most[0] == member.size[0]
        good = member.wish != member.size and (not grows or (fits(on_card) and within))
        granted.append(good)
        if good:
            now = tried
    return granted


@given(st.lists(MEMBERS, min_size=1, max_size=6), st.integers(1, 16))
def test_a_wish_is_granted_exactly_where_the_sums_allow_it(members: list[Member], cap_eighths: int) -> None:
    started: list[Member] = []
    for member in members:
        if fits([one for one in (*started, member) if one.card == member.card]):
            started.append(member)
    cap_mib = max(cap_eighths * CARD_MIB // 8, sum(amount(one.size)[0] for one in started))
    plan = ask(built(started, cap_mib))
    assert [not one.why for one in plan.resizes] == expected(started, cap_mib)
    for one in plan.resizes:
        wish = started[int(one.pod[1:3])].wish
        assert wish is not None
        if not one.why:
            assert [(share.memory_mib, share.cores_percent) for _, share in one.then] == [amount(wish)]
