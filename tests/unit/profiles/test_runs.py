"""What earlier runs of the same Job showed."""

from dataclasses import replace

import pytest
from unit.admission.build import TABLE, pod
from vc_egpu.admission.kept.earlier_runs import FORM, MOST_BYTES, MOST_JOBS, EarlierRuns, decode, encode
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.core.profiles.runs import BUSY, IDLE, LONG, LONG_S, SHORT, SHORT_S, Habit, ended, job_of
from vc_egpu.volcano.codec import pod_codec
from vc_egpu.volcano.codec.cluster_codec import Owner
from vc_egpu.volcano.codec.pod_codec import DecodedPod


def job(name: str) -> Owner:
    return Owner("batch.volcano.sh/v1alpha1", "Job", name, f"job-{name}")


def lived(runs: EarlierRuns, name: str, seconds: float, phase: PodPhase = PodPhase.SUCCEEDED) -> None:
    decoded = pod_codec.pod(pod(gang=name), TABLE)
    running = at(decoded, PodPhase.PLACED, seconds)
    runs.change(running, at(decoded, phase, seconds), 1000.0 + seconds)


def at(decoded: DecodedPod, phase: PodPhase, seconds: float) -> DecodedPod:
    over = 1000.0 + seconds if phase is PodPhase.SUCCEEDED else None
    return replace(decoded, pod=replace(decoded.pod, phase=phase, started=1000.0, finished=over))


def wanted() -> EarlierRuns:
    runs = EarlierRuns()
    runs.wanted = True
    return runs


def test_runs_of_one_job_are_short_or_long() -> None:
    runs = wanted()
    lived(runs, "nightly-29400000", 60)
    lived(runs, "nightly-29401440", 120)
    lived(runs, "train", LONG_S + 60)
    assert runs.of("default", job("nightly-29402880")).words == (SHORT,)
    assert runs.of("default", job("train-x7k2p")).words == (LONG,), "a generated name"
    assert runs.of("other", job("train")).words == (), "another tenant's"
    assert runs.of("default", job("trainer")).words == ()
    assert runs.of("default", None).words == ()


def test_only_what_ended_by_itself_tells() -> None:
    runs = wanted()
    lived(runs, "train", 60, PodPhase.FAILED)
    lived(runs, "train", 60, PodPhase.TERMINATING)
    assert not runs.habits
    idle = EarlierRuns()
    lived(idle, "train", 60)
    assert not idle.habits, "no rule asks"


def test_the_mean_follows_the_newest() -> None:
    habit = Habit()
    for _ in range(200):
        habit = ended(habit, 10.0)
    assert habit.pods == 100
    assert habit.held_s == pytest.approx(10.0)
    for _ in range(40):
        habit = ended(habit, 5 * LONG_S)
    assert habit.words == (LONG,)
    assert ended(Habit(), -5.0).held_s == 0.0
    assert ended(Habit(), (SHORT_S + LONG_S) / 2).words == ()


@pytest.mark.parametrize(
    ("used", "words"),
    [((0, 10), (SHORT, IDLE)), ((20, 50), (SHORT,)), ((60, 100), (SHORT, BUSY)), ((), (SHORT,))],
)
def test_runs_were_idle_or_busy_where_their_nodes_tell(used: tuple[int, ...], words: tuple[str, ...]) -> None:
    habit = ended(Habit(), 60.0)
    for points in used:
        habit = ended(habit, 60.0, points)
    habit = ended(habit, 60.0)  # of this one nobody says it
    assert habit.words == words
    assert decode(encode({"Job ml/train": habit}))["Job ml/train"].words == words


def test_of_use_alone_nothing_is_counted_where_nobody_tells() -> None:
    """Else the leader would write for nothing."""
    runs = wanted()
    runs.of_use_alone = True
    lived(runs, "train", 60)
    assert runs.habits == FORM.nothing


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train", "train"), ("train-12", "train"), ("train-bcdfg", "train"), ("train-large", "train-large"),
        ("-12", "-12"), ("12", "12"), ("train-", "train-"), ("a-b-7", "a-b"),
    ],
)  # fmt: skip
def test_what_is_made_at_the_end_of_a_name_is_left_out(name: str, stem: str) -> None:
    assert job_of("ml", "Job", name) == f"Job ml/{stem}"


def test_the_next_leader_knows_what_this_one_saw() -> None:
    runs, later = wanted(), wanted()
    lived(runs, "train", 60)
    later.begin(decode(encode(runs.habits)))
    assert later.of("default", job("train")).words == (SHORT,)


def test_it_is_written_when_another_pod_was_counted() -> None:
    runs = wanted()
    assert runs.habits == FORM.nothing
    lived(runs, "train", 60)
    before = runs.habits
    assert runs.habits is before
    lived(runs, "train", 60)
    assert runs.habits != before


def test_few_jobs_are_kept_those_that_ended_last() -> None:
    runs = wanted()
    for number in range(MOST_JOBS + 5):
        lived(runs, f"{'long-name' * 30}{number}x", 60)
    assert len(encode(runs.habits).encode()) <= MOST_BYTES
    later = wanted()
    later.begin(decode(encode(runs.habits)))
    assert later.of("default", job(f"{'long-name' * 30}{MOST_JOBS + 4}x")).words == (SHORT,)
    assert later.of("default", job(f"{'long-name' * 30}0x")).words == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"version":2}', '{"version":1,"jobs":{"a":{"pods":0,"held_s":1}}}',
        '{"version":1,"jobs":{"a":{"pods":1,"held_s":-1}}}',
        '{"version":1,"jobs":{"a":{"pods":1,"held_s":1e99}}}',
        '{"version":1,"jobs":{"a":{"pods":1,"held_s":1,"used_points":101}}}',
        '{"version":1,"jobs":{"' + "a" * 700 + '":{"pods":1,"held_s":1}}}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)
