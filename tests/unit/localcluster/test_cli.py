"""The command line of the local cluster, as a shell calls it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from localcluster.state import StateDir

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


@pytest.mark.parametrize("clusters", [0, 3])
def test_status_ends_quietly_where_nobody_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clusters: int
) -> None:
    """``python -m localcluster status | head -1``."""
    monkeypatch.setenv("VC_EGPU_STATE", str(tmp_path))
    for index in range(clusters):
        state = StateDir.of(f"t{index}")
        state.path.mkdir(parents=True)
    assert _ended(["status"], tmp_path, closed="stdout") == (CLOSED_PIPE, "")


def test_progress_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    """``down`` goes through all clusters, whoever closed its standard error."""
    status, _ = _ended(["down", "--name", "nosuch"], tmp_path, closed="stderr")
    assert status == 0
