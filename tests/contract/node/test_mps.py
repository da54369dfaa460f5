"""Time that MPS shares: agent, keeper and a fake of NVIDIA's control daemon. Not run on hardware."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.node.fake_mps import Program, installed
from unit.node.granted import grant
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import ContainerOfProcess, Host
from vc_egpu_node.containers.servers import MpsError
from vc_egpu_node.mps.keeper import Keeper, KeeperDoor
from vc_egpu_node.mps.room import FAULTED, LET_GO_S, Link, MpsRoom, without_servers
from vc_egpu_node.mps.words import FOLDER_NAME, PIPE_PATH, SHM_PATH, SOCKET_NAME, Ask
from vc_egpu_node.vendors.base import ProcessSample

CARD, OTHER = "GPU-1", "GPU-2"
NOW_S = 1_000_000.0


class Stage:
    """A node with a keeper, an agent's room for MPS, and pods."""

    def __init__(self, root: Path) -> None:
        self.run = root / "run"
        self.run.mkdir()
        self.program = installed(root)
        self.grants: list[Grant] = []
        self.pods: list[PodView] = []
        self.owners: dict[int, str] = {}
        self.events: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.faults = 0
        self.programs: list[Program] = []
        self.keepers: list[Keeper] = []
        self.open()
        self.restart()

    def open(self) -> None:
        """A keeper begins."""
        self.keepers.append(Keeper(self.run / FOLDER_NAME, self.program, own_shm=False))
        self.door = KeeperDoor(self.run / SOCKET_NAME, self.keepers[-1])
        threading.Thread(target=self.door.run, daemon=True).start()

    def restart(self) -> None:
        """An agent begins."""
        self.room = MpsRoom(
            self.run,
            pods=lambda: self.pods,
            hosts=self,
            tell=self.tell,
            count=self.count,
            clock=lambda: NOW_S,
        )

    def tell(self, namespace: str, pod: str, uid: str, reason: str, text: str) -> None:
        self.events.append((f"{namespace}/{pod}", reason))
        self.texts.append(text)

    def count(self) -> None:
        self.faults += 1

    def hosts(self, pids: Any, *, inner: bool = True) -> dict[int, Host]:
        return {pid: Host(pid, 1, "", self.owners[pid], pid) for pid in pids if pid in self.owners}

    def start(self, name: str, card: str = CARD, namespace: str = "a", cores: int = 30) -> dict[str, Any]:
        """A container is let in; what it gets."""
        new = grant(name, (card, 1000, cores), namespace=namespace, compute="mps")
        self.grants.append(new)
        return self.room.prepare(new)

    def pipe(self, card: str = CARD) -> Path:
        return self.run / FOLDER_NAME / card / "pipe"

    def runs(self, pid: int, pod: str = "", user: int = 0) -> Program:
        """A program of it connects."""
        self.owners[pid] = f"uid-{pod}"
        program = Program(self.pipe(), pid, user)
        self.programs.append(program)
        return program

    def look(self, *, wanted: bool = True) -> None:
        self.room.look(lambda: self.grants, wanted=wanted)

    def seen(self) -> dict[str, tuple[int, ...]]:
        return {one.uuid: one.clients for one in self.room.daemons}

    def kill(self) -> None:
        """The daemon of the first card goes down."""
        pid = int((self.pipe() / "nvidia-cuda-mps-control.pid").read_text())
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for program in self.programs:
            program.end()
        self.grants.clear()
        self.look()
        self.door.stop()
        for keeper in self.keepers:  # an earlier one is still the parent of its daemons
            for card in (CARD, OTHER):
                keeper.answer(Ask(do="end", uuid=card))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def test_a_container_gets_the_server_of_its_card_and_its_part_of_the_time(stage: Stage) -> None:
    edits = stage.start("p")
    assert edits["env"] == [
        f"CUDA_MPS_PIPE_DIRECTORY={PIPE_PATH}",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1000M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
    ]
    assert [(one["hostPath"], one["containerPath"]) for one in edits["mounts"]] == [
        (str(stage.pipe()), PIPE_PATH),
        (str(stage.pipe().parent / "shm"), SHM_PATH),
    ]
    assert stage.room.record(stage.grants[0]) == edits
    assert stage.runs(71, "p").hears() == "ready"
    stage.start("q", OTHER, cores=0)
    stage.look()
    assert stage.seen() == {CARD: (71,), OTHER: ()}
    assert (stage.room.trouble, dict(stage.room.faults), stage.events) == ("", {}, [])


def test_nobody_else_reaches_the_folders(stage: Stage) -> None:
    stage.start("p")
    for path in (stage.pipe().parent.parent, stage.pipe().parent, stage.pipe().parent / "log"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (stage.run / SOCKET_NAME).stat().st_mode & 0o077 == 0
    assert stage.pipe().stat().st_mode & 0o007 == 0o007, "users inside are not root"


def test_a_card_serves_one_namespace_at_a_time(stage: Stage) -> None:
    stage.start("p")
    with pytest.raises(MpsError, match="GPU-1 is served for namespace a"):
        stage.start("q", namespace="b")
    stage.grants.clear()
    stage.look()
    assert stage.seen() == {CARD: ()}, "as it was before the end"
    assert stage.start("q", namespace="b")["env"]


def test_a_program_of_another_user_waits_for_the_first_users(stage: Stage) -> None:
    stage.start("p")
    first, second = stage.runs(71, "p"), stage.runs(72, "p", user=1000)
    assert first.hears() == "ready"
    stage.look()
    assert stage.seen() == {CARD: (71,)}
    first.end()
    assert second.hears() == "ready"


def test_a_fault_names_all_that_fell_and_the_card_is_ill_until_they_have_left(stage: Stage) -> None:
    for name in ("p", "q"):
        stage.start(name)
    stage.start("far", OTHER)
    one, two = stage.runs(71, "p"), stage.runs(72, "q")
    assert (one.hears(), two.hears()) == ("ready", "ready")
    one.fault()
    assert (one.hears(), two.hears()) == ("fault", "fault")
    for _ in range(3):
        stage.look()
    text = "the MPS server of card GPU-1 failed, and with it fell a/p, a/q"
    assert dict(stage.room.faults) == {CARD: text}
    assert stage.events == [("a/p", FAULTED), ("a/q", FAULTED)]
    assert (stage.texts, stage.faults) == ([text, text], 1)
    one.end()
    assert stage.runs(73, "p").hears() == "not-ready"
    stage.programs[-1].end()
    stage.look()
    assert CARD in stage.room.faults, "the second one has not left"
    two.end()
    stage.look()
    assert not stage.room.faults
    assert stage.runs(74, "p").hears() == "ready"
    assert stage.faults == 1


def test_an_agent_after_this_one_goes_on_and_tells_a_fault_that_nobody_saw(stage: Stage) -> None:
    stage.start("p")
    program = stage.runs(71, "p")
    assert program.hears() == "ready"
    stage.restart()
    stage.look()
    assert (stage.seen(), stage.events) == ({CARD: (71,)}, [])
    program.fault()
    assert program.hears() == "fault"
    stage.restart()
    stage.look()
    assert stage.events == [("a/p", FAULTED)]


def test_a_keeper_after_this_one_takes_over_daemons_that_still_answer(stage: Stage) -> None:
    stage.start("p")
    assert stage.runs(71, "p").hears() == "ready"
    stage.door.stop()
    stage.look()
    assert "no MPS keeper answers" in stage.room.trouble
    with pytest.raises(MpsError, match="components/mps"):
        stage.start("q")
    stage.grants.pop()
    stage.open()
    stage.look()
    assert (stage.room.trouble, stage.seen(), stage.events) == ("", {CARD: (71,)}, [])


def test_a_daemon_that_is_gone_is_told_once_and_there_again_in_the_same_folder(stage: Stage) -> None:
    stage.start("p")
    assert stage.runs(71, "p").hears() == "ready"
    stage.look()
    there = stage.pipe().stat().st_ino
    stage.kill()
    assert stage.programs[0].hears() == ""
    for _ in range(3):
        stage.look()
    assert stage.events == [("a/p", FAULTED)]
    assert "the MPS daemon is gone" in stage.texts[0]
    assert stage.pipe().stat().st_ino == there, "the container has it mounted"
    assert stage.runs(72, "p").hears() == "ready"


def test_a_daemon_ends_once_its_last_program_has_left(stage: Stage) -> None:
    stage.start("p")
    program = stage.runs(71, "p")
    assert program.hears() == "ready"
    stage.grants.clear()
    for _ in range(2):
        stage.look(wanted=False)
        assert stage.seen() == {CARD: (71,)}
    program.end()
    stage.look(wanted=False)
    stage.look(wanted=False)
    assert stage.seen() == {}
    assert not stage.pipe().parent.exists()


def test_what_is_about_to_be_killed_lets_go_of_the_card_first(stage: Stage) -> None:
    for name in ("p", "q"):
        stage.start(name)
    mine, other = stage.runs(71, "p"), stage.runs(72, "q")
    assert (mine.hears(), other.hears()) == ("ready", "ready")

    def leaves(in_s: float) -> None:
        stage.pods = [
            PodView("uid-p", "a", "p", "n", "Running", None, terminating=True, gone_by_s=NOW_S + in_s),
            PodView("uid-q", "a", "q", "n", "Running", None),
        ]
        stage.look()
        stage.look()

    leaves(LET_GO_S + 1)
    assert stage.seen() == {CARD: (71, 72)}, "it has time to end by itself"
    leaves(LET_GO_S)
    assert mine.hears() == "terminated"
    assert stage.seen() == {CARD: (72,)}


def test_nobody_is_asked_where_nothing_is_under_mps(tmp_path: Path) -> None:
    hosts = ContainerOfProcess(tmp_path)
    room = MpsRoom(tmp_path, pods=tuple, hosts=hosts, tell=lambda *_: None, count=lambda: None)
    room.look(tuple, wanted=False)
    assert room.trouble == "no MPS keeper was asked yet"
    room.look(tuple, wanted=True)
    assert "no MPS keeper answers" in room.trouble


def test_a_server_is_nobodys_offence(stage: Stage) -> None:
    stage.start("p")
    assert stage.runs(71, "p").hears() == "ready"
    stage.look()
    (server,) = stage.room.daemons[0].servers
    seen = Observation(processes={CARD: (ProcessSample(server.pid, 500, 0), ProcessSample(71, 100, 5))})
    kept = without_servers(seen, stage.room.daemons)
    assert [one.pid for one in kept.processes[CARD]] == [71]


def test_a_question_that_makes_no_sense_changes_nothing(stage: Stage) -> None:
    for uuid in ("", "../x", ".hidden", "a/b"):
        with pytest.raises(MpsError, match="is no card"):
            Link(stage.run).ask(Ask(do="serve", uuid=uuid, namespace="a"))
    Link(stage.run).ask(Ask(do="end", uuid="GPU-9"))
    assert list((stage.run / FOLDER_NAME).iterdir()) == []


def test_a_program_that_never_answers_is_refused_by_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such card >&2\nexit 3\n")
    broken.chmod(0o700)
    keeper = Keeper(tmp_path / "mps", str(broken), own_shm=False)
    began_s = time.monotonic()
    answer = keeper.answer(Ask(do="serve", uuid=CARD, namespace="a"))
    assert "card GPU-1 does not answer: get_server_list: exit code 3: no such card" in answer.error
    assert time.monotonic() - began_s < 10, "it has ended, and nobody waits for it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_daemon_has_a_shm_of_its_own(tmp_path: Path) -> None:
    """A stand-in for the program writes down what it sees, and answers like one that runs."""
    program = tmp_path / "control"
    text = '[ "$1" != -f ] || { touch /dev/shm/of-a-daemon; exec sleep 60; }'
    program.write_text(f"#!/bin/sh\n{text}\ncat >/dev/null\n")
    program.chmod(0o700)
    keeper = Keeper(tmp_path / "mps", str(program))
    assert keeper.answer(Ask(do="serve", uuid=CARD, namespace="a")).error == ""
    seen = tmp_path / "mps" / CARD / "shm" / "of-a-daemon"
    until_s = time.monotonic() + 60
    while not seen.exists():
        assert time.monotonic() < until_s
        os.sched_yield()
    assert not Path("/dev/shm/of-a-daemon").exists()
    assert keeper.answer(Ask(do="end", uuid=CARD)).error == ""
    assert not seen.exists()
