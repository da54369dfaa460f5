"""The command line of the local cluster, as a shell calls it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from localcluster.state import MARK, StateDir

E2E = Path(__file__).parents[3] / "e2e"
CLOSED_PIPE = 128 + signal.SIGPIPE
"""What shells say of a program whose reader went away."""


def _ended(arguments: list[str], state: Path, *, closed: str) -> tuple[int, str]:
    """Exit status and standard error of a call whose stream ``closed`` nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "localcluster", *arguments],
            env=os.environ | {"PYTHONPATH": str(E2E), "VC_EGPU_STATE": str(state)},
            stdout=writes if closed == "stdout" else subprocess.PIPE,
            stderr=writes if closed == "stderr" else subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writes)
    return done.returncode, done.stderr or ""


def _called(arguments: list[str], state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localcluster", *arguments],
        env=os.environ | {"PYTHONPATH": str(E2E), "VC_EGPU_STATE": str(state)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("clusters", [0, 3])
def test_status_ends_quietly_where_nobody_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clusters: int
) -> None:
    """``python -m localcluster status | head -1``."""
    monkeypatch.setenv("VC_EGPU_STATE", str(tmp_path))
    for index in range(clusters):
        state = StateDir.of(f"t{index}")
        state.path.mkdir(parents=True)
        (state.path / MARK).touch()
        (state.path / "cluster.json").write_text("{")
    assert _ended(["status"], tmp_path, closed="stdout") == (CLOSED_PIPE, "")


def test_progress_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    """``down`` goes through all clusters, whoever closed its standard error."""
    status, _ = _ended(["down", "--name", "nosuch"], tmp_path, closed="stderr")
    assert status == 0


@pytest.mark.parametrize("named", ["", ".", "..", "../other", ".containerd", "{folder}/other"])
def test_what_is_no_name_of_a_cluster_is_not_taken_down(tmp_path: Path, named: str) -> None:
    """``--name "$NAME"`` with a variable that is not set named the folder of all clusters.

    All that is named here lies below ``tmp_path``: code that takes it for a cluster removes it.
    """
    name, state = named.format(folder=tmp_path), tmp_path / "deep" / "state"
    for folder in (state / "t1", state / ".containerd", state.parent / "other", tmp_path / "other"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    for command in ("down", "status"):
        done = _called([command, f"--name={name}"], state)
        assert (done.returncode, f"cluster name {name!r}" in done.stderr) == (1, True), done.stderr
    assert len(list(tmp_path.rglob("file"))) == 4


@pytest.mark.parametrize("command", [["down", "--all"], ["gc"], ["down", "--name=photos"]])
def test_a_folder_that_is_no_clusters_is_left_alone(tmp_path: Path, command: list[str]) -> None:
    """VC_EGPU_STATE may name a whole disk."""
    mine = tmp_path / "photos" / "2026"
    mine.mkdir(parents=True)
    (mine / "one.jpg").touch()
    (mine.parent / "pids").mkdir()
    (mine.parent / "cluster.json").write_text('{"stars": 3}')
    (tmp_path / "lost+found").mkdir()
    left_over = tmp_path / "t1"
    (left_over / "pids").mkdir(parents=True)
    (left_over / MARK).touch()
    done = _called(command, tmp_path)
    assert (mine / "one.jpg").exists()
    assert (tmp_path / "lost+found").exists()
    named = "--name=photos" in command
    assert (done.returncode, left_over.exists()) == (int(named), named)
    if named:
        assert f"{tmp_path / 'photos'} is no cluster's folder" in done.stderr


def test_what_the_machine_refuses_is_said_in_a_sentence(tmp_path: Path) -> None:
    """Files of another user or a disk that is full, say."""
    (tmp_path / "t1").touch()
    done = _called(["down", "--name=t1"], tmp_path)
    assert (done.returncode, done.stderr) == (1, f"error: {tmp_path / 't1'}: Not a directory\n")
