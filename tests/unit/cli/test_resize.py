"""`kubectl egpu resize`: what is written, what is waited for, why it cannot be, and what is told of it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, tiny_api
from unit.kube.tiny_api import status as tiny_status
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.resizing import told as resized
from vc_egpu.cli.views import cards as card_view
from vc_egpu.volcano.resizing.notes import ResizeNote, ResizeWish, Stage
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare

PATH = "/api/v1/namespaces/ml/pods/train-0"
NOTEBOOK = {"GPU-a": (4096, 10)}


def note(stage: Stage, then: tuple[int, int] = (8192, 20), word: str = "", why: str = "") -> str:
    """What the admission controller writes."""

    def sizes(memory_mib: int, cores: int) -> dict[str, tuple[CardShare, ...]]:
        return {"main": (CardShare(uuid="GPU-a", memory_mib=memory_mib, cores=cores),)}

    was, then_ = sizes(4096, 10), sizes(*then)
    return ResizeNote(
        pod_uid="uid-train-0", number="1-1", stage=stage, id=word, why=why, was=was, then=then_
    ).encode()


class Cluster:
    """An API server with one pod; what the admission controller would do is played."""

    def __init__(self, server: TinyApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self.capsys = server, capsys
        self.config = server.kubeconfig(folder)
        self.put(docs.pod("train-0", cards=NOTEBOOK, group="train"))

    def put(self, raw: dict[str, Any]) -> None:
        self.server.put(f"/api/v1/namespaces/ml/pods/{raw['metadata']['name']}", raw)

    def wish(self) -> ResizeWish | None:
        text = self.server.objects[PATH]["metadata"]["annotations"].get(names.RESIZE)
        return ResizeWish.decode(text) if text else None

    def answers(self, make: Callable[[str], str]) -> None:
        """From now on a wish is judged so; ``make`` takes its word."""

        def play(method: str, path: str, _body: Any) -> None:
            wish = self.wish() if method == "GET" and path == PATH else None
            if wish is not None:
                said = self.server.objects[PATH]["metadata"]["annotations"]
                said.pop(names.RESIZE)
                said[names.RESIZED] = make(wish.id)

        self.server.refuses = play

    def ask(self, *words: str, pod: str = "train-0") -> tuple[int, str]:
        status = kubectl.main(["resize", pod, "-n", "ml", "--kubeconfig", str(self.config), *words])
        told = self.capsys.readouterr()
        return status, told.out + told.err


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    with tiny_api() as server:
        yield Cluster(server, tmp_path, capsys)


def test_the_wish_is_written_and_its_end_waited_for(cluster: Cluster) -> None:
    seen: list[str] = []

    def judge(word: str) -> str:
        seen.append(word)
        return note(Stage.DONE, word=word)

    cluster.answers(judge)
    status, said = cluster.ask("--memory", "8192", "--cores", "20")
    assert status == exit_status.EXIT_OK
    assert "ml/train-0: resized\n  main from 4096 to 8192 MiB and from 10 to 20 cores" in said
    (patch,) = [body for method, path, body in cluster.server.requests if method == "PATCH"]
    wish = ResizeWish.decode(patch["metadata"]["annotations"][names.RESIZE])
    assert wish.sizes() == (("main", 8192, 20),)
    assert seen == [wish.id]
    assert patch["metadata"]["uid"] == "uid-train-0"


def test_a_refusal_says_why_and_is_no_success(cluster: Cluster) -> None:
    cluster.answers(lambda word: note(Stage.REFUSED, word=word, why="card GPU-a has 5 MiB left"))
    status, said = cluster.ask("--memory", "8192")
    assert status == exit_status.EXIT_FOUND
    assert "refused\n  main from 4096 to 8192 MiB and from 10 to 20 cores: card GPU-a has 5 MiB left" in said


def test_what_its_node_does_is_told_while_it_does_it(cluster: Cluster) -> None:
    cluster.answers(lambda word: note(Stage.LOWERING, (2048, 10), word))
    status, said = cluster.ask("--memory", "2048", "--timeout", "1")
    assert status == exit_status.EXIT_FOUND
    assert "main from 4096 to 2048 MiB: its node lowers its memory first" in said
    assert "granted" in said


def test_the_answer_to_another_wish_is_not_taken_for_ones_own(cluster: Cluster) -> None:
    cluster.answers(lambda _word: note(Stage.DONE, word="somebody's"))
    status, said = cluster.ask("--memory", "8192")
    assert status == exit_status.EXIT_FOUND
    assert "another wish for this pod came after this one" in said


def test_a_wish_that_is_judged_by_no_controller_is_taken_back(cluster: Cluster) -> None:
    status, said = cluster.ask("--memory", "8192", "--timeout", "1")
    assert status == exit_status.EXIT_FOUND
    assert "no admission controller has judged it, so it was taken back" in said
    assert cluster.wish() is None


def test_one_of_several_containers_is_named(cluster: Cluster) -> None:
    raw = docs.pod("train-0", cards=NOTEBOOK, group="train")
    held = Cards.decode(raw["metadata"]["annotations"][names.CARDS])
    both = held.model_copy(update={"containers": {**held.containers, "side": held.containers["main"]}})
    raw["metadata"]["annotations"][names.CARDS] = both.encode()
    cluster.put(raw)
    status, said = cluster.ask("--cores", "20")
    assert (status, "main, side: name one with --container" in said) == (exit_status.EXIT_FOUND, True)
    status, said = cluster.ask("--cores", "20", "--container", "other")
    assert "container other of pod train-0 has no share" in said
    cluster.answers(lambda word: note(Stage.DONE, word=word))
    assert cluster.ask("--cores", "20", "--container", "side")[0] == exit_status.EXIT_OK


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "name --memory, --cores or both"),
        (("--memory", "8Gi"), "the unit is MiB, did you mean 8192?"),
        (("--memory", "0"), "is not within 1..16777216 MiB"),
        (("--memory", "-1"), "is not within 1..16777216 MiB"),
        (("--memory", "lots"), "is not a quantity"),
        (("--cores", "101"), "is not within 0..100"),
        (("--cores", "x"), "is not within 0..100"),
    ],
)
def test_what_is_no_size_is_refused_before_anything_is_written(
    cluster: Cluster, words: tuple[str, ...], text: str
) -> None:
    try:
        _, said = cluster.ask(*words)
    except SystemExit:
        said = cluster.capsys.readouterr().err
    assert text in said
    assert not [method for method, _, _ in cluster.server.requests if method == "PATCH"]


def test_pods_without_cards_and_names_that_are_near(cluster: Cluster) -> None:
    cluster.put(docs.pod("plain"))
    assert "has no cards of ours" in cluster.ask("--cores", "1", pod="plain")[1]
    assert "did you mean train-0?" in cluster.ask("--cores", "1", pod="train")[1]
    done = docs.pod("train-0", cards=NOTEBOOK, phase="Succeeded")
    cluster.put(done)
    assert "there is nothing to resize" in cluster.ask("--cores", "1")[1]


def test_without_the_right_it_is_said_who_gives_it(cluster: Cluster) -> None:
    def refuse(method: str, _path: str, _body: Any) -> Any:
        return (403, tiny_status(403, "Forbidden", "needs update on jobs")) if method == "PATCH" else None

    cluster.server.refuses = refuse
    status, said = cluster.ask("--cores", "1")
    assert status == exit_status.EXIT_FOUND
    assert "train-0: needs update on jobs; an operator allows it with a binding" in said


def test_a_dry_run_writes_nothing_and_says_what_would_become_of_it(cluster: Cluster) -> None:
    raw = docs.pod("train-0", cards=NOTEBOOK, group="train")
    raw["spec"]["nodeName"] = "n1"
    raw["status"]["startTime"] = "2026-01-01T00:00:00Z"
    cluster.put(raw)
    cluster.server.put("/api/v1/pods/ml-train-0", raw)  # lists of all namespaces know their own paths alone
    table = {"models": [{"name": "h20", "memoryMiB": 98304}]}
    place = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.MODELS_CONFIG_MAP}"
    named = {"name": names.MODELS_CONFIG_MAP}
    cluster.server.put(place, {"metadata": named, "data": {"models.yaml": json.dumps(table)}})
    node = docs.node("n1", docs.card("GPU-a"))
    node["status"]["allocatable"] |= {"cpu": "64", "memory": "256Gi", "pods": "110"}
    cluster.server.put("/api/v1/nodes/n1", node)
    queues = "/apis/scheduling.volcano.sh/v1beta1/queues/all"
    cap = {"volcano.sh/vgpu-h20": 10, "volcano.sh/vgpu-h20-memory": 9000}
    cluster.server.put(queues, {"metadata": {"name": "all"}, "spec": {"capability": cap}, "status": {}})
    groups = "/apis/scheduling.volcano.sh/v1beta1/podgroups/ml-train"
    spec = {"minMember": 1, "queue": "all"}
    named = {"name": "train", "namespace": "ml", "uid": "g"}
    cluster.server.put(groups, {"metadata": named, "spec": spec, "status": {}})
    status, said = cluster.ask("--memory", "9000", "--dry-run")
    assert (status, cluster.wish()) == (exit_status.EXIT_OK, None)
    assert "would be granted\n  main 9000 MiB and 10 cores of card GPU-a" in said
    status, said = cluster.ask("--memory", "9001", "--dry-run")
    assert status == exit_status.EXIT_FOUND
    assert "would be refused\n  queue all allows 9000 of volcano.sh/vgpu-h20-memory, 4096 are used" in said


# --- what other commands say ---------------------------------------------------------------------


def resized_pod(stage: Stage, size: tuple[int, int] = (4096, 10), why: str = "") -> dict[str, Any]:
    raw = docs.pod("train-0", cards=NOTEBOOK, annotations={names.RESIZED: note(stage, why=why)})
    held = Cards.decode(raw["metadata"]["annotations"][names.CARDS])
    share = CardShare(uuid="GPU-a", memory_mib=size[0], cores=size[1])
    now = held.model_copy(update={"containers": {"main": (share,)}})
    raw["metadata"]["annotations"][names.CARDS] = now.encode()
    return raw


def test_why_says_how_far_it_is_and_that_the_request_stays() -> None:
    wished = docs.pod("train-0", cards=NOTEBOOK, annotations={names.RESIZE: "{}"})
    assert resized.notes([wished]) == ["pod train-0: a wish for another size waits to be judged"]
    (line,) = resized.notes([resized_pod(Stage.LOWERING)])
    assert line.endswith("its node lowers its memory first")
    (line,) = resized.notes([resized_pod(Stage.REFUSED, why="no room")])
    assert line == ("pod train-0: not resized (main from 4096 to 8192 MiB and from 10 to 20 cores): no room")
    (line,) = resized.notes([resized_pod(Stage.DONE, (8192, 20))])
    assert line == (
        "pod train-0: it was resized: main has 8192 MiB and 20 cores. Its request is still 4096 MiB and 10 "
        "cores, and Volcano counts that until the pod is made again"
    )
    assert not resized.notes([docs.pod("train-0", cards=NOTEBOOK)])


def test_cards_shows_the_new_size_and_says_so() -> None:
    raw = resized_pod(Stage.DONE, (8192, 20))
    report = card_view.report([docs.node("n1", docs.card("GPU-a"))], [raw])
    assert [(row.used_mib, row.cores_high_percent) for row in report.cards] == [(8192, 20)]
    assert any("ml/train-0 was resized: main has 8192 MiB" in line for line in report.notes)
