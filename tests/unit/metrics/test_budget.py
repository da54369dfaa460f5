"""How many series there are: for each card, share, queue and process, and on 5,000 nodes together."""

import re

from unit.admission.test_level1 import gang, node, pod, view_of
from unit.node.granted import grant
from vc_egpu.admission.serving.metrics import CARDS, PROCESS, SHARES, Level1
from vc_egpu.admission.view import View as AdmissionView
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model.cluster import PodPhase, Queue, QueueName, ShareClass
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.metrics.text import text_of
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.isolation.accounts import Activity
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.vendors.base import CardReading, CardSample, NodeReading, ProcessSample
from vc_egpu_node.wall.wall import Account

NODES, CARDS_OF_A_NODE, SHARES_OF_ALL = 5000, 8, 140_000
PER_CARD, PER_HOST, PER_SHARE = 8, 3, 3
AGENT, AGENT_PER_CARD, AGENT_PER_SHARE = 150, 30, 8
RESOURCES = {f"r{number}": 1 for number in range(10)}


def count(text: bytes, like: str = "") -> int:
    lines = (line for line in text.decode().splitlines() if line and not line.startswith("#"))
    return sum(1 for line in lines if line.startswith(like))


def world(nodes: int, pods: int, queues: int) -> ClusterState:
    state = ClusterState({"h20": 97871})
    for number in range(queues):
        name = QueueName(f"q{number}")
        state.put_queue(Queue(name, capability=RESOURCES, deserved=RESOURCES, guarantee=RESOURCES))
        state.put_gang(gang(f"t/g{number}", f"q{number}", ShareClass.HIGH))
    for number in range(nodes):
        state.put_node(node(number, CARDS_OF_A_NODE))
    for number in range(pods):
        state.put_pod(pod(number, on=number % nodes, gang=f"t/g{number % queues}"))
    return state


def test_level_1_by_card_host_and_share() -> None:
    nodes, pods = 20, 100
    level1 = Level1(lambda: view_of(world(nodes, pods, 2)))
    cards = level1.answer(CARDS)
    assert count(cards, "egpu_card_") <= PER_CARD * nodes * CARDS_OF_A_NODE
    assert count(cards, "egpu_host_") <= PER_HOST * nodes
    assert count(cards) == count(cards, "egpu_card_") + count(cards, "egpu_host_")
    assert count(level1.answer(SHARES)) <= PER_SHARE * pods


def test_the_page_of_the_process_grows_with_queues_and_with_nothing_else() -> None:
    """A queue has four amounts of each resource, what waits, and a histogram for each class."""
    queues = 30

    def size(nodes: int, pods: int) -> int:
        state = world(nodes, pods, queues)
        verdicts = {}
        for number in range(queues):
            key = f"t/g{number}"
            state.put_pod(pod(10_000 + number, on=None, gang=key, phase=PodPhase.GATED))
            verdicts[key] = Verdict(Reason.WAITING_FOR_CARDS, "")
        view = AdmissionView(state.snapshot(1), verdicts, {}, 1, admitting=True)
        for number in range(queues):
            view.figures.admitted(QueueName(f"q{number}"), ShareClass.LOW, 1.0)
        return count(Level1(lambda: view).answer(PROCESS))

    of_classes, waiting, info = 14, 2 + 6, 1
    assert size(4, 60) == size(20, 300)
    assert size(4, 60) < 400 + queues * (4 * len(RESOURCES) + of_classes + waiting + info)


def agent(cards: int, containers: int) -> bytes:
    uuids = [f"GPU-{number}" for number in range(cards)]
    sample = CardSample(*(1 for _ in CardSample.__dataclass_fields__))
    seen = Observation(
        NodeReading(tuple(CardReading(uuid, i, "NVIDIA H20", 97871) for i, uuid in enumerate(uuids))),
        samples=dict.fromkeys(uuids, sample),
        processes={uuid: (ProcessSample(1, 100, 10),) for uuid in uuids},
    )
    known = tuple(
        NodeCard(uuid=uuid, index=i, model="h20", product="NVIDIA H20", memory_mib=97871)
        for i, uuid in enumerate(uuids)
    )
    grants = [grant(f"p{number}", (uuids[number % cards], 1000, 10)) for number in range(containers)]
    accounts = [
        Account("ns", f"p{number}", "main", uuids[number % cards], 1, 1, Activity())
        for number in range(containers)
    ]
    view = View("n1", seen, NodeCards(cards=known), grants=grants, accounts=accounts, isolated=True)
    metrics = Metrics(lambda: view)
    for call in ("Allocate", "PreStartContainer", "List", "GetAllocatableResources"):
        metrics.observe(call, 0.01, "ok")
    return text_of(metrics.registry.collect())


def test_level_2_by_agent_card_and_share() -> None:
    none, more, most = agent(1, 0), agent(2, 0), agent(1, 10)
    assert count(none) - AGENT_PER_CARD <= AGENT
    assert count(more) - count(none) <= AGENT_PER_CARD
    assert count(most) - count(none) <= AGENT_PER_SHARE * 10
    assert not re.search(r"\begpu_node_container_units_total\{", most.decode()), "full only"


def test_five_thousand_nodes() -> None:
    """The docs say this: keep them in step."""
    cards = NODES * CARDS_OF_A_NODE
    level_1 = cards * PER_CARD + NODES * PER_HOST + SHARES_OF_ALL * PER_SHARE
    level_2 = NODES * AGENT + cards * AGENT_PER_CARD + SHARES_OF_ALL * AGENT_PER_SHARE
    assert level_1 <= 0.8e6
    assert level_2 <= 3.1e6


def test_series_grow_in_step_with_cards_and_shares() -> None:
    """So what is counted on few nodes holds for many."""
    states = world(10, 50, 2), world(100, 500, 2)
    for path in (CARDS, SHARES):
        small, large = (count(Level1(lambda s=s: view_of(s)).answer(path)) for s in states)  # type: ignore[misc]
        assert large == 10 * small
