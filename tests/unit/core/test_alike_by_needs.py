"""Programs that need different things find the same places where the same nodes meet what they need."""

import random
from dataclasses import replace

import pytest
import seeds
from unit.core import make
from vc_egpu.core.books import fit
from vc_egpu.core.books.index import Index
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.books.state import ClusterState, index_of
from vc_egpu.core.decide import decide
from vc_egpu.core.environments.kinds import NodeKinds
from vc_egpu.core.environments.needs import Atom, Facts, Needs, is_met, lacking
from vc_egpu.core.model.cluster import Mode, NodeName, PodShape, Queue, QueueName
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.volcano.needs.pods import needs_of

LIKE_535 = (("driver", ("535.104",)),)
LIKE_550 = (("driver", ("550.54",)),)


def needs(text: str, *, presumed: bool = False) -> Needs:
    return needs_of(text, (text,), presumed=presumed)


def facts(chance: random.Random) -> Facts:
    return (("driver", (f"{chance.randrange(530, 534)}.1",)),) if chance.random() < 0.8 else ()


def said(state: ClusterState) -> dict[str, tuple[Reason, str]]:
    verdicts = decide(state.snapshot(1), Policy(), 1.0).verdicts
    return {key: (verdict.reason, verdict.message) for key, verdict in verdicts.items()}


def world(*texts: str, memory_mib: int = 90_000) -> ClusterState:
    """Two nodes with two cards, all of which are taken on the node with the newer driver."""
    state = ClusterState({"h20": make.H20_MIB})
    state.put_queue(Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": 99}))
    state.put_node(make.node("n1", environment=LIKE_535))
    state.put_node(make.node("n2", environment=LIKE_550))
    state.put_gang(make.gang("ns/full", least=2))
    for number, pod in enumerate(make.pods("ns/full", 2, make.shape(memory_mib, 100))):
        state.put_pod(make.placed(pod, f"n2/{number}"))
    for text in texts:
        key = f"ns/{text}"
        state.put_gang(make.gang(key))
        for pod in make.pods(key, 1, make.shape(memory_mib, 100, needs=needs(text))):
            state.put_pod(pod)
    return state


@pytest.mark.parametrize("seed", seeds.fresh(3))
def test_a_mask_tells_what_each_node_says_whatever_changes(seed: int) -> None:
    chance = random.Random(seed)
    index = Index({"h20": make.H20_MIB})
    shapes = [
        PodShape(needs=needs(f"driver{op}{number}.1", presumed=presumed), node_selector=selector)
        for op in (">=", "==", "!=")
        for number in range(530, 534)
        for presumed in (False, True)
        for selector in ((), (("zone", "a"),))
    ]
    for _ in range(300):
        name = f"n{chance.randrange(12)}"
        if chance.random() < 0.2:
            index.remove_node(make.node(name).name)
        else:
            zone = {"zone": chance.choice("ab")}
            index.put_node(make.node(name, environment=facts(chance), labels=zone))
        shape = chance.choice(shapes)
        mask = index.mask(shape)
        found = {name for name, row in index.ledger.rows.items() if mask[row]}
        assert found == {node.name for node in index.nodes.values() if fit.accepts(node, shape)}
        assert int(mask.sum()) == len(found), "a row without a node takes nothing"


def test_a_crowd_counts_the_nodes_that_there_are() -> None:
    index = Index({"h20": make.H20_MIB})
    for name, environment in (("n1", LIKE_535), ("n2", LIKE_550), ("n3", LIKE_535), ("n4", LIKE_550)):
        index.put_node(make.node(name, environment=environment))
    index.put_node(make.node("n1", environment=LIKE_550))
    index.put_node(make.node("n5", model="t4", environment=LIKE_535))
    index.remove_node(NodeName("n4"))
    h20, t4 = (index.ledger.kind_of(model, Mode.SHARED) for model in ("h20", "t4"))
    assert index.crowd((h20,)) == {(LIKE_550, 2), (LIKE_535, 1)}
    assert index.crowd((t4,)) == {(LIKE_535, 1)}
    assert index.crowd((t4, h20)) == index.crowd(()) == {(LIKE_550, 2), (LIKE_535, 2)}


def test_the_kinds_of_nodes_are_bounded_by_the_nodes() -> None:
    """A node that says something new every second fills no memory, and its neighbours stay what they are."""
    ledger = Ledger()
    masks, nodes = fit.NodeMasks(ledger), {}

    def put(name: str, environment: Facts) -> int:
        node = nodes[NodeName(name)] = make.node(name, environment=environment)
        row = ledger.put_node(node)
        masks.node_changed(row, node)
        return row

    shape, calm = PodShape(needs=needs("driver>=900")), put("n1", LIKE_550)
    for number in range(1000):
        row = put("n2", (("driver", (str(number),)),))
        mask = masks.mask(nodes, shape)
        assert (bool(mask[row]), bool(mask[calm])) == (number >= 900, False)
    assert masks.meeting(needs("driver>=0")).bit_length() < 200
    assert masks.crowd(()) == {(LIKE_550, 1), ((("driver", ("999",)),), 1)}


@pytest.mark.parametrize("seed", seeds.fresh(3))
def test_what_is_met_lacks_nothing(seed: int) -> None:
    chance = random.Random(seed)
    values = ("530", "535.104", "550.54.14", "no version", "")
    for _ in range(500):
        ways = tuple(
            tuple(
                Atom(
                    chance.choice(("driver", "cuda", "arch")),
                    chance.choice(("", "==", "!=", ">=", "<", "in")),
                    "535",
                )
                for _ in range(chance.randrange(1, 4))
            )
            for _ in range(chance.randrange(4))
        )
        wanted = Needs("x", ways, presumed=chance.random() < 0.5)
        told = tuple(
            (name, (chance.choice(values),)) for name in ("arch", "cuda", "driver") if chance.random() < 0.7
        )
        assert is_met(wanted, told) is not bool(lacking(wanted, told))


def test_needs_are_compared_once_with_each_kind_of_node() -> None:
    kinds = NodeKinds()
    wanted = needs("driver>=550")
    assert kinds.meeting(wanted) == 0
    assert [kinds.number(each) for each in (LIKE_535, LIKE_550, LIKE_535)] == [0, 1, 0]
    assert kinds.meeting(wanted) == 0b10
    kinds.number((("driver", ("570.1",)),))
    assert kinds.meeting(wanted) == 0b110


def test_gangs_that_the_same_nodes_meet_are_tried_once() -> None:
    state = world("driver>=540", "driver>=541", "driver>=500")
    index = index_of(state.snapshot(0))
    likes = [index.like(index.view(f"ns/driver>={number}")) for number in (540, 541, 500)]
    assert likes[0] == likes[1] != likes[2]
    # A node comes that tells them apart.
    state.put_node(make.node("n3", environment=(("driver", ("540.5",)),)))
    index = index_of(state.snapshot(0))
    assert index.like(index.view("ns/driver>=540")) != index.like(index.view("ns/driver>=541"))


def test_each_gang_is_told_what_its_own_program_needs() -> None:
    """The nodes are the same, and the words are not those of the gang that was tried first."""
    found = said(world("driver>=540", "driver>=541"))
    for number in (540, 541):
        reason, message = found[f"ns/driver>={number}"]
        assert reason is Reason.WAITING_FOR_CARDS
        assert f"n1 (driver>={number} is needed, it has 535.104)" in message


def test_each_gang_is_told_what_no_node_has() -> None:
    found = said(world("driver>=600", "driver>=601"))
    for number in (600, 601):
        reason, message = found[f"ns/driver>={number}"]
        assert reason is Reason.WAITING_FOR_ENVIRONMENT
        assert f"driver>={number} is needed" in message


def test_the_words_of_a_gang_in_another_queue_are_its_own_too() -> None:
    state = world("driver>=540", "driver>=541")
    state.put_queue(Queue(QueueName("other"), capability={"volcano.sh/vgpu-h20": 99}))
    gang = state.gang("ns/driver>=541")
    assert gang is not None
    state.put_gang(replace(gang, queue=QueueName("other")))
    assert "n1 (driver>=541 is needed, it has 535.104)" in said(state)["ns/driver>=541"][1]
