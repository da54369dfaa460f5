"""Suspending and resuming as ordered: a scripted helper, an injected clock, no node."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from unit.node.granted import grant
from vc_egpu.kube.errors import KubeError, NotFound, Refused, Temporary
from vc_egpu.volcano import names
from vc_egpu.volcano.suspension import NodeSuspension, PodSuspension, SuspendOrder, is_refused
from vc_egpu_node.config import Policy
from vc_egpu_node.pods import PodView
from vc_egpu_node.secondwall import Seen
from vc_egpu_node.suspend import Store, Suspender
from vc_egpu_node.suspend_facts import LowPod, NodeState, low_pods, spilled_mib
from vc_egpu_node.suspend_helper import (
    Answer,
    HelperError,
    NotBegunError,
    NotNowError,
    PodHelper,
    Verb,
    parse,
    words,
)
from vc_egpu_node.suspend_machine import ATTEMPTS, RETRY_S, Process, Record, State
from vc_egpu_node.suspend_verdict import Verdict
from vc_egpu_node.suspend_work import Worker
from vc_egpu_node.suspend_world import away
from vc_egpu_node.wall import Look

CARD = "GPU-1"
UID = "uid-train"
PROCESS: Process = (71, 5)


def order(number: int = 1, uid: str = UID) -> str:
    return SuspendOrder(pod_uid=uid, plan_id=f"1-{number}", why="room").encode()


def low_pod(**changes: Any) -> LowPod:
    one = grant("train", (CARD, 8_000, 50), share_class="low", pod_uid=UID)
    view = PodView(UID, "ns", "train", "node-1", "Running", "{}", running=frozenset({"main"}))
    return LowPod(replace(view, **changes), (one,))


@dataclass
class Card:
    """A helper whose pods really hold memory, and what others see of it."""

    states: dict[Process, str] = field(default_factory=lambda: {PROCESS: "running"})
    mib: int = 6_000
    calls: list[tuple[Verb, tuple[Process, ...]]] = field(default_factory=list)
    answers: list[Answer | RuntimeError] = field(default_factory=list)
    looks: int = 0
    free_mib: int = 90_000
    leaves_mib: int = 0
    """What stays on the card though everything was checkpointed."""

    def run(self, verb: Verb, processes: Sequence[Process], lock_ms: int) -> Answer:
        self.calls.append((verb, tuple(processes)))
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, RuntimeError):
                raise answer
            for process, state in zip(processes, answer.states.values(), strict=True):
                self.states[process] = state
            return answer
        for process in processes:
            self.states[process] = "checkpointed" if verb == "suspend" else "running"
        return Answer(done=True, states={pid: self.states[(pid, start)] for pid, start in processes})

    def sweep(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def look(self) -> Look:
        self.looks += 1
        held = [
            (one, self.mib if state != "checkpointed" else self.leaves_mib)
            for one, state in self.states.items()
        ]
        seen = tuple(Seen(CARD, pid, start, mib, 0, "train") for (pid, start), mib in held)
        return Look(seen, {"train": None}, self.looks)

    def shortage(self, pod: LowPod, card_mib: Mapping[str, int]) -> str:
        needed = sum(card_mib.values())
        return "" if needed <= self.free_mib else f"{self.free_mib} MiB free, {needed} are needed"

    def processes(self, pod: LowPod, look: Look) -> tuple[Process, ...]:
        return tuple(self.states)


class Node:
    """World, helper and suspender; every look of a test waits for what it began."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.card = Card()
        self.pods_here: dict[str, LowPod] | None = {UID: low_pod()}
        self.verdict_now = Verdict()
        self.gates: dict[str, bool] = {}
        self.told: list[tuple[str, str]] = []
        self.said: list[NodeSuspension] = []
        self.api_down = False
        self.now_s = 1_000.0
        self.policy = Policy(resume_room_s=0.0)
        self.restart()

    def restart(self) -> None:
        worker = Worker(
            self.card,
            self.card,  # type: ignore[arg-type]
            look=self.card.look,
            shortage=self.card.shortage,
        )
        self.worked = threading.Semaphore(0)
        self.suspender = Suspender(
            self, worker, Store(self.folder), lambda: self.policy, clock=lambda: self.now_s
        )
        take = self.suspender._work

        def work(pod: LowPod, record: Record, policy: Policy) -> None:
            take(pod, record, policy)
            self.worked.release()

        self.suspender._work = work  # type: ignore[method-assign]

    # the world
    def pods(self) -> Mapping[str, LowPod] | None:
        return self.pods_here

    def state(self) -> NodeState:
        return NodeState("580.1", False, 10_000, {})

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        self.booked = dict(node.booked_mib)
        return self.verdict_now

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        self.gates[pod_uid] = closed

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        self.told.append((reason, text))

    def publish(self, text: str) -> None:
        if self.api_down:
            raise KubeError("away")
        self.said.append(NodeSuspension.decode(text))

    # the test
    def order(self, number: int | None) -> None:
        self.pods_here = {UID: low_pod(suspend=order(number) if number else None)}

    def look(self) -> PodSuspension:
        """Until nothing is under way."""
        self.suspender.look()
        while self.suspender._busy:
            assert self.worked.acquire(timeout=60)
            self.suspender.look()
        return self.said[-1].pods[UID]

    def state_now(self) -> State:
        return Store(self.folder).all().get(UID, Record(UID, "ns", "train")).state


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "suspensions")


def test_away_and_back(node: Node) -> None:
    said = node.look()
    assert (said.state, said.suspendable, said.reason, said.host_mib) == ("running", True, "", 8_000)
    node.order(1)
    said = node.look()
    assert (said.state, said.plan_id, said.suspendable, said.host_mib) == ("suspended", "1-1", False, 6_000)
    assert [one.pods[UID].state for one in node.said] == ["running", "suspending", "suspended"]
    assert node.suspender.suspended() == {UID}
    assert node.gates[UID]
    assert node.booked == {UID: 8_000}
    node.now_s += 100
    (metric,) = node.suspender.pods()
    assert (metric.suspended_s, metric.host_mib) == (100.0, 6_000)
    node.order(None)
    said = node.look()
    assert (said.state, said.suspendable, said.reason) == ("running", True, "")
    assert not node.gates[UID]
    assert node.card.calls == [("suspend", (PROCESS,)), ("resume", (PROCESS,))]
    assert [reason for reason, _ in node.told] == ["LeftCards", "BackOnCards"]
    assert node.suspender.pods()[0].suspended_s == 100.0


def test_nothing_is_written_while_nothing_changes(node: Node) -> None:
    node.verdict_now = Verdict("uses 10 of 20 MiB", "limit")
    node.look()
    node.verdict_now = Verdict("uses 11 of 20 MiB", "limit")
    node.look()
    assert len(node.said) == 1
    node.verdict_now = Verdict("under MPS", "mps")
    assert node.look().reason == "under MPS"
    assert len(node.said) == 2


def test_an_api_server_that_is_away_hears_of_it_later(node: Node) -> None:
    node.api_down = True
    node.order(1)
    node.suspender.look()
    assert node.worked.acquire(timeout=60)
    node.suspender.look()
    assert node.said == []
    node.api_down = False
    assert node.look().state == "suspended"


def test_what_cannot_be_suspended_is_refused_once_and_the_order_named(node: Node) -> None:
    node.verdict_now = Verdict("it holds 5 MiB of managed memory", "managed")
    node.order(1)
    said = node.look()
    assert is_refused(SuspendOrder(pod_uid=UID, plan_id="1-1"), said)
    assert said.reason == "it holds 5 MiB of managed memory"
    node.verdict_now = Verdict()
    assert node.look().state == "running"  # the same order is not tried again
    assert node.card.calls == []
    node.order(2)
    assert node.look().state == "suspended"


def test_a_helper_that_undid_all_leaves_it_running(node: Node) -> None:
    node.card.answers = [Answer(done=False, error="Lock of 71: 600", states={71: "running"})]
    node.order(1)
    said = node.look()
    assert is_refused(SuspendOrder(pod_uid=UID, plan_id="1-1"), said)
    assert said.reason == "Lock of 71: 600"
    assert not node.gates[UID]
    assert len(node.card.calls) == 1
    node.order(None)
    assert node.look().reason == ""


def test_what_a_helper_left_half_way_is_brought_back(node: Node) -> None:
    node.card.answers = [Answer(done=False, error="no", states={71: "checkpointed"})]
    node.order(1)
    assert node.look().state == "running"
    assert [verb for verb, _ in node.card.calls] == ["suspend", "resume"]


def test_what_cannot_be_brought_back_has_failed_and_stays_so(node: Node) -> None:
    no = Answer(done=False, error="no", states={71: "checkpointed"})
    node.card.answers = [no, no]
    node.order(1)
    said = node.look()
    assert (said.state, said.reason) == ("failed", "no; not brought back: no")
    assert node.gates[UID]
    node.order(None)
    assert node.look().state == "failed"
    node.restart()
    assert node.look().state == "failed"
    assert node.told == [("ResumeFailed", "no; not brought back: no")]


def test_memory_that_stays_on_the_card_was_not_suspended(node: Node) -> None:
    node.card.leaves_mib = 500
    node.order(1)
    said = node.look()
    assert (said.state, said.plan_id) == ("running", "1-1")
    assert "500 MiB of it stay on its cards" in said.reason
    assert [verb for verb, _ in node.card.calls] == ["suspend", "resume"]


def test_processes_that_began_to_use_the_card_meanwhile_go_too(node: Node) -> None:
    late: Process = (72, 9)
    known = iter([(PROCESS,)])
    all_of_them = node.card.processes
    node.card.processes = lambda pod, look: next(known, None) or all_of_them(pod, look)  # type: ignore[method-assign]
    node.card.states[late] = "running"
    node.order(1)
    assert node.look().state == "suspending"
    assert node.gates[UID]
    node.now_s += RETRY_S
    assert node.look().state == "suspended"
    assert node.card.calls == [("suspend", (PROCESS,)), ("suspend", (PROCESS, late))]


def test_one_failed_restore_is_a_failure(node: Node) -> None:
    node.order(1)
    node.look()
    node.card.answers = [Answer(done=False, error="Restore of 71: 2", states={71: "checkpointed"})]
    node.order(None)
    assert node.look().state == "failed"
    assert node.suspender.suspended() == frozenset()  # its memory may come back at any moment: it is booked


def test_no_room_in_time_is_a_failure_and_nothing_is_tried(node: Node) -> None:
    node.order(1)
    node.look()
    node.card.free_mib = 5_999
    node.order(None)
    said = node.look()
    assert (said.state, "5999 MiB free, 6000 are needed" in said.reason) == ("failed", True)
    assert [verb for verb, _ in node.card.calls] == ["suspend"]


def test_ordered_anew_while_it_waits_for_room(node: Node) -> None:
    node.policy = Policy(resume_room_s=600.0)
    node.order(1)
    node.look()
    node.card.free_mib = 0
    node.order(None)
    node.suspender.look()
    assert node.state_now() is State.RESUMING
    assert node.suspender.suspended() == frozenset()  # booked in full from now on
    node.order(2)
    said = node.look()
    assert (said.state, said.plan_id) == ("suspended", "1-2")


def test_who_waits_for_room_keeps_nobody_from_making_it(node: Node) -> None:
    """Many wait to come back onto a card that another pod, which is ordered away, still fills."""
    others = {f"uid-{n}": low_pod(uid=f"uid-{n}", name=f"p{n}") for n in range(40)}
    for uid, pod in others.items():
        record = Record(uid, "ns", pod.view.name, state=State.SUSPENDED, plan_id="1-1")
        Store(node.folder).put(replace(record, card_mib=((CARD, 1),)))
    node.policy = Policy(resume_room_s=600.0)
    node.restart()
    node.card.free_mib = 0
    node.pods_here = {UID: low_pod(suspend=order(2)), **others}
    node.suspender.look()
    assert node.worked.acquire(timeout=60)  # the one that leaves: all others wait
    node.suspender.look()
    assert node.said[-1].pods[UID].state == "suspended"
    node.card.free_mib = 1
    while node.suspender._busy:
        assert node.worked.acquire(timeout=60)
        node.suspender.look()
    assert {one.state for uid, one in node.said[-1].pods.items() if uid != UID} == {"running"}


def test_another_order_for_what_is_suspended_renames_it(node: Node) -> None:
    node.order(1)
    node.look()
    node.order(2)
    assert (node.look().plan_id, len(node.card.calls)) == ("1-2", 1)


def test_an_unanswered_helper_is_asked_again_and_given_up(node: Node) -> None:
    node.card.answers = [HelperError("pod gone")] * ATTEMPTS
    node.order(1)
    assert node.look().state == "suspending"
    assert node.look().state == "suspending"
    assert len(node.card.calls) == 1
    for _ in range(ATTEMPTS - 1):
        node.now_s += RETRY_S
        said = node.look()
    assert (said.state, said.reason) == ("failed", "pod gone")
    assert len(node.card.calls) == ATTEMPTS


def test_an_unanswered_helper_whose_order_was_taken_back_is_undone(node: Node) -> None:
    node.card.answers = [HelperError("pod gone")]
    node.order(1)
    node.look()
    node.order(None)
    node.now_s += RETRY_S
    assert node.look().state == "running"
    assert [verb for verb, _ in node.card.calls] == ["suspend", "resume"]


def test_a_helper_that_could_not_begin_is_no_reason_to_touch_a_pod(node: Node) -> None:
    node.card.answers = [NotBegunError("no such template")]
    node.order(1)
    said = node.look()
    assert is_refused(SuspendOrder(pod_uid=UID, plan_id="1-1"), said)
    assert (said.reason, node.gates[UID]) == ("no such template", False)
    assert node.told == [("NotSuspended", "no such template")]


def test_a_pod_that_is_away_waits_for_a_helper_for_as_long_as_it_takes(node: Node) -> None:
    node.order(1)
    node.look()
    node.card.answers = [NotBegunError("refused"), NotNowError("API server away")] * ATTEMPTS
    node.order(None)
    for _ in range(2 * ATTEMPTS):
        said = node.look()
        assert said.state == "resuming"
        node.now_s += RETRY_S
    assert node.look().state == "running"


def test_what_may_have_begun_is_undone_by_a_helper(node: Node) -> None:
    node.card.answers = [NotNowError("answer lost"), NotBegunError("refused")]
    node.order(1)
    node.look()
    node.order(None)
    for _ in range(2):
        node.now_s += RETRY_S
        said = node.look()
    assert said.state == "running"
    assert [verb for verb, _ in node.card.calls] == ["suspend", "resume", "resume"]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("state", [State.SUSPENDING, State.RESUMING])
def test_the_next_agent_finishes_or_undoes(node: Node, state: State, ordered: bool) -> None:
    node.card.states[PROCESS] = "locked"
    Store(node.folder).put(
        Record(UID, "ns", "train", state=state, plan_id="1-1", processes=(PROCESS, (72, 6)))
    )
    node.restart()
    node.order(1 if ordered else None)
    said = node.look()
    assert said.state == ("suspended" if ordered else "running")
    assert node.gates[UID] is ordered
    assert node.card.calls == [("suspend" if ordered else "resume", (PROCESS, (72, 6)))]


def test_the_next_agent_knows_who_is_suspended(node: Node) -> None:
    node.order(1)
    node.look()
    node.gates.clear()
    node.restart()
    assert node.suspender.suspended() == {UID}
    assert node.look().state == "suspended"
    assert (node.gates[UID], len(node.card.calls)) == (True, 1)


def test_a_pod_that_is_gone_leaves_nothing_behind(node: Node) -> None:
    node.order(1)
    node.look()
    node.pods_here = None
    node.suspender.look()  # the watch is not there yet: nothing is concluded
    assert node.suspender.suspended() == {UID}
    node.pods_here = {}
    node.suspender.look()
    assert list(node.folder.iterdir()) == []
    assert node.said[-1].pods == {}
    assert (node.suspender.suspended(), node.suspender.pods()) == (frozenset(), [])


@pytest.mark.parametrize("text", ["", "{", '{"version":2}', order(1, "uid-other")])
def test_an_order_that_is_none_is_no_order(node: Node, text: str) -> None:
    node.pods_here = {UID: low_pod(suspend=text)}
    assert node.look().state == "running"
    assert node.card.calls == []


def test_a_record_that_cannot_be_read_is_set_aside(node: Node) -> None:
    node.order(1)
    node.look()
    (path,) = node.folder.iterdir()
    path.write_text(path.read_text()[:-9])
    node.restart()
    assert [one.suffix for one in node.folder.iterdir()] == [".broken"]
    assert node.look().state == "suspended"  # by the order: said and done once more
    path.write_text(json.dumps({**Record("uid-other", "ns", "x").document()}))
    assert Store(node.folder).all() == {}


def test_a_disk_that_is_full_begins_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Store, record: Record) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Store, "put", full)
    node.order(1)
    assert node.look().state == "running"
    assert (node.card.calls, node.suspender.closed()) == ([], frozenset())


# --- who it is about -------------------------------------------------------------------------------


def test_low_pods_are_those_whose_shares_are_all_low() -> None:
    def view(name: str, **changes: Any) -> PodView:
        return replace(PodView(f"uid-{name}", "ns", name, "n", "Running", "{}"), **changes)

    grants = [
        grant("a", (CARD, 100, 1), share_class="low"),
        grant("b", (CARD, 100, 1), share_class="high"),
        grant("c", (CARD, 100, 1), share_class="low", native=True),
        grant("d", (CARD, 100, 1), share_class="low"),
    ]
    views = [view("a"), view("b"), view("c"), view("d", phase="Succeeded"), view("e")]
    assert set(low_pods(grants, views)) == {"uid-a"}
    assert spilled_mib(grants) == {}


def test_who_is_away_is_known_without_what_brings_them_back(node: Node) -> None:
    assert away(node.folder.parent) == []
    node.order(1)
    node.look()
    assert away(node.folder.parent) == ["ns/train"]


# --- what is said to the helper, and by it ---------------------------------------------------------


def test_words_and_answers() -> None:
    assert words("suspend", [(7, 9), (8, 10)], 2_500) == "suspend --lock-ms 2500 7:9 8:10"
    with pytest.raises(NotBegunError, match="129 processes"):
        words("suspend", [(n, 1) for n in range(129)], 1)
    text = '{"version":1,"verb":"suspend","ok":true,"error":"","ms":1,"states":{"7":"checkpointed"}}'
    assert parse(text) == Answer(True, "", {7: "checkpointed"})
    for wrong in ("", "{}", text.replace("1,", "2,", 1), text.replace("checkpointed", "odd"), "[1]", "null"):
        with pytest.raises(HelperError, match="cannot be read"):
            parse(wrong)


# --- the helper's pod ------------------------------------------------------------------------------

SAID = '{"version":1,"verb":"suspend","ok":true,"error":"","ms":1,"states":{"7":"checkpointed"}}'


class Api:
    """The API server and the kubelet, as far as one helper's pod goes; also the watch of this node's pods."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        self.status = status
        self.pods: dict[str, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        self.refuse: KubeError | None = None
        self.template = {
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"activeDeadlineSeconds": 0}}
        }
        self.reflector = self
        self.results = Path("/nowhere")
        self.answer = ""

    def get(self, *arguments: Any) -> Any:
        if isinstance(arguments[0], str):
            return self.pods.get(arguments[0])
        return self.template

    def create(self, resource: Any, body: dict[str, Any]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.made.append(body)
        self.pods[body["metadata"]["name"]] = {"status": self.status or {"phase": "Running"}}
        if self.answer:
            (self.results / body["metadata"]["name"]).write_text(self.answer)

    def delete(self, resource: Any, name: str, namespace: str) -> None:
        if self.pods.pop(name, None) is None:
            raise NotFound("gone")

    def views(self) -> list[PodView]:
        return [PodView("u", "system", name, "n", "Running", None) for name in self.pods]


def pod_helper(api: Api) -> PodHelper:
    clock = iter(range(0, 10**6, 20))
    return PodHelper(
        api,  # type: ignore[arg-type]
        node="n",
        namespace="system",
        pods=api,  # type: ignore[arg-type]
        results=api.results,
        clock=lambda: float(next(clock)),
    )


def ended(**terminated: Any) -> dict[str, Any]:
    return {"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": {"terminated": terminated}}]}


def test_the_pod_is_of_the_template_on_this_node_and_goes_when_it_has_answered() -> None:
    api = Api(ended(message=SAID, exitCode=0))
    assert pod_helper(api).run("suspend", [(7, 9)], 10).done
    (made,) = api.made
    assert made["metadata"]["annotations"] == {names.CHECKPOINT: "suspend --lock-ms 10 7:9"}
    assert (made["spec"]["nodeName"], made["metadata"]["labels"]) == ("n", {"app": "x"})
    assert api.pods == {}


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (ended(reason="Error", exitCode=139), HelperError, "Error, exit code 139"),
        (ended(message="{"), HelperError, "cannot be read"),
        ({"phase": "Failed"}, NotBegunError, "before it could begin"),
        ({"phase": "Running"}, HelperError, "has not ended"),
    ],
)
def test_a_pod_without_an_answer(status: dict[str, Any], error: type[Exception], text: str) -> None:
    api = Api(status)
    with pytest.raises(error, match=text):
        pod_helper(api).run("suspend", [(7, 9)], 10)
    assert api.pods == {}


def test_a_pod_that_is_refused_or_whose_making_is_not_known() -> None:
    api = Api(ended(message=SAID))
    helper = pod_helper(api)
    api.refuse = Refused("policy")
    with pytest.raises(NotBegunError, match="policy"):
        helper.run("suspend", [(7, 9)], 10)
    api.refuse = Temporary("time-out")
    with pytest.raises(NotNowError, match="time-out"):
        helper.run("suspend", [(7, 9)], 10)
    (lost,) = helper._lost
    api.refuse = None
    api.pods[lost] = {"status": {"phase": "Running"}}  # it was made all the same
    assert helper.run("suspend", [(7, 9)], 10).done
    assert (api.pods, helper._lost) == ({}, set())


def test_an_answer_is_taken_before_the_kubelet_tells_of_the_end(tmp_path: Path) -> None:
    api = Api({"phase": "Running"})
    api.results, api.answer = tmp_path, SAID
    with pytest.raises(HelperError, match="has not ended"):  # half a line is no answer
        pod_helper(api).run("suspend", [(7, 9)], 10)
    api.answer = f"{SAID}\n"
    assert pod_helper(api).run("suspend", [(7, 9)], 10).done
    assert (api.pods, list(tmp_path.iterdir())) == ({}, [])
    (tmp_path / "vc-egpu-checkpoint-old").write_text(SAID)
    pod_helper(api).sweep()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_what_an_earlier_agent_left_is_ended_first(phase: str) -> None:
    api = Api(None)
    api.pods = {"vc-egpu-checkpoint-1": {"status": {"phase": phase}}, "vc-egpu-node-agent-1": {}}
    pod_helper(api).sweep()
    assert set(api.pods) == {"vc-egpu-node-agent-1"}


def test_an_agent_that_ends_leaves_the_pod_to_the_next() -> None:
    api = Api({"phase": "Running"})
    helper = pod_helper(api)
    helper.stop()
    with pytest.raises(NotNowError, match="the agent ends"):
        helper.run("suspend", [(7, 9)], 10)
    assert len(api.pods) == 1
