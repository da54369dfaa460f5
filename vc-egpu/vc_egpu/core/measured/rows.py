"""Measured use by row of the ledger, so that many nodes are looked at together."""

from collections.abc import Mapping
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from vc_egpu.core.measured.use import OLD_AFTER_S, UNKNOWN, NodeUse

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_Uuid = TypeVar("_Uuid", bound=str)
_NEVER: Final = float("-inf")
_FIRST_ROWS: Final = 16
_FIRST_WIDTH: Final = 8


class MeasuredRows:
    """Rows and columns are the ledger's. A row that nobody measured is as one without figures."""

    def __init__(self) -> None:
        self._compute: Ints = np.full((_FIRST_ROWS, _FIRST_WIDTH), UNKNOWN, np.int64)
        self._points: Ints = np.full(_FIRST_ROWS, UNKNOWN, np.int64)
        self._at: Floats = np.full(_FIRST_ROWS, _NEVER)
        self._newest = _NEVER

    def put(self, row: int, use: NodeUse | None, columns: Mapping[_Uuid, int]) -> None:
        """A row's node says this of its use, or nothing. ``columns``: its cards' places by UUID."""
        if use is None and (row >= len(self._at) or self._at[row] == _NEVER):
            return
        self._make_room(row + 1, 1 + max(columns.values(), default=0))
        self._compute[row] = UNKNOWN
        if use is None:
            self._points[row] = UNKNOWN
            self._at[row] = _NEVER
            return
        for uuid, column in columns.items():
            card = use.cards.get(uuid)
            if card is not None:
                self._compute[row, column] = card.compute_points
        self._points[row], self._at[row] = use.points, use.at
        self._newest = max(self._newest, use.at)

    def is_any(self, now: float) -> bool:
        """Whether some row may have figures that count now; at no cost."""
        return self._newest >= now - OLD_AFTER_S

    def compute(self, rows: Ints, width: int, now: float, skew_s: float) -> Ints | None:
        """By (row, card), of ``width`` cards: points of compute; None where no row has current ones."""
        fresh = self._fresh(rows, now, skew_s)
        if not fresh.any():
            return None
        if width == self._compute.shape[1] and fresh.all():
            return np.asarray(self._compute.take(rows, 0), np.int64)
        found = np.full((len(rows), width), UNKNOWN, np.int64)
        known, cards = rows[fresh], min(width, self._compute.shape[1])
        found[fresh, :cards] = self._compute[known, :cards]
        return found

    def points(self, rows: Ints, now: float, skew_s: float) -> Ints | None:
        """By row: points of the busiest part. None as above."""
        fresh = self._fresh(rows, now, skew_s)
        if not fresh.any():
            return None
        found = np.full(len(rows), UNKNOWN, np.int64)
        found[fresh] = self._points[rows[fresh]]
        return found

    def _fresh(self, rows: Ints, now: float, skew_s: float) -> Flags:
        at = self._at.take(rows, mode="clip")
        if len(rows) and int(rows.max()) >= len(self._at):
            at[rows >= len(self._at)] = _NEVER
        return np.asarray((at >= now - OLD_AFTER_S) & (at <= now + skew_s), np.bool_)

    def _make_room(self, rows: int, width: int) -> None:
        have, wide = self._compute.shape
        if rows <= have and width <= wide:
            return
        more = max(rows, 2 * have if rows > have else have)
        compute = np.full((more, max(width, wide)), UNKNOWN, np.int64)
        compute[:have, :wide] = self._compute
        self._compute = compute
        if more == have:
            return
        points, at = np.full(more, UNKNOWN, np.int64), np.full(more, _NEVER)
        points[:have], at[:have] = self._points, self._at
        self._points, self._at = points, at
