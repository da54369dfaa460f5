"""A watch that stands still is noticed by what own writes are answered, and listed again."""

import queue
from itertools import pairwise
from pathlib import Path

import pytest
from unit.admission.build import group
from unit.kube.tiny_api import tiny_api
from vc_egpu.admission.intake.sources import WATCHED, Arrival, Sources
from vc_egpu.admission.intake.watch_gaps import MOST_S, STILL_S, StalledWatches
from vc_egpu.kube import ApiConnection

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"


def at(version: int) -> dict[str, str]:
    return {"pods": str(version)}


@pytest.fixture
def behind() -> StalledWatches:
    known = StalledWatches()
    known.answered("pods", "20")
    return known


def test_one_that_stands_still_before_an_answer_is_behind(behind: StalledWatches) -> None:
    assert behind.standing(at(10), 0.0) == []
    assert behind.standing(at(10), STILL_S - 1) == []
    assert behind.standing(at(10), STILL_S) == ["pods"]


def test_one_that_comes_to_it_is_not(behind: StalledWatches) -> None:
    behind.standing(at(10), 0.0)
    assert behind.standing(at(20), STILL_S - 1) == []
    assert behind.standing(at(20), STILL_S) == []
    behind.answered("pods", "30")
    assert behind.standing(at(20), STILL_S) == [], "the time begins anew"


def test_one_that_moves_is_only_slow(behind: StalledWatches) -> None:
    for turn in range(10):
        behind.answered("pods", str(100 + turn))
        assert behind.standing(at(10 + turn), turn * STILL_S) == []


def test_one_that_nothing_helps_is_tried_ever_more_seldom(behind: StalledWatches) -> None:
    behind.standing(at(10), 0.0)
    found = [clock for clock in range(7200) if behind.standing(at(10), float(clock))]
    assert [later - earlier for earlier, later in pairwise(found)][:5] == [
        *(STILL_S * factor for factor in (2, 4, 8, 16)),
        MOST_S,
    ]


@pytest.mark.parametrize("version", ["", "later", "²"])
def test_a_version_that_is_no_number_says_nothing(behind: StalledWatches, version: str) -> None:
    behind.answered("pods", version)
    for clock in (0.0, STILL_S):
        assert behind.standing({"pods": version}, clock) == []
    assert behind.standing(at(20), STILL_S) == []


def test_what_the_watch_kept_to_itself_is_listed(tmp_path: Path) -> None:
    told: queue.Queue[Arrival] = queue.Queue()
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=4, timeout_s=30)
        sources = Sources(api, told.put, "vc-egpu")
        sources.start()
        try:
            server.wait_for_watch(count=len(WATCHED) + 1)
            with server.lock:
                server.version = 777
                silent = group("silent")
                silent["metadata"]["resourceVersion"] = "777"
                server.objects[f"{GROUPS}/silent"] = silent
            assert sources.list_those_behind(0.0) == []
            sources.answered("podgroups", silent)
            assert sources.list_those_behind(1.0) == []
            assert told.empty()
            assert sources.list_those_behind(1.0 + STILL_S) == ["podgroups"]
            plural, change = told.get(timeout=30)
            assert (plural, change.object["metadata"]["name"]) == ("podgroups", "silent")
        finally:
            sources.stop()
            api.close()
