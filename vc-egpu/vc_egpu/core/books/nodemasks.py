"""Which nodes take pods of a shape at all, and how nodes are ordered: kept until a node changes."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from vc_egpu.core.books import fit
from vc_egpu.core.books.ledger import Flags, Ints, Ledger
from vc_egpu.core.model.cluster import Node, NodeName, PodShape
from vc_egpu.core.model.resources import parts_of

_MAX_MASKS: Final = 512
_MAX_PARTS: Final = 100_000
"""Pods name shapes, whose number and size are thus in their makers' hands: more than this start over."""


class NodeMasks:
    """One row per ledger row; the arrays handed out are not to be written to."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._masks: dict[fit.StaticKey, tuple[PodShape, Flags]] = {}
        self._parts = 0
        self._ranks: Ints | None = None

    def mask(self, nodes: Mapping[NodeName, Node], shape: PodShape) -> Flags:
        """By row: whether the node may take pods of this shape, amounts aside."""
        key = fit.static_key(shape)
        known = self._masks.get(key)
        rows = len(self._ledger.names)
        if known is not None and len(known[1]) == rows:
            return known[1]
        if len(self._masks) >= _MAX_MASKS or self._parts >= _MAX_PARTS:
            self._masks.clear()
            self._parts = 0
        mask = np.zeros(rows, np.bool_)
        known_nodes = [nodes[name] for name in self._ledger.rows]
        mask[[self._ledger.rows[name] for name in fit.accepting(known_nodes, shape)]] = True
        self._masks[key] = (shape, mask)
        self._parts += parts_of(shape)
        return mask

    def ranks(self) -> Ints:
        """By row: the node's place in the order of names, which settles ties."""
        if self._ranks is None or len(self._ranks) != len(self._ledger.names):
            ranks = np.zeros(len(self._ledger.names), np.int64)
            for rank, name in enumerate(sorted(self._ledger.rows)):
                ranks[self._ledger.rows[name]] = rank
            self._ranks = ranks
        return self._ranks

    def node_changed(self, row: int, node: Node | None) -> None:
        """The row has a new or changed node, or none any more."""
        for shape, mask in self._masks.values():
            if row < len(mask):
                mask[row] = node is not None and fit.accepts(node, shape)

    def names_changed(self) -> None:
        """A node came or went."""
        self._ranks = None
