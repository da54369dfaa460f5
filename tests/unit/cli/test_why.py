"""`kubectl egpu why JOB`: the verdict in the words of the condition."""

from collections.abc import Iterator

import pytest
from unit.cli import documents as docs
from vc_egpu.cli import world
from vc_egpu.cli.views import render, waiting, why

SENTENCE = "asks for 4 shares of h20; the queue research has 2 of 6 left"


def tell(name: str, **lists: list[docs.Json]) -> tuple[why.GangStory, ...]:
    queues = {q["metadata"]["name"]: q for q in lists.pop("queues", [docs.queue("research", h20=6)])}
    groups, pods, jobs, events = (lists.pop(kind, []) for kind in ("groups", "pods", "jobs", "events"))
    makers = lists.pop("makers", [])
    assert not lists, "misspelt"
    return why.stories(
        name,
        "ml",
        groups=groups,
        pods=pods,
        jobs=world.Listing(jobs),
        queues=queues,
        events=events,
        makers=makers,
    )


def waiting_gang() -> dict[str, list[docs.Json]]:
    said = docs.verdict("WaitingForQuota", SENTENCE)
    pods = [
        docs.pod(f"train-w-{i}", group="train-1", gated=True, phase="Pending", verdict=said) for i in range(2)
    ]
    return {"groups": [docs.group("train-1", "research", job="train", said=said, members=2)], "pods": pods}


@pytest.mark.parametrize("name", ["train", "train-1", "train-w-0", "vcjob/train", "podgroup/train-1"])
def test_any_of_its_names_will_do(name: str) -> None:
    (story,) = tell(name, **waiting_gang())
    assert story.job == "train"
    assert story.message == SENTENCE
    assert [member.phase for member in story.members] == ["Gated", "Gated"]


def test_the_sentence_is_shown_whole() -> None:
    (story,) = tell("train", **waiting_gang())
    console = render.console()
    with console.capture() as captured:
        console.print(render.why(story))
    text = captured.get()
    assert "WaitingForQuota" in text
    assert SENTENCE in text
    assert text.count(SENTENCE) == 1, "members that say the same need not repeat it"


@pytest.mark.parametrize(("owner", "pods", "told"), [("", 0, True), ("train", 0, False), ("", 1, False)])
def test_a_podgroup_that_was_left_over_waits_for_ever(owner: str, pods: int, *, told: bool) -> None:
    """After `kubectl delete --cascade=orphan`, or restored next to the one that its Job makes."""
    said = docs.verdict("WaitingForMembers", f"{pods} of 2 members are there")
    group = docs.group("train-1", "research", job=owner, said=said, members=2)
    own = [docs.pod("train-w-0", group="train-1", gated=True, phase="Pending")][:pods]
    (story,) = tell("train-1", groups=[group], pods=own)
    assert any("`kubectl delete podgroup train-1`" in note for note in story.notes) is told


def test_replicas_of_a_deployment_by_its_name() -> None:
    pods = [
        docs.pod(
            "web-6bd9-x",
            group="podgroup-1",
            labels={"pod-template-hash": "6bd9"},
            owner=("ReplicaSet", "web-6bd9"),
        )
    ]
    group = docs.group("podgroup-1", "research", job="web-6bd9")
    (story,) = tell("web", groups=[group], pods=pods)
    assert (story.group, story.job) == ("ml/podgroup-1", "web")


def test_gangs_of_leaders_by_the_name_of_their_set() -> None:
    """Each PodGroup of a LeaderWorkerSet belongs to a leading pod, which a StatefulSet of its name makes."""
    groups = [docs.group(f"llm-{i}-pg", "research", job=f"llm-{i}") for i in range(2)]
    pods = [docs.pod(f"llm-{i}", group=f"llm-{i}-pg", owner=("StatefulSet", "llm")) for i in range(2)]
    pods.append(docs.pod("llm-1-1", group="llm-1-pg", owner=("StatefulSet", "llm-1")))
    assert [story.group for story in tell("llm", groups=groups, pods=pods)] == ["ml/llm-0-pg", "ml/llm-1-pg"]
    assert [story.group for story in tell("llm-1", groups=groups, pods=pods)] == ["ml/llm-1-pg"]


def test_cards_and_class_of_an_admitted_gang() -> None:
    said = docs.verdict("Admitted", "1 member placed")
    pods = [docs.pod("a", group="g", cards={"GPU-a": (1024, 25)}, share_class="high")]
    (story,) = tell("a", groups=[docs.group("g", "research", said=said)], pods=pods)
    assert story.admitted
    assert story.share_class == "high"
    assert story.members[0].cards == ("GPU-a 1024 MiB 25 % cores",)


def test_near_names_are_offered() -> None:
    with pytest.raises(why.UnknownJobError, match=r"did you mean train"):
        tell("trian", **waiting_gang())


class Counted(list[docs.Json]):
    """Counts how often it is gone through."""

    looks = 0

    def __iter__(self) -> Iterator[docs.Json]:
        self.looks += 1
        return super().__iter__()


def test_pods_are_not_gone_through_for_each_gang() -> None:
    """A namespace with two thousand gangs has tens of thousands of pods: that was a minute."""
    said = docs.verdict("WaitingForQuota", SENTENCE)
    pods = Counted(docs.pod(f"w-{i}", group=f"g{i}", gated=True, phase="Pending") for i in range(50))
    groups = [docs.group(f"g{i}", "research", said=said) for i in range(50)]
    (story,) = tell("g7", groups=groups, pods=pods)
    assert [member.pod for member in story.members] == ["w-7"]
    assert pods.looks <= 3


def test_a_name_like_nothing_says_what_there_is() -> None:
    with pytest.raises(why.UnknownJobError, match=r"there are train$"):
        tell("zzzzzz", **waiting_gang())
    many = [docs.group(f"j{i}-1", "research", job=f"j{i}") for i in range(8)]
    with pytest.raises(why.UnknownJobError, match=r"there are j0, j1, j2, j3, j4 and 3 more$"):
        tell("zzzzzz", groups=many)
    with pytest.raises(why.UnknownJobError, match="no gangs at all"):
        tell("train")


def test_a_pod_that_is_not_ours_is_said_to_be_so() -> None:
    plain = docs.pod("web")
    plain["metadata"]["labels"] = {}
    with pytest.raises(why.UnknownJobError, match="nothing to do with it"):
        tell("web", pods=[plain])


def test_a_refusal_by_the_webhook_is_told() -> None:
    """A ReplicaSet whose pods are refused has no pods to look at: its event has the sentence."""
    event = {
        "involvedObject": {"kind": "ReplicaSet", "name": "web-6bd9", "namespace": "ml"},
        "reason": "FailedCreate",
        "message": "Error creating: admission webhook denied the request: may not use queue 'a'",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    with pytest.raises(why.UnknownJobError, match="may not use queue 'a'"):
        tell("web", events=[event])
    bare = {"involvedObject": {"name": "web-6bd9"}, "reason": "FailedCreate"}
    with pytest.raises(why.UnknownJobError, match="web-6bd9 cannot make a pod"):
        tell("web", events=[bare, {"reason": "FailedCreate"}])


def test_a_job_without_a_podgroup() -> None:
    job = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"queue": "research", "minAvailable": 3}}
    (story,) = tell("train", jobs=[job])
    assert not story.admitted
    assert "no PodGroup" in story.message


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Aborted", "Terminated"])
def test_a_job_that_is_over_does_not_wait_for_a_verdict(phase: str) -> None:
    state = {"phase": phase, "message": "0 pods of task worker succeeded, 1 had to"}
    template = {"metadata": {"annotations": {"egpu.volcano.sh/priority": "low"}}}
    job = {
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"queue": "research", "tasks": [{"name": "worker", "template": template}]},
        "status": {"state": state},
    }
    (story,) = tell("train", jobs=[job])
    assert (story.reason, story.share_class) == (phase, "low")
    assert story.message == f"the Job is {phase} and holds no cards: {state['message']}"
    state["message"] = ""
    (story,) = tell("train", jobs=[job])
    assert story.message == f"the Job is {phase} and holds no cards"


def test_notes_on_what_else_stands_in_the_way() -> None:
    gang = waiting_gang()
    gang["pods"][0]["spec"]["schedulingGates"].append({"name": "other.example/gate"})
    (story,) = tell("train", **gang, queues=[docs.queue("resaerch")])
    assert any("other.example/gate" in note for note in story.notes)
    assert any("did you mean resaerch?" in note for note in story.notes)


def test_no_verdict_points_to_the_doctor() -> None:
    gang = waiting_gang()
    for document in (*gang["groups"], *gang["pods"]):
        document["status"]["conditions"] = []
    (story,) = tell("train", **gang)
    assert story.reason == why.NO_VERDICT
    assert any("half a minute" in note and "doctor" in note for note in story.notes), "as the page says"


def event_of(kind: str, name: str, uid: str, message: str) -> docs.Json:
    return {
        "involvedObject": {"kind": kind, "name": name, "namespace": "ml", "uid": uid},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }


def test_members_that_cannot_be_made_are_told_of_with_their_gang() -> None:
    """As under a ResourceQuota: some of the pods are there, the last is refused again and again."""
    said = docs.verdict("WaitingForMembers", "1 of 2 members are there")
    group = docs.group("train-1", "research", job="train", said=said, members=2)
    uid = group["metadata"]["ownerReferences"][0].setdefault("uid", "uid-train")
    events = [event_of("Job", "train", uid, "exceeded quota: q"), event_of("Job", "train", "old", "ghost")]
    pods = [docs.pod("train-w-0", group="train-1", gated=True, phase="Pending", verdict=said)]
    (story,) = tell("train", groups=[group], pods=pods, events=events)
    assert [note for note in story.notes if "exceeded quota" in note] == [
        "Job train cannot make a pod: exceeded quota: q"
    ]


def test_a_job_that_its_controller_refuses_says_why() -> None:
    state = {"phase": "Pending", "reason": "Refused", "message": "spec.tasks: the name 'w' is used 2 times"}
    job = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {}, "status": {"state": state}}
    (story,) = tell("train", jobs=[job])
    assert "the name 'w' is used 2 times" in story.message


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"cpu": "1"}, "no managed cards"), ({"nvidia.com/gpu": 1}, "it names nvidia.com/gpu, but volcano.sh/")],
)
def test_a_gang_that_asks_for_no_cards_does_not_wait_for_a_verdict(limits: docs.Json, words: str) -> None:
    plain = docs.pod("cpu-w-0", group="cpu-1")
    plain["metadata"]["labels"] = {}
    plain["spec"]["containers"] = [{"name": "main", "resources": {"limits": limits}}]
    (story,) = tell("cpu", groups=[docs.group("cpu-1", "research", job="cpu")], pods=[plain])
    assert story.reason == why.NOT_MANAGED
    assert words in story.message


def test_a_container_that_does_not_start_is_told_of() -> None:
    said = docs.verdict("Admitted", "1 member placed")
    pod = docs.pod("a", group="g", cards={"GPU-a": (1024, 25)}, phase="Pending")
    waits = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    pod["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": waits}}]
    (story,) = tell("a", groups=[docs.group("g", "research", said=said)], pods=[pod])
    assert "a: ImagePullBackOff: Back-off pulling image" in story.notes
    waits["reason"] = "ContainerCreating"
    (story,) = tell("a", groups=[docs.group("g", "research", said=said)], pods=[pod])
    assert not story.notes


def test_a_plan_that_is_only_a_record_is_not_in_force() -> None:
    gang = waiting_gang()
    gang["groups"][0]["metadata"].setdefault("annotations", {})["egpu.volcano.sh/plan"] = "{}"
    (story,) = tell("train", **gang)
    assert not story.has_plan


def test_a_word_against_preemption_that_does_not_count_is_told_of() -> None:
    """Next to class low; for others it says nothing new."""
    pods = [docs.pod("a", group="g", gated=True, phase="Pending")]
    pods[0]["metadata"]["annotations"] |= {"volcano.sh/preemptable": "false"}
    (story,) = tell("a", groups=[docs.group("g", "research")], pods=pods)
    assert not [note for note in story.notes if "preemptable" in note]
    pods[0]["metadata"]["annotations"] |= {"egpu.volcano.sh/priority": "low"}
    (story,) = tell("a", groups=[docs.group("g", "research")], pods=pods)
    assert [note for note in story.notes if 'priority "low" wins here' in note]


def test_a_misspelt_annotation_is_told_of_where_nobody_saw_the_warning() -> None:
    said = docs.verdict("Admitted", "1 member placed")
    pod = docs.pod("a", group="g", cards={"GPU-a": (1024, 25)}, share_class="high")
    pod["metadata"]["annotations"]["egpu.volcano.sh/priorty"] = "low"
    (story,) = tell("a", groups=[docs.group("g", "research", said=said)], pods=[pod])
    assert [note for note in story.notes if "did you mean egpu.volcano.sh/priority?" in note]


def test_a_podgroup_that_names_another_queue_than_its_pods_were_checked_for() -> None:
    gang = waiting_gang()
    for pod in gang["pods"]:
        pod["metadata"]["labels"]["volcano.sh/queue-name"] = "research"
    (story,) = tell("train", **gang)
    assert not story.notes
    gang["groups"][0]["spec"]["queue"] = "theirs"
    (story,) = tell("train", **gang)
    assert story.queue == "research"
    (note,) = story.notes
    assert note == "its PodGroup names queue theirs, its pods were checked for research and count there"


@pytest.mark.parametrize(
    ("kind", "pods", "told"), [("StatefulSet", 1, True), ("StatefulSet", 2, False), ("Job", 1, False)]
)
def test_a_stateful_set_that_makes_its_pods_one_by_one_waits_for_ever(
    kind: str, pods: int, told: bool
) -> None:
    """The first is gated until the second is there, which is made once the first is ready."""
    group = docs.group("podgroup-1", "research", job="db", members=2)
    group["metadata"]["ownerReferences"][0]["kind"] = kind
    group["status"]["conditions"] = [docs.verdict("WaitingForMembers", f"{pods} of 2 members are there")]
    own = [docs.pod(f"db-{i}", group="podgroup-1", gated=True, phase="Pending") for i in range(pods)]
    (story,) = tell("db", groups=[group], pods=own)
    assert any("podManagementPolicy: Parallel" in note for note in story.notes) is told


# --- a gang whose maker wants no pods -----------------------------------------------------------------

SHORT = docs.verdict("WaitingForMembers", "0 of 1 members are there")


def made_by(kind: str, name: str, **spec: object) -> tuple[docs.Json, docs.Json]:
    """A PodGroup and its maker."""
    group = docs.group("podgroup-1", "research", job=name, said=SHORT)
    group["metadata"]["ownerReferences"][0] |= {"kind": kind, "uid": "uid-maker"}
    labels = {"pod-template-hash": "6bd9"} if kind == "ReplicaSet" else {}
    maker = {"name": name, "namespace": "ml", "uid": "uid-maker", "labels": labels}
    return group, {"metadata": maker, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "name", "spec", "said"),
    [
        ("ReplicaSet", "web-6bd9", {"replicas": 0}, "ReplicaSet web-6bd9 asks for no pods (replicas: 0)"),
        ("StatefulSet", "db", {"replicas": 0}, "StatefulSet db asks for no pods (replicas: 0)"),
        ("Job", "batch", {"parallelism": 0}, "Job batch asks for no pods (parallelism: 0)"),
        ("Job", "batch", {"suspend": True}, "Job batch asks for no pods (suspend: true)"),
    ],
)
def test_who_wants_no_pods_waits_for_none(kind: str, name: str, spec: docs.Json, said: str) -> None:
    group, maker = made_by(kind, name, **spec)
    (story,) = tell(name, groups=[group], makers=[maker])
    assert (story.reason, story.message, story.admitted, story.notes) == ("AsksForNone", said, False, ())
    assert waiting.report([group], [], place="ml", makers=[maker]).waiting == ()


def test_a_deployment_without_pods_is_known_by_its_name() -> None:
    group, maker = made_by("ReplicaSet", "web-6bd9", replicas=0)
    (story,) = tell("web", groups=[group], makers=[maker])
    assert (story.job, story.reason) == ("web", "AsksForNone")


def test_a_maker_that_never_made_a_pod_has_no_gang_and_is_known_all_the_same() -> None:
    _, batch = made_by("Job", "batch", suspend=True, parallelism=2)
    with pytest.raises(why.UnknownJobError, match=r"^batch asks for no pods \(suspend: true\)$"):
        tell("batch", makers=[batch])
    _, former = made_by("ReplicaSet", "web-6bd9", replicas=0)
    _, latest = made_by("ReplicaSet", "web-6bd9", replicas=3)
    with pytest.raises(why.UnknownJobError, match=r"^nothing called"):
        tell("web", makers=[former, latest])


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("ReplicaSet", {"replicas": 1}), ("StatefulSet", {}), ("Job", {"suspend": False}), ("Job", {})],
)
def test_who_wants_pods_waits_for_them(kind: str, spec: docs.Json) -> None:
    group, maker = made_by(kind, "x-6bd9", **spec)
    (story,) = tell("x-6bd9", groups=[group], makers=[maker])
    assert story.reason == "WaitingForMembers"
    assert len(waiting.report([group], [], place="ml", makers=[maker]).waiting) == 1


def test_pods_that_are_on_their_way_out_are_told_of_as_ever() -> None:
    group, maker = made_by("ReplicaSet", "web-6bd9", replicas=0)
    (story,) = tell("web", groups=[group], makers=[maker], pods=[docs.pod("web-6bd9-x", group="podgroup-1")])
    assert story.reason == "WaitingForMembers"
