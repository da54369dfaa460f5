"""What `kubectl egpu why` says of a gang's past: whom it made room for, and roll-backs."""

from datetime import UTC, datetime

import pytest
from unit.cli import documents as docs
from vc_egpu.admission.state import backoffs
from vc_egpu.cli.views import history, render, why
from vc_egpu.core.model.cluster import Instant, NodeName
from vc_egpu.volcano.words import names

AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp()
MADE_ROOM = "makes room for gang serving/infer-1 of higher priority"


def evicted(name: str, second: int = 0, **fields: str) -> docs.Json:
    about = {"kind": "Pod", "name": name, "namespace": "ml", "uid": f"earlier-{name}"}
    return {
        "involvedObject": about,
        "reason": fields.get("reason", "Preempted"),
        "message": fields.get("message", MADE_ROOM),
        "eventTime": f"2026-01-01T11:59:{second:02}.123456Z",
        "lastTimestamp": None,
    }


def tell(
    events: list[docs.Json],
    *,
    rolled_back: str = "",
    kind: str = "Job",
    made: str = "2026-01-01T11:00:00Z",
    owner: str = "train",
    begun: str = "",
) -> why.GangStory:
    said = docs.verdict("WaitingForCards", "asks for 2 shares of h20; none of 2 members would find a place")
    group = docs.group("train-1", "research", job=owner, said=said, members=2)
    group["metadata"]["ownerReferences"][0]["kind"] = kind
    group["metadata"]["creationTimestamp"] = made
    if rolled_back:
        group["metadata"]["annotations"] = {names.ROLLED_BACK: rolled_back}
    pods = [docs.pod(f"train-w-{i}", group="train-1", gated=True, phase="Pending") for i in range(2)]
    if begun:
        pods[0]["metadata"]["generateName"] = begun
    queues = {"research": docs.queue("research", h20=6)}
    (story,) = why.stories(
        owner, "ml", groups=[group], pods=pods, queues=queues, events=events, now=Instant(AT)
    )
    return story


def test_who_it_made_room_for_is_told_of_the_gang_that_came_back() -> None:
    """Its new pods have the same names: what was said of the earlier ones is nowhere else."""
    story = tell([evicted("train-w-0", 1), evicted("train-w-1", 2)])
    assert story.notes == (f"2 pods were evicted at 2026-01-01T11:59:02Z: {MADE_ROOM}",)


def test_two_evictions_are_two_sentences_oldest_first() -> None:
    later = "makes room for gang serving/infer-2 of higher priority"
    story = tell([evicted("train-w-0", 9, message=later), evicted("train-w-0", 1)])
    assert story.notes == (
        f"1 pod was evicted at 2026-01-01T11:59:01Z: {MADE_ROOM}",
        f"1 pod was evicted at 2026-01-01T11:59:09Z: {later}",
    )


def test_what_befell_an_earlier_job_of_that_name_is_not_told_of_this_one() -> None:
    assert tell([evicted("train-w-0", 1)], made="2026-01-01T11:59:02Z").notes == ()
    assert tell([evicted("train-w-0", 2)], made="2026-01-01T11:59:02Z").notes


def test_pods_of_a_replica_set_have_new_names_each_time() -> None:
    story = tell([evicted("train-x7k2p")], kind="ReplicaSet")
    assert story.notes == (f"1 pod was evicted at 2026-01-01T11:59:00Z: {MADE_ROOM}",)


LONG = "a-deployment-of-a-release-with-quite-a-long-name-6d8b9c7f54"


@pytest.mark.parametrize(
    ("kind", "owner", "begun", "pod"),
    [
        ("Job", "train", "train-0-", "train-0-x7k2p"),
        ("RayCluster", "train", "train-gpus-worker-", "train-gpus-worker-x7k2p"),
        ("ReplicaSet", LONG, f"{LONG}-", f"{LONG[:58]}x7k2p"),
        ("ReplicaSet", LONG, "", f"{LONG[:58]}x7k2p"),
    ],
)
def test_names_are_told_by_what_was_asked_for(kind: str, owner: str, begun: str, pod: str) -> None:
    """An indexed batch Job's pods, other operators', and those that the API server cuts to make room."""
    assert tell([evicted(pod)], kind=kind, owner=owner, begun=begun).notes
    assert not tell([evicted(f"other-{pod}")], kind=kind, owner=owner, begun=begun).notes
    assert not tell([evicted(f"{pod}-0")], kind=kind, owner=owner, begun=begun).notes


@pytest.mark.parametrize(
    "event",
    [
        evicted("train-b-w-0"),
        evicted("train-w-2x"),
        evicted("train-w-0", reason="Scheduled"),
        evicted("train-w-0") | {"involvedObject": {"kind": "PodGroup", "name": "train-w-0"}},
        {"reason": "Preempted"},
    ],
)
def test_what_was_said_of_others_is_not_told(event: docs.Json) -> None:
    assert tell([event]).notes == ()


def rolled_back(count: int = 1, ago_s: float = 5.0) -> str:
    at, nodes = Instant(AT - ago_s), frozenset({NodeName("n1")})
    return backoffs.encode(backoffs.RolledBack(count, at, at + 20, nodes, "n1 refused a member"))


def test_a_roll_back_is_a_sentence() -> None:
    story = tell([], rolled_back=rolled_back(count=2))
    assert story.rolled_back == (
        "2 times, last at 2026-01-01T11:59:55Z: n1 refused a member; tried again at 2026-01-01T12:00:15Z; "
        "until 2026-01-01T12:00:35Z without n1, unless nothing else has room"
    )
    console = render.console()
    with console.capture() as captured:
        console.print(render.why(story))
    assert "rolled back: 2 times, last at" in captured.get()


def test_how_it_is_tried_otherwise_is_said() -> None:
    at = Instant(AT - 5)
    note = backoffs.RolledBack(1, at, at + 20, frozenset(), "not bound", most=2)
    assert tell([], rolled_back=backoffs.encode(note)).rolled_back.endswith(
        "; until 2026-01-01T12:00:35Z at most 2 of its members go to one node"
    )


def test_what_is_over_is_not_promised() -> None:
    story = tell([], rolled_back=rolled_back(ago_s=120.0))
    assert story.rolled_back == "once, at 2026-01-01T11:58:00Z: n1 refused a member"


def test_a_roll_back_of_long_ago_is_forgotten_as_the_controller_forgets_it() -> None:
    assert not tell([], rolled_back=rolled_back(ago_s=backoffs.FORGET_S + 1)).rolled_back


@pytest.mark.parametrize("text", ["", "{", '{"version": 2}', '{"count": -1}'])
def test_garbage_says_nothing(text: str) -> None:
    assert not history.roll_backs(text, Instant(AT))
