"""An API server whose history was set back, as by a restore of etcd: what it tells then is how things are."""

from typing import Any

from unit.admission.build import TABLE, added, deleted, group, let_go, node, pod
from vc_egpu.admission.intake.watch_gaps import MOST_S, STILL_S, StalledWatches
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.kube.watch import Change, ChangeKind

Json = dict[str, Any]
UID = PodUid("p")


def waits(version: int) -> Json:
    return pod(uid=UID, metadata={"resourceVersion": str(version)})


def runs(version: int) -> Json:
    document = let_go(waits(version), "5-1", bound=True)
    document["metadata"]["resourceVersion"] = str(version)
    return document


def answered(document: Json) -> Change:
    """To a write of ours: nobody knows what was there before."""
    return Change(ChangeKind.MODIFIED, document)


def world() -> Mirror:
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("podgroups", added(group()))
    mirror.apply("pods", added(waits(300)))
    mirror.apply("pods", Change(ChangeKind.MODIFIED, runs(500), waits(300)))
    return mirror


def phase(mirror: Mirror) -> PodPhase:
    return mirror.snapshot().pods[UID].phase


def test_an_older_version_counts_once_the_watch_went_back_to_it() -> None:
    mirror = world()
    mirror.apply("pods", answered(runs(510)))
    mirror.apply("pods", Change(ChangeKind.MODIFIED, waits(300), runs(500)))
    assert phase(mirror) is PodPhase.GATED
    mirror.apply("pods", Change(ChangeKind.MODIFIED, runs(301), waits(300)))
    assert phase(mirror) is PodPhase.PLACED


def test_what_is_there_again_after_its_end_is_there() -> None:
    mirror = world()
    mirror.apply("pods", deleted(runs(501)))
    mirror.apply("pods", answered(runs(500)))
    assert UID not in mirror.pods, "the answer to a write, late"
    mirror.apply("pods", added(runs(400)))
    assert mirror.snapshot().pods[UID].shares, "its cards are taken"


def test_a_watch_that_is_late_takes_nothing_back() -> None:
    mirror = world()
    mirror.apply("pods", answered(waits(510)))
    mirror.apply("pods", Change(ChangeKind.MODIFIED, runs(505), runs(500)))
    assert phase(mirror) is PodPhase.GATED


def test_a_watch_that_went_back_is_not_behind_what_was_answered_before() -> None:
    behind = StalledWatches()
    behind.answered("pods", "510")
    assert behind.standing({"pods": "510"}, 0.0) == []
    for turn in range(20):
        assert behind.standing({"pods": "300"}, STILL_S + turn * MOST_S) == []
    behind.answered("pods", "310")
    assert behind.standing({"pods": "300"}, 0.0) == []
    assert behind.standing({"pods": "300"}, STILL_S) == ["pods"]
