"""Node terms that have to hold together: a pod's own, and those of each volume that it names.

Each list is a choice, so the combinations of all lists are as many as their product. Twenty volumes, each of
which can be used in two zones, make a million. Nearly all of these hold nowhere, or repeat another one.
"""

from collections.abc import Iterable
from typing import Final

from vc_egpu.core.model.cluster import Requirement

Term = tuple[Requirement, ...]
Terms = tuple[Term, ...]

MOST_TERMS: Final = 1024
"""Terms that may be left. A tenant who claims many volumes must not keep all others waiting for them."""
_MOST_PAIRS: Final = 4 * MOST_TERMS
"""Pairs of terms that are looked at for one volume: some 20 ms."""


class TooManyTermsError(ValueError):
    """The lists leave too many terms together; the text has the limit."""


def all_of(terms: Terms, others: Iterable[Terms]) -> Terms:
    """The terms that hold where one term of each list holds. A list without terms demands nothing.

    Raises :class:`TooManyTermsError`.
    """
    said = {frozenset(terms)}
    for other in others:
        if other and frozenset(other) not in said:
            said.add(frozenset(other))
            terms = _both(terms, other) if terms else other
    return terms


def _both(terms: Terms, others: Terms) -> Terms:
    if len(terms) > 1 and len(others) > 1 and len(terms) * len(others) > _MOST_PAIRS:
        raise TooManyTermsError(_text())
    together: dict[frozenset[Requirement], Term] = {}
    for term in terms:
        for other in others:
            both = tuple(dict.fromkeys(term + other))
            if _may_hold(both):
                together.setdefault(frozenset(both), both)
        if len(together) > max(MOST_TERMS, len(terms)):
            raise TooManyTermsError(_text())
    # A term that holds nowhere is kept all the same: no term at all would mean any node.
    return tuple(together.values()) or (terms[0] + others[0],)


def _text() -> str:
    return f"its node affinity and its volumes leave more than {MOST_TERMS} alternatives together"


def _may_hold(term: Term) -> bool:
    """Whether there can be such a node: two lists of values for one label must share a value."""
    choices: dict[tuple[str, bool], set[str]] = {}
    for requirement in term:
        if requirement.operator == "In":
            place, values = (requirement.key, requirement.on_field), set(requirement.values)
            choices[place] = choices[place] & values if place in choices else values
    return all(choices.values())
