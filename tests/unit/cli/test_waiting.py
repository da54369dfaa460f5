"""`kubectl egpu why` without a name: all that waits."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.views import render, waiting, why

SENTENCE = "asks for 4 shares of h20 (61440 MiB, 25 cores each); the queue research has 2 of 6 left"


def said(reason: str, second: int = 0, message: str = SENTENCE) -> docs.Json:
    return docs.verdict(reason, message) | {"lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}


def gated(name: str, group: str, **fields: object) -> docs.Json:
    return docs.pod(name, group=group, gated=True, phase="Pending", **fields)  # type: ignore[arg-type]


def test_what_waits_longest_comes_first_and_what_runs_is_left_out() -> None:
    done = docs.group("done", "research", job="done", said=said("WaitingForCards"))
    done["status"]["phase"] = "Completed"
    groups = [
        docs.group("b-1", "research", job="b", said=said("WaitingForCards", 20)),
        docs.group("a-1", "research", job="a", said=said("WaitingForQuota", 30)),
        docs.group("c-1", "serving", job="c", said=said("QueueClosed", 10)),
        docs.group("runs-1", "serving", job="runs", said=said("Admitted")),
        done,
    ]
    report = waiting.report(groups, [gated("a-w-0", "a-1", share_class="low")], place="ml")
    assert [(row.gang, row.reason) for row in report.waiting] == [
        ("ml/c", "QueueClosed"),
        ("ml/b", "WaitingForCards"),
        ("ml/a", "WaitingForQuota"),
    ]
    last = report.waiting[-1]
    assert (last.share_class, last.queue, last.message) == ("low", "research", SENTENCE)


def test_a_gang_of_which_nobody_said_anything_is_there_and_one_that_is_not_ours_is_not() -> None:
    plain = docs.pod("cpu-w-0", group="cpu-1")
    groups = [docs.group("new-1", "research", job="new"), docs.group("cpu-1", "research", job="cpu")]
    report = waiting.report(groups, [gated("new-w-0", "new-1"), plain], place="")
    assert [(row.gang, row.reason, row.since) for row in report.waiting] == [("ml/new", why.NO_VERDICT, "")]


def test_replicas_of_a_deployment_are_named_as_their_user_names_them() -> None:
    pod = gated("web-6bd9-x", "g", labels={"pod-template-hash": "6bd9"}, owner=("ReplicaSet", "web-6bd9"))
    report = waiting.report([docs.group("g", "research", said=said("WaitingForCards"))], [pod], place="")
    assert [row.gang for row in report.waiting] == ["ml/web"]


def maker(name: str, wanted: int, made: int) -> docs.Json:
    about = {"name": name, "namespace": "ml", "uid": f"uid-{name}"}
    return {"metadata": about, "spec": {"replicas": wanted}, "status": {"replicas": made}}


def refused(name: str, uid: str = "") -> docs.Json:
    about = {"kind": "ReplicaSet", "name": name, "namespace": "ml", "uid": uid or f"uid-{name}"}
    return {"involvedObject": about, "reason": "FailedCreate", "message": "denied: may not use queue 'a'"}


def test_what_is_refused_at_the_door_has_no_gang_and_is_told_of() -> None:
    """Nothing waits then, and whoever looked for what keeps a Deployment back found nothing."""
    makers = [maker("web-6bd9", 3, 0), maker("fine-1", 2, 2), maker("new-1", 2, 0), maker("old-1", 0, 0)]
    events = [refused("web-6bd9"), refused("fine-1"), refused("old-1"), refused("new-1", "an-earlier-one")]
    report = waiting.report([], [], place="ml", makers=makers, events=events)
    assert report.notes == ("ml: ReplicaSet web-6bd9 cannot make a pod: denied: may not use queue 'a'",)
    console = render.console()
    with console.capture() as captured:
        console.print(render.waiting(report))
    assert "no gang waits in namespace ml\nnote: ml: ReplicaSet web-6bd9 cannot" in captured.get()


def test_the_sentences_are_shown_whole() -> None:
    group = docs.group("a-1", "research", job="a", said=said("WaitingForQuota"))
    console = render.console()
    with console.capture() as captured:
        console.print(render.waiting(waiting.report([group], [], place="ml")))
        console.print(render.waiting(waiting.report([], [], place="ml")))
        console.print(render.waiting(waiting.report([], [], place="")))
    lines = captured.get().splitlines()
    assert SENTENCE in lines[1]
    empty = [line.rstrip() for line in lines[2:]]
    assert empty == ["no gang waits in namespace ml", "no gang waits anywhere"]


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        for place in ("ml", "serving"):
            group = docs.group(f"{place}-1", "research", job="train", said=said("WaitingForQuota"))
            group["metadata"]["namespace"] = place
            found.put(f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{place}/podgroups/{place}-1", group)
        yield found


@pytest.mark.parametrize(
    ("flags", "gangs"),
    [(["-n", "ml"], ["ml/train"]), (["-A"], ["ml/train", "serving/train"]), (["-n", "none"], [])],
)
def test_of_one_namespace_or_of_all(
    flags: list[str],
    gangs: list[str],
    server: TinyApi,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kubeconfig = str(server.kubeconfig(tmp_path))
    assert kubectl.main(["why", *flags, "-o", "json", "--kubeconfig", kubeconfig]) == exit_status.EXIT_OK
    assert [row["gang"] for row in json.loads(capsys.readouterr().out)["waiting"]] == gangs


def test_a_job_in_all_namespaces_is_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        kubectl.main(["why", "train", "-A"])
    assert exited.value.code == exit_status.EXIT_USAGE
    assert "not allowed with argument" in capsys.readouterr().err
