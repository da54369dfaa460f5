"""A card that is taken in turns: who may start on it, what its containers are told, what is counted."""

from dataclasses import replace

from unit.node.granted import grant, page_of
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu_node.containers.admission import CardLimits, HeldShare, host_refusal, refusal
from vc_egpu_node.suspension.facts import spilled_mib

CARD, M = "GPU-1", 96_000
LIMITS = CardLimits(CARD, M, memory_ratio=2.0)


def turns(pod: str, *, suspended: bool = False) -> HeldShare:
    return HeldShare(pod, "main", CARD, M, 0, physical_mib=M // 2, swap=True, suspended=suspended)


def shares(pod: str, *, suspended: bool = False) -> HeldShare:
    return HeldShare(pod, "main", CARD, 1_000, 0, suspended=suspended)


def test_as_many_take_turns_as_the_ratio_says() -> None:
    assert refusal(LIMITS, [turns("a")], turns("b")) == ""
    assert "do not fit" in refusal(LIMITS, [turns("a"), turns("b")], turns("c"))


def test_nobody_shares_what_others_take_in_turns() -> None:
    assert "is taken in turns by pod a: nobody else" in refusal(LIMITS, [turns("a")], shares("b"))
    away = turns("a", suspended=True)
    assert "is taken in turns by pod a: nobody else" in refusal(LIMITS, [away], shares("b"))
    assert "is to be taken in turns, and pod a hold" in refusal(LIMITS, [shares("a")], turns("b"))
    assert refusal(LIMITS, [shares("a", suspended=True)], turns("b")) == "", "low ones give way"


def test_all_of_them_count_on_the_host() -> None:
    assert host_refusal(2 * M, [turns("a")], [turns("b")]) == ""
    assert "do not fit" in host_refusal(2 * M - 1, [turns("a")], [turns("b")])


def test_in_its_turn_a_container_has_all_of_its_memory_on_the_card() -> None:
    share = CardShare(uuid=CARD, memory_mib=M, cores=0, physical_mib=M // 2, swap=True)
    one = replace(grant("a"), shares=(share,))
    page = page_of([one], "a")
    assert page.limits[0].physical_bytes == page.limits[0].memory_bytes == M << 20
    assert (page.limits[0].flags, page.host_memory_mib) == (0, 0), "nothing of it spills"
    assert spilled_mib([one]) == {"uid-a": M}


def test_a_share_says_that_it_takes_turns() -> None:
    share = CardShare(uuid=CARD, memory_mib=M, cores=0, physical_mib=M // 2, swap=True)
    assert CardShare.model_validate_json(share.model_dump_json(by_alias=True)).swap is True
    assert '"swap"' not in CardShare(uuid=CARD, memory_mib=M, cores=0).model_dump_json(exclude_none=True)
