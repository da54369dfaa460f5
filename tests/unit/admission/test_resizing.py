"""A running pod's share gets another size: from the wish on the pod to the answer of its node's agent."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import added, group, let_go, node, pod, version
from unit.admission.stage import BROKEN, CONFLICT, GROUPS, PODS, Stage, stage_on
from unit.admission.suspended_gang import until
from vc_egpu.core.books.state import index_of
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import NodeName, PodUid, QueueName
from vc_egpu.core.model.policy import Policy
from vc_egpu.report import cards as card_rows
from vc_egpu.report.shares import shares
from vc_egpu.volcano.resizing.notes import (
    LATE_S,
    Amounts,
    NodeResizes,
    ResizeNote,
    ResizeReport,
    ResizeWish,
)
from vc_egpu.volcano.resizing.notes import Stage as How
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

UID = PodUid("r-0")
PATH = f"{PODS}/r-0"
MEMORY = "volcano.sh/vgpu-h20-memory"


def begin(stage: Stage) -> None:
    """A gang of one pod that runs with 30000 MiB and 30 cores of card GPU-n1-0."""
    raw = pod("r-0", gang="r", uid=UID)
    running = let_go(raw, "5-1", bound=True, phase="Running", startTime="2026-01-01T00:00:00Z")
    stage.put("pods", running)
    stage.put("podgroups", group("r", members=1))
    stage.agenda.take_question()
    stage.drive()
    stage.conductor.suspending.telling.wall = lambda: 1000.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        begin(found)
        yield found


def annotations(stage: Stage) -> dict[str, str]:
    return dict(stage.server.objects[PATH]["metadata"]["annotations"])


def wish(
    stage: Stage, memory_mib: int | None, cores: int | None = None, text: str = "", word: str = "w"
) -> None:
    """The user writes it, and the watch tells."""
    if not text:
        amounts = Amounts(memory_mib=memory_mib, cores=cores)
        text = ResizeWish(id=word, containers={"main": amounts}).encode()
    raw = stage.server.objects[PATH]
    said = {**raw["metadata"]["annotations"], names.RESIZE: text}
    stage.put("pods", {**raw, "metadata": {**raw["metadata"], "annotations": said}})


def decide_now(stage: Stage) -> None:
    stage.conductor.carry_out(decide(stage.mirror.snapshot(), Policy(), 1000.0), 1000.0)


def note(stage: Stage) -> ResizeNote:
    return ResizeNote.decode(annotations(stage)[names.RESIZED])


def is_at(stage: Stage, how: How) -> bool:
    text = annotations(stage).get(names.RESIZED)
    return (
        text is not None and ResizeNote.decode(text).stage is how and not stage.mirror.resizes.is_sending(UID)
    )


def size(stage: Stage) -> tuple[int, int]:
    """By the annotation on the server."""
    (share,) = Cards.decode(annotations(stage)[names.CARDS]).containers["main"]
    return share.memory_mib, share.cores


def booked(stage: Stage) -> tuple[int, int]:
    """MiB on the card, and in the queue."""
    index = index_of(stage.mirror.snapshot())
    row = index.ledger.rows[NodeName("n1")]
    return int(index.ledger.memory_used[row, 0]), index.uses.total[QueueName("team")][MEMORY]


def agent(stage: Stage, state: Any, reason: str = "", number: str = "") -> None:
    """The node's agent has acted on the note that stands there."""
    report = ResizeReport(number=number or note(stage).number, state=state, reason=reason)
    raw = node("n1")
    raw["metadata"]["annotations"][names.NODE_RESIZES] = NodeResizes(pods={UID: report}).encode()
    stage.node_says(raw)
    stage.drive()


def test_more_is_booked_before_it_is_written_and_done_once_the_agent_says_so(stage: Stage) -> None:
    wish(stage, 50_000, 40)
    assert stage.is_tried("default/r")
    stage.server.delay_s = 0.2
    decide_now(stage)
    assert booked(stage) == (50_000, 50_000), "while the write is on its way"
    until(stage, lambda: is_at(stage, How.APPLYING))
    stage.server.delay_s = 0
    assert (size(stage), names.RESIZE in annotations(stage)) == ((50_000, 40), False)
    assert booked(stage) == (50_000, 50_000)
    agent(stage, "lowered")
    assert is_at(stage, How.APPLYING), "that is no answer to this"
    agent(stage, "applied")
    until(stage, lambda: is_at(stage, How.DONE))
    assert (size(stage), note(stage).id) == ((50_000, 40), "w")
    assert stage.work.counters["resized"] == 1


def test_less_counts_only_once_the_agent_has_lowered_the_limit(stage: Stage) -> None:
    wish(stage, 10_000)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.LOWERING))
    assert (size(stage), booked(stage)) == ((30_000, 30), (30_000, 30_000))
    stage.agenda.take_question()
    agent(stage, "lowered")
    until(stage, lambda: is_at(stage, How.APPLYING))
    assert (size(stage), booked(stage)) == ((10_000, 30), (10_000, 10_000))
    assert stage.agenda.all_for is not None, "there is room for others"
    agent(stage, "applied")
    until(stage, lambda: is_at(stage, How.DONE))


def test_more_of_one_and_less_of_the_other(stage: Stage) -> None:
    wish(stage, 10_000, 90)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.LOWERING))
    assert size(stage) == (30_000, 90), "the larger one of each"
    agent(stage, "lowered")
    until(stage, lambda: is_at(stage, How.APPLYING))
    assert size(stage) == (10_000, 90)
    agent(stage, "refused", "card GPU-n1-0: 90 cores do not fit")
    until(stage, lambda: is_at(stage, How.REFUSED))
    assert size(stage) == (10_000, 30), "what was lowered may be another pod's by now"


def test_what_the_container_uses_is_not_taken_from_it(stage: Stage) -> None:
    wish(stage, 10_000, 90)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.LOWERING))
    agent(stage, "refused", "container main uses 12000 MiB of card GPU-n1-0 now")
    until(stage, lambda: is_at(stage, How.REFUSED))
    assert (size(stage), booked(stage)) == ((30_000, 30), (30_000, 30_000))
    assert note(stage).why == "container main uses 12000 MiB of card GPU-n1-0 now"
    assert stage.work.counters["resizes_refused"] == 1


def test_an_agent_that_does_not_answer_is_not_waited_for(stage: Stage) -> None:
    wish(stage, 10_000)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.LOWERING))
    stage.drive()
    assert stage.conductor.resizes
    stage.conductor.suspending.telling.wall = lambda: 1000.0 + LATE_S
    stage.conductor.resizes.tick()
    stage.drive()
    until(stage, lambda: is_at(stage, How.REFUSED))
    assert f"has not lowered its memory in {LATE_S} s" in note(stage).why
    assert size(stage) == (30_000, 30)
    assert not stage.conductor.resizes


def test_what_does_not_fit_is_refused_with_numbers_and_changes_nothing(stage: Stage) -> None:
    wish(stage, 98_305)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.REFUSED))
    assert "has 98304 MiB" in note(stage).why
    assert (size(stage), booked(stage)) == ((30_000, 30), (30_000, 30_000))
    assert names.RESIZE not in annotations(stage)


def test_a_wish_that_cannot_be_read_is_refused(stage: Stage) -> None:
    for text in ("{", '{"version": 1, "containers": {}}', '{"containers": {"main": {}}}', "x" * 5000):
        wish(stage, None, text=text)
        stage.drive()
        until(stage, lambda: names.RESIZE not in annotations(stage) and is_at(stage, How.REFUSED))
        assert "malformed" in note(stage).why
        assert size(stage) == (30_000, 30)


def test_answers_to_other_notes_are_not_believed(stage: Stage) -> None:
    wish(stage, 10_000)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.LOWERING))
    agent(stage, "lowered", number="4-1")
    assert is_at(stage, How.LOWERING)
    raw = node("n1")
    raw["metadata"]["annotations"][names.NODE_RESIZES] = "{"
    stage.node_says(raw)
    stage.drive()
    assert is_at(stage, How.LOWERING)


def test_the_last_of_two_wishes_counts(stage: Stage) -> None:
    """The first was read, and is on its way when the second comes."""
    wish(stage, 40_000, word="first")
    plan = decide(stage.mirror.snapshot(), Policy(), 1000.0)
    raw = stage.server.objects[PATH]
    second = ResizeWish(id="second", containers={"main": Amounts(memory_mib=50_000)}).encode()
    said = {**raw["metadata"]["annotations"], names.RESIZE: second}
    stage.server.put(PATH, {**raw, "metadata": {**raw["metadata"], "annotations": said}})  # no watch has told
    stage.conductor.carry_out(plan, 1000.0)
    stage.answered()
    assert size(stage) == (30_000, 30)
    stage.later(60)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.APPLYING))
    assert (note(stage).id, size(stage)) == ("second", (50_000, 30))


def test_while_memory_is_lowered_the_next_wish_waits(stage: Stage) -> None:
    wish(stage, 10_000, word="first")
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.LOWERING))
    wish(stage, 40_000, word="second")
    assert not decide(stage.mirror.snapshot(), Policy(), 1000.0).resizes
    agent(stage, "lowered")
    until(stage, lambda: is_at(stage, How.APPLYING))
    decide_now(stage)
    until(stage, lambda: note(stage).id == "second" and not stage.mirror.resizes.is_sending(UID))
    assert size(stage) == (40_000, 30)


def test_what_was_booked_stays_booked_until_it_is_known_what_became_of_the_write(stage: Stage) -> None:
    wish(stage, 50_000)
    stage.server.script, stage.server.script_for = [BROKEN], names.RESIZED
    decide_now(stage)
    stage.answered()
    assert booked(stage) == (50_000, 50_000)
    stage.later(60)
    until(stage, lambda: is_at(stage, How.APPLYING))
    assert (size(stage), booked(stage)) == ((50_000, 30), (50_000, 50_000))


def test_a_write_that_was_overtaken_is_decided_again(stage: Stage) -> None:
    wish(stage, 50_000)
    stage.server.script, stage.server.script_for = [CONFLICT], names.RESIZED
    decide_now(stage)
    stage.answered()
    assert booked(stage) == (30_000, 30_000)
    stage.later(60)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.APPLYING))


def test_the_new_size_is_what_is_shown(stage: Stage) -> None:
    wish(stage, 50_000, 40)
    decide_now(stage)
    until(stage, lambda: is_at(stage, How.APPLYING))
    seen = stage.mirror.snapshot()
    rows = card_rows.cards(seen, shares(seen))
    assert [(row.allocated_mib, row.cores_high_percent) for row in rows if row.index == 0] == [(50_000, 40)]
    assert [(ask.memory_mib, ask.cores_percent) for ask in seen.pods[UID].shape.asks] == [(50_000, 40)]


def again(stage: Stage) -> Stage:
    """The next leader, which reads all from the server."""
    node_now = stage.nodes["n1"]
    found = Stage(stage.server, stage.work.api, stage.work.api)
    found.node_says({**node_now, "metadata": {**node_now["metadata"], "resourceVersion": version()}})
    found.mirror.apply("pods", added(stage.server.objects[PATH]))
    found.mirror.apply("podgroups", added(stage.server.objects[f"{GROUPS}/r"]))
    found.mirror.settle_all()
    found.conductor.suspending.telling.wall = lambda: 1000.0
    found.drive()
    return found


def follow(stage: Stage, kills: tuple[bool, ...]) -> Stage:
    """The agent does what it is asked for, again and again; before some answers another leader comes."""
    for kill in kills:
        now = again(stage) if kill else stage
        how, before = note(now).stage, annotations(now)
        if how in {How.DONE, How.REFUSED}:
            return now
        agent(now, "lowered" if how is How.LOWERING else "applied")
        until(now, lambda leads=now, was=before: annotations(leads) != was)  # type: ignore[misc]
        until(now, lambda leads=now: not leads.mirror.resizes.is_sending(UID))  # type: ignore[misc]
        stage = now
    return stage


@pytest.mark.parametrize(("memory_mib", "cores"), [(50_000, 40), (10_000, 30), (10_000, 90), (98_305, 1)])
def test_a_leader_may_be_killed_after_any_write(tmp_path: Path, memory_mib: int, cores: int) -> None:
    """All that the next one needs stands on pod and node."""
    ends = set()
    for kills in itertools.product((False, True), repeat=3):
        with stage_on(tmp_path) as first:
            begin(first)
            wish(first, memory_mib, cores)
            decide_now(first)
            until(first, lambda stage=first: names.RESIZED in annotations(stage))  # type: ignore[misc]
            last = follow(first, kills)
            ends.add((note(last).stage, size(last), booked(last)))
    assert len(ends) == 1, ends
    (how, _, _) = ends.pop()
    assert how in {How.DONE, How.REFUSED}
