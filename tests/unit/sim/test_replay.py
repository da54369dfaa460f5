"""Runs of small clusters: who waits for whom, who is evicted, what is counted."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from unit.core import make
from vc_egpu.core.model.cluster import Gang, NodeName, PodPhase, Queue, ShareClass
from vc_egpu.core.model.policy import BINPACK_RULES, OURS
from vc_egpu.core.model.reasons import Reason
from vc_egpu.sim.load import QUEUE, Draw, Load, Work, works_of
from vc_egpu.sim.replay import Replay, Terms
from vc_egpu.sim.table import PodRow, TableError
from vc_egpu.sim.world import World

HALF = make.H20_MIB // 2


def work(key: str, at: float, runs_s: float | None, members: int = 1, *, memory: int = make.H20_MIB,
         share_class: ShareClass = ShareClass.UNSET) -> Work:  # fmt: skip
    shape = make.shape(memory)
    milli = 1000 * memory * members // make.H20_MIB
    return Work(key, (("w", members, shape),), milli, QUEUE, share_class, at, runs_s)


def played(works: Sequence[Work], terms: Terms = Terms(), cards: int = 2) -> Replay:  # noqa: B008 - frozen
    replay = Replay(Load((make.node("n1", cards),), tuple(works)), terms)
    replay.run()
    replay.world.check()
    return replay


@pytest.mark.parametrize("binpack", BINPACK_RULES)
def test_a_gang_waits_until_all_of_it_fits(binpack: str) -> None:
    works = [work("a", 0, 10), work("b", 1, 10), work("c", 2, 5, members=2), work("d", 3, 1)]
    replay = played(works, Terms(binpack))
    assert replay.waits == [(0, 1000, 0), (1, 1000, 0), (3, 1000, 7), (2, 2000, 9)]
    assert (replay.totals.finished, replay.world.now) == (4, 16)
    assert replay.totals.finished_gpu_s == 10 + 10 + 1 + 2 * 5
    assert (replay.totals.held_milli, replay.waiting, replay.waiting_milli) == (0, {}, 0)


def test_what_fits_nowhere_is_dropped_where_nothing_waits() -> None:
    replay = played(
        [work("a", 0, None, members=2), work("b", 1, None), work("c", 2, None)], Terms(waits=False)
    )
    assert (replay.totals.dropped, replay.totals.dropped_milli) == (2, 2000)
    assert list(replay.index.gangs) == ["a"]


def test_an_evicted_gang_begins_again_and_its_cause_is_counted() -> None:
    low = work("low", 0, 10, members=2, share_class=ShareClass.LOW)
    replay = played([low, work("high", 4, 3, share_class=ShareClass.HIGH)])
    assert replay.totals.evictions == {"priority": 2}
    assert replay.totals.finished == 2
    assert replay.world.now == 4 + 3 + 10, "what it did before is lost"
    assert replay.totals.finished_gpu_s == 3 + 20


def test_rounds_bound_how_often_those_that_wait_are_tried() -> None:
    works = [work("a", 0, 1, members=2), work("b", 0.5, 1)]
    assert played(works).waits[-1] == (0.5, 1000, 0.5)
    assert played(works, Terms(round_s=30)).waits[-1] == (0.5, 1000, 30.5)


def test_nothing_else_comes_of_it_when_only_gangs_with_room_are_tried() -> None:
    for seed in range(10):
        dice = random.Random(seed)
        works = [
            work(
                f"w{number:03}",
                number * 3.0,
                dice.choice([20, 60, 200]),
                dice.choice([1, 1, 2]),
                memory=make.H20_MIB // dice.choice([1, 2, 3]),
                share_class=dice.choice(list(ShareClass)),
            )
            for number in range(80)
        ]
        terms = Terms(round_s=10, preemption=False)
        runs = [played(works, replace(terms, only_with_room=only)) for only in (False, True)]
        assert runs[0].waits == runs[1].waits, seed
        assert runs[0].world.now == runs[1].world.now
        assert max(wait for _, _, wait in runs[0].waits) > 20


def test_a_run_may_end_before_its_work() -> None:
    replay = played([work("a", 0, 100, members=2), work("b", 1, 5)], Terms(until_s=50))
    assert replay.world.now == 50
    ((_, reason),) = replay.waiting.values()
    assert replay.waiting_milli == 1000
    assert reason is Reason.WAITING_FOR_CARDS


def test_it_begins_from_a_snapshot() -> None:
    world = World()
    world.put_node(make.node("n1", 2))
    world.put_queue(Queue(QUEUE, capability={"volcano.sh/vgpu-h20": 100}))
    world.submit(Gang("old", "old", QUEUE, ShareClass.UNSET, 0, 1, 0.0), (("w", 1, make.shape(HALF)),))
    world.settle()
    world.submit(
        Gang("next", "next", QUEUE, ShareClass.UNSET, 0, 2, 0.0), (("w", 2, make.shape(make.H20_MIB)),)
    )
    replay = Replay(Load((make.node("n2", 1),), (), begin=world.snapshot()), Terms())
    replay.run()
    placed = [pod for pod in replay.index.pods.values() if pod.phase is PodPhase.PLACED]
    assert sorted((pod.gang, pod.node) for pod in placed) == [("next", "n1"), ("next", "n2"), ("old", "n1")]
    assert NodeName("n2") in replay.index.nodes


def test_what_work_usually_comes_is_learned_and_forgotten_work_counts_as_churn() -> None:
    works = [work(f"w{i}", i, 1, memory=HALF if i % 4 else make.H20_MIB) for i in range(400)]
    replay = played(works, Terms(OURS))
    mix = replay.world.policy.mix
    assert {round(each.frequency, 2) for each in mix.classes} == {0.75, 0.25}
    assert mix.churn == pytest.approx(1, abs=0.02)


def row(name: str, **more: object) -> PodRow:
    return replace(PodRow(name, make.shape(HALF), 500), **more)  # type: ignore[arg-type]


def test_pods_of_one_gang_come_together() -> None:
    rows = [
        row("a", gang="g", arrival_s=3.0, lifetime_s=5.0),
        row("b", arrival_s=1.0),
        row("c", gang="g", arrival_s=4.0),
    ]
    single, gang = works_of(rows, Draw())
    assert (single.key, gang.key, gang.arrival_s, gang.lifetime_s) == ("pod/b", "gang/g", 4.0, 5.0)
    assert (gang.tasks[0][1], gang.gpu_milli) == (2, 1000)


def test_times_are_drawn_from_a_seed() -> None:
    rows = [row(f"p{i}") for i in range(500)]
    drawn = works_of(rows, Draw(1, interval_s=2.0, lifetime_s=50.0))
    assert drawn == works_of(rows, Draw(1, interval_s=2.0, lifetime_s=50.0))
    assert drawn != works_of(rows, Draw(2, interval_s=2.0, lifetime_s=50.0))
    assert 800 < drawn[-1].arrival_s < 1200
    assert 40 < sum(work.lifetime_s or 0 for work in drawn) / 500 < 60


def test_half_a_table_of_arrivals_is_refused() -> None:
    with pytest.raises(TableError, match="some pods have an arrival"):
        works_of([row("a", arrival_s=1.0), row("b")], Draw())
