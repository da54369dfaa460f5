"""What bounds a decision: gangs of many kinds, of which some find no place, cost others nothing."""

from collections import Counter
from dataclasses import replace
from functools import partialmethod

import pytest
from property import generate
from unit.core import make
from unit.core.asked import HALF, HIGH, ask
from vc_egpu.core.books import capacity
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.model import effort
from vc_egpu.core.model.cluster import (
    PodUid,
    Queue,
    QueueName,
    Resources,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.effort import DECISION, GROUP, Effort
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.placing import place as placing
from vc_egpu.core.placing.place import place
from vc_egpu.core.trial.trial import Trial

KINDS = 8
FEW_GROUPS = 8
"""Of one turn: they are no search yet."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often groups were placed on paper, and places of one shape counted on all nodes."""
    calls = Counter[str]()
    place_group, places = placing.place_group, capacity.rooms

    def placed(*args: object, **more: object) -> object:
        calls["groups"] += 1
        return place_group(*args, **more)  # type: ignore[arg-type]

    def rooms(*args: object) -> object:
        calls["looks"] += 1
        return places(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(placing, "place_group", placed)
    monkeypatch.setattr(capacity, "rooms", rooms)
    return calls


def unlike(gangs: int, least: int, share_class: ShareClass = ShareClass.UNSET) -> Snapshot:
    """Waiting gangs of eight unlike members each. Two of the kinds ask for more cpu than any node has."""
    nodes = [make.node(f"n{number:02}", 2) for number in range(20)]
    queue = Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": 8})
    waiting, members = [], []
    for number in range(gangs):
        key = f"ns/g{number:03}"
        waiting.append(make.gang(key, least=least, created=float(number), share_class=share_class))
        for kind in range(KINDS):
            cpu = 65_000 if kind < 2 else 1_000
            what = make.shape(1_000 + 10 * number + kind, 1, cpu_milli=cpu + number)
            members += make.pods(key, 1, what, f"t{kind}")
    return make.snapshot(nodes, waiting, members, queues=[queue])


@pytest.mark.parametrize("share_class", [ShareClass.UNSET, HIGH])
@pytest.mark.parametrize("least", [8, 7])
def test_a_kind_that_fits_nowhere_ends_the_turn_before_any_order(
    least: int, share_class: ShareClass, counted: Counter[str]
) -> None:
    """Each of 24 sets of members was placed in six orders: 56 s for a hundred such gangs on 5,000 nodes."""
    plan = ask(unlike(100, least, share_class))
    assert {verdict.reason for verdict in plan.verdicts.values()} == {Reason.WAITING_FOR_CARDS}
    assert counted["groups"] == 0
    assert counted["looks"] <= 100 * (KINDS + 8)
    assert "no place for it of task t0 now" in plan.verdicts["ns/g000"].message


def test_a_set_without_the_kind_that_fits_nowhere_is_still_found() -> None:
    gang = make.gang("g", least=2)
    kinds = [make.shape(1_000 * kind, 1, cpu_milli=65_000 if kind == 1 else 1_000) for kind in (1, 2, 3)]
    members = [pod for kind, what in enumerate(kinds) for pod in make.pods("g", 1, what, f"t{kind}")]
    (admission,) = ask(make.snapshot([make.node()], [gang], members)).admissions
    assert set(admission.members) == {"t1/0", "t2/0"}


def not_together() -> Snapshot:
    """Three kinds, each of which has a place, on one card that has room for two of them."""
    kinds = [make.shape(make.H20_MIB * 2 // 5 + kind, 1) for kind in range(3)]
    members = [pod for kind, what in enumerate(kinds) for pod in make.pods("g", 1, what, f"t{kind}")]
    return make.snapshot([make.node("n1", 1)], [make.gang("g", least=3)], members)


def test_every_placing_counts() -> None:
    """All but the first few of a turn: gangs that need no search leave the others theirs."""
    trial = Trial(fresh_index(not_together()), Policy(), 0.0)
    view = trial.index.view("g")
    trial.effort.begin_turn()
    assert place(trial, view, view.waiting, effort=0) is None
    orders, kinds = 6, 3
    assert trial.effort.left == DECISION - (orders * kinds - FEW_GROUPS) * GROUP
    trial.effort.begin_turn()
    assert place(trial, view, view.waiting, effort=0) is None
    assert trial.effort.left == DECISION - 2 * (orders * kinds - FEW_GROUPS) * GROUP


def test_placing_costs_more_on_more_nodes() -> None:
    small, large = Effort(), Effort()
    small.placed(FEW_GROUPS + 1, nodes=5)
    large.placed(FEW_GROUPS + 1, nodes=5_000)
    assert DECISION - small.left == GROUP
    assert DECISION - large.left == GROUP + 500


def test_members_above_the_minimum_are_placed_as_far_as_the_turn_goes(
    monkeypatch: pytest.MonkeyPatch, counted: Counter[str]
) -> None:
    """A gang that runs and would grow by 300 kinds, of which the first fit nowhere."""
    monkeypatch.setattr(Effort, "__init__", partialmethod(Effort.__init__, left=80 * GROUP))
    running = make.placed(make.pods("g", 1, make.shape(HALF, 10), "old")[0], "n1/0")
    kinds = [make.shape(1_000 + kind, 1, cpu_milli=65_000) for kind in range(300)]
    members = [pod for kind, what in enumerate(kinds) for pod in make.pods("g", 1, what, f"t{kind:03}")]
    queue = Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": 250})
    plan = ask(make.snapshot([make.node()], [make.gang("g")], [running, *members], queues=[queue]))
    assert not plan.admissions
    assert counted["groups"] <= FEW_GROUPS + 40 + 1


def test_the_sentence_of_a_gang_of_2048_kinds_looks_at_few(counted: Counter[str]) -> None:
    kinds = 2_048
    members = [
        pod
        for kind in range(kinds)
        for pod in make.pods("g", 1, make.shape(40_000 + kind, 1, cpu_milli=65_000), f"t{kind:04}")
    ]
    queue = make.queue(capability={"volcano.sh/vgpu-h20": kinds})
    gang = make.gang("g", least=kinds)
    plan = ask(make.snapshot([make.node()], [gang], members, queues=[queue]))
    message = plan.verdicts["g"].message
    assert message.count("share of h20") == 8
    assert "and 2040 more kinds of cards; there is no place for it of task t" in message
    assert "their nodes lack cpu" in message
    assert counted["groups"] == 0
    assert counted["looks"] < 50


def test_what_many_kinds_lack_is_said_of_one_that_lacks_places() -> None:
    """The hardest kinds fit, and the last one does not."""
    kinds = [make.shape(1_000 * (9 - kind), 1, cpu_milli=65_000 if kind == 7 else 10) for kind in range(8)]
    members = [pod for kind, what in enumerate(kinds) for pod in make.pods("g", 1, what, f"t{kind}")]
    message = ask(make.snapshot([make.node()], [make.gang("g", least=8)], members)).verdicts["g"].message
    assert "there is no place for it of task t7 now on 1 node with h20" in message
    assert "Cards for 1 are free, but their nodes lack cpu" in message


def test_what_is_short_is_looked_for_as_far_as_the_decision_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more gangs that all wait for different things, the last ones are told less."""
    assert effort.EXPLAINED == 50_000, "ten gangs on 5,000 nodes"
    monkeypatch.setattr(Effort, "__init__", partialmethod(Effort.__init__, explained=10))
    gangs = [make.gang(f"g{number}", created=float(number)) for number in range(20)]
    members = [
        pod
        for number, gang in enumerate(gangs)
        for pod in make.pods(gang.key, 1, make.shape(1_000 + number, cpu_milli=65_000))
    ]
    verdicts = ask(make.snapshot([make.node()], gangs, members)).verdicts
    for number in range(10):
        assert "their nodes lack cpu" in verdicts[f"g{number}"].message
    for number in range(10, 20):
        message = verdicts[f"g{number}"].message
        assert "there is no place for it now" in message
        assert "Very many gangs wait, so it was not looked for what is short" in message


def test_places_are_counted_as_far_as_they_are_wanted() -> None:
    compared = 0
    for seed in range(60):
        case = generate.case(seed)
        index = fresh_index(case.snapshot)
        for pod in case.snapshot.pods.values():
            if pod.gang not in case.asking:
                continue
            need = capacity.need_of(index.ledger, pod.shape, ShareClass.UNSET)
            mask = index.mask(pod.shape)
            there = capacity.places(index.ledger, need, mask)
            for wanted in (1, 2, there, there + 1):
                found = capacity.places_up_to(index.ledger, need, mask, wanted)
                assert found == min(there, wanted)
                compared += 1
    assert compared > 200


def test_room_that_comes_back_is_seen() -> None:
    """What no node has left is remembered only until something goes."""
    snapshot = make.snapshot(
        [make.node(cpu_milli=4_000)],
        [make.gang("a"), make.gang("b")],
        [
            make.placed(make.pods("a", 1, make.shape(1_000, cpu_milli=3_000))[0], "n1/0"),
            *make.pods("b", 1, make.shape(1_000, cpu_milli=2_000)),
        ],
    )
    state = make.state(snapshot)
    assert not ask(state.snapshot(1)).admissions
    state.remove_pod(PodUid("a-w-0"))
    assert [entry.gang for entry in ask(state.snapshot(2)).admissions] == ["b"]
    state.put_node(replace(make.node(), allocatable=Resources(1_000, 1 << 40, 0, 110)))
    assert not ask(state.snapshot(3)).admissions
    state.put_node(make.node(cpu_milli=4_000))
    assert ask(state.snapshot(4)).admissions
