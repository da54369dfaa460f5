"""The Job controller dies between any two writes, pods fail when they like: every Job comes to its end.

A small world carries decisions out write by write. A crash drops the rest of the writes and what was only in
memory. After the trouble is over the world settles, and what must hold is checked at every step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.jobs.worlds import NOW, job, task
from vc_egpu.jobs.rules.draft import Decision, Group
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.views import Eviction, GroupView, Order, PodPhase, PodView, World
from vc_egpu.volcano.api.job import Job, JobAction, JobPhase
from vc_egpu.volcano.api.podgroup import PodGroupPhase

ENDS = {JobPhase.COMPLETED, JobPhase.FAILED}
ACTIONS = ("RestartJob", "RestartTask", "RestartPod")


@dataclass
class Cluster:
    """The API server's side of one Job."""

    spec: dict[str, Any]
    tasks: list[dict[str, Any]]
    status: dict[str, Any] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    group: GroupView | None = None
    evictions: tuple[Eviction, ...] = ()
    orders: list[Order] = field(default_factory=list)
    made: int = 0
    now: float = NOW

    @property
    def job(self) -> Job:
        return job(*self.tasks, status=self.status, **self.spec)

    @property
    def phase(self) -> JobPhase | None:
        return self.job.status.state.phase

    @property
    def retries(self) -> int:
        return self.job.status.retry_count

    def look(self, cut: int | None = None) -> Decision:
        """One look of the controller; with ``cut`` it dies after so many writes."""
        self.now += 1
        pods, order = tuple(self.pods.values()), self.orders[0] if self.orders else None
        decision = decide(World(self.job, pods, self.group, self.evictions, order=order, now=self.now))
        writes = self._writes(decision)
        for write in writes if cut is None else writes[:cut]:
            write()
        # Memory: kept by a controller that lives, lost by one that died.
        self.evictions = decision.evictions if cut is None or cut >= len(writes) else ()
        return decision

    def _writes(self, decision: Decision) -> list[Callable[[], None]]:
        status: list[Callable[[], None]] = []
        if decision.status is not None:
            new = decision.status
            status.append(lambda: self._write_status(new))
        kills = [lambda uid=kill.pod.uid: self._terminate(uid) for kill in decision.kills]
        group: list[Callable[[], None]] = []
        if decision.group is Group.DELETE:
            group.append(lambda: setattr(self, "group", None))
        elif decision.group is Group.MAKE and self.group is None:
            version = self.job.status.version
            group.append(lambda: setattr(self, "group", GroupView("g", "u", PodGroupPhase.INQUEUE, version)))
        version = (decision.status or self.status).get("version", 0)
        create = [lambda t=t.name, i=i: self._create(t, i, version) for t, i in decision.create]
        obeyed: list[Callable[[], None]] = [self._take_down] if decision.order_done else []
        if decision.status_first:
            return [*status, *obeyed, *kills, *group, *create]
        return [*obeyed, *kills, *group, *create, *status]

    def _take_down(self) -> None:
        del self.orders[0]

    def _write_status(self, status: dict[str, Any]) -> None:
        before = self.retries, self.job.status.version
        self.status = status
        assert 0 <= self.retries - before[0] <= 1, "one try at a time"
        assert 0 <= self.job.status.version - before[1] <= 1

    def _terminate(self, uid: str) -> None:
        for name, pod in self.pods.items():
            if pod.uid == uid:
                self.pods[name] = replace(pod, terminating=True)

    def _create(self, task_name: str, index: int, version: int) -> None:
        name = f"train-{task_name}-{index}"
        assert name not in self.pods, f"{name} is made while it is there"
        assert self.group is not None, "no pod without its PodGroup"
        assert self.group.version == version, "no pod of a new gang in an old gang's PodGroup"
        assert not any(p.version < version and p.alive for p in self.pods.values()), "two generations at once"
        self.made += 1
        self.pods[name] = PodView(
            name, f"u{self.made}", task_name, version, PodPhase.PENDING, created_at=self.now
        )

    # --- what happens to pods ------------------------------------------------------------------------

    def advance(self, only: str | None = None) -> None:
        """Kubelets and the scheduler do their work."""
        for name, pod in list(self.pods.items()):
            if only is not None and name != only:
                continue
            if pod.terminating:
                del self.pods[name]
            elif pod.phase is PodPhase.PENDING:
                self.pods[name] = replace(pod, phase=PodPhase.RUNNING, ready=True)

    def end(self, name: str, phase: PodPhase) -> None:
        pod = self.pods.get(name)
        if pod is not None and pod.phase is PodPhase.RUNNING and not pod.terminating:
            codes = frozenset({1} if phase is PodPhase.FAILED else ())
            self.pods[name] = replace(pod, phase=phase, ended_at=self.now, exit_codes=codes)

    def mark(self, name: str) -> None:
        """The admission layer wants the pod made anew."""
        pod = self.pods.get(name)
        if pod is not None and not pod.finished:
            self.pods[name] = replace(pod, out_of_sync=True)

    def evict(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is not None and not pod.terminating:
            del self.pods[name]
            self.evictions += (Eviction(name, pod.uid, pod.task, pod.version, self.now),)

    def happens(self, what: str, argument: Any) -> None:
        """One step of a story."""
        match what:
            case "look" | "die":
                self.look(cut=argument)
            case "advance":
                self.advance(argument)
            case "fail":
                self.end(argument, PodPhase.FAILED)
            case "succeed":
                self.end(argument, PodPhase.SUCCEEDED)
            case "evict":
                self.evict(argument)
            case "mark":
                self.mark(argument)
            case _:
                raise ValueError(what)


def settle(cluster: Cluster) -> None:
    """No more trouble: all pods succeed. The Job must come to an end in a bounded number of looks."""
    for _ in range(200):
        cluster.look()
        cluster.advance()
        for name in list(cluster.pods):
            cluster.end(name, PodPhase.SUCCEEDED)
        if cluster.phase in ENDS and not any(p.alive or p.terminating for p in cluster.pods.values()):
            break
    assert cluster.phase in ENDS, f"still {cluster.phase}: {cluster.status}"
    cluster.look()  # the last counts
    again = cluster.look()
    assert again == replace(Decision(), wake_at=again.wake_at), "at the end there is nothing left to do"
    assert cluster.group is None


names = st.sampled_from([f"train-{t}-{i}" for t in ("a", "b") for i in range(3)])
trouble = st.one_of(
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("die"), st.integers(0, 12)),
    st.tuples(st.just("advance"), st.none()),
    st.tuples(st.just("advance"), names),
    st.tuples(st.just("fail"), names),
    st.tuples(st.just("succeed"), names),
    st.tuples(st.just("evict"), names),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    story=st.lists(trouble, max_size=40),
    on_failure=st.sampled_from(ACTIONS),
    on_eviction=st.sampled_from(["", *ACTIONS]),
    max_retry=st.integers(1, 4),
)
def test_every_job_comes_to_its_end(
    story: list[tuple[str, Any]], on_failure: str, on_eviction: str, max_retry: int
) -> None:
    policies = [{"event": "PodFailed", "action": on_failure}]
    if on_eviction:
        policies.append({"event": "PodEvicted", "action": on_eviction})
    cluster = Cluster({"policies": policies, "maxRetry": max_retry}, [task("a", 3), task("b", 3)])
    happened = 0
    for what, argument in story:
        cluster.happens(what, argument)
        happened += what in {"fail", "evict"}
    settle(cluster)
    assert cluster.retries <= happened, "no try without a reason"
    assert cluster.retries <= max_retry
    if cluster.phase is JobPhase.COMPLETED:
        assert {pod.phase for pod in cluster.pods.values()} == {PodPhase.SUCCEEDED}
        assert len(cluster.pods) == 6
    else:
        assert cluster.retries >= max_retry


orders = st.sampled_from(
    [
        JobAction.ABORT_JOB,
        JobAction.RESUME_JOB,
        JobAction.RESTART_JOB,
        JobAction.TERMINATE_JOB,
        JobAction.COMPLETE_JOB,
    ]
)
RESTS = {JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED, JobPhase.ABORTED}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    story=st.lists(
        st.one_of(
            trouble,
            trouble,
            st.tuples(st.just("order"), orders),
            st.tuples(st.just("mark"), names),
            st.tuples(st.just("scale"), st.integers(0, 3)),
        ),
        max_size=40,
    ),
    least=st.integers(1, 4),
)
def test_orders_come_at_any_time(story: list[tuple[str, Any]], least: int) -> None:
    """Abort, Resume, Restart, Terminate, Complete: while pods fail, are made anew, and tasks are scaled."""
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    cluster = Cluster(
        {"policies": policies, "maxRetry": 9, "minAvailable": least}, [task("a", 3), task("b", 3)]
    )
    reasons = 0
    for what, argument in story:
        if what == "order":
            cluster.made += 1
            cluster.orders.append(Order("c", f"c{cluster.made}", argument))
        elif what == "scale":
            cluster.tasks[0]["replicas"] = max(argument, least - 3)
        else:
            cluster.happens(what, argument)
        reasons += what == "fail" or argument in {JobAction.RESUME_JOB, JobAction.RESTART_JOB}
    for _ in range(200):
        cluster.look()
        cluster.advance()
        for name in list(cluster.pods):
            cluster.end(name, PodPhase.SUCCEEDED)
        is_live = any(pod.alive or pod.terminating for pod in cluster.pods.values())
        if cluster.phase in RESTS and not cluster.orders and not is_live:
            break
    assert not cluster.orders
    cluster.look()  # the last counts
    assert cluster.phase in RESTS, f"still {cluster.phase}: {cluster.status}"
    again = cluster.look()
    assert again == replace(Decision(), wake_at=again.wake_at), "there is nothing left to do"
    assert not any(pod.alive or pod.terminating for pod in cluster.pods.values())
    assert cluster.group is None
    assert cluster.retries <= reasons, "no try without a reason"
    if cluster.phase is JobPhase.COMPLETED and cluster.job.status.state.reason == "PodsSucceeded":
        assert len(cluster.pods) == cluster.job.total_replicas()


@settings(max_examples=200, deadline=None)
@given(cuts=st.lists(st.integers(0, 15), max_size=6))
def test_one_failure_costs_one_try_however_often_the_controller_dies(cuts: list[int]) -> None:
    cluster = Cluster({"policies": [{"event": "PodFailed", "action": "RestartJob"}]}, [task("a", 3)])
    for _ in range(4):
        cluster.look()
        cluster.advance()
    assert cluster.job.status.running == 3
    first = {pod.uid for pod in cluster.pods.values()}
    cluster.end("train-a-1", PodPhase.FAILED)
    for cut in cuts:
        cluster.look(cut=cut)
        cluster.advance()
    settle(cluster)
    assert cluster.phase is JobPhase.COMPLETED
    assert cluster.retries == 1
    assert not first & {pod.uid for pod in cluster.pods.values()}, "the whole gang was made anew"
