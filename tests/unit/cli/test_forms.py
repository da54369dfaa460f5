"""Orders and forms of answers, what was said lately, and single cards out of use."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.cli import kubectl
from vc_egpu.cli.live import cordon, events, forms
from vc_egpu.cli.views import cards, render
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.volcano.words import names

NODES = "/api/v1/nodes"


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        yield found


@pytest.fixture
def kubeconfig(server: TinyApi, tmp_path: Path) -> str:
    return str(server.kubeconfig(tmp_path))


def report() -> cards.CardsReport:
    pods = [docs.pod("a-0", cards={"GPU-a": (1024, 10)}), docs.pod("b-0", cards={"GPU-b": (4096, 10)})]
    return cards.report([docs.node("n1", docs.card("GPU-a"), docs.card("GPU-b", 1))], pods)


def test_rows_in_another_order() -> None:
    assert [row.uuid for row in forms.ordered(report(), "used_mib:desc").cards] == ["GPU-b", "GPU-a"]
    assert [row.uuid for row in forms.ordered(report(), "used-mib").cards] == ["GPU-a", "GPU-b"]


def test_a_field_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(forms.FormError, match="no 'memory' to sort by; there are node, index, uuid"):
        forms.ordered(report(), "memory")


def test_names_alone_and_yaml() -> None:
    assert forms.as_names(report()) == b"GPU-a\nGPU-b"
    assert yaml.safe_load(forms.as_yaml(report()))["cards"][0]["used_mib"] == 1024
    assert yaml.safe_load(forms.as_yaml(report())) == orjson.loads(forms.as_json(report()))


def test_the_command_takes_order_and_form(
    server: TinyApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("n2", "n1"):
        server.put(f"{NODES}/{name}", docs.node(name, docs.card(f"GPU-{name}")))
    argv = ["cards", "--kubeconfig", kubeconfig, "-o", "name", "--sort-by", "node:desc"]
    assert kubectl.main(argv) == 0
    assert capsys.readouterr().out == "GPU-n2\nGPU-n1\n"
    assert kubectl.main(["cards", "--kubeconfig", kubeconfig, "--sort-by", "x"]) == 1
    assert "there are node" in capsys.readouterr().err


def event(name: str, reason: str, at: str, *, by: str = "vc-egpu-admission", kind: str = "Pod") -> Json:
    return {
        "involvedObject": {"kind": kind, "namespace": "ml", "name": name},
        "reason": reason,
        "type": "Warning",
        "reportingComponent": by,
        "lastTimestamp": at,
        "count": 2,
        "message": "for team/big",
    }


def test_what_was_said_lately_the_latest_last() -> None:
    said = [
        event("train-1", "Evicted", "2026-01-02T00:00:00Z"),
        event("train-0", "CardIll", "2026-01-01T00:00:00Z"),
        event("train-0", "Pulled", "2026-01-01T00:00:00Z", by="kubelet"),
    ]
    found = events.report(said)
    assert [row.reason for row in found.events] == ["CardIll", "Evicted"]
    assert found.events[1].subject == "pod/ml/train-1"
    with (console := render.console()).capture() as captured:
        console.print(events.shown(found))
    assert "2026-01-02T00:00:00Z  pod/ml/train-1  Evicted      2  for team/big" in captured.get()


def test_the_history_of_a_job_is_that_of_its_pods_and_its_gang() -> None:
    said = [
        event("train-worker-1", "Evicted", "2026-01-02T00:00:00Z"),
        event("train", "Admitted", "2026-01-01T00:00:00Z", kind="PodGroup"),
        event("trainer-0", "Evicted", "2026-01-01T00:00:00Z"),
    ]
    assert [row.subject for row in events.report(said, "train").events] == [
        "podgroup/ml/train",
        "pod/ml/train-worker-1",
    ]
    (note,) = events.report([], "train").notes
    assert note.startswith("nothing of train was said lately; the API server keeps events for an hour")


def test_a_card_is_cordoned_by_its_name_or_its_place(server: TinyApi, kubeconfig: str) -> None:
    server.put(f"{NODES}/n1", docs.node("n1", docs.card("GPU-a"), docs.card("GPU-b", 1)))
    api = ApiConnection.connect(kubeconfig)
    (done,) = cordon.run(api, ["n1/1"], undo=False)
    assert (done.uuid, done.before, done.now) == ("GPU-b", "offered", "cordoned")
    cordon.run(api, ["GPU-a"], undo=False)
    node = server.objects[f"{NODES}/n1"]
    assert node["metadata"]["annotations"][names.CORDONED_CARDS] == "GPU-a,GPU-b"
    cordon.run(api, ["GPU-a", "GPU-b"], undo=True)
    assert names.CORDONED_CARDS not in server.objects[f"{NODES}/n1"]["metadata"]["annotations"]


def test_a_card_that_no_node_has_is_refused_before_anything_is_written(
    server: TinyApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put(f"{NODES}/n1", docs.node("n1", docs.card("GPU-a")))
    assert kubectl.main(["cordon", "GPU-a", "GPU-x", "--kubeconfig", kubeconfig]) == 1
    assert "no node has GPU-x" in capsys.readouterr().err
    assert names.CORDONED_CARDS not in server.objects[f"{NODES}/n1"]["metadata"]["annotations"]


def test_a_card_that_was_taken_out_can_be_uncordoned() -> None:
    node = docs.node("n1", docs.card("GPU-a"), annotations={names.CORDONED_CARDS: "GPU-old"})
    assert cordon.chosen([node], ["GPU-old"]) == {"n1": ("GPU-old",)}
