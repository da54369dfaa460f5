"""The file of a record: who may read it, how large it is, and what follows where it cannot be written."""

import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.admission.stage import loop_on
from unit.core import make
from vc_egpu.admission.recording.log import AGAIN_S, MIB, Log
from vc_egpu.admission.settings import Settings, parse
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.report.recorded.rows import aside
from vc_egpu.sim.recorded.load import load_of


def told(log: Log, state: ClusterState, clock: float) -> None:
    """One turn of the loop, until what it began is over."""
    log.turn(lambda: state.snapshot(int(clock)), clock, 1000.0 + clock)
    while not log.rests():
        threading.Event().wait(0.005)


def a_cluster(nodes: int = 2) -> ClusterState:
    return make.state(make.snapshot([make.node(f"n{number}", 8) for number in range(nodes)]))


def comes(state: ClusterState, key: str) -> None:
    state.put_gang(make.gang(key))
    for pod in make.pods(key, 1, make.shape(8192)):
        state.put_pod(pod)


def test_the_file_is_private_even_where_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch(0o666)
    log = Log(path, 1)
    told(log, a_cluster(), 1.0)
    log.stop()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_of(path)[0].begin is not None


def test_it_goes_aside_when_it_is_full_and_each_part_plays_by_itself(tmp_path: Path) -> None:
    path, state = tmp_path / "log", a_cluster(1200)
    log = Log(path, 1)
    for number in range(4):
        comes(state, f"ns/g{number}")
        told(log, state, 2.0 * number)
    log.stop()
    files = sorted(found.name for found in tmp_path.iterdir())
    assert files == ["log", "log.1"]
    assert all(found.stat().st_size < 3 * MIB for found in tmp_path.iterdir())
    assert len(load_of(path)[0].works) + len(load_of(path)[0].begin.gangs) == 4  # type: ignore[union-attr]
    aside(path).unlink()
    load, note = load_of(path)
    assert not note
    assert load.begin is not None
    assert len(load.begin.gangs) == 4


def test_a_leader_that_was_cut_off_spoils_one_line(tmp_path: Path) -> None:
    path, state = tmp_path / "log", a_cluster()
    log = Log(path, 1)
    told(log, state, 1.0)
    comes(state, "ns/a")
    told(log, state, 3.0)
    log.stop()
    path.write_bytes(path.read_bytes()[:-9])
    comes(state, "ns/b")
    log = Log(path, 1)
    told(log, state, 5.0)
    comes(state, "ns/c")
    told(log, state, 7.0)
    log.stop()
    load, note = load_of(path)
    assert note.startswith("1 lines were left out")
    assert len(load.works) == 3


@pytest.mark.parametrize("spoil", [lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/null")])
def test_where_it_cannot_be_written_nothing_else_is_hurt(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, state = tmp_path / "log", a_cluster()
    spoil(path)
    log = Log(path, 1)
    told(log, state, 1.0)
    assert "nothing is recorded for a minute" in caplog.text
    path.rmdir() if path.is_dir() else path.unlink()
    told(log, state, 3.0)
    assert not path.exists(), "it is tried again later"
    told(log, state, 3.0 + AGAIN_S)
    log.stop()
    assert load_of(path)[0].begin is not None


def test_it_looks_once_a_second_at_most(tmp_path: Path) -> None:
    log, asked, state = Log(tmp_path / "log", 1), list[float](), a_cluster()
    for clock in (1.0, 1.2, 1.9, 2.0, 2.5, 3.1):

        def look(clock: float = clock) -> Snapshot:
            asked.append(clock)
            return state.snapshot(1)

        log.turn(look, clock, clock)
        while not log.rests():
            threading.Event().wait(0.005)
    log.stop()
    assert asked == [1.0, 2.0, 3.1]


@pytest.mark.parametrize("mib", ["0", "-1", "x", "65537", "1.5"])
def test_a_size_that_means_nothing_is_refused(mib: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--record", "log", "--record-mib", mib])
    assert "is no whole number from 1 to 65536" in capsys.readouterr().err
    assert parse(["--record", "log"]).record == Path("log")
    assert parse([]).record is None


def test_the_loop_writes_while_it_leads(tmp_path: Path) -> None:
    """And a loop without the flag writes nothing."""
    path = tmp_path / "log"
    with loop_on(tmp_path, settings=Settings(models=tmp_path, identity="test", record=path)) as stage:
        stage.turn()
    assert load_of(path)[0].begin is not None
    path.unlink()
    with loop_on(tmp_path) as stage:
        stage.turn()
        assert stage.parts.log is None
    assert not path.exists()
