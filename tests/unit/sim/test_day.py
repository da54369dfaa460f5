"""A day of inference and training in the simulator: the same seed plays the same, and sums are right."""

import pytest
from vc_egpu.sim.day.picture import as_png
from vc_egpu.sim.day.played import WAYS, Outcome, Played
from vc_egpu.sim.day.traffic import Day, Service, Training, day

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


def test_the_picture_is_one() -> None:
    pytest.importorskip("matplotlib", reason="the extra `sim` is not installed")
    assert as_png([played(Day((QUIET,), ()), 2, hours=0.2)], "a day").startswith(b"\x89PNG")
