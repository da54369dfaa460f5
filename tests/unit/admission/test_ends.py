"""When a member ended: nodes write it by their own clocks, and from then on its cards are kept."""

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, let_go, node, pod, queue, version
from unit.admission.stage import REPLICA_SET
from unit.kube.tiny_api import tiny_api
from vc_egpu.admission.execution.writes import timestamp
from vc_egpu.admission.intake.sources import Sources
from vc_egpu.admission.leader import SoleLeader
from vc_egpu.admission.loop import Loop
from vc_egpu.admission.parts import Others, Parts
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.finish_times import REPORTED_S
from vc_egpu.core.model.policy import Policy
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.words import names

NOW = 1_800_000_000.0
HOLD_S = Policy().replacement_hold_s
NAMELESS = {names.TASK_SPEC: "", names.TASK_INDEX: ""}


def placed(number: int, born: float = NOW - 600) -> Json:
    """A replica on the only card, which has room for three shares."""
    waiting = pod(f"g-{number}", uid=f"g-{number}", owners=REPLICA_SET, annotations=NAMELESS)
    waiting["metadata"]["creationTimestamp"] = timestamp(born)
    return let_go(waiting, "1-1", bound=True, phase="Running")


def failed(document: Json, written: float) -> Json:
    """The next version of this pod: its node wrote that it failed, and when."""
    ended = {"state": {"terminated": {"exitCode": 1, "finishedAt": timestamp(written)}}}
    metadata = {**document["metadata"], "resourceVersion": version()}
    return {**document, "metadata": metadata, "status": {"phase": "Failed", "containerStatuses": [ended]}}


def cluster(replicas: Iterable[Json]) -> list[tuple[str, Json]]:
    """Two replicas of a gang, and two newcomers who each want a share of the same card."""
    pods = [*replicas, *(pod(f"new-{i}", f"new-{i}", uid=f"new-{i}") for i in range(2))]
    groups = [group("g", 1), *(group(f"new-{i}", 1) for i in range(2))]
    listed = [("nodes", node(cards=1)), ("queues", queue()), *(("pods", one) for one in pods)]
    return [*listed, *(("podgroups", one) for one in groups)]


def mirror_of(*replicas: Json, now: float = NOW) -> Mirror:
    """As a leader has it after its first lists, which it read at this time by its own clock."""
    mirror = Mirror(TABLE)
    mirror.ends.now = now
    for plural, document in cluster(replicas):
        mirror.apply(plural, added(document))
    mirror.settle_all()
    mirror.ends.first_lists = False
    return mirror


def sees(mirror: Mirror, document: Json, now: float) -> None:
    """A pod came or changed."""
    mirror.ends.now = now
    mirror.apply("pods", added(document))


def keeps(mirror: Mirror, now: float) -> bool:
    """Whether the failed replica's share is kept: then there is room for one of the newcomers only."""
    admitted = {admission.gang for admission in decide(mirror.snapshot(), Policy(), now).admissions}
    assert "default/new-0" in admitted
    return "default/new-1" not in admitted


SKEWS = [-7200.0, -90.0, -30.0, 0.0, 30.0, 90.0, 7200.0]


@pytest.mark.parametrize("ahead_s", SKEWS)
def test_who_fails_before_our_eyes_is_waited_for_whatever_its_nodes_clock_says(ahead_s: float) -> None:
    mirror = mirror_of(placed(0), placed(1))
    sees(mirror, failed(placed(1), NOW + 5 + ahead_s), NOW + 5)
    assert keeps(mirror, NOW + 6)
    assert keeps(mirror, NOW + 5 + HOLD_S - REPORTED_S)
    assert not keeps(mirror, NOW + 5 + HOLD_S + 1)
    assert not keeps(mirror, NOW + 5 + max(ahead_s, HOLD_S + 1)), "nor when that time comes"


@pytest.mark.parametrize("ahead_s", SKEWS)
def test_also_where_the_pod_is_gone(ahead_s: float) -> None:
    mirror = mirror_of(placed(0), placed(1))
    last = failed(placed(1), NOW + 5 + ahead_s)
    sees(mirror, last, NOW + 5)
    mirror.apply("pods", deleted(last))
    assert keeps(mirror, NOW + 6)
    mirror.state.forget_kept(NOW + 6 - HOLD_S)
    assert mirror.snapshot().kept
    mirror.state.forget_kept(NOW + 6)
    assert not mirror.snapshot().kept, "and nobody remembers it for as long as a clock is wrong"


@pytest.mark.parametrize(
    ("written", "keeps_it"),
    [(NOW - 3600, False), (NOW - HOLD_S - 1, False), (NOW - 5, True), (NOW + 30, True), (NOW + 3600, False)],
)
def test_a_new_leader_begins_no_old_hold_anew(written: float, keeps_it: bool) -> None:
    """It goes by what is written, as far as that can be true."""
    mirror = mirror_of(placed(0), failed(placed(1), written))
    assert keeps(mirror, NOW + 1) is keeps_it
    assert not keeps(mirror, NOW + HOLD_S + 1)
    assert not keeps(mirror, max(NOW, written) + HOLD_S + 1)


@pytest.mark.parametrize("ahead_s", [-90.0, 0.0, 90.0])
def test_an_end_is_seen_once(ahead_s: float) -> None:
    """Later versions of the pod, its node's correction of the time included, begin nothing anew."""
    mirror = mirror_of(placed(0), placed(1))
    sees(mirror, failed(placed(1), NOW + ahead_s), NOW)
    sees(mirror, failed(placed(1), NOW + 40), NOW + 40)
    assert not keeps(mirror, NOW + HOLD_S + 1)


@pytest.mark.parametrize("ahead_s", SKEWS)
def test_replacements_are_told_from_replicas_that_were_there_before(ahead_s: float) -> None:
    """When they were made the API server says: no node's clock may be compared with that."""
    mirror = mirror_of(placed(0, born=NOW - 20), placed(1))
    sees(mirror, failed(placed(1), NOW + ahead_s), NOW)
    assert keeps(mirror, NOW + 1), "the first was there before"
    sees(mirror, placed(2, born=NOW + 1), NOW + 2)
    admitted = decide(mirror.snapshot(), Policy(), NOW + 3).admissions
    assert len(admitted) == 1, "the replacement has the third share, and nothing more is kept"


class Listed(Sources):
    """Watches whose first lists are complete."""

    def missing(self) -> list[str]:
        return []


def test_the_loop_tells_its_first_lists_from_what_it_sees(tmp_path: Path) -> None:
    long_ago = time.time() - 3600
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path), timeout_s=30)
        settings, leadership = Settings(models=tmp_path, identity="test"), SoleLeader(epoch=5)
        parts = Parts.of(api, TABLE, settings, leadership, others=Others(sources=Listed))
        loop = Loop(parts, settings, leadership, threading.Event())
        for plural, document in cluster([placed(0, long_ago), failed(placed(1, long_ago), long_ago)]):
            parts.inbox.put((plural, added(document)))
        loop.take_over()
        assert not keeps(parts.mirror, time.time())
        for document in (placed(2, long_ago), failed(placed(2, long_ago), long_ago)):
            parts.inbox.put(("pods", added(document)))
        parts.mirror.around.switches = {"stopAdmitting": "true"}  # the turn takes them in, and plans nothing
        loop.turn(wait_s=0.0)
        assert keeps(parts.mirror, time.time())
        parts.stop()
        api.close()
