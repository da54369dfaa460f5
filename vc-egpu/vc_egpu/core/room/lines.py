"""What queues deserve, as one decision sees it: counted once, from queues, cards and weights."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from vc_egpu.core.model.cluster import Mode, QueueName
from vc_egpu.core.model.resources import MICROCARDS, PARTS_PREFIX, native_resource, shared_resource
from vc_egpu.core.queues import caps, deserved
from vc_egpu.core.queues.deserved import Lines
from vc_egpu.core.trial.trial import Trial

_NAMED: Final = "lines that are named"
_ALL: Final = "lines by weight too"
_SHARE: Final = "share of what is deserved"


def lines(trial: Trial) -> Lines:
    """The lines by which queues take back: those that they name, and by weight where that is switched on."""
    return _with_weights(trial) if trial.policy.reclaim_by_weight else _named(trial)


def share(trial: Trial, queue: QueueName) -> float:
    """How much of what it deserves the queue has: the largest ratio over kinds of cards, for the order.

    Where it names none its weight says what it deserves. What it had lately counts too, if it is averaged.
    """
    note = (_SHARE, queue)
    then, known = trial.notes.get(note, (-1, None))
    if then == trial.charges and isinstance(known, float):
        return known
    found = _share(trial, queue)
    trial.notes[note] = (trial.charges, found)
    return found


def _share(trial: Trial, queue: QueueName) -> float:
    entry, use = trial.queues.get(queue), trial.use_of(queue)
    own = _with_weights(trial).get(queue)
    if not own or (entry is not None and entry.deserved and not _named(trial).get(queue)):
        return caps.share(entry, use)
    lately = trial.policy.recent.parts.get(queue, {})
    return max(
        _ratio(use.get(PARTS_PREFIX + kind, 0) + lately.get(kind, 0.0), line) for kind, line in own.items()
    )


def _ratio(used: float, line: int) -> float:
    return used / line if line > 0 else float("inf") if used else 0.0


def _named(trial: Trial) -> Lines:
    _, known = trial.notes.get(_NAMED, (0, None))
    if isinstance(known, Mapping):
        return known
    found = deserved.lines(trial, trial.index.card_mib)
    trial.notes[_NAMED] = (0, found)
    return found


def _with_weights(trial: Trial) -> Lines:
    _, known = trial.notes.get(_ALL, (0, None))
    if isinstance(known, Mapping):
        return known
    index = trial.index
    named = _named(trial)
    by_weight = deserved.by_weight(trial, index.card_mib, _cards(trial), index.gangs_in.keys())
    found = {
        name: {**by_weight.get(name, {}), **named.get(name, {})}
        for name in dict.fromkeys((*named, *by_weight))
    }
    trial.notes[_ALL] = (0, found)
    return found


def _cards(trial: Trial) -> dict[str, int]:
    """What the cluster has of each kind: its cards that are in order, never slots."""
    ledger = trial.ledger
    counts = np.bincount(ledger.kind[ledger.usable], minlength=len(ledger.kinds)).tolist()
    spelt = {Mode.SHARED: shared_resource, Mode.NATIVE: native_resource}
    return {
        spelt[mode](model): counts[number] * MICROCARDS
        for (model, mode), number in ledger.kinds.items()
        if counts[number]
    }
