"""``kubectl egpu defrag --dry-run``: the moves and what they win, of a saved cluster."""

from pathlib import Path

import pytest
from scenario.script import Script
from vc_egpu.cli import kubectl
from vc_egpu.report import snapshot_codec

STORY = """
node n1 h20=2
node n2 h20=2
queue q vgpu-h20=16
submit ns/a queue=q class=low members=1 h20=1 whole
submit ns/b queue=q class=low members=1 h20=1 whole
submit ns/c queue=q class=low members=1 h20=1 whole
settle
finish ns/a
submit ns/large queue=q members=1 h20=2 whole
settle
tick 700
submit ns/late queue=q class=low members=1 h20=1 whole node=zone:b
""".strip().splitlines()


def shown(folder: Path, lines: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    script = Script()
    script.run(lines)
    file = folder / "saved.json"
    file.write_bytes(snapshot_codec.to_json(snapshot_codec.encode(script.world.snapshot())))
    assert kubectl.main(["defrag", "--dry-run", "--snapshot", str(file)]) == 0
    return capsys.readouterr().out


def test_the_move_and_what_it_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = " ".join(shown(tmp_path, STORY, capsys).split())
    assert "1 gangs would move: the controller moves no gangs" in found
    assert "1 pods with 1 cards go from n1 to n2, so that ns/large fits; 2 cards become of use" in found


def test_why_gangs_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(tmp_path, [line.replace("class=low", "") for line in STORY], capsys)
    assert "no gang would move" in found
    assert "2 gangs, it is not of low priority" in found


def test_it_moves_nothing_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kubectl.main(["defrag"])
    assert "--dry-run" in capsys.readouterr().err
