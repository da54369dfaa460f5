"""Small pieces of text that messages are made of."""

from collections.abc import Mapping, Sequence
from typing import Final

from vc_egpu.core.model.causes import Account
from vc_egpu.core.model.resources import MICROCARDS, NATIVE_PREFIX, SHARED_PREFIX

FEW: Final = 3
"""Names that a sentence can bear."""
_DAY_S: Final = 86400
_LAST: Final = 253_402_300_799
"""The last second of the year 9999."""


def few(names: Sequence[str], most: int = FEW) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def about_nodes(shut: Mapping[str, str], more: int, opens: Sequence[str]) -> list[str]:
    """Nodes with room that do not take a gang, each with its reason, and nodes that are opened for it."""
    texts = []
    if shut:
        names = ", ".join(f"{name} ({why})" for name, why in shut.items())
        texts.append(f"nodes with room that do not take it: {names}{f' and {more} more' if more else ''}")
    if opens:
        texts.append(f"nodes that were to be emptied take work again for it: {few(opens)}")
    return texts


def why_moved(whom: str, empties: str = "") -> str:
    """What a gang goes to other cards for: ``whom`` fits then, the node ``empties`` is empty, or neither."""
    if empties:
        return f"so that node {empties} is empty"
    return f"so that {whom} fits" if whom else "so that less is left over in pieces"


def balance(accounts: Sequence[Account]) -> str:
    """What queues have of what they deserve: ``research has 1 of 4 h20, serving has 6 of 2 h20``."""
    return ", ".join(f"{entry.queue} has {has_of(entry)}" for entry in accounts)


def has_of(account: Account) -> str:
    """``1.5 of 4 h20``, in cards."""
    has, deserved = cards(account.has_microcards), cards(account.deserved_microcards)
    return f"{has} of {deserved} {kind(account.resource)}"


def kind(resource: str) -> str:
    """What users call a kind of card: ``h20``, or ``native h20``."""
    if resource.startswith(NATIVE_PREFIX):
        return f"native {resource.removeprefix(NATIVE_PREFIX)}"
    return resource.removeprefix(SHARED_PREFIX)


def cards(microcards: int) -> str:
    """Cards with up to two decimals. Less than a hundredth of a card, but not none, is ``0.01``."""
    hundredths = max(round(microcards * 100 / MICROCARDS), 1 if microcards > 0 else 0)
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".")


def utc(moment: float) -> str:
    """Seconds since the epoch as the API server writes times. The core has no calendar."""
    days, seconds = divmod(min(max(int(moment), 0), _LAST), _DAY_S)
    year = 1970
    while days >= sum(_months(year)):
        days -= sum(_months(year))
        year += 1
    month = 0
    while days >= _months(year)[month]:
        days -= _months(year)[month]
        month += 1
    hours, minutes = divmod(seconds // 60, 60)
    return f"{year:04}-{month + 1:02}-{days + 1:02}T{hours:02}:{minutes:02}:{seconds % 60:02}Z"


def _months(year: int) -> tuple[int, ...]:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
