"""The sentences: one per verdict, with the numbers a user needs to see why."""

from collections.abc import Sequence

import numpy as np

from vc_egpu.core.books import fit
from vc_egpu.core.books.capacity import (
    MANY,
    copies,
    parts_of,
    places,
    pods_by_cards,
    pods_by_host,
    pods_by_node,
)
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.model.cluster import CardAsk, NodeName
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.plan import Eviction, Suspension
from vc_egpu.core.model.reasons import SURPLUS_NUMBER, Reason, Verdict
from vc_egpu.core.model.resources import (
    CORES_TOTAL_SUFFIX,
    CPU,
    EPHEMERAL,
    MEMORY,
    MEMORY_TOTAL_SUFFIX,
    NATIVE_PREFIX,
    is_model_key,
    model_of,
)
from vc_egpu.core.model.words import FEW, few
from vc_egpu.core.placing.place import Group, groups_of
from vc_egpu.core.queues.caps import Limit
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.trial import Trial
from vc_egpu.core.waiting import no_victims


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


def no_room(trial: Trial, view: GangView, members: Sequence[Member], *, preempts: bool = False) -> Verdict:
    """No place for all of them now: how many would find one, and what stands in the way.

    ``preempts``: making room for them was tried, in vain.
    """
    groups = groups_of(trial, view, members)
    worst = min(groups, key=lambda group: _places(trial, group) - len(group.members))
    free, wanted = _places(trial, worst), len(worst.members)
    numbers: dict[str, int | str] = {
        "asked": wanted,
        "free": min(free, wanted),
        "queue": str(view.gang.queue),
    }
    if worst.need.asks:
        text = f"asks for {ask(members)}; "
    else:
        text = f"asks for {_plural(wanted, 'member')} without cards, {_node_ask(worst)}; "
    if free >= wanted:
        text += "each part of it finds room now, all of it together does not"
    else:
        text += _how_many(worst, free, wanted, one_of_several=len(groups) > 1)
        text += _what_else(trial, view, worst, free, numbers)
        text += _kept_back(trial, view, worst, free, numbers)
    if preempts:
        text += no_victims.why(trial, view, groups, worst)
    return Verdict(Reason.WAITING_FOR_CARDS, text, numbers)


def _places(trial: Trial, group: Group) -> int:
    return places(trial.ledger, group.need, group.mask)


def _how_many(group: Group, free: int, wanted: int, *, one_of_several: bool) -> str:
    task = f" of task {group.members[0].task}" if one_of_several and group.members[0].task else ""
    if wanted == 1:
        return f"there is no place for it{task} now"
    if not free:
        return f"none of {wanted} members{task} would find a place now"
    return f"{free} of {wanted} members{task} would find a place now"


def _kept_back(trial: Trial, view: GangView, group: Group, free: int, numbers: dict[str, int | str]) -> str:
    """Where there would be more room if none were kept for gangs that are suspended."""
    claims = trial.claims.against(ClaimKind.STANDBY, view)
    if not claims:
        return ""
    wanted = len(group.members)
    with trial.without(claims):
        more = min(_places(trial, group), wanted)
    if more <= free:
        return ""
    memory_mib = sum(claim.memory_mib for claim in claims)
    cores = sum(claim.cores_percent for claim in claims)
    cards = sum(claim.cards for claim in claims)
    gangs = sorted({claim.gang for claim in claims})
    numbers.update(kept_mib=memory_mib, kept_cores=cores, kept_cards=cards, kept_for=few(gangs))
    return (
        f"; {more} would, were not {memory_mib} MiB and {cores} cores on {_plural(cards, 'card')} kept for "
        f"{few(gangs)}, suspended for more than {trial.policy.suspended_hold_s:.0f} s"
    )


def _what_else(trial: Trial, view: GangView, group: Group, free: int, numbers: dict[str, int | str]) -> str:
    """Whether cards themselves are short, or something beside them keeps nodes out."""
    ledger, need = trial.ledger, group.need
    everywhere = np.arange(len(ledger.names))
    by_cards = np.full(len(ledger.names), MANY)
    text = ""
    for entry in need.asks:
        count, _ = copies(ledger, need, entry, everywhere)
        by_cards = np.minimum(by_cards, pods_by_cards(count, entry.cards))
    if need.asks:
        have = (ledger.kind == need.asks[0].kind).any(axis=1)
        text = f" on {_plural(int(have.sum()), 'node')} with {need.asks[0].ask.model}"
        text += _left_by_names(trial, group)
        numbers["free_cards_only"] = int(by_cards.sum())
    wanted = len(group.members)
    open_to_it = int(by_cards[group.mask].sum())
    if open_to_it > free:
        missing = ", ".join(_short_of(trial, group, by_cards, numbers)) or "room on the node"
        cards = f"cards for {min(open_to_it, wanted)} are free, but {missing} beside them"
        text += f"; {cards if need.asks else missing} is short"
    room = np.minimum(by_cards, pods_by_node(ledger, need, everywhere))
    shut = [name for name, row in sorted(ledger.rows.items()) if room[row] > 0 and not group.mask[row]]
    if shut and open_to_it < wanted:
        reasons = [f"{name} ({_shut_by(trial, view, group, name)})" for name in shut[:FEW]]
        more = f" and {len(shut) - FEW} more" if len(shut) > FEW else ""
        text += f"; with room but closed to it: {', '.join(reasons)}{more}"
    return text


def _left_by_names(trial: Trial, group: Group) -> str:
    """How many of these nodes' cards are left to a group that names cards: a name may be misspelt."""
    need, shape = group.need, group.need.shape
    if need.cards is None:
        return ""
    cards = trial.ledger.kind == need.asks[0].kind
    named = [
        name for name, used in (("use-cards", shape.use_cards), ("avoid-cards", shape.avoid_cards)) if used
    ]
    leave = "leaves" if len(named) == 1 else "leave"
    left = int((cards & need.cards).sum())
    return f", of whose {_plural(int(cards.sum()), 'card')} {' and '.join(named)} {leave} {left}"


def _shut_by(trial: Trial, view: GangView, group: Group, name: NodeName) -> str:
    if name in view.gang.blocked_nodes:
        return "refused a member lately"
    return fit.why_not(trial.index.nodes[name], group.need.shape) or "not ready"


def _short_of(trial: Trial, group: Group, by_cards: Ints, numbers: dict[str, int | str]) -> list[str]:
    """Which of the node's own resources alone would keep the group out, where cards would not."""
    ledger, need = trial.ledger, group.need
    wanted = min(len(group.members), int(by_cards[group.mask].sum()))
    words = []
    for part, word in parts_of(need):
        room = np.minimum(by_cards, pods_by_node(ledger, part, np.arange(len(ledger.names))))
        if int(room[group.mask].sum()) < wanted:
            words.append(word)
    if need.spills:
        everywhere = np.arange(len(ledger.names))
        hosts = np.minimum(by_cards, pods_by_host(ledger, need, everywhere))
        if int(hosts[group.mask].sum()) < wanted:
            words.append(_host_short(trial, group, by_cards, numbers))
    return words


def _host_short(trial: Trial, group: Group, by_cards: Ints, numbers: dict[str, int | str]) -> str:
    """The node's host memory, or a container's own limit, on the node that has most left of it."""
    ledger, need = trial.ledger, group.need
    rows = np.flatnonzero(group.mask & (by_cards > 0))
    left = np.maximum(ledger.host_cap[rows] - ledger.host_used[rows], 0)
    row = int(rows[int(np.argmax(left))])
    ratio = ledger.ratio_for(row, need.share_class)
    for entry in need.asks:
        host_mib, limit = entry.here(ratio).host_mib, entry.ask.host_limit_mib
        if limit is not None and host_mib > limit:
            numbers.update(may_spill_mib=host_mib, memory_limit_mib=limit)
            return (
                f"memory of the container {entry.ask.container} (it may spill {host_mib} MiB, "
                f"its limit is {limit} MiB)"
            )
    asked, free = need.host_mib(ratio) or 0, int(left.max())
    numbers.update(may_spill_mib=asked, host_free_mib=free)
    return f"host memory (a member may spill {asked} MiB, {free} MiB are left)"


def _node_ask(group: Group) -> str:
    cpu, memory, ephemeral, _ = group.need.requests
    parts = [f"{cpu} milli-CPU"] if cpu else []
    parts += [f"{memory >> 20} MiB of memory"] if memory else []
    parts += [f"{ephemeral >> 20} MiB of disk"] if ephemeral else []
    parts += [f"{amount} {name}" for name, amount in group.need.scalars]
    parts += [f"host port {port}" for _, _, port in group.need.ports]
    return (", ".join(parts) or "nothing") + " each"


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


def short_of_members(
    view: GangView, have: int, tasks: Sequence[tuple[str, int, int]], leaving: str
) -> Verdict:
    """Fewer pods than the gang needs at least; ``tasks``: (task, have, need) of those that are short;
    ``leaving``: where some of them still are."""
    need = view.gang.min_member
    numbers: dict[str, int | str] = {"have": have, "need": need}
    if have < need:
        text = f"{have} of {need} members are there"
    else:
        task, there, wanted = tasks[0]
        numbers = {"have": there, "need": wanted, "task": task}
        text = f"{there} of {wanted} members of task {task} are there"
    if leaving:
        numbers["leaving"] = len(view.terminating)
    return Verdict(Reason.WAITING_FOR_MEMBERS, text + leaving, numbers)


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
    text = f"waits until {_plural(pods, 'pod')} of {few(gangs)} {verb} gone"
    text += f"; they hold {_plural(cards, 'card')}" if pods > 1 else f"; it holds {_plural(cards, 'card')}"
    return Verdict(Reason.WAITING_FOR_EVICTION, text, {"pods": pods, "gangs": len(gangs), "cards": cards})


def making_room(evictions: Sequence[Eviction], suspensions: Sequence[Suspension], cards: int) -> Verdict:
    """Room is being made, by suspension where that is enough."""
    if not suspensions:
        return evicting(evictions, cards)
    gangs = sorted(entry.gang for entry in suspensions)
    pods = sum(len(entry.pods) for entry in suspensions)
    verb = "is" if pods == 1 else "are"
    text = f"waits until {_plural(pods, 'pod')} of {few(gangs)} {verb} suspended"
    numbers: dict[str, int | str] = {"suspended": pods}
    if evictions:
        evicted = evicting(evictions, cards)
        others = sum(len(entry.pods) for entry in evictions)
        whose = few(sorted(entry.gang for entry in evictions))
        text += f" and {_plural(others, 'pod')} of {whose} {'is' if others == 1 else 'are'} gone"
        numbers = {**evicted.numbers, **numbers}
    going: tuple[Eviction | Suspension, ...] = (*evictions, *suspensions)
    every = sum(len(entry.pods) for entry in going)
    text += f"; they hold {_plural(cards, 'card')}" if every > 1 else f"; it holds {_plural(cards, 'card')}"
    numbers.update(pods=every, gangs=len({entry.gang for entry in going}), cards=cards)
    return Verdict(Reason.WAITING_FOR_EVICTION, text, numbers)


def asleep(view: GangView) -> Verdict:
    """Its running members are suspended: it does not grow meanwhile."""
    away = sum(pod.suspend_ordered for pod in view.placed)
    text = f"{away} of its {_plural(len(view.placed), 'member')} are suspended; it grows once they run again"
    return Verdict(Reason.WAITING_FOR_CARDS, text, {"suspended": away, "placed": len(view.placed)})


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


def admitted(placed: int, surplus: int, there: int = 0, *, tried: bool = True) -> Verdict:
    """Placed; ``surplus``: members above the minimum that still wait; ``there``: had their place before.

    ``tried``: for those that wait there was no room. A plan that is carried out says nothing about them.
    """
    more = "more " if there else ""
    text = f"{_plural(placed, f'{more}member')} placed"
    if there:
        text += f", {there + placed} in all"
    if surplus and tried:
        text += f"; {surplus} above the minimum {'waits' if surplus == 1 else 'wait'} for room"
    elif surplus:
        text += f"; {surplus} above the minimum {'is' if surplus == 1 else 'are'} tried next"
    return Verdict(Reason.ADMITTED, text, {"placed": placed, SURPLUS_NUMBER: surplus})


def surplus(view: GangView, left: int, verdict: Verdict) -> Verdict:
    """The verdict on members above the minimum, which do not keep the gang from running."""
    there = len(view.placed) + len(view.succeeded)
    text = f"{there} of {_plural(there + left, 'member')} have a place; one more {verdict.message}"
    return Verdict(verdict.reason, text, {**verdict.numbers, "placed": there, SURPLUS_NUMBER: left})
