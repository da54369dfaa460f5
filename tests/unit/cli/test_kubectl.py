"""The command itself: refusals are sentences with an exit status, never a stack trace."""

import json
from pathlib import Path

import pytest
from unit.cli import documents as docs
from vc_egpu.cli import kubectl, stop
from vc_egpu.kube.errors import Forbidden, NotFound, Unauthorized, Unavailable


def test_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = kubectl.main(["cards", "--kubeconfig", str(tmp_path / "none")])
    assert status == kubectl.EXIT_NO_CLUSTER
    said = capsys.readouterr().err
    assert "no cluster" in said
    assert "Traceback" not in said


def test_a_cluster_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "current-context": "x",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    assert kubectl.context_namespace(str(path), None) == "ml"
    status = kubectl.main(["queues", "--kubeconfig", str(path), "--timeout-s", "2"])
    assert status == kubectl.EXIT_NO_CLUSTER
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words", "status"),
    [
        (Forbidden("nodes is forbidden", status=403), "you may not: nodes is forbidden", kubectl.EXIT_FOUND),
        (NotFound("no podgroups", status=404), "is the stack installed?", kubectl.EXIT_FOUND),
        (Unauthorized("bad token", status=401), "does not accept who you are", kubectl.EXIT_NO_CLUSTER),
        (Unavailable("refused"), "does not answer", kubectl.EXIT_NO_CLUSTER),
    ],
)
def test_errors_say_whose_business_they_are(error: kubectl.KubeError, words: str, status: int) -> None:
    text, found = kubectl.explain(error)
    assert words in text
    assert found == status


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["why"], ["cards", "-o", "yaml"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        kubectl.main(arguments)
    assert exited.value.code == kubectl.EXIT_USAGE
    assert "usage" in capsys.readouterr().err


def test_queues_to_close_are_found_by_name() -> None:
    queues = [docs.queue("research"), docs.queue("serving")]
    assert [q["metadata"]["name"] for q in stop.choose(queues, ["serving"])] == ["serving"]
    with pytest.raises(stop.UnknownQueueError, match=r"'reserch' does not exist; did you mean research\?"):
        stop.choose(queues, ["reserch"])
    with pytest.raises(stop.UnknownQueueError, match="there are research, serving"):
        stop.choose(queues, ["xyz"])


@pytest.mark.parametrize(
    ("state", "closes", "opens"), [("Open", False, True), ("Closing", True, False), ("Closed", True, False)]
)
def test_what_is_done_already_needs_no_command(state: str, closes: bool, opens: bool) -> None:
    assert stop.reached(state, "close") is closes
    assert stop.reached(state, "open") is opens
