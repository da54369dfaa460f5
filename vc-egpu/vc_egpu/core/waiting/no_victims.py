"""Why nobody goes for a high-priority gang that finds no room: it would be in vain, or it may not be."""

from collections.abc import Sequence

from vc_egpu.core.books.capacity import places
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.words import few
from vc_egpu.core.placing.place import Group
from vc_egpu.core.room.victims import Guarantees, Prey, prey
from vc_egpu.core.trial.trial import Trial


def why(trial: Trial, view: GangView, groups: Sequence[Group], worst: Group) -> str:
    """The end of the sentence. ``worst``: the group of which most lack a place. Making room was tried."""
    coming = trial.coming_back()
    free = _places(trial.ledger, worst)
    lifted = trial.lift(pod.uid for pod in coming)
    more = _places(trial.ledger, worst)
    trial.put_back(lifted)
    if more > free:
        gangs = sorted({str(pod.gang) for pod in coming})
        again = "can be suspended again as soon as it is back on its cards"
        return f"; nobody is evicted while {few(gangs)} {again}"
    everybody = prey(trial, Cause.PRIORITY)
    if _enough(everybody.without, groups) and _is_guaranteed(trial, view, everybody):
        return "; low-priority work whose going would make room is guaranteed to its queue"
    if everybody.spared is not None and _enough(everybody.spared, groups):
        return (
            "; low-priority work whose going would make room is not evicted: a PodDisruptionBudget guards "
            "it, its eviction was refused lately, or nobody would make it anew"
        )
    return "; evicting low-priority work would not make room"


def _is_guaranteed(trial: Trial, view: GangView, everybody: Prey) -> bool:
    """Whether not all of them may go at once."""
    guarantees = Guarantees(trial, view)
    pods = (pod for candidate in everybody.listed for pod in candidate.pods)
    return not guarantees.allow(guarantees.amounts(pods))


def _places(ledger: Ledger, group: Group) -> int:
    return places(ledger, group.need, group.mask)


def _enough(ledger: Ledger, groups: Sequence[Group]) -> bool:
    """Each part of the gang by itself."""
    return all(_places(ledger, group) >= len(group.members) for group in groups)
