"""The pages of cards and shares: only what changed is made again, and what stands there is the present."""

import gzip
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from vc_egpu.admission.serving.metrics import CARDS, PROCESS, SHARES, Level1
from vc_egpu.admission.view import View
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Resources,
    Share,
    ShareClass,
)
from vc_egpu.core.model.reasons import Reason, Verdict

SHAPE = PodShape(asks=(CardAsk("main", "h20", 1, 1024, 10),), requests=Resources(cpu_milli=500))


def node(number: int, cards: int = 2) -> Node:
    name = f"n{number}"
    return Node(
        NodeName(name),
        Resources(),
        cards=tuple(Card(CardId(f"GPU-{name}-{i}"), i, "h20", 97871) for i in range(cards)),
    )


def pod(number: int, on: int | None, gang: str = "t/g", phase: PodPhase = PodPhase.PLACED) -> Pod:
    shares = (("main", Share(CardId(f"GPU-n{on}-{number % 2}"), 1024, 10)),) if on is not None else ()
    return Pod(
        PodUid(f"u{number}"),
        "t",
        f"p{number}",
        SHAPE,
        phase,
        node=NodeName(f"n{on}") if on is not None else None,
        gang=gang,
        shares=shares,
        created=100.0 + number,
    )


def gang(key: str = "t/g", queue: str = "q", share_class: ShareClass = ShareClass.LOW) -> Gang:
    return Gang(key, f"uid-{key}", QueueName(queue), share_class, 0, 1, 50.0, single=True)


def world() -> ClusterState:
    state = ClusterState({"h20": 97871})
    state.put_queue(Queue(QueueName("q"), capability={"volcano.sh/vgpu-h20": 8}))
    state.put_gang(gang())
    for number in range(3):
        state.put_node(node(number))
    for number in range(6):
        state.put_pod(pod(number, on=number % 3))
    return state


def view_of(state: ClusterState, verdicts: Mapping[str, Verdict] | None = None) -> View:
    return View(state.snapshot(1), verdicts or {}, {}, 1, admitting=True)


def samples(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, "one series twice"
            found[key] = sample.value
    return found


def value(text: bytes, name: str, **labels: str) -> list[float]:
    wanted = set(labels.items())
    return [number for (found, have), number in samples(text).items() if found == name and wanted <= have]


def test_each_share_says_whose_it_is() -> None:
    text = Level1(lambda: view_of(world())).answer(SHARES)
    told = {"namespace": "t", "pod": "p4", "container": "main", "uuid": "GPU-n1-0", "node": "n1"}
    told |= {"model": "h20", "queue": "q", "gang": "g", "class": "low"}
    assert value(text, "egpu_share_memory_bytes", **told) == [1024 << 20]
    assert value(text, "egpu_share_cores_ratio", **told) == [0.1]


def test_the_sum_of_shares_is_what_cards_and_queue_say() -> None:
    """Of the same moment: neither forgets a pod nor counts one twice."""
    level1 = Level1(lambda: view_of(world()))
    shares = sum(value(level1.answer(SHARES), "egpu_share_memory_bytes"))
    assert shares == sum(value(level1.answer(CARDS), "egpu_card_memory_allocated_bytes")) == 6 * (1024 << 20)
    used = value(level1.answer(PROCESS), "egpu_queue_used", resource="volcano.sh/vgpu-h20-memory")
    assert used == [6 * 1024]


def changed(state: ClusterState, draw: random.Random) -> None:
    """One thing that may happen."""
    number = draw.randrange(8)
    steps: list[Callable[[], object]] = [
        lambda: state.put_pod(pod(number, on=draw.randrange(4))),
        lambda: state.put_pod(pod(number, on=None, phase=PodPhase.GATED)),
        lambda: state.put_pod(pod(number, on=1, phase=PodPhase.SUCCEEDED)),
        lambda: state.remove_pod(PodUid(f"u{number}")),
        lambda: state.put_node(node(draw.randrange(4), cards=draw.randrange(3))),
        lambda: state.remove_node(NodeName(f"n{draw.randrange(4)}")),
        lambda: state.put_gang(gang(queue=draw.choice(("q", "r")))),
        lambda: state.put_gang(gang(share_class=draw.choice(list(ShareClass)))),
        lambda: state.remove_gang("t/g"),
    ]
    draw.choice(steps)()


def test_pages_that_follow_changes_are_those_of_a_process_that_just_came() -> None:
    for seed in range(30):
        draw, state = random.Random(seed), world()
        follows = Level1(lambda state=state: view_of(state))  # type: ignore[misc]
        for _ in range(15):
            for _ in range(draw.randrange(4)):
                changed(state, draw)
            fresh = Level1(lambda state=state: view_of(state))  # type: ignore[misc]
            for path in (CARDS, SHARES):
                assert samples(follows.answer(path)) == samples(fresh.answer(path)), seed


def test_a_compressed_page_is_the_same() -> None:
    level1 = Level1(lambda: view_of(world()))
    assert gzip.decompress(level1.answer(CARDS, gzip=True)) == level1.answer(CARDS)


def test_a_standby_shows_that_it_does_not_lead_and_nothing_of_the_cluster() -> None:
    state, leads = world(), [True]
    level1 = Level1(lambda: view_of(state) if leads[0] else None)
    assert value(level1.answer(PROCESS), "egpu_admission_leader") == [1]
    assert samples(level1.answer(SHARES))
    leads[0] = False
    assert value(level1.answer(PROCESS), "egpu_admission_leader") == [0]
    assert b"egpu_queue" not in level1.answer(PROCESS)
    assert samples(level1.answer(SHARES)) == {} == samples(level1.answer(CARDS))
    leads[0] = True
    assert samples(level1.answer(SHARES)), "it leads again"


def test_without_the_page_of_shares_cards_are_still_told() -> None:
    level1 = Level1(lambda: view_of(world()), shares=False)
    assert level1.paths == (PROCESS, CARDS)
    assert len(value(level1.answer(CARDS), "egpu_card_usable")) == 6


def test_what_waits_how_much_it_asks_for_and_since_when() -> None:
    state = world()
    state.put_gang(gang("t/w"))
    for number in (20, 21):
        state.put_pod(pod(number, on=None, gang="t/w", phase=PodPhase.GATED))
    verdicts = {
        "t/w": Verdict(Reason.WAITING_FOR_CARDS, "no card"),
        "t/g": Verdict(Reason.ADMITTED, "all there"),
    }
    text = Level1(lambda: view_of(state, verdicts)).answer(PROCESS)
    told = {"queue": "q", "reason": "WaitingForCards", "class": "low"}
    assert value(text, "egpu_queue_waiting_gangs", **told) == [1]
    assert value(text, "egpu_queue_waiting_gangs", reason="Admitted") == []
    asked = {"queue": "q", "resource": "volcano.sh/vgpu-h20-memory"}
    assert value(text, "egpu_queue_waiting_resources", **asked) == [2 * 1024]
    (age_s,) = value(text, "egpu_queue_oldest_waiting_seconds", queue="q")
    assert age_s > 1e9, "since the first of its pods was made, at 120 s of Unix time"


def test_a_name_that_two_pods_have_is_one_series() -> None:
    """A pod was deleted with force and holds its card still. Its successor has the same name and card."""
    state = world()
    late = replace(pod(4, on=1), uid=PodUid("later"), phase=PodPhase.PLACED)
    state.put_pod(replace(pod(4, on=1), phase=PodPhase.TERMINATING))
    state.put_pod(late)
    text = Level1(lambda: view_of(state)).answer(SHARES)
    assert len(value(text, "egpu_share_memory_bytes", pod="p4")) == 1
