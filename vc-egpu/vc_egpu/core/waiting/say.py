"""Sentences for users: one verdict for each finding, with the numbers in it.

Nothing is found out here. To change a sentence, change it here and in the scenarios that show it.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Final, assert_never

from vc_egpu.core.model import findings
from vc_egpu.core.model.causes import Account
from vc_egpu.core.model.cluster import OUT_OF_SERVICE
from vc_egpu.core.model.findings import Finding, Kept, NodeResource, Rule, Spared
from vc_egpu.core.model.reasons import BACK_OFF_NUMBER, SURPLUS_NUMBER, Reason, Verdict
from vc_egpu.core.model.resources import (
    CORES_TOTAL_SUFFIX,
    CPU,
    EPHEMERAL,
    MEMORY,
    MEMORY_TOTAL_SUFFIX,
    NATIVE_PREFIX,
    is_low_key,
    is_model_key,
    model_of,
)
from vc_egpu.core.model.words import about_nodes, balance, few, has_of, kind, utc

_MOST_KINDS: Final = 8
"""Kinds of cards that a sentence names: all others are counted."""

Numbers = dict[str, int | str]
Said = tuple[Reason, str, Numbers]


def verdict(finding: Finding) -> Verdict:
    """The finding with its reason, its sentence and its numbers."""
    reason, text, numbers = _said(finding)
    return Verdict(reason, text, numbers, finding)


@singledispatch
def _said(finding: object) -> Said:
    """The functions below say it, each for one kind of finding."""
    raise TypeError(f"no sentence for {type(finding).__name__}")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _sentences(texts: Sequence[str]) -> str:
    """One sentence after the other. The first is the rest of one, and the last has no full stop."""
    first, *others = texts
    return ". ".join([first, *(text[:1].upper() + text[1:] for text in others)])


# --- what is asked for ---------------------------------------------------------------------------


def _request(request: findings.Request) -> str:
    """What members ask for together: ``4 shares of h20 (20480 MiB, 25 cores each)``."""
    if not request.cards:
        return f"{_plural(request.members, 'member')} without cards"
    kinds = [_cards(cards) for cards in request.cards[:_MOST_KINDS]]
    more = len(request.cards) - len(kinds)
    return " and ".join([*kinds, f"{more} more kinds of cards"] if more > 0 else kinds)


def _cards(request: findings.CardRequest) -> str:
    if request.native:
        return f"{_plural(request.cards, 'native card')} of {request.model}"
    if request.whole:
        return f"{_plural(request.cards, 'whole card')} of {request.model}"
    if request.slice:
        memory_mib, cores = request.asked
        asked = f"{memory_mib} MiB and {cores} cores" if cores else f"{memory_mib} MiB"
        rounded = f" for {asked}" if memory_mib else ""
        size = f"({request.memory_mib} MiB, {request.cores_percent} cores{rounded})"
        return f"{_plural(request.cards, 'slice')} {request.slice} of {request.model} {size}"
    each = " each" if request.cards > 1 else ""
    compute = f"{request.cores_percent} cores" if request.cores_percent else "no fixed cores"
    share = f"({request.memory_mib} MiB, {compute}{each})"
    return f"{_plural(request.cards, 'share')} of {request.model} {share}"


def _node_request(request: findings.NodeRequest) -> str:
    parts = [f"{request.cpu_milli} milli-CPU"] if request.cpu_milli else []
    parts += [f"{request.memory_bytes >> 20} MiB of memory"] if request.memory_bytes else []
    parts += [f"{request.ephemeral_bytes >> 20} MiB of disk"] if request.ephemeral_bytes else []
    parts += [f"{amount} {name}" for name, amount in request.scalars]
    parts += [f"host port {port}" for port in request.ports]
    return (", ".join(parts) or "nothing") + " each"


# --- queues and members --------------------------------------------------------------------------


@_said.register
def _over_cap(finding: findings.OverCap) -> Said:
    limit = finding.limit
    what, unit = _resource(limit.resource)
    numbers: Numbers = {
        "asked": limit.asked,
        "used": limit.used,
        "cap": limit.cap,
        "left": limit.left,
        "queue": str(limit.queue),
        "resource": limit.resource,
    }
    asks = f"asks for {_request(finding.request)}"
    if not limit.named:
        text = f"{asks}; the queue {limit.queue} does not name {what}, so it may use none"
        return Reason.EXCEEDS_CAP, text, numbers
    if not is_model_key(limit.resource):
        asks += f", in all {limit.asked}{unit} of {what}"
    if limit.never:
        text = f"{asks}; the queue {limit.queue} may use {limit.cap}{unit} of {what} at most"
        return Reason.EXCEEDS_CAP, text, numbers
    text = f"{asks}; the queue {limit.queue} has {limit.left} of {limit.cap}{unit} left"
    return Reason.WAITING_FOR_QUOTA, text, numbers


def _resource(name: str) -> tuple[str, str]:
    """What it is, and its unit, for a sentence."""
    model = model_of(name)
    if model is not None:
        if name.startswith(NATIVE_PREFIX):
            return f"native {model}", ""
        if name.endswith(MEMORY_TOTAL_SUFFIX):
            return f"{model} memory", " MiB"
        whose = f"low {model}" if is_low_key(name) else model
        if name.endswith(CORES_TOTAL_SUFFIX):
            return f"{whose} cores", " percent"
        return whose, ""
    units = {CPU: " milli-CPU", MEMORY: " bytes", EPHEMERAL: " bytes"}
    return name, units.get(name, "")


@_said.register
def _no_queue(finding: findings.NoQueue) -> Said:
    return Reason.QUEUE_CLOSED, f"there is no queue {finding.queue}", {"queue": str(finding.queue)}


@_said.register
def _closed(finding: findings.Closed) -> Said:
    queue, closed = finding.queue, finding.closed
    above = "" if queue == closed else f", which is above {queue},"
    return Reason.QUEUE_CLOSED, f"the queue {closed}{above} is closed", {"queue": str(queue)}


@_said.register
def _too_large(finding: findings.TooLarge) -> Said:
    text = f"has {finding.members} members; a gang may have {finding.limit} at most"
    return Reason.EXCEEDS_CAP, text, {"members": finding.members, "limit": finding.limit}


@_said.register
def _foreign_gate(finding: findings.ForeignGate) -> Said:
    verb = "still has" if finding.members == 1 else "still have"
    gates = ", ".join(finding.gates)
    text = f"{_plural(finding.members, 'member')} {verb} the scheduling gate {gates} of another controller"
    return Reason.WAITING_FOR_GATE, text, {"members": finding.members, "gate": finding.gates[0]}


@_said.register
def _back_off(finding: findings.BackOff) -> Said:
    text = f"was rolled back and is tried again in {finding.left_s} s"
    return Reason.WAITING_FOR_CARDS, text, {BACK_OFF_NUMBER: finding.left_s}


@_said.register
def _behind(finding: findings.Behind) -> Said:
    text = f"the queue {finding.queue} serves its gangs in order (fifo), and {finding.head} is before it"
    return Reason.WAITING_FOR_TURN, text, {"queue": str(finding.queue), "behind": finding.head}


@_said.register
def _suspended(finding: findings.Suspended) -> Said:
    members = _plural(finding.placed, "member")
    text = f"{finding.suspended} of its {members} are suspended; it grows once they run again"
    return Reason.WAITING_FOR_CARDS, text, {"suspended": finding.suspended, "placed": finding.placed}


@_said.register
def _missing_members(finding: findings.MissingMembers) -> Said:
    numbers: Numbers = {"have": finding.have, "need": finding.need}
    whose = ""
    if finding.task:
        numbers["task"] = finding.task
        whose = f" of task {finding.task}"
    text = f"{finding.have} of {finding.need} members{whose} are there"
    leaving = finding.leaving
    if leaving is None:
        return Reason.WAITING_FOR_MEMBERS, text, numbers
    numbers["leaving"] = leaving.members
    text += f"; {leaving.members} {_are(leaving.members)} still leaving {few(leaving.nodes)}"
    silent = [_silent(leaving.silent)] if leaving.silent else []
    return Reason.WAITING_FOR_MEMBERS, _sentences([text, *silent]), numbers


def _silent(nodes: Sequence[str]) -> str:
    if len(nodes) == 1:
        whose, back = f"node {nodes[0]} is silent: its", "it is back, is deleted, or is"
    else:
        whose, back = f"nodes {few(nodes)} are silent: their", "they are back, are deleted, or are"
    return f"{whose} pods are gone once {back} tainted {OUT_OF_SERVICE}"


# --- room ----------------------------------------------------------------------------------------


@_said.register
def _no_model(finding: findings.NoModel) -> Said:
    how = "as native cards" if finding.native else "to share"
    text = f"asks for {finding.model}; no node offers {finding.model} {how} now"
    return Reason.WAITING_FOR_MODEL, text, {"model": finding.model}


@_said.register
def _no_environment(finding: findings.NoEnvironment) -> Said:
    texts = []
    for lack in finding.without:
        those = _plural(lack.nodes, "node")
        if lack.has:
            verb = "has" if lack.nodes == 1 else "have"
            texts.append(f"{those} {verb} {lack.fact} {few(lack.has)}, {lack.needed} is needed")
        else:
            verb = "does" if lack.nodes == 1 else "do"
            texts.append(f"{those} {verb} not tell {lack.fact}, {lack.needed} is needed")
    text = f"needs {finding.needs}, which no node with its cards has: {'; '.join(texts)}"
    return Reason.WAITING_FOR_ENVIRONMENT, text, {"nodes": finding.nodes, "needs": finding.needs}


@_said.register
def _shortage(finding: findings.Shortage) -> Said:
    asks = _request(finding.request)
    if finding.each is not None:
        asks = f"{_plural(finding.wanted, 'member')} without cards, {_node_request(finding.each)}"
    texts = [f"asks for {asks}; {_how_many(finding)}"]
    if finding.cards is not None:
        texts = [f"{texts[0]} on {_plural(finding.cards.nodes, 'node')} with {finding.cards.model}"]
        texts += [_named(finding.cards.named)] if finding.cards.named is not None else []
        texts += _no_set(finding.cards)
    if finding.level is not None:
        texts.append(_level(finding.level))
    if finding.beyond is not None:
        texts.append(_beyond(finding.beyond, cards=finding.cards is not None))
    texts += about_nodes({str(n.name): n.why for n in finding.shut}, finding.shut_more, finding.opens)
    if finding.brief:
        texts.append("very many gangs wait, so it was not looked for what is short")
    if finding.standby is not None:
        texts.append(_standby(finding.standby))
    if finding.claimed is not None:
        texts.append(_claimed(finding.claimed))
    if finding.guaranteed is not None:
        texts.append(_guaranteed(finding.guaranteed))
    if finding.own is not None:
        texts.append(_own(finding.own))
    if finding.no_victims is not None:
        texts.append(_no_victims(finding.no_victims))
    if finding.not_reclaimed is not None:
        texts.append(_not_reclaimed(finding.not_reclaimed))
    is_overtaken = finding.claimed is not None and finding.claimed.fit == finding.wanted
    reason = Reason.WAITING_FOR_TURN if is_overtaken else Reason.WAITING_FOR_CARDS
    return reason, _sentences(texts), _shortage_numbers(finding)


def _shortage_numbers(finding: findings.Shortage) -> Numbers:
    numbers: Numbers = {"asked": finding.wanted, "free": finding.free, "queue": str(finding.queue)}
    if finding.cards is not None:
        numbers["free_cards_only"] = finding.cards.free_for
    for lack in finding.beyond.lacks if finding.beyond is not None else ():
        match lack:
            case findings.ContainerLack(_, may_spill_mib, limit_mib):
                numbers.update(may_spill_mib=may_spill_mib, memory_limit_mib=limit_mib)
            case findings.HostMemoryLack(may_spill_mib, free_mib):
                numbers.update(may_spill_mib=may_spill_mib, host_free_mib=free_mib)
    if finding.level is not None:
        tier = finding.level.bound.tier
        numbers.update(
            in_roomiest=finding.level.places, tier=tier if tier is not None else finding.level.bound.level
        )
    kept = finding.standby
    if kept is not None:
        numbers.update(
            kept_mib=kept.memory_mib,
            kept_cores=kept.cores_percent,
            kept_cards=kept.cards,
            kept_for=few(kept.gangs),
        )
    return numbers


def _level(lack: findings.LevelLack) -> str:
    if lack.of_subgroups:
        count = f"{lack.places} of {lack.wanted} find one at the same time"
        return f"each subgroup has to be in one domain of {lack.bound.text}, and {count}"
    who = f"subgroup {lack.subgroup}" if lack.subgroup else "it"
    must = f"{who} has to be in one domain of {lack.bound.text}"
    if lack.is_apart:
        return f"{must}, and members that are there already are not"
    if not lack.roomiest:
        return f"{must}, and no node tells of one that it could have"
    return f"{must}, and the roomiest ({lack.roomiest}) has places for {lack.places} of {lack.wanted}"


def _how_many(finding: findings.Shortage) -> str:
    if finding.level is not None and finding.free == finding.wanted:
        return "the cluster has places for all of it, and no single domain of its network has"
    if finding.free == finding.wanted:
        return "each part of it fits by itself now, but not all of it together"
    task = f" of task {finding.task}" if finding.task else ""
    if finding.wanted == 1:
        return f"there is no place for it{task} now"
    if not finding.free:
        return f"none of {finding.wanted} members{task} would find a place now"
    return f"{finding.free} of {finding.wanted} members{task} would find a place now"


def _named(named: findings.NamedCards) -> str:
    lists = [name for name, given in (("use-cards", named.uses), ("avoid-cards", named.avoids)) if given]
    leave = "leaves" if len(lists) == 1 else "leave"
    return f"there, {' and '.join(lists)} {leave} {named.left} of {_plural(named.cards, 'card')}"


def _no_set(cards: findings.CardSupply) -> list[str]:
    """Where cards are free and may not be taken as they are."""
    found = []
    if cards.off_for:
        there = "low gangs of several pods" if cards.off_low else "high"
        found.append(f"cards with {there} have room for {cards.off_for} more, and --high-apart forbids that")
    if cards.apart_for:
        found.append(
            f"there, free cards would be enough for {cards.apart_for}, but not in a set that may go together"
        )
    if cards.no_place:
        have = f"{_plural(cards.no_place, 'card')} {'has' if cards.no_place == 1 else 'have'}"
        found.append(f"{have} memory and cores left, but no place for a slice {cards.slice}")
    return found


_NODE_WORDS: Final = {
    NodeResource.CPU: "cpu",
    NodeResource.MEMORY: "memory",
    NodeResource.DISK: "disk",
    NodeResource.PODS: "room for another pod",
    NodeResource.SCALAR: "{0.name}",
    NodeResource.SLOTS: "slots of {0.name}",
    NodeResource.PORT: "host port {0.name}",
    NodeResource.PORTS: "one of {0.count} host ports",
}


def _neighbours(lack: findings.NeighbourLack) -> str:
    room = f"{lack.places} {'has' if lack.places == 1 else 'have'} room"
    match lack.rule:
        case Rule.ALONE:
            what = f"values of node label {lack.label}" if lack.label else "nodes"
            return f"it needs {lack.wanted} different {what} by its pod anti-affinity, and {room}"
        case Rule.AWAY:
            return f"pod anti-affinity leaves places for {lack.places} of {lack.wanted}"
        case Rule.EVEN:
            return f"topology spread leaves places for {lack.places} of {lack.wanted}"
        case Rule.NEAR:
            return f"pod affinity leaves places for {lack.places} of {lack.wanted}"
        case Rule.TOGETHER:
            return f"its rules between pods together leave places for {lack.places} of {lack.wanted}"
        case Rule.PACKED:
            return f"fewer members go to one node since some were refused, and {room}"
        case _:
            assert_never(lack.rule)


def _beyond(finding: findings.Beyond, *, cards: bool) -> str:
    missing: list[str] = []
    limits: list[str] = []
    for lack in finding.lacks:
        match lack:
            case findings.NodeLack():
                missing.append(_NODE_WORDS[lack.resource].format(lack))
            case findings.HostMemoryLack(spill, free):
                missing.append(f"host memory (a member may spill {spill} MiB, {free} MiB are left)")
            case findings.ContainerLack(name, spill, limit):
                limits.append(
                    f"the container {name} may spill {spill} MiB with a memory limit of {limit} MiB"
                )
            case findings.NeighbourLack():
                limits.append(_neighbours(lack))
            case _:
                assert_never(lack)
    nodes = "their nodes" if cards else "the nodes"
    if missing or not limits:
        limits.insert(0, f"{nodes} lack {', '.join(missing) or 'room for all of it at once'}")
    lacks = ", and ".join(limits)
    return f"cards for {finding.cards_for} are free, but {lacks}" if cards else lacks


def _standby(kept: findings.Standby) -> str:
    what = f"{kept.memory_mib} MiB and {kept.cores_percent} cores on {_plural(kept.cards, 'card')}"
    whose = f"{few(kept.gangs)}, suspended for more than {kept.hold_s:.0f} s"
    return f"{kept.fit} would fit, but {what} are on standby for {whose}"


def _claimed(claimed: findings.Claimed) -> str:
    what = f"{_plural(claimed.cards, 'card')} {_are(claimed.cards)} claimed for {few(claimed.gangs)}"
    return (
        f"{claimed.fit} would fit, but {what}, which {'waits' if len(claimed.gangs) == 1 else 'wait'} longer"
    )


def _guaranteed(kept: findings.Guaranteed) -> str:
    what = f"{_plural(kept.cards, 'card')} {_are(kept.cards)} kept for {few(kept.queues)}"
    return f"{kept.fit} would fit, but {what}, which {_are(len(kept.queues))} guaranteed them"


def _own(own: findings.OwnClaim) -> str:
    what = f"{_plural(own.cards, 'card')} on {few(own.nodes)} {_are(own.cards)}"
    text = f"{what} claimed for it since {utc(own.since)}"
    if not own.waits_for:
        return text
    leave = "leaves" if len(own.waits_for) == 1 else "leave"
    by = f", by {utc(own.until)} at the latest" if own.until is not None else ""
    return f"{text}, until {few(own.waits_for)} {leave}{by}"


def _no_victims(finding: findings.NoVictims) -> str:
    match finding.why:
        case Spared.COMING_BACK:
            again = "can be suspended again once back on its cards"
            if len(finding.gangs) > 1:
                again = "can be suspended again once back on their cards"
            return f"no pod is evicted now, because {few(finding.gangs)} {again}"
        case Spared.GUARANTEED:
            return "evicting low-priority work would make room, but its queue is guaranteed what it holds"
        case Spared.PROTECTED:
            return (
                "evicting low-priority work would make room, but a PodDisruptionBudget protects it, its "
                "eviction was refused lately, or no controller makes its pods again"
            )
        case Spared.REFUSED:
            return (
                "the scheduler refused it after others had gone for it. It takes free room only, until a "
                "node is added that takes its members"
            )
        case Spared.NODE_REFUSED:
            return (
                "a node refused a pod of it although the plan had room there. It takes free room only, until "
                "that node is tried again"
            )
        case Spared.NOT_ENOUGH:
            return "evicting low-priority work would not make room"
        case _:
            assert_never(finding.why)


def _not_reclaimed(finding: findings.NotReclaimed) -> str:
    what = kind(finding.resource)
    match finding.why:
        case Kept.BEYOND if finding.account is not None:
            queue = finding.account.queue
            return f"it takes nothing back, because with it {queue} would have {has_of(finding.account)}"
        case Kept.BEYOND | Kept.NOBODY:
            return f"no queue that gives back has more {what} than it deserves"
        case Kept.NOT_ENOUGH:
            return f"what queues have above what they deserve of {what} would not make room"
        case _:
            assert_never(finding.why)


@_said.register
def _room_soon(finding: findings.RoomSoon) -> Said:
    pods = f"{_plural(finding.leaving, 'pod')} already leaving {_are(finding.leaving)} gone"
    text = f"asks for {_request(finding.request)}; there is room once {pods}"
    numbers: Numbers = {
        "asked": finding.request.members,
        "leaving": finding.leaving,
        "queue": str(finding.queue),
    }
    return Reason.WAITING_FOR_CARDS, text, numbers


@_said.register
def _making_room(finding: findings.MakingRoom) -> Said:
    pods = finding.evicted_pods + finding.suspended_pods
    gangs = len({*finding.evicted, *finding.suspended})
    numbers: Numbers = {"pods": pods, "gangs": gangs, "cards": finding.cards}
    going = []
    if finding.suspended_pods:
        numbers["suspended"] = finding.suspended_pods
        going.append(_going(finding.suspended_pods, finding.suspended, "suspended"))
    if finding.evicted_pods or not finding.suspended_pods:
        going.append(_going(finding.evicted_pods, finding.evicted, "gone"))
    hold = "they hold" if pods > 1 else "it holds"
    text = f"waits until {' and '.join(going)}; {hold} {_plural(finding.cards, 'card')}"
    if finding.accounts:
        text = _sentences([text, f"queues get what they deserve: {balance(finding.accounts)}"])
        numbers.update(_account_numbers(finding.accounts))
    return Reason.WAITING_FOR_EVICTION, text, numbers


def _account_numbers(accounts: Sequence[Account]) -> Numbers:
    """Millionths of cards of both sides, as far as numbers can say it."""
    own, *others = accounts
    numbers: Numbers = {
        "queue": own.queue,
        "resource": own.resource,
        "has_microcards": own.has_microcards,
        "deserved_microcards": own.deserved_microcards,
    }
    if others:
        numbers.update(
            from_queue=others[0].queue,
            from_has_microcards=others[0].has_microcards,
            from_deserved_microcards=others[0].deserved_microcards,
        )
    return numbers


def _going(pods: int, gangs: Sequence[str], done: str) -> str:
    return f"{_plural(pods, 'pod')} of {few(gangs)} {_are(pods)} {done}"


@_said.register
def _remade(finding: findings.Remade) -> Said:
    pods = "its pod is" if finding.members == 1 else f"{finding.members} of its pods are"
    text = f"takes {_choice(finding.choice)}; {pods} made again with it"
    return Reason.WAITING_FOR_MEMBERS, text, {"choice": finding.choice, "pods": finding.members}


def _choice(choice: str) -> str:
    """``h20``, or ``h20 for ps and t4 for w`` where tasks take different ones."""
    parts = [part.partition("=") for part in choice.split(",")]
    return " and ".join(f"{name} for {task}" if name else task for task, _, name in parts)


_BY_HOPE: Final = (
    Reason.WAITING_FOR_CARDS,
    Reason.WAITING_FOR_TURN,
    Reason.WAITING_FOR_QUOTA,
    Reason.WAITING_FOR_ENVIRONMENT,
    Reason.WAITING_FOR_MODEL,
)
"""The reason of the option that is nearest to its start counts for all."""


@_said.register
def _no_option(finding: findings.NoOption) -> Said:
    if not finding.options:
        text = "its members can take no model in common; give all of them the same list of models"
        return Reason.WAITING_FOR_MODEL, text, {}
    said = [(choice, *_said(why)) for choice, why in finding.options]
    names = [_choice(choice) for choice, *_ in said]
    texts = [f"takes {' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))}"]
    texts += [f"for {name} it {text}" for name, (_, _, text, _) in zip(names, said, strict=True)]
    reasons = {reason: numbers for _, reason, _, numbers in reversed(said)}
    reason = next((reason for reason in _BY_HOPE if reason in reasons), said[0][1])
    return reason, _sentences(texts), {**reasons[reason], "options": ", ".join(names)}


@_said.register
def _given_up(finding: findings.GivenUp) -> Said:
    text = f"its place is given up: {finding.why}"
    return Reason.WAITING_FOR_CARDS, text, {"plan": finding.plan_id}


# --- placed --------------------------------------------------------------------------------------


@_said.register
def _placed(finding: findings.Placed) -> Said:
    more = "more " if finding.there else ""
    text = f"{_plural(finding.members, f'{more}member')} placed"
    surplus = finding.surplus
    if finding.there:
        text += f", {finding.there + finding.members} in all"
    if finding.rule:
        text += f", by the placement rule {finding.rule}"
    if surplus and finding.tried:
        text += f"; {surplus} above the minimum {'waits' if surplus == 1 else 'wait'} for room"
    elif surplus:
        text += f"; {surplus} above the minimum {_are(surplus)} tried next"
    numbers: Numbers = {"placed": finding.members, SURPLUS_NUMBER: surplus}
    if finding.rule:
        numbers["rule"] = finding.rule
    return Reason.ADMITTED, text, numbers


@_said.register
def _above_minimum(finding: findings.AboveMinimum) -> Said:
    reason, why, numbers = _said(finding.why)
    members = _plural(finding.there + finding.waiting, "member")
    text = _sentences([f"{finding.there} of {members} have a place", f"one more {why}"])
    return reason, text, {**numbers, "placed": finding.there, SURPLUS_NUMBER: finding.waiting}
