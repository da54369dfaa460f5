"""The sentences: one per verdict, with the numbers a user needs to see why."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from vc_egpu.core import fit
from vc_egpu.core.capacity import copies, pods_by_cards, pods_fitting
from vc_egpu.core.caps import Limit
from vc_egpu.core.cluster import CardAsk, Gang
from vc_egpu.core.gangs import GangView, Member
from vc_egpu.core.place import Group, groups_of
from vc_egpu.core.plan import Eviction
from vc_egpu.core.reasons import Reason, Verdict
from vc_egpu.core.resources import (
    CORES_TOTAL_SUFFIX,
    CPU,
    EPHEMERAL,
    MEMORY,
    MEMORY_TOTAL_SUFFIX,
    NATIVE_PREFIX,
    is_model_key,
    model_of,
)
from vc_egpu.core.trial import Trial

_MAX_NAMED: Final = 3


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ask(members: Sequence[Member]) -> str:
    """What these members ask for together: ``4 shares of h20 (20480 MiB, 25 cores each)``."""
    kinds: dict[tuple[str, int, int, bool, bool], int] = {}
    for member in members:
        for entry in member.shape.asks:
            key = (entry.model, entry.memory_mib, entry.cores_percent, entry.native, entry.whole)
            kinds[key] = kinds.get(key, 0) + entry.cards
    if not kinds:
        return f"{_plural(len(members), 'member')} without cards"
    parts = [_ask_part(key, count) for key, count in kinds.items()]
    return " and ".join(parts)


def _ask_part(kind: tuple[str, int, int, bool, bool], count: int) -> str:
    model, memory_mib, cores, native, whole = kind
    if native:
        return f"{_plural(count, 'native card')} of {model}"
    if whole:
        return f"{_plural(count, 'whole card')} of {model}"
    each = " each" if count > 1 else ""
    compute = f"{cores} cores" if cores else "no fixed cores"
    return f"{_plural(count, 'share')} of {model} ({memory_mib} MiB, {compute}{each})"


def over_cap(limit: Limit, members: Sequence[Member]) -> Verdict:
    """The queue does not allow it now, or at all."""
    what, unit = _resource(limit.resource)
    numbers: dict[str, int | str] = {
        "asked": limit.asked,
        "used": limit.used,
        "cap": limit.cap,
        "left": limit.left,
        "queue": str(limit.queue),
        "resource": limit.resource,
    }
    asks = f"asks for {ask(members)}"
    if not limit.named:
        text = f"{asks}; the queue {limit.queue} does not name {what}, which allows none of it"
        return Verdict(Reason.EXCEEDS_CAP, text, numbers)
    if not is_model_key(limit.resource):
        asks += f", in all {limit.asked}{unit} of {what}"
    if limit.never:
        text = f"{asks}; the queue {limit.queue} may use {limit.cap}{unit} of {what} at most"
        return Verdict(Reason.EXCEEDS_CAP, text, numbers)
    text = f"{asks}; the queue {limit.queue} has {limit.left} of {limit.cap}{unit} left"
    return Verdict(Reason.WAITING_FOR_QUOTA, text, numbers)


def _resource(name: str) -> tuple[str, str]:
    """(what it is, its unit) for a sentence."""
    model = model_of(name)
    if model is not None:
        if name.startswith(NATIVE_PREFIX):
            return f"native {model}", ""
        if name.endswith(MEMORY_TOTAL_SUFFIX):
            return f"{model} memory", " MiB"
        if name.endswith(CORES_TOTAL_SUFFIX):
            return f"{model} cores", " percent"
        return model, ""
    units = {CPU: " milli-CPU", MEMORY: " bytes", EPHEMERAL: " bytes"}
    return name, units.get(name, "")


def no_room(trial: Trial, view: GangView, members: Sequence[Member]) -> Verdict:
    """No place for all of them now: how many would find one, and what stands in the way."""
    groups = groups_of(trial, view, members)
    worst = min(groups, key=lambda group: _places(trial, group) - len(group.members))
    places, wanted = _places(trial, worst), len(worst.members)
    numbers: dict[str, int | str] = {
        "asked": wanted,
        "free": min(places, wanted),
        "queue": str(view.gang.queue),
    }
    if not worst.need.asks:
        text = (
            f"{_plural(wanted, 'member')} without cards need {_node_ask(worst)}; "
            f"nodes take {places} of them now"
        )
        return Verdict(Reason.WAITING_FOR_CARDS, text, numbers)
    text = f"asks for {ask(members)}; "
    if places >= wanted:
        text += "places are free for each part of it, not for all of it together"
    else:
        task = f" of {worst.members[0].task}" if len(groups) > 1 and worst.members[0].task else ""
        text += f"{places} of {_plural(wanted, 'member')}{task} would find cards now"
        text += _what_else(trial, view, worst, places, numbers)
    return Verdict(Reason.WAITING_FOR_CARDS, text, numbers)


def _places(trial: Trial, group: Group) -> int:
    return int(pods_fitting(trial.ledger, group.need, group.mask).sum())


def _what_else(trial: Trial, view: GangView, group: Group, places: int, numbers: dict[str, int | str]) -> str:
    """Whether cards themselves are short, or something beside them keeps nodes out."""
    ledger, need = trial.ledger, group.need
    by_cards = np.full(len(ledger.names), np.iinfo(np.int64).max)
    for entry in need.asks:
        count = copies(ledger, entry, need.cards, slice(None))
        by_cards = np.minimum(by_cards, pods_by_cards(count, entry.cards))
    total = int(by_cards.sum())
    numbers["free_cards_only"] = total
    have = (ledger.kind == need.asks[0].kind).any(axis=1)
    text = f" on {_plural(int(have.sum()), 'node')} with {need.asks[0].ask.model}"
    if total <= places:
        return text
    shut = [name for name, row in sorted(ledger.rows.items()) if by_cards[row] > 0 and not group.mask[row]]
    if shut:
        reasons = []
        for name in shut[:_MAX_NAMED]:
            node = trial.index.nodes[name]
            blocked = (
                "refused a member lately"
                if name in view.gang.blocked_nodes
                else fit.why_not(node, need.shape)
            )
            reasons.append(f"{name}: {blocked or 'not ready'}")
        more = f", {len(shut) - _MAX_NAMED} more" if len(shut) > _MAX_NAMED else ""
        text += f"; nodes with room that do not take it: {', '.join(reasons)}{more}"
    closed = int(by_cards[group.mask].sum())
    if closed > places:
        text += (
            f"; cards for {min(closed, len(group.members))} are free, but not {_node_ask(group)} beside them"
        )
    return text


def _node_ask(group: Group) -> str:
    cpu, memory, ephemeral, _ = group.need.requests
    parts = [f"{cpu} milli-CPU"] if cpu else []
    parts += [f"{memory >> 20} MiB of memory"] if memory else []
    parts += [f"{ephemeral >> 20} MiB of disk"] if ephemeral else []
    parts += [f"{amount} {name}" for name, amount in group.need.scalars]
    parts += [f"host port {port}" for _, _, port in group.need.ports]
    return ", ".join([*parts, "a free pod slot"]) + " each"


def no_model(trial: Trial, members: Sequence[Member]) -> Verdict | None:
    """No node has a model that is asked for, in the way it is asked for; None where all are there."""
    for member in members:
        for entry in member.shape.asks:
            if not trial.has_kind(entry.model, native=entry.native):
                return Verdict(Reason.WAITING_FOR_MODEL, _missing_model(entry), {"model": entry.model})
    return None


def _missing_model(entry: CardAsk) -> str:
    how = "as native cards" if entry.native else "to share"
    return f"asks for {entry.model}; no node offers {entry.model} {how} now"


def short_of_members(gang: Gang, have: int, tasks: Sequence[tuple[str, int, int]]) -> Verdict:
    """Fewer pods than the gang needs at least; ``tasks``: (task, have, need) of those that are short."""
    numbers: dict[str, int | str] = {"have": have, "need": gang.min_member}
    if have < gang.min_member:
        text = f"{have} of {gang.min_member} members are there"
    else:
        task, there, wanted = tasks[0]
        numbers = {"have": there, "need": wanted, "task": task}
        text = f"{there} of {wanted} members of task {task} are there"
    return Verdict(Reason.WAITING_FOR_MEMBERS, text, numbers)


def foreign_gate(view: GangView) -> Verdict:
    """Somebody else's gate keeps members back."""
    gates = sorted({gate for pod in view.foreign_gated for gate in pod.other_gates})
    count = len(view.foreign_gated)
    verb = "still has" if count == 1 else "still have"
    text = f"{_plural(count, 'member')} {verb} the scheduling gate {', '.join(gates)} of somebody else"
    return Verdict(Reason.WAITING_FOR_GATE, text, {"members": count, "gate": gates[0]})


def evicting(evictions: Sequence[Eviction], cards: int) -> Verdict:
    """Room is being made."""
    gangs = sorted(entry.gang for entry in evictions)
    pods = sum(len(entry.pods) for entry in evictions)
    verb = "is" if pods == 1 else "are"
    text = f"waits until {_plural(pods, 'pod')} of {names(gangs)} {verb} gone"
    text += f"; they hold {_plural(cards, 'card')}" if pods > 1 else f"; it holds {_plural(cards, 'card')}"
    return Verdict(Reason.WAITING_FOR_EVICTION, text, {"pods": pods, "gangs": len(gangs), "cards": cards})


def leaving(view: GangView, members: Sequence[Member], pods: Sequence[object]) -> Verdict:
    """Nobody has to be evicted: enough is being freed already."""
    verb = "is" if len(pods) == 1 else "are"
    text = (
        f"asks for {ask(members)}; there is room once {_plural(len(pods), 'pod')} already leaving {verb} gone"
    )
    numbers: dict[str, int | str] = {
        "asked": len(members),
        "leaving": len(pods),
        "queue": str(view.gang.queue),
    }
    return Verdict(Reason.WAITING_FOR_CARDS, text, numbers)


def names(keys: Sequence[str]) -> str:
    """A few names, and how many more."""
    more = f" and {len(keys) - _MAX_NAMED} more" if len(keys) > _MAX_NAMED else ""
    return ", ".join(keys[:_MAX_NAMED]) + more


def admitted(placed: int, surplus: int) -> Verdict:
    """Placed; ``surplus``: members above the minimum that still wait."""
    text = f"{_plural(placed, 'member')} placed"
    if surplus:
        text += f"; {surplus} above the minimum wait for room"
    return Verdict(Reason.ADMITTED, text, {"placed": placed, "surplus_waiting": surplus})


def surplus(view: GangView, left: int, verdict: Verdict) -> Verdict:
    """The verdict on members above the minimum, which do not keep the gang from running."""
    there = len(view.placed) + len(view.succeeded)
    text = f"{there} of {_plural(there + left, 'member')} have a place; one more {verdict.message}"
    return Verdict(verdict.reason, text, {**verdict.numbers, "placed": there, "surplus_waiting": left})
