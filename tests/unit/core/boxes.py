"""Boxes of cards as they are wired, for tests of topology. V100's mesh is the DGX-1's, by its data sheet."""

from unit.core import make
from vc_egpu.core.model.cluster import Card, CardId, Node, NodeName, Resources
from vc_egpu.core.topology.links import Near
from vc_egpu.core.topology.ways import wiring_of
from vc_egpu.core.topology.wiring import Wiring

_DOUBLE = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
_ONCE = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}


def _near(name: str, col: int, count: int, sockets: int = 2) -> dict[CardId, Near]:
    """Pairs of cards hang on one switch, halves of the box on one socket."""
    per_socket = count // sockets
    return {
        CardId(f"{name}/{peer}"): Near.SYSTEM
        if peer // per_socket != col // per_socket
        else (Near.SWITCH if peer // 2 == col // 2 else Near.NODE)
        for peer in range(count)
        if peer != col
    }


def v100_mesh(name: str = "v100") -> tuple[Card, ...]:
    """Eight cards in a cube mesh: 0-3 and 0-4 have two links, 0-1 one, 0-6 none."""

    def links(col: int) -> dict[CardId, int]:
        counts = dict.fromkeys(_DOUBLE, 2) | dict.fromkeys(_ONCE, 1)
        return {CardId(f"{name}/{a if b == col else b}"): n for (a, b), n in counts.items() if col in {a, b}}

    return tuple(
        Card(
            CardId(f"{name}/{col}"),
            col,
            "h20",
            make.H20_MIB,
            True,
            links(col),
            0,
            25_000,
            _near(name, col, 8),
        )
        for col in range(8)
    )


def switched(name: str = "nvswitch", links: int = 12) -> tuple[Card, ...]:
    """Eight cards with 12 links each to switches, as A100 boxes; H20 boxes have 18."""
    return tuple(
        Card(CardId(f"{name}/{col}"), col, "h20", make.H20_MIB, True, {}, links, 25_000, _near(name, col, 8))
        for col in range(8)
    )


def h20_box(name: str = "h20") -> tuple[Card, ...]:
    """Eight H20 cards: 18 links of NVLink 4 each, all to switches."""
    return switched(name, 18)


def pcie(name: str = "pcie", count: int = 8) -> tuple[Card, ...]:
    """Cards without NVLink on two sockets, two cards on each PCIe switch."""
    return tuple(
        Card(CardId(f"{name}/{col}"), col, "h20", make.H20_MIB, True, {}, 0, 0, _near(name, col, count))
        for col in range(count)
    )


BOXES = {"v100": v100_mesh, "nvswitch": switched, "pcie": pcie, "h20": h20_box}


def wired(cards: tuple[Card, ...]) -> Wiring:
    """What these cards tell of each other."""
    found = wiring_of(cards)
    assert found is not None
    return found


def node(cards: tuple[Card, ...]) -> Node:
    """A node of these cards, named as they are."""
    name = str(cards[0].uuid).partition("/")[0]
    return Node(NodeName(name), Resources(256_000, 1 << 40, 0, 110), cards=cards)
