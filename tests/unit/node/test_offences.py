"""What the driver sees, held against grants: the judgement, and the wall as a whole."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from unit.node.doubtful import CARD, MIB, activity_page, usage_page
from unit.node.wall_stage import Wall
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.accounts import (
    Activity,
)
from vc_egpu_node.isolation.ceilings import CEILINGS_NAME
from vc_egpu_node.isolation.pages import ACTIVITY, USAGE
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.wall.offences import (
    Allowance,
    Finding,
    Offence,
    Seen,
    held_through,
    judge,
    lowered,
    strike,
)
from vc_egpu_node.wall.wall import Account


def one(pid: int = 1, mib: int = 100, percent: int = 0, owner: str = "a", **changes: Any) -> Seen:
    values: dict[str, Any] = {"uuid": CARD, "registered": True, **changes}
    return Seen(pid=pid, start_ticks=5, memory_mib=mib, sm_percent=percent, owner=owner, **values)


def allowed(mib: int = 1000, **changes: Any) -> dict[str, Allowance]:
    return {"a": Allowance({CARD: mib}, **changes)}


# --- judgement ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "allowances", "offences"),
    [
        ([one(1, 600), one(2, 464)], allowed(), []),
        ([one(1, 600), one(2, 465)], allowed(), [Offence.OVER_GRANT]),
        ([one(1, 90_000)], allowed(whole=True), []),
        ([one(uuid="GPU-9")], allowed(), [Offence.NOT_GRANTED]),
        ([one(owner="ns/p/c/u")], allowed(), [Offence.NOT_GRANTED]),
        ([one(registered=False)], allowed(), [Offence.UNREGISTERED]),
        ([one(registered=None)], allowed(), []),
        ([one(percent=60)], allowed(), []),
        ([one(percent=20)], allowed(held=frozenset({CARD})), []),
        ([one(1, percent=20), one(2, percent=20)], allowed(held=frozenset({CARD})), [Offence.WHILE_HELD]),
        ([one(1, 2000, 90, registered=False)], allowed(held=frozenset({CARD})),
         [Offence.OVER_GRANT, Offence.UNREGISTERED, Offence.WHILE_HELD]),
        ([], allowed(), []),
    ],
)  # fmt: skip
def test_one_look(seen: list[Seen], allowances: dict[str, Allowance], offences: list[Offence]) -> None:
    assert [finding.offence for finding in judge(seen, allowances)] == offences


def test_only_those_that_did_it_are_named() -> None:
    (finding,) = judge([one(1), one(7, registered=False), one(2)], allowed())
    assert finding.processes == ((7, 5),)
    assert finding.text == "process 7 on card GPU-0 past the isolation library"
    (finding,) = judge([one(1), one(7, percent=1), one(2, percent=60)], allowed(held=frozenset({CARD})))
    assert finding.processes == ((2, 5), (7, 5)), "who does no work while it is held has done nothing"


def test_two_looks_in_a_row_prove_it() -> None:
    findings = judge([one(registered=False)], allowed())
    counts, proven = strike({}, findings)
    assert proven == []
    counts, proven = strike(counts, findings)
    assert proven == findings
    counts, proven = strike(counts, [])
    assert (counts, proven) == ({}, [])
    other = [Finding(Offence.OVER_GRANT, "a", CARD, "", ())]
    assert strike(strike({}, findings)[0], other)[1] == []


def test_a_lowered_grant_is_not_held_against_running_work() -> None:
    ceiling, granted = 1000, 600
    for used, wanted in ((1000, 1000), (900, 900), (950, 900), (500, 600), (1000, 600)):
        ceiling = lowered(ceiling, granted, used)
        assert ceiling == wanted


def test_held_only_if_somebody_was_active_all_the_time() -> None:
    assert not held_through([])
    assert not held_through([(7, 7), (15, 20)])
    assert held_through([(0, 20), (19, 20)])


# --- the wall as a whole -------------------------------------------------------------------------------


def test_a_container_that_keeps_to_its_grant(wall: Wall, tmp_path: Path) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 20))
    for _ in range(3):
        assert wall.look(ProcessSample(501, 900, 50)) == []
    assert (wall.told, wall.counted) == ([], [])
    assert wall.wall.accounts == (Account("ns", "p1", "main", CARD, 500, 20, Activity()),)
    assert not (tmp_path / "containers" / "g1" / CEILINGS_NAME).exists(), "nothing is written at each look"


def test_a_process_past_the_library_is_told_of_once_and_left_alone(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.process(502, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    samples = (ProcessSample(501, 500, 0), ProcessSample(502, 100, 0))
    assert wall.look(*samples) == []
    assert wall.look(*samples) == [Offence.UNREGISTERED]
    assert wall.wall.look() == []  # nothing new was observed
    wall.look(*samples)
    assert wall.told == [
        (
            "ns",
            "p1",
            wall.uid(1),
            "Unregistered",
            "main: process 502 on card GPU-0 past the isolation library",
        )
    ]
    assert wall.counted == [("Unregistered", "reported")]
    assert wall.hosts.killed == []


def test_kill_where_the_policy_says_so(wall: Wall) -> None:
    wall.policy = "kill"
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    wall.look(ProcessSample(501, 2100, 0))
    wall.look(ProcessSample(501, 2100, 0))
    assert wall.hosts.killed == [(501, 5)]
    assert wall.counted == [("OverGrant", "killed")]
    assert wall.told[0][4].endswith("granted are 1000; killed by the node's policy")
    wall.hosts.refuse = "Operation not permitted"
    wall.look(ProcessSample(501, 2100, 0))
    assert wall.counted[1] == ("OverGrant", "failed")
    assert "not killed: Operation not permitted" in wall.told[1][4]


def test_who_has_no_cards_is_told_of_and_never_killed(wall: Wall) -> None:
    wall.policy = "kill"
    wall.add_pod(3)
    wall.process(503, 3)
    wall.look(ProcessSample(503, 10, 0))
    assert wall.look(ProcessSample(503, 10, 0)) == [Offence.NOT_GRANTED]
    wall.look(ProcessSample(503, 10, 0))
    assert [event[1:4] for event in wall.told] == [("p3", wall.uid(3), "NotGranted")]
    assert wall.hosts.killed == []


def test_processes_of_the_host_are_none_of_ours(wall: Wall) -> None:
    wall.proc.put(700, "", "")
    assert wall.look(ProcessSample(700, 5000, 90)) == wall.look(ProcessSample(700, 5000, 90)) == []


def test_a_dead_pid_that_the_driver_goes_on_telling_is_nobody_elses(wall: Wall) -> None:
    """Some process inside some container has every small number."""
    wall.policy = "kill"
    for number in (1, 2):
        wall.let_in(number, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    wall.proc.put(600, wall.uid(2), f"{2:064x}", own=700)
    dead = ProcessSample(700, 5000, 0)
    for _ in range(3):
        assert wall.look(ProcessSample(501, 500, 0), dead) == []
    wall.look(dead)
    assert wall.look(dead) == []
    assert (wall.hosts.killed, wall.told) == ([], [])


def test_a_driver_that_tells_containers_own_pids_is_understood(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    told = ProcessSample(401, 5000, 0)
    assert [wall.look(told) for _ in range(2)] == [[], [Offence.OVER_GRANT, Offence.UNREGISTERED]]


def test_a_page_that_is_cut_whenever_it_was_put_right_hides_nobody(
    wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between that and the look there is time enough for a program that does nothing else."""
    wall.let_in(1, 1000)
    wall.process(501, 1)
    page, mend = wall.isolation.pages.path(USAGE, "g1"), wall.isolation.mend

    def mended(name: str) -> Any:
        faults = mend(name)
        os.truncate(page, 0)
        return faults

    monkeypatch.setattr(wall.isolation, "mend", mended)
    told = ProcessSample(501, 100, 0)
    assert [wall.look(told) for _ in range(2)] == [[], [Offence.UNREGISTERED]]


def test_a_garbled_page_hurts_its_owner_only(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.let_in(2, 1000)
    wall.process(501, 1)
    wall.process(502, 2)
    wall.usage(2, (402, 5, 1, 500, 0))
    wall.isolation.pages.path(USAGE, "g1").write_bytes(os.urandom(USAGE.size))
    wall.isolation.pages.path(ACTIVITY, "g1").write_bytes(b"\xff" * 10)
    samples = (ProcessSample(501, 100, 0), ProcessSample(502, 500, 0))
    wall.look(*samples)
    wall.look(*samples)
    assert {event[1] for event in wall.told} == {"p1"}
    assert [event[3] for event in wall.told] == ["PagesPutRight", "Unregistered"]
    assert wall.isolation.pages.path(ACTIVITY, "g1").stat().st_size == ACTIVITY.size
    assert wall.wall.accounts[1].charged_mib == 500


def test_a_container_that_damages_its_page_over_and_over_does_not_keep_the_agent_talking(wall: Wall) -> None:
    """Of all that the agent has to tell it may send one event a second."""
    wall.let_in(1, 1000)
    for size in range(10, 20):
        wall.isolation.pages.path(ACTIVITY, "g1").write_bytes(bytes(size))
        wall.look()
    wall.isolation.pages.path(USAGE, "g1").write_bytes(b"")
    wall.look()
    pages = [event[4].partition(" page ")[0] for event in wall.told]
    assert pages == ["main: its activity", "main: its usage"]


def test_a_page_that_the_host_removed_is_told_of_and_nobody_is_blamed(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.isolation.pages.path(USAGE, "g1").unlink()
    assert [wall.look(ProcessSample(501, 100, 0)) for _ in range(3)] == [[], [], []]
    assert [event[3] for event in wall.told] == ["PagesPutRight"]
    assert "usage page is gone" in wall.told[0][4]


def test_working_while_held(wall: Wall) -> None:
    wall.let_in(1, 1000, "low")
    wall.let_in(2, 1000, "high")
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))

    def look(words: list[int], percent: int = 80) -> list[Offence]:
        for word in words:
            now_ns = time.monotonic_ns()
            page = activity_page(word=word, beat_ns=now_ns, progress_ns=now_ns)
            wall.isolation.pages.path(ACTIVITY, "g2").write_bytes(page)
            wall.wall.sample()
        return wall.look(ProcessSample(501, 500, percent))

    always, gaps = [1] * 10, [1] * 9 + [2]
    assert [look([]), look(always), look(gaps), look(always)] == [[], [], [], []]
    assert look(always) == [Offence.WHILE_HELD]
    assert [look(always, 20), look(always), look([])] == [[], [], []]


def test_only_low_on_its_card_is_held_by_a_container_of_class_high(wall: Wall) -> None:
    """Nobody takes the time of who has no class, nor of who works elsewhere, though others wait there."""
    for number, share_class, card in (
        (1, "low", CARD),
        (2, "high", CARD),
        (3, "unset", CARD),
        (4, "low", "GPU-4"),
        (5, "low", CARD),
    ):
        wall.let_in(number, 1000, share_class, card)
        wall.process(500 + number, number)
        wall.usage(number, (400 + number, 5, 1, 500, 0))
    wall.isolation.forget("g5")  # it began without the library: nothing there tells it to wait
    for look in range(3):
        for _ in range(10):
            now_ns = time.monotonic_ns()
            page = activity_page(word=1, beat_ns=now_ns, progress_ns=now_ns)
            wall.isolation.pages.path(ACTIVITY, "g2").write_bytes(page)
            wall.wall.sample()
        beside = (ProcessSample(501, 500, 0), *(ProcessSample(pid, 500, 50) for pid in (502, 503, 505)))
        elsewhere = (ProcessSample(504, 500, 90),)
        wall.observation = Observation(processes={CARD: beside, "GPU-4": elsewhere}, looks=look)
        assert wall.wall.look() == []


@pytest.mark.parametrize("disk", ["well", "full"])
def test_a_grant_lowered_below_use_is_no_offence(wall: Wall, tmp_path: Path, disk: str) -> None:
    before = wall.let_in(1, 1000)
    file = tmp_path / "containers" / "g1" / CEILINGS_NAME
    if disk == "full":
        file.mkdir()  # so that nothing can take its place
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 900, 0))
    wall.lower(before, 400)
    assert [wall.look(ProcessSample(501, mib, 0)) for mib in (1000, 1000, 700, 700)] == [[], [], [], []]
    assert wall.isolation.ceilings("g1") == {CARD: 700}
    if disk == "full":
        file.rmdir()
        assert wall.look(ProcessSample(501, 700, 0)) == []
    assert json.loads(file.read_text()) == {CARD: 700}  # for the next agent
    assert [wall.look(ProcessSample(501, mib, 0)) for mib in (800, 800)] == [[], [Offence.OVER_GRANT]]
    wall.look(ProcessSample(501, 300, 0))
    assert wall.isolation.ceilings("g1") == {}


def test_a_clock_that_is_set_back_takes_nothing_off_what_was_counted(wall: Wall) -> None:
    """Who adds up counters would take it for a new beginning, and all of it for used once more later."""
    wall.let_in(1, 1000)
    page = activity_page(busy_ns=600 * 10**9, held_ns=10**18)
    wall.isolation.pages.path(ACTIVITY, "g1").write_bytes(page)
    for wall.now_s in (3600.0, 60.0):
        wall.look()
        (account,) = wall.wall.accounts
        assert account.activity.busy_s == 600
        assert account.activity.held_s == pytest.approx(3600, abs=60)  # as long as it is there, at most


def test_a_contexts_cost_is_learnt_and_goes_onto_the_page(wall: Wall) -> None:
    wall.let_in(1, 2000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    for mib in (950, 920, 1200):
        wall.look(ProcessSample(501, mib, 0))
    page = wall.isolation.file("g1").read()
    assert page is not None
    assert page.limits[0].context_bytes == 420 * MIB
    wall.let_in(2, 1000)
    other = wall.isolation.file("g2").read()
    assert other is not None
    assert other.limits[0].context_bytes == 420 * MIB


def test_a_contexts_cost_is_on_the_page_as_soon_as_it_is_known(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 1000, 0))
    for known in (0, 420):
        wall.look(ProcessSample(501, 1420, 0))
        page = wall.isolation.file("g1").read()
        assert page is not None
        assert page.limits[0].context_bytes == known * MIB


def test_a_contexts_cost_is_learnt_of_programs_that_change_nothing_meanwhile(wall: Wall) -> None:
    """Driver and page are not read at one moment: what a program takes in between would make contexts cheap,
    and who has filled its grant by then would be ended for what they really take."""
    wall.let_in(1, 2000)
    wall.process(501, 1)

    def look(shown: int, claimed: int, changes: int) -> int:
        page = usage_page((401, 5, 1, claimed, 0))
        abi.UsagePage.from_buffer(page).slots[0].changes = changes
        wall.isolation.pages.path(USAGE, "g1").write_bytes(page)
        wall.look(ProcessSample(501, shown, 0))
        return wall.isolation.context_bytes("g1", CARD) // MIB

    # 400 MiB more are taken after the driver was read, at the second look and at the third.
    assert look(920, 500, 1) == 0
    assert look(920, 900, 2) == 0
    assert look(1320, 1300, 3) == 0
    assert look(1720, 1300, 3) == 420


def test_of_programs_that_always_change_something_many_looks_tell_what_a_context_costs(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    for look in range(9):
        assert wall.isolation.context_bytes("g1", CARD) == 0
        page = usage_page((401, 5, 1, 1000, 0))
        abi.UsagePage.from_buffer(page).slots[0].changes = look + 1
        wall.isolation.pages.path(USAGE, "g1").write_bytes(page)
        assert wall.look(ProcessSample(501, 1420, 0)) == []  # it is full, which is not held against it
    assert wall.isolation.context_bytes("g1", CARD) == 420 * MIB


def test_contexts_that_came_before_their_cost_was_known_are_not_held_against_anybody(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 1000, 0))
    assert [wall.look(ProcessSample(501, 1416, 0)) for _ in range(3)] == [[], [], []]
    assert wall.isolation.ceilings("g1") == {CARD: 1416}
    assert [wall.look(ProcessSample(501, 1600, 0)) for _ in range(2)] == [[], [Offence.OVER_GRANT]]
    wall.look(ProcessSample(501, 900, 0))
    assert [wall.look(ProcessSample(501, 1416, 0)) for _ in range(2)] == [[], [Offence.OVER_GRANT]]
