"""Random walks of wishes, answers, failed writes, late watches and killed leaders around one gang.

At every step: cards that are booked as free are free. In the end, once nothing fails any more and nobody
wants the gang away: no order stands and every pod runs, whatever happened before.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
from unit.admission.build import added, node
from unit.admission.stage import BROKEN, CONFLICT, GROUPS, PODS, Stage
from unit.admission.suspended_gang import UIDS, VICTIM, order_on, running_gang
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.admission.execution import steps
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import PodUid, SuspensionState
from vc_egpu.core.model.plan import Plan, Resume, Suspension
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension
from vc_egpu.volcano.words import names

SEEDS = 200 if os.environ.get("VC_EGPU_LONG") else 12
STEPS = 80
EVENTS = (
    *("wish", "wish", "resume", "agent", "agent", "agent", "agent", "publish", "publish", "watch"),
    *("outcome", "outcome", "outcome", "outcome", "fail", "time", "kill"),
)


class Agent:
    """The true state of the pods, and what was last said about it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.pods = {uid: PodSuspension(suspendable=True) for uid in UIDS}

    def step(self, stage: Stage, uid: PodUid, *, in_vain: bool) -> None:
        """Act on what stands on the server now."""
        order, now = order_on(stage, uid), self.pods[uid]
        change: dict[str, object] = {}
        if order is None:
            away = {
                SuspensionState.SUSPENDING: SuspensionState.RUNNING,
                SuspensionState.SUSPENDED: SuspensionState.RESUMING,
                SuspensionState.RESUMING: SuspensionState.RUNNING,
            }
            change = {"state": away.get(now.state, now.state), "reason": ""}
        elif now.state == "resuming":
            change = {"state": SuspensionState.RUNNING}
        elif now.plan_id != order.plan_id and now.state == "running":
            change = {"state": SuspensionState.SUSPENDING, "plan_id": order.plan_id}
            if in_vain:
                change |= {"state": SuspensionState.RUNNING, "reason": "in vain"}
        elif now.state in {"suspending", "suspended"}:
            change = {"state": SuspensionState.SUSPENDED, "plan_id": order.plan_id}
        self.pods[uid] = now.model_copy(update=change)

    def publish(self, stage: Stage) -> None:
        raw = node()
        said = NodeSuspension(pods={str(uid): one for uid, one in self.pods.items()})
        raw["metadata"]["annotations"][names.NODE_SUSPENSION] = said.encode()
        stage.node_says(raw)


class Walk:
    """One gang, one agent, one leader after another."""

    def __init__(self, seed: int, server: TinyApi, connections: tuple[ApiConnection, ApiConnection]) -> None:
        self.rng = random.Random(seed)
        self.server, self.connections = server, connections
        self.stage = Stage(server, *connections)
        self.agent = Agent(self.rng)
        self.epoch = 5
        self.asleep = 0
        running_gang(self.stage)

    def step(self) -> None:
        """Something happens."""
        stage, rng = self.stage, self.rng
        match rng.choice(
            (
                "wish",
                "resume",
                "agent",
                "agent",
                "publish",
                "watch",
                "outcome",
                "outcome",
                "fail",
                "time",
                "kill",
            )
        ):
            case "wish":
                stage.conductor.carry_out(
                    Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),)), 1000.0
                )
            case "resume":
                self.resume()
            case "agent":
                self.agent.step(stage, rng.choice(UIDS), in_vain=rng.random() < 0.05)
            case "publish":
                self.agent.publish(stage)
            case "watch":
                self.watch()
            case "outcome":
                self.outcome(timeout_s=0.02)
            case "fail":
                stage.server.script.append(rng.choice((CONFLICT, BROKEN)))
            case "time":
                stage.later(rng.choice((0.1, 5.0, 40.0, 601.0)))
                stage.tick()
            case "kill" if rng.random() < 0.5:
                self.next_leader()
        stage = self.stage
        stage.drive()
        self.check()

    def check(self) -> None:
        """Who is booked as away has its memory on the host."""
        for uid, pod in self.stage.mirror.snapshot().pods.items():
            if pod.asleep:
                self.asleep += 1
                assert self.agent.pods[uid].state == "suspended", f"{uid} is {self.agent.pods[uid]}"

    def resume(self) -> None:
        """As the decision does for whom nobody wants away."""
        away = [uid for uid in UIDS if self.stage.mirror.pods[uid].pod.suspend_ordered]
        if away:
            self.stage.conductor.carry_out(Plan(2, resumes=(Resume(VICTIM, frozenset(away)),)), 1000.0)

    def watch(self) -> None:
        for uid in UIDS:
            with self.server.lock:
                raw = dict(self.server.objects[f"{PODS}/{uid}"])
            self.stage.mirror.apply("pods", added(raw))

    def outcome(self, timeout_s: float) -> bool:
        try:
            done = self.stage.inbox.get(timeout=timeout_s)
        except Empty:
            return False
        self.stage.conductor.done(done)
        return True

    def next_leader(self) -> None:
        """Killed: its last writes land or do not, nobody hears of them; the next one reads everything."""
        self.stage.executor.stop()
        self.stage.events.stop()
        self.epoch += 1
        self.stage = Stage(self.server, *self.connections)
        self.stage.conductor.take_over(steps.Authority(epoch=self.epoch))
        self.agent.publish(self.stage)
        self.watch()
        self.stage.mirror.apply("podgroups", added(dict(self.server.objects[f"{GROUPS}/v"])))
        self.stage.mirror.settle_all()

    def settle(self) -> None:
        """Nothing fails any more, and nobody wants the gang away."""
        with self.server.lock:
            self.server.script.clear()
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            self.watch()
            for uid in UIDS:
                self.agent.step(self.stage, uid, in_vain=False)
            self.agent.publish(self.stage)
            self.stage.later(31.0)
            self.stage.tick()
            self.resume()
            self.stage.drive()
            self.check()
            while self.outcome(timeout_s=0.05):
                self.stage.drive()
                self.check()
            if self.is_at_rest():
                return
        pytest.fail(f"never at rest: {self.agent.pods}, {[order_on(self.stage, uid) for uid in UIDS]}")

    def is_at_rest(self) -> bool:
        runs = all(pod.state == "running" for pod in self.agent.pods.values())
        return (
            runs
            and not any(order_on(self.stage, uid) for uid in UIDS)
            and not self.stage.mirror.answers.lifting
        )


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        yield found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_cards_are_free_when_booked_so_and_all_run_in_the_end(
    seed: int, server: TinyApi, tmp_path: Path
) -> None:
    with tiny_api() as for_events:
        api = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=4, timeout_s=30)
        elsewhere = ApiConnection.connect(for_events.kubeconfig(tmp_path))
        walk = Walk(seed, server, (api, elsewhere))
        for _ in range(STEPS):
            walk.step()
        walk.settle()
        walk.stage.executor.stop()
        walk.stage.events.stop()
        elsewhere.close()
        api.close()
