"""What of a pod and its node decides whether it can be suspended: from looks, pages and the kernel."""

from dataclasses import replace
from pathlib import Path

import pytest
from unit.node.granted import grant
from unit.node.test_suspend_verdict import limited
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.isolation.accounts import Slot, Usage
from vc_egpu_node.suspension.facts import FactsOf, LowPod, NodeState
from vc_egpu_node.suspension.room import MemoryLimits
from vc_egpu_node.suspension.verdict import Facts, MemoryRoom, judge
from vc_egpu_node.wall.offences import Seen
from vc_egpu_node.wall.wall import Look

UID = "0b5f1f0e-0000-4000-8000-000000000001"
MAIN, SIDE = "ab" * 32, "cd" * 32
MIB = 1 << 20
NODE = NodeState("580.65.06", several_allowed=False, budget_mib=50_000, booked_mib={UID: 7, "other": 1_000})


def slot(pid: int, ticks: int, *, managed_mib: int = 0) -> Slot:
    return Slot(pid, ticks, (100 * MIB,), (managed_mib * MIB,), contexts=1)


def seen(pid: int, owner: str, mib: int, *, mps: bool = False) -> Seen:
    return Seen("GPU-1", pid, 1, mib, 0, owner, mps=mps)


USED = Usage((slot(1, 1),), (0,))


class Pod:
    """Two containers with shares of one card, and the files around them."""

    def __init__(self, root: Path) -> None:
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        grants = tuple(
            grant(name, ("GPU-1", 5_000, 10), pod_uid=UID, container=name, share_class="low")
            for name in ("main", "side")
        )
        view = PodView(UID, "ns", "p", "n", "Running", "{}", containers={MAIN: "main", SIDE: "side"})
        self.pod = LowPod(replace(view, running=frozenset({"main", "side"})), grants)
        self.look = Look((), {"main": None, "side": None}, 1)
        self.paged = frozenset({"main", "side"})
        self.proc.mkdir()
        (self.proc / "meminfo").write_text("MemAvailable: 20480000 kB\n")
        self.facts_of = FactsOf(
            hosts=ContainerOfProcess(self.proc),
            limits=MemoryLimits(self.cgroup),
            proc_dir=self.proc,
            paged=lambda: self.paged,
        )

    def process(self, pid: int, own_pid: int, container: str = MAIN, ticks: int = 1, uid: str = UID) -> None:
        folder = self.proc / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/kubepods/pod{uid}/{container}\n")
        (folder / "status").write_text(f"Name: x\nNSpid:\t{pid}\t{own_pid}\n")
        (folder / "stat").write_text(f"{pid} (x) S " + " ".join(["0"] * 18) + f" {ticks} 0\n")

    @property
    def facts(self) -> Facts:
        return self.facts_of.of_pod(self.pod, self.look, NODE)


@pytest.fixture
def here(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_pod_that_has_not_used_the_gpu_yet(here: Pod) -> None:
    facts = here.facts
    assert (facts.started, facts.isolated, facts.known, facts.processes) == (True, True, True, 0)
    assert (facts.book_mib, facts.device_mib, facts.managed_mib, facts.shared_mib) == (10_000, 0, 0, 0)
    assert (facts.host.free_mib, facts.host.budget_mib, facts.host.booked_mib) == (20_000, 50_000, 1_000)


def test_a_pod_that_is_being_deleted_is_not_stopped_in_its_grace(here: Pod) -> None:
    """It may be saving what it has, for which it needs its card."""
    assert judge(here.facts).suspendable
    here.pod = replace(here.pod, view=replace(here.pod.view, terminating=True))
    assert judge(here.facts).topic == "end"


def test_a_pod_one_of_whose_containers_is_yet_to_come_has_not_started(here: Pod) -> None:
    """As while its image is pulled: the agent has not let it in, and its launches would not wait."""
    share = CardShare(uuid="GPU-1", memory_mib=5_000, cores=10)
    wanted = {"main": (share,), "side": (share,), "late": (share,), "without": ()}
    cards = Cards(pod_uid=UID, node="n", plan_id="1-1", containers=wanted)
    here.pod = replace(here.pod, view=replace(here.pod.view, cards=cards.encode()))
    assert judge(here.facts).topic == "start"
    there = cards.model_copy(update={"containers": {**wanted, "late": ()}})
    here.pod = replace(here.pod, view=replace(here.pod.view, cards=there.encode()))
    assert judge(here.facts).suspendable


def test_what_its_pages_and_the_driver_say_is_summed(here: Pod) -> None:
    usage = Usage((slot(1, 1, managed_mib=3), slot(2, 1, managed_mib=4)), (5 * MIB,))
    here.look = Look(
        (seen(71, "main", 600), seen(72, "side", 300), seen(9, "x", 9)), {"main": usage, "side": usage}, 1
    )
    facts = here.facts
    assert (facts.managed_mib, facts.shared_mib) == (14, 10)
    assert (facts.processes, facts.device_mib, facts.mps) == (2, 900, False)


def test_what_cannot_be_read_or_is_not_there_is_not_known(here: Pod) -> None:
    here.look = Look((seen(71, "main", 600),), {"main": None, "side": None}, 1)
    assert not here.facts.known
    here.look = Look((), {"main": None}, 1)
    assert not here.facts.known
    here.paged = frozenset({"main"})
    assert not here.facts.isolated
    here.pod = LowPod(replace(here.pod.view, running=frozenset({"main"})), here.pod.grants)
    assert not here.facts.started
    here.look = Look((seen(71, "main", 600, mps=True),), {}, 1)
    assert here.facts.mps


def test_each_limit_counts_what_lies_below_it(here: Pod) -> None:
    folder = here.cgroup / "memory" / "kubepods" / f"pod{UID}"
    stat = "total_inactive_file 0\n"
    for path, mib in ((folder, 4_000), (folder / MAIN, 1_000)):
        text = str(mib * MIB)
        limited(path, memory__limit_in_bytes=text, memory__usage_in_bytes=str(50 * MIB), memory__stat=stat)
    here.look = Look((seen(71, "main", 600), seen(72, "side", 300)), {}, 1)
    facts_of = FactsOf(
        hosts=ContainerOfProcess(here.proc),
        limits=MemoryLimits(here.cgroup),
        proc_dir=here.proc,
        paged=lambda: here.paged,
    )
    assert list(facts_of.of_pod(here.pod, here.look, NODE).rooms) == [
        MemoryRoom("the pod", 4_000, 50, 900),
        MemoryRoom("container main", 1_000, 50, 600),
    ]


def test_what_all_pods_may_have_together_counts_those_that_leave_with_it(here: Pod) -> None:
    folder = here.cgroup / "memory" / "kubepods"
    text, stat = str(2_000 * MIB), "total_inactive_file 0\ntotal_active_file 0\n"
    limited(folder, memory__limit_in_bytes=text, memory__usage_in_bytes=str(900 * MIB), memory__stat=stat)
    (folder / f"pod{UID}").mkdir()
    here.facts_of = FactsOf(
        hosts=ContainerOfProcess(here.proc),
        limits=MemoryLimits(here.cgroup),
        proc_dir=here.proc,
        paged=lambda: here.paged,
    )
    here.look = Look((seen(71, "main", 600), seen(81, "other", 501)), {"main": USED, "side": None}, 1)
    assert judge(here.facts).suspendable
    node = replace(NODE, leaving=frozenset({"other"}))
    facts = here.facts_of.of_pod(here.pod, here.look, node)
    assert list(facts.rooms) == [MemoryRoom("the pods' cgroup kubepods", 2_000, 900, 1_101)]
    assert judge(facts).topic == "limit"


def test_processes_are_those_of_the_driver_then_those_of_the_library(here: Pod) -> None:
    here.process(71, 5, ticks=11)
    here.process(72, 6, ticks=12)
    here.process(73, 7, ticks=13)
    here.process(74, 7, container=SIDE, ticks=14)
    here.process(75, 5, ticks=11, uid=UID[:-1] + "2")  # another pod's, that the driver names too
    usage = Usage((slot(5, 11), slot(7, 99)), (0,))  # 7 was another process once
    driver = (seen(75, "other", 500), seen(72, "main", 600))
    here.look = Look(driver, {"main": usage, "side": None}, 1)
    assert here.facts_of.processes(here.pod, here.look) == ((72, 12), (71, 11))


def test_memory_that_is_on_its_way_to_the_host_is_not_free_there(here: Pod) -> None:
    here.look = Look((seen(71, "main", 600), seen(81, "other", 300), seen(82, "third", 50)), {}, 1)
    facts = here.facts_of.of_pod(here.pod, here.look, replace(NODE, leaving=frozenset({"other", "main"})))
    assert facts.host.free_mib == 19_700


CATCHES, IGNORES = "SigIgn:\t0\nSigCgt:\t200\n", "SigIgn:\t200\nSigCgt:\t0\n"


@pytest.mark.parametrize(
    ("status", "signal", "deaf"),
    [
        ("SigIgn:\t1000\nSigCgt:\t1000\n", "SIGUSR1", 41),
        (CATCHES, "SIGUSR1", 0),
        (IGNORES, "SIGUSR1", 0),
        (CATCHES, "SIGUSR2", 41),
        ("SigCgt:\tnonsense\n", "SIGUSR1", 0),
        ("", "SIGUSR1", 0),
        ("SigIgn:\t0\nSigCgt:\t0\n", "", 0),
        ("SigIgn:\t0\nSigCgt:\t0\n", "SIGKILL", 0),
    ],
)
def test_a_process_that_does_not_catch_the_signal_is_named(
    here: Pod, status: str, signal: str, deaf: int
) -> None:
    for pid, text in ((40, "SigIgn:\t0\nSigCgt:\ta00\n"), (41, status)):
        here.process(pid, pid)
        (here.proc / str(pid) / "status").write_text(text)
    here.pod = replace(here.pod, view=replace(here.pod.view, suspend_signal=signal))
    here.look = replace(here.look, seen=(seen(41, "main", 10), seen(40, "main", 10)))
    assert (here.facts.signal, here.facts.deaf_pid) == (signal, deaf)
