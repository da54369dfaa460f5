"""A start that fails or is interrupted takes down what it had started, whatever else goes wrong meanwhile."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from localcluster import ClusterSpec, LocalCluster, LocalClusterError, teardown, toolchain
from localcluster.context import Context
from localcluster.state import MARK, ClusterRecord, StateDir

E2E = Path(__file__).parents[3] / "e2e"
SPEC = ClusterSpec(name="t1", real_nodes=0, services=False, dns=False, rootless=True)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    """The state of a cluster whose programs cannot run."""
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = env ]; then echo go1.26.9; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done; : > "$2"\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VC_EGPU_STATE", str(tmp_path / "state"))
    toolchain.build(lambda _line: None)
    return StateDir.of(SPEC.name)


def _silent(_line: str) -> None:
    pass


def test_a_start_that_fails_tells_where_its_logs_are(state: StateDir) -> None:
    with pytest.raises(LocalClusterError, match=rf"cannot start .*etcd(.|\n)*logs kept in .*/{SPEC.name}"):
        LocalCluster.up(SPEC, _silent)
    assert not state.path.exists()


def test_a_start_that_fails_where_nobody_reads_takes_down_what_it_started(state: StateDir) -> None:
    def closed(_line: str) -> None:
        raise OSError(5, "Input/output error")  # what a closed terminal says

    with pytest.raises(LocalClusterError, match="cannot start"):
        LocalCluster.up(SPEC, closed)
    assert not state.path.exists()


def test_a_start_that_fails_where_no_log_can_be_kept_takes_down_what_it_started(state: StateDir) -> None:
    """As on a disk that is full, which may be why it failed."""
    state.path.parent.mkdir(parents=True)
    (state.path.parent / ".failed").touch()
    with pytest.raises(LocalClusterError, match="cannot start"):
        LocalCluster.up(SPEC, _silent)
    assert not state.path.exists()


def test_a_cluster_goes_where_its_record_cannot_be_written_any_more(state: StateDir) -> None:
    """As on a disk that is full, which taking it down is to change."""
    state.write(ClusterRecord(SPEC, None, {}, "up", None))
    (state.path / "cluster.json.tmp").mkdir()
    teardown.remove(state, _silent)
    assert not state.path.exists()


def test_what_fails_on_a_cluster_leaves_the_logs_of_its_parts(state: StateDir) -> None:
    record = ClusterRecord(SPEC, None, {}, "up", None)
    state.write(record)
    (state.path / "log").mkdir()
    (state.path / "log" / "kube-proxy").write_text("why")
    with pytest.raises(RuntimeError), LocalCluster(Context(state, record), down_on_exit=True):
        raise RuntimeError("the stack did not come up")
    assert (state.path.parent / ".failed" / SPEC.name / "kube-proxy").read_text() == "why"
    assert not state.path.exists()


@pytest.mark.parametrize("name", ["other", SPEC.name])
def test_a_record_that_nobody_can_read_keeps_no_cluster_from_starting(state: StateDir, name: str) -> None:
    """One of another version, of another cluster, and of what is left of this one."""
    unreadable = StateDir.of(name)
    unreadable.path.mkdir(parents=True)
    (unreadable.path / MARK).touch()
    (unreadable.path / "cluster.json").write_text('{"version": 2}')
    with pytest.raises(LocalClusterError, match="cannot start"):  # as far as it comes here
        LocalCluster.up(SPEC, _silent)


def test_a_cluster_that_runs_is_not_replaced_because_its_record_cannot_be_read(state: StateDir) -> None:
    (state.path / "pids").mkdir(parents=True)
    (state.path / MARK).touch()
    (state.path / "cluster.json").write_text('{"version": 2}')
    state.process("etcd").record(os.getpid())
    with pytest.raises(LocalClusterError, match="already up"):
        LocalCluster.up(SPEC, _silent)
    assert not teardown.is_leftover(state)


def _child(code: str, stderr: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(E2E)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip


_WAITS = """
import os, signal, sys
from localcluster import surroundings
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup themselves
signal.signal(signal.{ignored}, signal.SIG_IGN)
surroundings.interruptible()
try:
    print("waits", flush=True)
    sys.stdin.read()
except KeyboardInterrupt:
    {again}
    print("has taken all down")
print("ended")
"""


def _heard(signum: signal.Signals, *, ignored: str = "SIGUSR1", again: str = "pass") -> str:
    """What a program says that is sent a signal while it waits."""
    code = _WAITS.format(ignored=ignored, again=again)
    with _child(code) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signum)
        return child.communicate("")[0]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_is_told_to_end_takes_down_what_he_started(signum: signal.Signals) -> None:
    # A shell starts background jobs with this one ignored.
    assert _heard(signum, ignored="SIGINT") == "has taken all down\nended\n"


def test_a_terminal_that_is_closed_is_heard_of_once() -> None:
    """The word comes twice: from the shell, and when the shell has ended."""
    again = "os.kill(os.getpid(), signal.SIGHUP)"
    assert _heard(signal.SIGHUP, again=again) == "has taken all down\nended\n"


def test_what_was_started_with_nohup_outlives_its_terminal() -> None:
    assert _heard(signal.SIGHUP, ignored="SIGHUP") == "ended\n"


def test_progress_on_a_terminal_that_was_closed_stops_nothing() -> None:
    ours, theirs = pty.openpty()
    code = "import sys; sys.stdin.read()\nfrom localcluster.cli import say\nsay('x'); say('y'); print('done')"
    with _child(code, stderr=theirs) as child:
        os.close(theirs)
        os.close(ours)
        said, _ = child.communicate("")
    assert said == "done\n"
