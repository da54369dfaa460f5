"""A day of inference and training in the simulator: the same seed plays the same, and sums are right."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from vc_egpu.sim.day.front import DARK, LIGHT, Theme, as_front_png
from vc_egpu.sim.day.picture import as_png
from vc_egpu.sim.day.played import WAYS, Outcome, Played
from vc_egpu.sim.day.recorded import recorded
from vc_egpu.sim.day.spread import spread
from vc_egpu.sim.day.traffic import DAY_S, Day, Service, Training, day
from vc_egpu.sim.table import TableError

HOUR_S = 3600.0
QUIET = Service("quiet", 0.5, 0.5, 0.0, ())


def played(today: Day, way: int, hours: float = 2.0) -> Outcome:
    return Played(today, WAYS[way], nodes=1).run(hours * HOUR_S)


def job(number: int, members: int = 1, hours: float = 1.0) -> Training:
    return Training(f"t{number}", members, hours * HOUR_S, 0.0)


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_calm_cluster_does_all_work_in_its_time(way: int) -> None:
    found = played(Day((QUIET,), (job(1), job(2, 2))), way)
    assert (found.finished, found.evictions) == (2, 0)
    assert found.training_card_hours == pytest.approx(3.0)
    # The replica is not there in its first minute.
    assert found.inference_card_hours == pytest.approx(2.0 * 0.5 * 0.4, rel=0.03)
    assert found.wait_s(0.5) == 0


def test_shares_leave_room_for_training_where_whole_cards_do_not() -> None:
    services = tuple(Service(f"s{number}", 0.5, 0.5, 0.0, ()) for number in range(8))
    today = Day(services, (job(1),))
    assert played(today, 0).finished + played(today, 1).finished <= 1
    assert played(today, 2).finished == 1


def test_whole_cards_with_priority_evict_training() -> None:
    jobs = tuple(job(number, hours=6.0) for number in range(8))
    rises = Service("rises", 0.1, 5.0, 3 * HOUR_S, ())
    found = played(Day((rises,), jobs), 1, hours=4)
    assert found.evictions > 0
    assert played(Day((rises,), jobs), 2, hours=4).evictions == 0


def test_one_seed_is_one_day_and_cards_are_enough_for_what_is_done() -> None:
    today = day(7, 8)
    assert today == day(7, 8)
    first, second = (played(today, 2, hours=1.0) for _ in range(2))
    assert first.figures() == second.figures()
    for point in first.points:
        assert 0 <= point.inference <= point.used <= point.held + 1e-9
        assert point.held <= first.cards


def test_a_replica_that_fills_its_card_does_the_work_of_several() -> None:
    """What whole cards do at best: five replicas' worth of requests on two cards instead of eight."""
    today = Day((Service("even", 5.0, 5.0, 0.0, ()),), ())
    part, filled = played(today, 1), played(today, 3)
    assert (part.points[-1].held, filled.points[-1].held) == (8, 3)
    assert part.points[-1].inference == pytest.approx(filled.points[-1].inference)
    assert filled.wait_s(0.5) == 0


def test_more_loss_leaves_training_less() -> None:
    today = Day((QUIET,), tuple(job(number) for number in range(8)))
    done = [
        Played(today, replace(WAYS[2], loss=loss), nodes=1).run(HOUR_S).training_card_hours
        for loss in (0.0, 0.2)
    ]
    assert done[0] > done[1] > 0


def test_the_spread_has_the_middle_day() -> None:
    days = [Outcome(WAYS[2], 8, finished=finished) for finished in (5, 1, 2)]
    assert spread(days)["finished"] == {"median": 2, "least": 1, "most": 5}


HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "pods.csv"
    path.write_text("\n".join((f"{HEAD}scheduled_time", *rows)))
    return path


def pod(name: str, came_s: float, hours: float, *, cards: int = 1, milli: int = 1000, qos: str = "BE") -> str:
    return f"{name},1,1,{cards},{milli},,{qos},Succeeded,{came_s},{came_s + hours * HOUR_S},{came_s}"


def test_recorded_days_are_laid_over_each_other_from_the_last_one_on(tmp_path: Path) -> None:
    rows = (
        pod("too-early", 7200, 9),
        pod("half", DAY_S + 3600, 2, milli=500),
        pod("wide", 2 * DAY_S + 60, 1, cards=8),
        pod("serves", 2 * DAY_S, 5, qos="LS"),
        pod("fails-at-once", 2 * DAY_S, 0.01),
        "waits,1,1,1,1000,,BE,Pending,10,20,",
    )
    found = recorded(table(tmp_path, *rows), card_hours=9.0)
    assert found == (Training("wide", 8, HOUR_S, 60.0), Training("half", 1, HOUR_S, 3600.0))
    with pytest.raises(TableError, match="18 card-hours of 19"):
        recorded(table(tmp_path, *rows), card_hours=19.0)
    with pytest.raises(TableError, match=r"pods\.csv:2"):
        recorded(table(tmp_path, "a,1,1,one,1000,,BE,Running,1,2,1"), card_hours=1.0)


@pytest.mark.skipif("OPENB_DIR" not in os.environ, reason="no trace: OPENB_DIR")
def test_the_published_trace_has_training_for_a_day() -> None:
    found = recorded(Path(os.environ["OPENB_DIR"]) / "pods-default.csv.gz", card_hours=432.0)
    assert 432 <= sum(job.members * job.work_s for job in found) / HOUR_S < 600
    assert all(0 <= job.arrival_s < DAY_S for job in found)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_picture_of_the_front_page_is_one(theme: Theme) -> None:
    pytest.importorskip("matplotlib", reason="the extra `sim` is not installed")
    one = played(Day((QUIET,), (job(1),)), 2, hours=0.2)
    assert as_front_png([("a day", one), ("the same", one)], theme).startswith(b"\x89PNG")


def test_the_picture_is_one() -> None:
    pytest.importorskip("matplotlib", reason="the extra `sim` is not installed")
    assert as_png([played(Day((QUIET,), ()), 2, hours=0.2)], "a day").startswith(b"\x89PNG")
