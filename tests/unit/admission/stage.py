"""Two stages on a small API server: a conductor for which the test is the loop, and a loop turned by hand.

A test lets something happen (an object arrives, time passes, a write is answered), takes turns, and asks what
is said, what is tried again and what was written.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from unit.admission.build import TABLE, Json, added, deleted, group, node, pod, queue
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.admission.carry_out.conductor import Conductor
from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.decision import Decide, Decisions
from vc_egpu.admission.execution import steps
from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.execution.outcomes import Done
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.admission.leader import SoleLeader
from vc_egpu.admission.loop import Loop, Stopping
from vc_egpu.admission.parts import Others, Parts
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.reports import Reports
from vc_egpu.admission.view import View, ViewRequest
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodUid, Share
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.events import EventRecorder
from vc_egpu.kube.watch import Change
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words import names

KEY, PLAN_ID = "default/g", "5-1"
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
REPLICA_SET = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]
BROKEN: Any = (500, status(500, "InternalError"), {})
CONFLICT: Any = (409, status(409, "Conflict"), {})


def plan(mirror: Mirror, **changes: Any) -> str:
    """The text of a plan for the gang ``default/g``: two members on one card."""
    share = Share(CardId("GPU-n1-0"), 30000, 30)
    placement = MemberPlacement(NodeName("n1"), (("main", share),))
    members = {f"w/{i}": PlannedMember(placement, PodUid(f"pod-{i}")) for i in range(2)}
    values: dict[str, Any] = {
        "plan_id": PLAN_ID,
        "group_uid": "group-g",
        "state": "ready",
        "members": members,
        **changes,
    }
    return plans.encode(PlanRecord(**values), mirror.nodes)


class Stage:
    """A conductor on a real connection; the test is the loop."""

    def __init__(self, server: TinyApi, api: ApiConnection, elsewhere: ApiConnection) -> None:
        self.server = server
        self.inbox: SimpleQueue[Done] = SimpleQueue()
        self.mirror = Mirror(TABLE)
        self.agenda = self.mirror.agenda
        self.nodes: dict[str, Json] = {}
        """What nodes said last."""
        self.executor = Executor(api, self.inbox.put)
        self.events = EventRecorder(elsewhere, "test", "test")
        self.work = Work(self.mirror, self.executor, api, Reports(self.executor, self.events))
        self.conductor = Conductor.on(self.work, steps.Authority(epoch=5))
        self.mirror.apply("queues", added(queue()))
        self.node_says(node())

    # --- what happens ----------------------------------------------------------------------------

    def put(self, plural: str, document: Json) -> None:
        """An object on the server and in the mirror."""
        path = f"{GROUPS if plural == 'podgroups' else PODS}/{document['metadata']['name']}"
        self.mirror.apply(plural, added(self.server.put(path, document)))

    def node_says(self, document: Json) -> None:
        """A node is so now, and a decision has looked at it."""
        self.nodes[document["metadata"]["name"]] = document
        self.mirror.apply("nodes", added(document))
        self.agenda.reviewed()

    def answered(self) -> Done:
        """Take in one outcome, and do nothing else."""
        done = self.inbox.get(timeout=30)
        self.conductor.done(done)
        return done

    def outcome(self) -> None:
        """Take in one outcome, then go on as the loop does."""
        self.answered()
        self.drive()

    def time_passes(self, seconds: float) -> None:
        """Time passes, and nothing looks at the clock."""
        self.work.clock += seconds

    def later(self, seconds: float) -> None:
        """Time passes; what failed is tried again."""
        self.time_passes(seconds)
        self.work.wake_due()
        self.drive()

    def tick(self) -> None:
        """The rules about time for suspended gangs."""
        self.conductor.suspending.tick(self.work.clock)

    def drive(self) -> None:
        """The next step of each gang that something happened to."""
        for key in sorted(self.agenda.take_looks()):
            self.conductor.drive(key)

    # --- what can be seen ------------------------------------------------------------------------

    def is_tried(self, key: str = KEY) -> bool:
        """Whether the next decision is about this gang by name."""
        return key in self.agenda.tries

    def plan_text(self) -> str | None:
        """The plan that stands on the PodGroup ``default/g``."""
        annotations = self.server.objects[f"{GROUPS}/g"]["metadata"].get("annotations") or {}
        found = annotations.get(names.PLAN)
        return None if found is None else str(found)

    def asked_to_go(self) -> list[str]:
        """Names of the pods for which an eviction was asked for and not only tried."""
        return [
            path.split("/")[-2]
            for method, path, body in self.server.requests
            if method == "POST" and path.endswith("/eviction") and "dryRun" not in body["deleteOptions"]
        ]

    def gates_under_way(self) -> set[PodUid]:
        """Members whose gate is being lifted."""
        return set(self.conductor.members.carrying.under_way)


@contextmanager
def stage_on(folder: Path) -> Iterator[Stage]:
    """A stage, until the test is over."""
    with tiny_api() as server, tiny_api() as for_events:
        api = ApiConnection.connect(server.kubeconfig(folder), pool_size=4, timeout_s=30)
        elsewhere = ApiConnection.connect(for_events.kubeconfig(folder))
        found = Stage(server, api, elsewhere)
        yield found
        found.executor.stop()
        found.events.stop()
        elsewhere.close()
        api.close()


class StageClock:
    """Real time, and what a test lets pass at once."""

    def __init__(self) -> None:
        self._ahead_s = -time.monotonic()

    def now(self) -> float:
        """Seconds since the test began, as it has it."""
        return time.monotonic() + self._ahead_s

    def passes(self, seconds: float) -> None:
        """So much time passes at once."""
        self._ahead_s += seconds


class LoopStage:
    """A loop that is turned by hand. One node, one queue, and two gated pods of ``default/g`` are there."""

    def __init__(
        self, server: TinyApi, parts: Parts, settings: Settings, loop: Loop, clock: StageClock
    ) -> None:
        self.server, self.parts, self.settings, self.loop, self.clock = server, parts, settings, loop, clock
        self.mirror, self.inbox = parts.mirror, parts.inbox
        self.agenda = parts.mirror.agenda
        self.conductor, self.work = parts.conductor, parts.conductor.work
        self.reports = self.work.reports
        for plural, document in (("nodes", node()), ("queues", queue())):
            self.mirror.apply(plural, added(document))
        for i in range(2):
            self.arrives("pods", pod(f"g-w-{i}", index=i, uid=f"pod-{i}"))
        self.conductor.take_over(steps.Authority(epoch=5, adopted={PLAN_ID}))
        self.turn()

    # --- what happens ----------------------------------------------------------------------------

    def deliver(self, plural: str, change: Change) -> None:
        """A watch tells of something."""
        self.inbox.put((plural, change))

    def arrives(self, plural: str, document: Json) -> None:
        """An object is there, on the server and from its watch."""
        if plural != "nodes":
            folder = GROUPS if plural == "podgroups" else PODS
            document = self.server.put(f"{folder}/{document['metadata']['name']}", document)
        self.deliver(plural, added(document))

    def goes(self, plural: str, name: str) -> None:
        """An object is deleted, on the server and from its watch."""
        folder = GROUPS if plural == "podgroups" else PODS
        self.deliver(plural, deleted(self.server.remove(f"{folder}/{name}")))

    def later(self, seconds: float) -> None:
        """Time passes; the next turn sees it."""
        self.clock.passes(seconds)

    def turn(self, wait_s: float | None = None) -> None:
        """One turn. It waits for something to happen, at most until a rule about time is due."""
        self.loop.turn(wait_s)

    def idle_turn(self) -> None:
        """One turn in which nothing happens."""
        self.inbox.put(ViewRequest())
        self.turn()

    def decides(self, how: Decide) -> None:
        """Decisions are made so from now on."""
        self.parts.decisions.how = how

    def gates_fall(self, *uids: str) -> None:
        """Writes to these pods' gates are under way, and take long."""
        for uid in uids:
            self.conductor.members.carrying.begin(PodUid(uid))

    def gates_have_fallen(self, *uids: str) -> None:
        """The same writes are over, without any trace."""
        for uid in uids:
            self.conductor.members.carrying.gone(PodUid(uid))

    # --- what can be seen ------------------------------------------------------------------------

    def said(self, gang: str = KEY) -> Verdict | None:
        """What the last decision said of a gang."""
        return self.parts.verdicts.now.get(gang)

    def is_quiet(self) -> bool:
        """Whether no rule about time counts for any pod, and nothing is still to be told."""
        return not self.parts.aftercare and not self.reports

    def told(self, gang: str = KEY) -> Verdict | None:
        """What is said, or about to be said, on the gang's PodGroup."""
        return self.reports.verdict(gang)

    def view(self) -> View:
        """What other threads are shown, after one more turn."""
        request = ViewRequest()
        self.inbox.put(request)
        self.turn()
        assert request.view is not None
        return request.view

    def await_outcome(self) -> None:
        """Wait until a write has been answered; the next turn takes that in."""
        self.inbox.put(self.inbox.get(timeout_s=30))

    def outcomes(self, kind: type[Done], count: int) -> list[Done]:
        """So many outcomes of a kind, once they are there; all that came before them is left out."""
        found: list[Done] = []
        while len(found) < count:
            item = self.inbox.get(timeout_s=30)
            if isinstance(item, kind):
                found.append(item)
        return found

    def after(self, kind: type[Done], count: int) -> list[str]:
        """Names of the pods whose gate was lifted, once so many operations of this kind have ended."""
        self.outcomes(kind, count)
        return sorted(
            path.rsplit("/", 1)[-1].partition("?")[0]
            for method, path, body in self.server.requests
            if method == "PATCH" and "/pods/" in path and "schedulingGates" in body.get("spec", {})
        )

    def planned(self) -> Json:
        """The PodGroup of ``default/g`` with a plan that is ready."""
        return group(annotations={names.PLAN: plan(self.mirror)})


@contextmanager
def loop_on(
    folder: Path,
    others: Others | None = None,
    stopping: Stopping | None = None,
    settings: Settings | None = None,
) -> Iterator[LoopStage]:
    """A stage, until the test is over; with other parts than usual where the test brings them."""
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(folder), timeout_s=30)
        settings, clock = settings or Settings(models=folder, identity="test"), StageClock()
        # Without a pause a decision is due in each turn.
        others = others or Others()
        decisions = others.decisions or Decisions(settings.policy, Collector(), most_pause_s=0.0)
        others = replace(others, clock=clock, decisions=decisions)
        leadership = SoleLeader(epoch=5)
        parts = Parts.of(api, TABLE, settings, leadership, others=others)
        yield LoopStage(
            server, parts, settings, Loop(parts, settings, leadership, stopping or threading.Event()), clock
        )
        parts.stop()
        api.close()
