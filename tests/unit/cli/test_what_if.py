"""``kubectl egpu what-if`` on a saved snapshot, and at a leader."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.admission.test_templates import job
from unit.admission.test_what_if import Reviews, view
from vc_egpu.admission.serving.what_if import PATH, WhatIf
from vc_egpu.cli import kubectl
from vc_egpu.kube.server import Answer, GetServer
from vc_egpu.report import snapshot_codec


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A Job and a snapshot."""
    saved, written = tmp_path / "saved.json", tmp_path / "job.yaml"
    saved.write_bytes(snapshot_codec.to_json(snapshot_codec.encode(view().snapshot)))
    written.write_text(json.dumps(job()))
    return str(written), str(saved)


def told(capsys: pytest.CaptureFixture[str], *line: str) -> dict[str, Any]:
    assert kubectl.main(["what-if", *line, "-o", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_saved_snapshot_is_enough(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    base = ("-f", files[0], "--snapshot", files[1])
    assert told(capsys, *base)["fits"] == "after-others-leave"
    ended = told(capsys, *base, "--end", "okapi/quagga", "--end", "okapi/heron")
    assert (ended["fits"], ended["more"]) == ("now", 2)
    added = told(capsys, *base, "--add-nodes", "n1=1")
    assert added["fits"] == "now"
    assert {place["node"] for place in added["places"]} == {"n1-new-1"}
    assert told(capsys, *base, "--cap", "default:volcano.sh/vgpu-h20=1")["fits"] == "not"
    waiting = told(capsys, "--gang", "okapi/heron", "--snapshot", files[1])
    assert waiting["fits"] == "cannot-tell"


def test_people_get_a_sentence(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl.main(["what-if", "-f", files[0], "--snapshot", files[1], "--drain", "n1"]) == 0
    assert "does not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--cap", "default:cpu=much"], "whole number"),
        (["--drain", "nowhere"], "no node 'nowhere'"),
        (["--end", "nothing"], "changes.0"),
    ],
)
def test_what_cannot_be_supposed_is_named(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], line: list[str], said: str
) -> None:
    assert kubectl.main(["what-if", "-f", files[0], "--snapshot", files[1], *line]) != 0
    assert said in capsys.readouterr().err


def test_the_leader_answers_for_the_owner_of_the_token(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edge = WhatIf(Reviews(), view)
    server = GetServer(("127.0.0.1", 0), lambda _: Answer(404, b""), posts={PATH: edge.answer}).start()
    token = tmp_path / "token"
    token.write_text("ada\n")
    try:
        base = ("-f", files[0], "--leader", f"http://127.0.0.1:{server.port}")
        assert told(capsys, *base)["going"] != []
        own = told(capsys, *base, "--token-file", str(token))
        assert (own["going"], own["goingOfOthers"]["gangs"]) == ([], 1)
        token.write_text("mallory\n")
        assert kubectl.main(["what-if", *base, "--token-file", str(token)]) != 0
        assert "may not list" in capsys.readouterr().err
    finally:
        server.stop()
