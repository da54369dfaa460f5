"""One tenant's large Jobs do not keep another's from their first pod. Pods are built as they are sent."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.running import Clock, running_beside
from unit.jobs.worlds import job, task
from unit.kube.tiny_api import tiny_api
from vc_egpu.jobs.controller import Controller, Settings, most_of_a_namespace
from vc_egpu.jobs.health import Metrics
from vc_egpu.jobs.known.cluster import Known
from vc_egpu.jobs.objects.pods import build_pod
from vc_egpu.jobs.work import Look, Work
from vc_egpu.jobs.workers.memory import Memory
from vc_egpu.jobs.workers.podwriter import PodWriter
from vc_egpu.jobs.workers.turns import Outcome, Turns
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.wire.errors import KubeError, Unavailable

LATER = float("inf")
MANY = 1_000_000
"""More than could be written while a test runs."""


def each(
    turns: Turns,
    work: Callable[[int], None],
    count: int,
    *,
    until: float = LATER,
    is_over: Callable[[KubeError], bool] = lambda _: False,
) -> Outcome:
    return turns.each(work, range(count), until=until, is_over=is_over, got_on=lambda: None)


@contextmanager
def beside(turns: Turns, work: Callable[[int], None]) -> Iterator[None]:
    """Another look writes a million items meanwhile, and ends with the block."""
    over, begun = threading.Event(), threading.Event()

    def one(item: int) -> None:
        begun.set()
        if over.is_set():
            raise Unavailable("the test is over")
        work(item)

    thread = threading.Thread(target=each, args=(turns, one, MANY), kwargs={"is_over": lambda _: True})
    thread.start()
    assert begun.wait(30)
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        turns.close()


def test_a_small_look_does_not_wait_behind_a_million_writes_of_another() -> None:
    turns = Turns(4)
    done: list[int] = []
    with beside(turns, lambda _: time.sleep(0.001)):
        assert each(turns, done.append, 5).all_begun
    assert sorted(done) == [0, 1, 2, 3, 4]


def test_a_look_gets_on_while_all_writers_wait_for_answers_to_another() -> None:
    turns, answers = Turns(4), threading.Event()
    done: list[int] = []

    def hang(_: int) -> None:
        answers.wait(30)

    with beside(turns, hang):
        assert each(turns, done.append, 5).all_begun
        answers.set()
    assert sorted(done) == [0, 1, 2, 3, 4]


def test_a_look_whose_time_is_up_begins_one_write_and_no_more() -> None:
    clock, done = Clock(), []
    turns = Turns(0, look_s=1.0, monotonic=clock)
    until = turns.end_of_look()

    def work(item: int) -> None:
        done.append(item)
        clock.now += 0.4

    assert each(turns, work, 10, until=until) == Outcome(all_begun=False)
    assert done == [0, 1, 2]
    assert not each(turns, work, 10, until=until).all_begun
    assert done == [0, 1, 2, 0]
    assert each(turns, work, 1, until=until).all_begun


def test_after_a_failure_that_concerns_all_no_further_one_is_begun() -> None:
    done = []

    def work(item: int) -> None:
        done.append(item)
        if item == 2:
            raise Unavailable("no answer")

    outcome = each(Turns(0), work, 10, is_over=lambda _: True)
    assert (outcome.all_begun, len(outcome.errors), done) == (False, 1, [0, 1, 2])


def test_a_fault_of_ours_comes_out_whichever_thread_had_it() -> None:
    def work(item: int) -> None:
        raise ZeroDivisionError(item)

    turns = Turns(2)
    with pytest.raises(ZeroDivisionError):
        each(turns, work, 50)
    turns.close()


def test_a_large_job_is_made_look_by_look(tmp_path: Path) -> None:
    """The status says the same after each of them, so it is written once."""
    settings = Settings(job_workers=0, group_workers=0, queue_workers=0, writers=2, look_s=0.0)
    clock = Clock()
    with running_beside(Controller, tmp_path, settings, monotonic=clock) as (controller, server, recorder):
        cluster = Cluster(controller, server, recorder, clock)
        cluster.queue("mine")
        cluster.job("mine", tasks=[task(replicas=12)])
        looks = 1
        while controller.look(Look.JOB, ("mine", "train")) == 0.0:
            looks += 1
        assert 4 <= looks <= 12
        made = [body for method, path, body in server.requests if (method, path[-5:]) == ("POST", "/pods")]
        assert sorted(pod["metadata"]["name"] for pod in made) == sorted(f"train-w-{i}" for i in range(12))
        writes = [path for method, path, _ in server.requests if method == "PUT" and path.endswith("/status")]
        assert len(writes) == 1


def test_no_more_pods_are_built_than_are_being_sent(tmp_path: Path) -> None:
    """Ten thousand of twelve KiB took a gigabyte before the first was sent."""
    known, turns, ahead = Known(), Turns(3), []
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=4)
        writer = PodWriter(
            api, known.pods, Memory(known), turns=turns, metrics=Metrics(), got_on=lambda: None
        )
        numbers = itertools.count(1)

        def build(index: int) -> Json:
            ahead.append(next(numbers) - len(server.requests))
            return build_pod(job(), job().spec.tasks[0], index, [], "default-scheduler")

        assert writer.make(job(), range(60), build, until=LATER)
        turns.close()
        api.close()
        assert len(server.requests) == 60
    assert max(ahead) <= 4


def test_a_namespace_leaves_workers_for_others_and_they_have_turns() -> None:
    assert [most_of_a_namespace(workers) for workers in (1, 2, 4, 8)] == [1, 1, 3, 6]
    work = Work(Clock(), most_of_a_namespace={Look.JOB: 2})
    work.begin()
    for number in range(4):
        work.ask(Look.JOB, ("large", f"job-{number}"))
    work.ask(Look.JOB, ("small", "job"))
    queue = work.queue(Look.JOB)
    taken = [queue.get(timeout_s=0.0) for _ in range(4)]
    assert taken == [("large", "job-0"), ("small", "job"), ("large", "job-1"), None]
    queue.done(("large", "job-0"))
    assert queue.get(timeout_s=0.0) == ("large", "job-2")
