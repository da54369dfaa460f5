"""Which rule of the operator's table is for a gang, asked once for each gang of a decision.

How full models are is looked at as the decision begins: the order of its gangs makes no difference.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from vc_egpu.core.model.cluster import FULL_CORES_PERCENT, CardAsk, Mode, PodShape, ShareClass
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.profiles.table import NO_CLASS, NO_PROFILE, Moment, Profile, Work, hour_of
from vc_egpu.core.trial.trial import Trial

CLASS_WORDS: Final = {ShareClass.HIGH: "high", ShareClass.UNSET: NO_CLASS, ShareClass.LOW: "low"}
_WHOLE: Final = 100
_KNOWN: Final = "profiles"


def profile_of(trial: Trial, view: GangView) -> Profile:
    """How the gang is placed by the operator's table; equal for equal calls within one decision."""
    table = trial.policy.profiles
    if not table.rules:
        return NO_PROFILE
    known = trial.scratch.setdefault(_KNOWN, {})
    if not isinstance(known, dict):
        raise TypeError("only this module writes there")
    key = (view.gang.key, frozenset(member.shape_id for member in view.waiting))
    found = known.get(key)
    if not isinstance(found, Profile):
        moment = Moment(hour_of(trial.now), lambda model: allocation_percent(trial, model))
        found = known[key] = table.first(work_of(trial, view), moment)
    return found


def work_of(trial: Trial, view: GangView) -> Work:
    """The gang as rules see it. Each replica is looked at by itself."""
    shapes = list(_shapes(view))
    counted = shapes if not view.gang.single else shapes[:1]
    asks = [ask for shape in counted for ask in shape.asks]
    members = max(len(shapes), view.gang.min_member) if not view.gang.single else 1
    return Work(
        share_class=CLASS_WORDS[view.gang.share_class],
        members=members,
        cards=sum(ask.cards for ask in asks),
        part_percent=max((_part_percent(trial, ask) for ask in asks), default=0),
        models=tuple(sorted({ask.model for ask in asks})),
        traits=view.gang.traits,
    )


def _shapes(view: GangView) -> Iterator[PodShape]:
    """The shapes of all members that are there or planned, those that wait first."""
    yield from (member.shape for member in view.waiting)
    yield from (entry.member.shape for entry in view.planned if entry.member is not None)
    yield from (pod.shape for pod in (*view.foreign_gated, *view.placed, *view.succeeded))


def _part_percent(trial: Trial, ask: CardAsk) -> int:
    """What a share counts of its card: the larger of its parts of memory and of cores."""
    if ask.whole or ask.native:
        return _WHOLE
    card_mib = max(1, trial.index.card_mib.get(ask.model, ask.memory_mib))
    return min(_WHOLE, max(-(-ask.memory_mib * _WHOLE // card_mib), ask.cores_percent))


def allocation_percent(trial: Trial, model: str) -> int:
    """How much of the usable cards of a model is taken as the decision begins; 0 where there is none."""
    note = f"allocation of {model}"
    known = trial.scratch.get(note)
    if isinstance(known, int):
        return known
    ledger = trial.index.ledger
    kinds = [ledger.kinds[kind] for kind in ((model, mode) for mode in Mode) if kind in ledger.kinds]
    of_model = np.isin(ledger.kind, kinds) & ledger.usable
    memory = ledger.memory_used * _WHOLE // np.maximum(ledger.memory_cap, 1)
    cores = np.maximum(ledger.high_cores, ledger.low_cores) * _WHOLE // FULL_CORES_PERCENT
    taken = np.where(ledger.alone > 0, _WHOLE, np.clip(np.maximum(memory, cores), 0, _WHOLE))
    cards = int(of_model.sum())
    percent = int(taken[of_model].sum()) // cards if cards else 0
    trial.scratch[note] = percent
    return percent
