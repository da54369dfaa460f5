"""Gangs that no Volcano Job makes, on real kubelets; the same on Volcano: ``test_volcano.py``."""

from collections.abc import Iterator

import pytest
from outcomes import gangs_of_others
from outcomes.world import World
from vc_egpu.volcano.words.names import SCHEDULER_DEFAULT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def others(here: World) -> Iterator[World]:
    yield here
    gangs_of_others.clean(here)


def test_a_head_without_cards_and_its_workers_start_together_or_not_at_all(others: World) -> None:
    running = gangs_of_others.head_and_workers(others)
    assert {pod["spec"]["schedulerName"] for pod in running.values()} == {SCHEDULER_DEFAULT}


def test_a_launcher_that_a_batch_job_makes_is_of_the_gang(others: World) -> None:
    gangs_of_others.launcher_and_workers(others)


def test_a_leader_comes_before_its_group_and_its_workers_after(others: World) -> None:
    gangs_of_others.leader_and_workers(others)


def test_executors_that_a_driver_makes_are_of_its_gang(others: World) -> None:
    gangs_of_others.driver_and_executors(others)


def test_executors_of_a_jobs_pod_are_of_the_jobs_gang(others: World) -> None:
    gangs_of_others.driver_of_a_job_and_executors(others)


def test_a_pod_that_came_before_the_group_of_another_stays_out_of_it(others: World) -> None:
    gangs_of_others.intruder_of_an_early_name(others)


def test_who_waits_for_the_phase_of_its_group_is_let_go_on(others: World) -> None:
    gangs_of_others.waits_for_the_phase(others)
