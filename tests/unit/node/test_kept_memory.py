"""Memory that a DMA-BUF keeps after its program freed it: whomever the driver shows it under.

Under who exported it, under who imported it, under both, or under nobody: the first of 600 MiB, on grants of
1000.
"""

import pytest
from unit.node.doubtful import CARD, MIB
from unit.node.wall_stage import Wall
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu_node.cards.monitor import Observation, unattributed_mib
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.vendors.base import CardSample, ProcessSample
from vc_egpu_node.wall.offences import Offence

LOOKS = 20
"""Longer than any memory of an earlier look."""
CONTEXT = 100
"""MiB that each program's context takes, and that the agent knows by now."""


def beyond_mib(wall: Wall, number: int) -> int:
    page = wall.isolation.file(f"g{number}").read()
    assert page is not None
    return page.beyond.on(0) // MIB


@pytest.fixture
def two(wall: Wall) -> Wall:
    """An exporter (1) that freed what it exported and has 100 MiB beside, an importer (2) that has 200; both
    end if they take too much."""
    wall.policy = "kill"
    for number in (1, 2):
        wall.let_in(number, 1000)
        wall.process(500 + number, number)
        wall.usage(number, (400 + number, 5, 1, 100 * number, 0))
    for _ in range(3):
        wall.look(ProcessSample(501, 100 + CONTEXT, 0), ProcessSample(502, 200 + CONTEXT, 0))
    wall.usage(2, (402, 5, 1, 800, 0))  # an import is charged for as long as it is kept
    return wall


@pytest.mark.parametrize(
    ("exporter", "importer", "beyond"), [(700, 200, 600), (100, 800, 0), (700, 800, 600), (100, 200, 0)]
)
def test_who_keeps_to_the_grant_is_left_alone(two: Wall, exporter: int, importer: int, beyond: int) -> None:
    before = beyond_mib(two, 1)
    seen = (ProcessSample(501, exporter + CONTEXT, 0), ProcessSample(502, importer + CONTEXT, 0))
    for _ in range(LOOKS):
        assert two.look(*seen) == []
    assert (two.hosts.killed, two.told) == ([], [])
    assert beyond_mib(two, 1) == before + beyond  # so it cannot take the same memory once more
    assert beyond_mib(two, 2) <= CONTEXT


@pytest.mark.parametrize(("exporter", "importer", "ended"), [(1200, 200, 501), (100, 1200, 502)])
def test_who_has_more_than_its_grant_is_found_at_the_second_look_and_nobody_else(
    two: Wall, exporter: int, importer: int, ended: int
) -> None:
    samples = (ProcessSample(501, exporter, 0), ProcessSample(502, importer, 0))
    assert [two.look(*samples) for _ in range(2)] == [[], [Offence.OVER_GRANT]]
    assert two.hosts.killed == [(ended, 5)]


def test_an_importer_without_a_grant_is_told_of_and_never_ended(two: Wall) -> None:
    two.add_pod(3)
    two.process(503, 3)
    for _ in range(LOOKS):
        two.look(ProcessSample(501, 100, 0), ProcessSample(503, 600, 0))
    assert two.hosts.killed == []
    assert {event[3] for event in two.told} == {"NotGranted"}


@pytest.mark.parametrize(
    ("used_mib", "processes", "tells", "wanted"),
    [
        (1000, {501: 100, 502: 300}, True, 600),
        (300, {501: 100, 502: 300}, True, 0),
        (700, {}, True, 700),
        (1000, {501: 100, 502: 0}, True, None),  # of one it does not tell how much it has
        (1000, {501: 100, 502: 300}, False, None),
        (None, {501: 100}, True, None),
    ],
)
def test_what_the_driver_shows_under_nobody_is_a_figure_of_the_card(
    used_mib: int | None, processes: dict[int, int], tells: bool, wanted: int | None
) -> None:
    seen = Observation(
        samples={CARD: CardSample(memory_used_mib=used_mib)},
        processes={CARD: tuple(ProcessSample(pid, mib, 0) for pid, mib in processes.items())},
        untold=frozenset() if tells else frozenset({CARD}),
    )
    assert unattributed_mib(seen, CARD) == wanted
    card = NodeCard(uuid=CARD, index=0, model="h20", product="NVIDIA H20", memory_mib=97871)
    for isolated in (True, False):  # the agent sees the host's processes without the library, too
        view = View("n1", seen, NodeCards(cards=(card,)), isolated=isolated)
        name = "egpu_node_card_unattributed_bytes"
        labels = {"node": "n1", "uuid": CARD, "index": "0", "model": "h20"}
        value = Metrics(lambda view=view: view).registry.get_sample_value  # type: ignore[misc]
        size = wanted << 20 if wanted is not None else None
        assert value(name, labels) == size
        assert value("egpu_node_card_untold", labels) == float(not tells)
