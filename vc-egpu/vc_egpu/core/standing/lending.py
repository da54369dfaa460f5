"""What is claimed for some is lent to others: in the turn of a gang, and while suspended gangs come back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.standing import guaranteed
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.trial import Trial

_LENT: Final = (ClaimKind.GUARANTEE, ClaimKind.RESERVATION, ClaimKind.MOVE)


@contextmanager
def aside(trial: Trial, view: GangView) -> Iterator[None]:
    """While a gang is placed, what is claimed for it, and what others' claims lend it, is free."""
    lent = trial.claims.set_aside(_LENT, view)
    for claim in lent:
        trial.unbook(claim)
    before = trial.version(view.gang.queue) if lent else 0
    yield
    for claim in trial.claims.restore():
        trial.book(claim)
    if lent and trial.version(view.gang.queue) != before:
        guaranteed.renew(trial, view.gang.queue)


@contextmanager
def away(trial: Trial) -> Iterator[None]:
    """While suspended gangs come back: what is claimed on their cards does not keep them from those."""
    with trial.without([claim for kind in _LENT for claim in trial.claims.of(kind)]):
        yield
