"""A short day of inference and training in fast motion on a real API server, with and without sharing.

Real controllers place, evict and make again; simulated nodes run nothing. Requests and training are counted
as in the simulator, from the cards that pods really got. The simulator's own figures are the yardstick.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from rigs.day_cluster import RealCluster
from rigs.one_team import H20, OneTeam, one_team
from vc_egpu.sim.day.played import WAYS, Outcome, Played, Way
from vc_egpu.sim.day.traffic import Burst, Day, Service, Training

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]
HOUR_S: Final = 3600.0
HOURS: Final = 5.0
WHOLE, SHARED = WAYS[3], WAYS[2]
"""The best that whole cards can do, against shares."""


def _service(name: str, peak: float, peak_h: float, burst_h: float) -> Service:
    burst = Burst(burst_h * HOUR_S, (burst_h + 0.4) * HOUR_S, 2.5)
    return Service(name, 0.3, peak, peak_h * HOUR_S, (burst,))


def _job(number: int, members: int, hours: float, arrival_h: float = 0.0) -> Training:
    return Training(f"t{number}", members, hours * HOUR_S, arrival_h * HOUR_S)


TODAY: Final = Day(
    (_service("chat", 2.4, 2.0, 1.5), _service("search", 1.6, 3.0, 3.2), _service("images", 2.0, 2.5, 2.2)),
    (_job(0, 4, 2.0), _job(1, 2, 2.5), _job(2, 1, 1.0), _job(3, 2, 1.5, 0.5), _job(4, 4, 1.5, 1.0),
     _job(5, 1, 2.0, 1.5)),
)  # fmt: skip


@pytest.fixture(scope="module")
def team() -> Iterator[OneTeam]:
    """One node of eight cards."""
    with one_team("day", nodes=1, cards=8, caps={H20: "1000"}) as stack:
        yield OneTeam(stack)


def played(team: OneTeam, way: Way) -> Outcome:
    """The day, and the invariants at its end; its Jobs are gone afterwards."""
    cluster = RealCluster(team)
    player = Played(TODAY, way, nodes=1, cluster=cluster)
    outcome = player.run(HOURS * HOUR_S)
    team.check_invariants()
    team.stack.kit.kubectl("delete", "jobs.batch.volcano.sh", "--all", "-n", "team", "--wait=true")
    print(f"{way.name}: {outcome.figures()}, settled {cluster.settled} times")
    return outcome


def test_a_day_on_the_cluster_is_worth_what_the_simulator_says(team: OneTeam) -> None:
    whole, shared = played(team, WHOLE), played(team, SHARED)
    on_paper = {way: Played(TODAY, way, nodes=1).run(HOURS * HOUR_S) for way in (WHOLE, SHARED)}
    for real in (whole, shared):
        simulated = on_paper[real.way]
        assert real.inference_card_hours == pytest.approx(simulated.inference_card_hours, rel=0.05)
        assert real.wait_s(0.99) == simulated.wait_s(0.99)
    assert shared.training_card_hours == pytest.approx(on_paper[SHARED].training_card_hours, rel=0.1)
    assert (shared.evictions, on_paper[SHARED].evictions) == (0, 0)
    # Gangs that have just begun go last, by the real clock. So other Jobs are evicted than in the simulator.
    assert whole.training_card_hours == pytest.approx(on_paper[WHOLE].training_card_hours, rel=0.4)
    assert whole.evictions > 0
    assert shared.training_card_hours > 1.2 * whole.training_card_hours
