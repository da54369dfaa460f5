"""What a run shows over time, as rows of one long table.

Each row is ``(policy, seed, time_s, arrived_percent, curve, key, value)``::

    curve          key                   value
    allocation     model of the cards    percent of their memory that is held
    fragmentation  model of the cards    percent of them that is free and of no use to the mix
    waiting        class/reason          gangs
    waiting_gpus   class/reason          cards that those ask for
    evicted        cause                 pods since the begin
    finished       gangs, gpu_hours      since the begin
    dropped        gangs, gpus           since the begin

The key ``all`` is the sum of a curve.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from typing import Final

import numpy as np

from vc_egpu.core.books.index import Index
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.model.cluster import Node
from vc_egpu.core.model.policy import FGD, Mix
from vc_egpu.core.placing.measure import CARD_MILLI
from vc_egpu.core.placing.outlook import Rule, outlook_of
from vc_egpu.core.trial.trial import Trial
from vc_egpu.sim.replay import Replay
from vc_egpu.sim.table import MODEL_LABEL

ALL: Final = "all"
COLUMNS: Final = ("policy", "seed", "time_s", "arrived_percent", "curve", "key", "value")
_RULE: Final = Rule(f"{FGD} of a curve", typical_only=True, learned_weights=False)


@dataclass(frozen=True, slots=True)
class Point:
    """One row."""

    policy: str
    seed: int
    time_s: float
    arrived_percent: float
    curve: str
    key: str
    value: float

    def cells(self) -> tuple[object, ...]:
        """The values in the order of :data:`COLUMNS`."""
        return astuple(self)


class Sampler:
    """Takes a look now and then: hand :meth:`look` to :meth:`.replay.Replay.run`."""

    def __init__(self, policy: str, seed: int, looks: int, works: int, mix: Mix | None = None) -> None:
        self.points: list[Point] = []
        self._policy, self._seed = policy, seed
        self._every = max(1, works // max(1, looks))
        self._mix = mix
        self._seen = 0

    def look(self, replay: Replay) -> None:
        """Something happened; every so many arrivals and ends the curves get a point."""
        self._seen += 1
        if self._seen % self._every == 1 or self._every == 1:
            self.take(replay)

    def take(self, replay: Replay) -> None:
        """The curves get a point now."""
        index = replay.index
        everything = CARD_MILLI * int(index.ledger.row_cards.sum())
        arrived = 100 * replay.totals.arrived_milli / max(1, everything)
        mix = self._mix if self._mix is not None else replay.world.policy.mix
        for curve, key, value in (*_cards(replay, mix), *_waiting(replay), *_sums(replay)):
            at = round(replay.world.now, 3)
            self.points.append(Point(self._policy, self._seed, at, round(arrived, 3), curve, key, value))


def fragmentation_percent(replay: Replay, mix: Mix) -> float:
    """What is free and of no use to the mix, in percent of all cards."""
    total = CARD_MILLI * int(replay.index.ledger.row_cards.sum())
    return 100 * float(_fragments(replay, mix).sum()) / max(1, total)


def _fragments(replay: Replay, mix: Mix) -> Ints:
    """By row, in thousandths of a card."""
    trial = Trial(replay.index, replace(replay.world.policy, mix=mix), replay.world.now)
    try:
        return outlook_of(trial, _RULE).fragments(trial)
    finally:
        trial.close()


def _cards(replay: Replay, mix: Mix) -> Iterator[tuple[str, str, float]]:
    index = replay.index
    ledger = index.ledger
    rows = _rows_by_model(index)
    fragments = _fragments(replay, mix) if mix.classes else np.zeros(len(ledger.names), np.int64)
    for model, some in ((ALL, np.fromiter(ledger.rows.values(), np.int64)), *rows.items()):
        cap = int(ledger.row_memory_cap[some].sum())
        if cap:
            yield "allocation", model, 100 * int(ledger.row_memory[some].sum()) / cap
            cards = CARD_MILLI * int(ledger.row_cards[some].sum())
            yield "fragmentation", model, 100 * int(fragments[some].sum()) / cards


def _rows_by_model(index: Index) -> dict[str, Ints]:
    found: dict[str, list[int]] = {}
    for name, row in index.ledger.rows.items():
        found.setdefault(_model(index.nodes[name]), []).append(row)
    return {model: np.array(rows, np.int64) for model, rows in sorted(found.items()) if model}


def _model(node: Node) -> str:
    """What the table calls its cards, or what they are."""
    return node.labels.get(MODEL_LABEL) or "+".join(sorted({card.model for card in node.cards}))


def _waiting(replay: Replay) -> Iterator[tuple[str, str, float]]:
    gangs: dict[str, list[float]] = {ALL: [0.0, 0.0]}
    for work, reason in replay.waiting.values():
        for key in (ALL, f"{work.share_class.name.lower()}/{reason.value}"):
            sums = gangs.setdefault(key, [0.0, 0.0])
            sums[0] += 1
            sums[1] += work.gpu_milli / CARD_MILLI
    for key, (count, cards) in sorted(gangs.items()):
        yield "waiting", key, count
        yield "waiting_gpus", key, cards


def _sums(replay: Replay) -> Iterator[tuple[str, str, float]]:
    totals = replay.totals
    yield "evicted", ALL, float(sum(totals.evictions.values()))
    for cause, pods in sorted(totals.evictions.items()):
        yield "evicted", cause, float(pods)
    yield "finished", "gangs", float(totals.finished)
    yield "finished", "gpu_hours", totals.finished_gpu_s / 3600
    yield "dropped", "gangs", float(totals.dropped)
    yield "dropped", "gpus", totals.dropped_milli / CARD_MILLI
