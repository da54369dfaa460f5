"""What was recorded of a cluster plays back: the same work at the same times, on the same cards."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from unit.core import make
from vc_egpu.admission.recording.changes import Changes
from vc_egpu.core.model.cluster import CardAsk, NodeName, PodPhase, PodUid, ShareClass, Snapshot
from vc_egpu.core.model.neighbours import Neighbours
from vc_egpu.report.recorded import nameless
from vc_egpu.report.recorded.rows import RecordError, Row, encode
from vc_egpu.sim.load import QUEUE, Load, Work
from vc_egpu.sim.main import main
from vc_egpu.sim.recorded.load import load_of
from vc_egpu.sim.replay import Replay, Terms

T0: Final = 1_700_000_000.0
"""When the record begins, as a clock on the wall has it."""
NODES: Final = tuple(make.node(f"n{number}", 4) for number in range(3))


def random_works(seed: int, count: int = 40) -> list[Work]:
    dice = random.Random(seed)
    works, at = [], 1.0
    for number in range(count):
        at += dice.uniform(1, 20)
        members, memory = dice.choice([1, 1, 2, 4]), dice.choice([8192, 32768, make.H20_MIB])
        tasks = (("worker", members, make.shape(memory, dice.choice([0, 20, 50]))),)
        milli, lasts = 1000 * members, dice.choice([None, dice.uniform(5, 200)])
        share_class = dice.choice([ShareClass.UNSET, ShareClass.UNSET, ShareClass.LOW])
        works.append(Work(f"job-{number}", tasks, milli, QUEUE, share_class, at, lasts))
    return works


class Recorder:
    """Looks at a run after each event, as the leader looks at its mirror once a second."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._changes = Changes()
        self._before: Snapshot | None = None

    def look(self, replay: Replay) -> None:
        now, at = replay.world.snapshot(), replay.world.now
        if self._before is None:
            self.rows += self._changes.begin(now, at)
        else:
            self.rows += self._changes.between(self._before, now, at)
        self._before = now


def lived(works: Sequence[Work], recorder: Recorder, terms: Terms = Terms()) -> Replay:  # noqa: B008
    replay = Replay(Load(NODES, tuple(works)), terms)
    recorder.look(replay)
    replay.run(recorder.look)
    recorder.look(replay)
    return replay


def written(path: Path, rows: Sequence[Row]) -> Path:
    path.write_bytes(b"".join(map(encode, rows)))
    return path


def allocation(replay: Replay) -> dict[str, list[tuple[str, ...]]]:
    """By gang, as a record calls it: the cards of each of its pods."""
    snapshot = replay.world.snapshot()
    found: dict[str, list[tuple[str, ...]]] = {}
    for pod in snapshot.pods.values():
        if pod.gang is not None and pod.phase is PodPhase.PLACED:
            key = pod.gang if pod.gang.startswith("gang/") else nameless.gang_key(snapshot.gangs[pod.gang])
            found.setdefault(key, []).append(tuple(str(share.card) for _, share in pod.shares))
    return {key: sorted(cards) for key, cards in found.items()}


@pytest.mark.parametrize("seed", range(4))
def test_a_record_plays_back_to_the_same_allocation(seed: int, tmp_path: Path) -> None:
    recorder = Recorder()
    was = lived(random_works(seed), recorder)
    load, note = load_of(written(tmp_path / "log", recorder.rows))
    again = Replay(load, Terms())
    again.run()
    assert not note
    assert allocation(again) == allocation(was)
    assert again.totals.finished == was.totals.finished
    rounded = [sorted((milli, round(wait, 3)) for _, milli, wait in one.waits) for one in (was, again)]
    assert rounded[0] == rounded[1]


@pytest.mark.parametrize("seed", range(4))
def test_a_record_that_begins_in_the_middle_goes_on_from_there(seed: int, tmp_path: Path) -> None:
    """What runs then ends as it did, and what waits comes to its turn."""
    works = random_works(seed)
    middle = works[len(works) // 2].arrival_s
    recorder, whole = Recorder(), Replay(Load(NODES, tuple(works)), Terms())

    def watch(replay: Replay) -> None:
        if replay.world.now >= middle:
            recorder.look(replay)

    whole.run(watch)
    recorder.look(whole)
    load, _ = load_of(written(tmp_path / "log", recorder.rows))
    assert load.begin is not None
    assert load.begin.pods
    again = Replay(load, Terms())
    again.run()
    assert allocation(again) == allocation(whole)


def test_the_next_leader_goes_on_and_knows_what_ended_meanwhile(tmp_path: Path) -> None:
    shape = make.shape(make.H20_MIB)
    works = [Work(f"job-{n}", (("w", 4, shape),), 4000, QUEUE, arrival_s=n * 10 + 1.0, lifetime_s=lasts)
             for n, lasts in enumerate((25.0, 100.0, None, 300.0))]  # fmt: skip
    first, second = Recorder(), Recorder()
    was = Replay(Load(NODES, tuple(works)), Terms())

    def watch(replay: Replay) -> None:
        if replay.world.now < 22:
            first.look(replay)
        elif replay.world.now > 32:  # job-0 ended, and job-3 came, while nobody wrote
            second.look(replay)

    was.run(watch)
    second.look(was)
    load, note = load_of(written(tmp_path / "log", [*first.rows, *second.rows]))
    assert not note
    assert len(load.works) == 3, "the first one was there at the begin"
    again = Replay(load, Terms())
    again.run()
    assert allocation(again) == allocation(was)
    assert again.totals.finished == 3


def test_the_file_that_went_aside_comes_first(tmp_path: Path) -> None:
    recorder = Recorder()
    was = lived(random_works(7), recorder)
    half = len(recorder.rows) // 2
    written(tmp_path / "log.1", recorder.rows[:half])
    load, note = load_of(written(tmp_path / "log", recorder.rows[half:]))
    again = Replay(load, Terms())
    again.run()
    assert not note
    assert allocation(again) == allocation(was)


def test_lines_that_mean_nothing_are_left_out_and_counted(tmp_path: Path) -> None:
    recorder = Recorder()
    was = lived(random_works(1), recorder)
    lines = list(map(encode, recorder.rows))
    garbage = [
        b"\n",
        b"{\n",
        b"null\n",
        b"[" * 5000 + b"\n",
        b"\xff\xfe\n",
        b'{"class":"PodCame"}\n',
        lines[3][:20],
    ]
    path = tmp_path / "log"
    path.write_bytes(b"".join([*lines[:2], *garbage[:-1], *lines[2:], garbage[-1]]))
    load, note = load_of(path)
    again = Replay(load, Terms())
    again.run()
    assert allocation(again) == allocation(was)
    assert note.startswith("6 lines were left out, the first: ")
    assert f"{path}:4" in note or f"{path}:5" in note


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_record_is_read_as_far_as_it_can_be(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    recorder = Recorder()
    lived(random_works(seed, 8), recorder)
    lines = list(map(encode, recorder.rows))
    for _ in range(10):
        at = dice.randrange(len(lines))
        line = bytearray(lines[at])
        if line:
            line[dice.randrange(len(line))] = dice.randrange(256)
        lines[at] = bytes(line) if dice.random() < 0.7 else b""
    if dice.random() < 0.3:
        dice.shuffle(lines)
    path = tmp_path / "log"
    path.write_bytes(b"".join(lines))
    try:
        load, _ = load_of(path)
    except RecordError:
        return
    Replay(load, Terms()).run()


@pytest.mark.parametrize("text", ["", "\n", "{}", '{"class":"PodRuns","at":1,"pod":"p"}\n'])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    assert main(["--recorded", str(path)]) == 2
    assert f"{path} is no record" in capsys.readouterr().err
    assert main(["--recorded", str(tmp_path / "nothing")]) == 2
    assert main(["--recorded", str(path), "--drawn"]) == 2
    assert "brings its nodes" in capsys.readouterr().err


def test_the_command_plays_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()
    lived(random_works(2, 10), recorder)
    path = written(tmp_path / "log", recorder.rows)
    assert main(["--recorded", str(path), "--policies", "fullest,ours", "--out", str(tmp_path / "out")]) == 0
    assert "held %" in capsys.readouterr().out
    curves = (tmp_path / "out" / "curves.csv").read_text()
    assert "fullest" in curves
    assert "ours" in curves


def test_no_name_of_whose_work_it_is_is_written() -> None:
    secret = "hush"
    shape = make.shape(
        asks=(CardAsk(f"{secret}-container", "h20", 1, 8192, 0),),
        neighbours=Neighbours((f"{secret}-label",), (), (f"{secret}-label",)),
    )
    gang = make.gang(f"{secret}-ns/{secret}-job", created=T0, min_task_member={f"{secret}-task": 2})
    waits, runs = make.pods(gang.key, 2, shape, f"{secret}-task")
    other = replace(
        runs, uid=PodUid(f"{secret}-uid"), gang=None, phase=PodPhase.PLACED, node=NodeName("n0"), task=""
    )
    state = make.state(make.snapshot(NODES, [gang]))
    changes, before = Changes(), state.snapshot(1)
    rows = [*changes.begin(before, T0)]
    for pod in (waits, make.placed(runs, "n0/0"), other):
        state.put_pod(pod)
    now = state.snapshot(2)
    rows += [*changes.between(before, now, T0 + 1), *Changes().begin(now, T0 + 2)]
    state.remove_pod(waits.uid)
    rows += changes.between(now, state.snapshot(3), T0 + 3)
    text = b"".join(map(encode, rows)).decode()
    assert len(rows) == 7
    assert secret not in text
    assert '"n0"' in text, "nodes have names"


def test_a_pod_may_come_before_its_gang() -> None:
    gang = make.gang("ns/g", created=T0)
    state = make.state(make.snapshot(NODES))
    changes, before = Changes(), state.snapshot(1)
    assert len([*changes.begin(before, T0)]) == 1
    (pod,) = make.pods(gang.key, 1, make.shape(8192))
    state.put_pod(pod)
    later = state.snapshot(2)
    assert not [*changes.between(before, later, T0 + 1)]
    state.put_gang(gang)
    last = state.snapshot(3)
    kinds = [type(row).__name__ for row in changes.between(later, last, T0 + 2)]
    assert kinds == ["GangSeen", "ShapeSeen", "PodCame"]
    assert not [*changes.between(last, state.snapshot(4), T0 + 3)]
