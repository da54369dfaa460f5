"""From what the vendor's library says to what the node offers. Pure: readings in, values out.

The library may say anything. It ends up as a card that is not offered, with a reason, or as a problem of the
node, never as an exception.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from vc_egpu.core.environments.backends import Backend
from vc_egpu.volcano.needs.nodes import DRIVER_OF
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    LETTER_OF,
    MAX_CARDS_PER_NODE,
    MAX_LINK_MB_S,
    MAX_LINKS,
    MAX_MEMORY_MIB,
    NodeCard,
    NodeCards,
)
from vc_egpu.volcano.words.model_table import GpuModel, ModelTable, proposed_name, proposed_row
from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.cards import sliced
from vc_egpu_node.vendors.base import CardReading, NodeLabels, NodeReading, VendorFacts

PROBLEM_CHARS: Final = 512
"""The longest problem of a node that the annotation takes."""
CORDONED: Final = "cordoned by the operator"
"""Reason of a card that an operator took out: it takes nothing new."""
Mode = Literal["shared", "native", "mig"]
_MODES: Final[Mapping[str, Mode]] = {"": "shared", "shared": "shared", "native": "native", "mig": "mig"}
_UUID: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_CAPABILITY: Final = re.compile(r"^[0-9]{1,3}\.[0-9]{1,3}$")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the Node object, and the host, say that matters here."""

    mode_label: str = ""
    cordoned: frozenset[str] = frozenset()
    """UUIDs that an operator took out."""
    foreign: str = ""
    """Whose the cards are if not ours, see :meth:`vc_egpu_node.offers.other_plugins.OtherPlugins.problem`."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """UUID to why no container could be started on that card."""
    slices: sliced.SliceOwners = field(default_factory=sliced.SliceOwners)


@dataclass(frozen=True, slots=True)
class Holding:
    """What the agent still holds on one card."""

    pods: tuple[str, ...] = ()
    native: bool = False
    """Held as a whole native card (else as shares)."""
    containers: int = 0
    """Each has a slot of the card's resource for it."""
    mps: frozenset[str] = frozenset()
    """Namespaces of those that run under an MPS server; empty: none does."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Cards of one model for one resource."""

    cards: int = 0
    """All that count: well, ill and cordoned."""
    out: int = 0
    """Those that are ill or cordoned."""
    out_held: int = 0
    """Containers that run on such cards all the same."""
    beside: int = 0
    """Containers on cards of the model that do not count."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the node offers, and all that follows from it."""

    node_cards: NodeCards
    offers: Mapping[str, Offer] = field(default_factory=dict)
    """Resource of the kubelet's plugins (``volcano.sh/vgpu-h20``) to its cards."""
    needs_library: bool = True
    """Whether shares on this node are for the isolation library to hold."""


@dataclass(frozen=True, slots=True)
class _Standards:
    """What every card is judged by."""

    vendor: VendorFacts
    table: ModelTable
    mode: Mode
    problem: str
    facts: NodeFacts
    ill: Mapping[str, str]
    holdings: Mapping[str, Holding]
    indices: Mapping[str, int]
    isolated: bool
    policy: Policy
    no_driver_limits: str
    no_mps: str


@dataclass(frozen=True, slots=True)
class _Judged:
    card: NodeCard
    counts: bool
    """Whether it is offered in principle (it may be ill or cordoned now)."""


def take_stock(
    reading: NodeReading,
    *,
    table: ModelTable,
    policy: Policy,
    facts: NodeFacts,
    ill: Mapping[str, str],
    holdings: Mapping[str, Holding],
    previous: NodeCards | None,
    vendor: VendorFacts,
    agent_version: str = "",
    isolated: bool = True,
    no_driver_limits: str = "this agent has no means for it",
    no_mps: str = "this agent has no means for it",
) -> Inventory:
    """The node's inventory. ``ill`` is UUID to reason; ``previous`` keeps indices stable and remembers
    cards that vanished while something is held on them. ``isolated``: containers get the library, where
    cards of their kind have one. ``no_driver_limits``: why no driver's memory limits can be set; empty: they
    can. ``no_mps``: the same for MPS servers."""
    mode = _MODES.get(facts.mode_label)
    problem = _node_problem(reading, facts, mode)
    readings, doubts = _readable(reading.cards)
    problem = problem or doubts
    known = {card.uuid: card for card in previous.cards} if previous is not None else {}
    indices = _indices([card.uuid for card in readings], known, holdings)
    standards = _Standards(
        vendor,
        table,
        mode or "shared",
        problem,
        facts,
        ill,
        holdings,
        indices,
        isolated,
        policy,
        no_driver_limits,
        no_mps,
    )
    judged = [_judge(card, indices[card.uuid], standards) for card in readings if card.uuid in indices]
    present = {entry.card.uuid for entry in judged}
    judged += [_vanished(card, indices[uuid], holdings) for uuid, card in known.items()
               if uuid not in present and uuid in indices]  # fmt: skip
    judged.sort(key=lambda entry: entry.card.index)
    return Inventory(
        node_cards=NodeCards(
            agent_version=agent_version[:64],
            mode=mode or "shared",
            vendor=vendor.name,
            driver_version=_printable(reading.driver_version, 64),
            cuda_version=_printable(reading.versions.get("cuda", ""), 32),
            core_ratio=policy.core_ratio,
            memory_ratio=policy.memory_ratio,
            ratio_class=policy.ratio_class,
            host_memory_mib=policy.host_memory_mib,
            max_sharers=policy.slots_per_card,
            problem=problem,
            compute=policy.compute if standards.mode == "shared" else "library",
            mps_namespace=policy.mps_namespace if standards.mode == "shared" else "",
            cards=tuple(entry.card for entry in judged),
        ),
        offers=_offers(judged, mode or "shared", holdings),
        needs_library=mode == "shared"
        and policy.isolation != "none"
        and (not readings or any("share" in card.abilities for card in readings)),
    )


def _node_problem(reading: NodeReading, facts: NodeFacts, mode: Mode | None) -> str:
    """Why the node takes nothing at all, or an empty text."""
    if mode is None:
        label = _printable(facts.mode_label, 40)
        return f"label {names.NODE_MODE_LABEL} is {label!r}, not shared, native or mig"
    if facts.foreign:
        return _printable(facts.foreign, PROBLEM_CHARS)
    if not reading.cards and reading.problem:
        return _printable(reading.problem, PROBLEM_CHARS)
    return ""


def _readable(cards: Iterable[CardReading]) -> tuple[list[CardReading], str]:
    """Cards that can be told apart, and a problem if the list as a whole cannot be trusted."""
    good: list[CardReading] = []
    count = Counter(card.uuid for card in cards)
    for card in cards:
        if not _UUID.fullmatch(card.uuid):
            return good, f"card {card.index} has the UUID {_printable(card.uuid, 96)!r}"
        if count[card.uuid] > 1:
            return good, f"two cards have the UUID {card.uuid}"
        if len(good) == MAX_CARDS_PER_NODE:
            return good, f"the node has more than {MAX_CARDS_PER_NODE} cards"
        good.append(card)
    return good, ""


def _indices(
    present: list[str], known: Mapping[str, NodeCard], holdings: Mapping[str, Holding]
) -> dict[str, int]:
    """UUID to index. A card keeps its index for as long as the node remembers it: plans name cards by it.
    A vanished card is remembered while something is held on it."""
    result = {uuid: known[uuid].index for uuid in present if uuid in known}
    for uuid, card in known.items():
        if uuid not in result and holdings.get(uuid, Holding()).pods:
            result[uuid] = card.index
    free = (index for index in range(MAX_CARDS_PER_NODE) if index not in set(result.values()))
    for uuid in present:
        if uuid not in result:
            index = next(free, None)
            if index is not None:
                result[uuid] = index
    return result


def _judge(card: CardReading, index: int, by: _Standards) -> _Judged:
    """One card: its model, whether it is offered, and why not."""
    row = by.table.of_product(card.product)
    held = by.holdings.get(card.uuid, Holding())
    product = _printable(card.product, 128)
    refusal = by.problem
    if not refusal and row is None:
        refusal = f"product {product!r} is not in the model table; a row for it: {row_for(card)}"
    if not refusal and row is not None and card.memory_mib < row.memory_mib:
        refusal = (
            f"{by.vendor.library} reports {card.memory_mib} MiB, model {row.name} needs {row.memory_mib}"
        )
    if not refusal and card.memory_mib > MAX_MEMORY_MIB:
        refusal = f"{by.vendor.library} reports a memory of {card.memory_mib} MiB"
    cut = _cut(card, row, by)
    if not refusal and cut is not sliced.UNCUT:
        refusal = cut.problem
    elif not refusal and "share" not in card.abilities and not _is_whole(card, by.mode):
        refusal = by.vendor.partitioned
    refusal = refusal or _not_as_wanted(card, by) or _closed(card, by) or by.facts.unusable.get(card.uuid, "")
    if not refusal and held.pods and held.native != (by.mode == "native"):
        refusal = f"still held {'native' if held.native else 'in shares'}, the node is {by.mode} now"
    refusal = refusal or _held_otherwise(held, by)
    cordoned = card.uuid in by.facts.cordoned
    sickness = by.ill.get(card.uuid, "")
    capability = card.attributes.get("compute_capability", "")
    reason = refusal or sickness or (CORDONED if cordoned else "")
    entry = NodeCard(
        uuid=card.uuid,
        index=index,
        model=row.name if row is not None else names.UNKNOWN_MODEL,
        product=product,
        memory_mib=min(max(card.memory_mib, 1), MAX_MEMORY_MIB),
        healthy=not sickness,
        offered=not refusal and not cordoned,
        reason=_printable(reason, 256),
        sm_count=_bounded(card.numbers.get("sm", 0), 4096),
        clock_mhz=_bounded(card.clock_mhz, 100_000),
        compute_capability=capability if _CAPABILITY.fullmatch(capability) else "",
        links={peer: count for peer, count in card.links.items() if _UUID.fullmatch(peer)},
        switch_links=_bounded(card.switch_links, MAX_LINKS),
        link_mb_s=_bounded(card.link_mb_s, MAX_LINK_MB_S),
        near=_letters(card, by.indices),
        held=held.pods,
        layout=cut.layout,
        slices=cut.slices,
        stack="stack" in card.abilities and (by.policy.compute == "library" or by.mode != "shared"),
        isolation=_kept_by(card, by),
        group=card.group,
        module=card.module,
    )
    return _Judged(entry, counts=not refusal)


def _kept_by(card: CardReading, by: _Standards) -> Backend:
    """What keeps containers to their memory on it."""
    if card.isolation != "library":
        return card.isolation
    if not by.isolated or by.policy.isolation == "none":
        return "none"
    return "library" if by.policy.isolation == "library" or _no_limits(card, by) else "driver"


def _no_limits(card: CardReading, by: _Standards) -> str:
    """Why its driver holds no container to its memory; empty: it does."""
    if "limit" not in card.abilities:
        return "its driver has no memory limits for containers"
    return by.no_driver_limits


def _not_as_wanted(card: CardReading, by: _Standards) -> str:
    """Why its shares cannot be held as the operator wants it."""
    if by.mode != "shared" or card.isolation != "library":
        return ""
    if by.policy.compute != "library" and not by.isolated:
        return f"the node's policy wants compute: {by.policy.compute}, and the agent runs without --library"
    if by.policy.compute == "mps" and by.no_mps:
        return f"the node's policy wants compute: mps, and {by.no_mps}"
    if by.policy.isolation != "driver":
        return ""
    why = _no_limits(card, by) if by.isolated else "the agent runs without --library"
    return f"the node's policy wants isolation: driver, and {why}" if why else ""


def _held_otherwise(held: Holding, by: _Standards) -> str:
    """Programs under an MPS server and others would take turns on a card, and so would two servers."""
    if not held.pods or by.mode != "shared":
        return ""
    own = frozenset({by.policy.mps_namespace}) if by.policy.compute == "mps" else frozenset[str]()
    if held.mps == own:
        return ""
    there = (
        f"under MPS by pods of {', '.join(sorted(held.mps))}" if held.mps else "by pods that run without MPS"
    )
    now = f"for pods of {by.policy.mps_namespace} under MPS" if own else "without MPS"
    return f"still held {there}, the node is {now} now"


def _cut(card: CardReading, row: GpuModel | None, by: _Standards) -> sliced.CardCut:
    """How it is cut; uncut: it is offered in shares, or whole."""
    if by.mode == "native":
        return sliced.UNCUT
    if "make" in card.abilities:
        return sliced.made_on(card, row, by.table, by.facts.slices)
    if by.mode != "mig":
        return sliced.UNCUT
    way = sliced.placed_on if by.policy.mig_on_demand else sliced.cut_of
    return way(card, row, by.table, by.facts.slices)


def row_for(card: CardReading) -> str:
    """What to add to the model table so that this card is offered. Its memory is what the driver reports."""
    memory_mib = min(max(card.memory_mib, 1), MAX_MEMORY_MIB)
    return proposed_row(proposed_name(card.product), _printable(card.product, 64), memory_mib)


def _is_whole(card: CardReading, mode: Mode) -> bool:
    """Whether a card that cannot be shared is given out whole. It is not cut, and its node is native."""
    return mode == "native" and card.isolation != "library" and "slice" not in card.abilities


def _letters(card: CardReading, indices: Mapping[str, int]) -> str:
    """The ways over PCIe to all cards by their index; empty where none is told."""
    letters = {indices[peer]: LETTER_OF[way] for peer, way in card.near.items() if peer in indices}
    return "".join(letters.get(index, "-") for index in range(max(letters, default=-1) + 1))


def _closed(card: CardReading, by: _Standards) -> str:
    """Why the driver would refuse a container on that card, or its second one. MPS sets a card's mode, and
    leaves it so when it is killed."""
    if card.closed_to == "all" or (card.closed_to == "others" and by.mode == "shared"):
        who = "no program" if card.closed_to == "all" else "one program alone"
        return f"its compute mode lets {who} in: {by.vendor.open_command.format(uuid=card.uuid)}"
    return ""


def _vanished(card: NodeCard, index: int, holdings: Mapping[str, Holding]) -> _Judged:
    """A card that the library no longer lists although something is still held on it."""
    gone = card.model_copy(
        update={
            "index": index,
            "healthy": False,
            "offered": False,
            "reason": "the driver no longer lists it",
            "held": holdings[card.uuid].pods,
        }
    )
    return _Judged(gone, counts=False)


def _offers(judged: Iterable[_Judged], mode: Mode, holdings: Mapping[str, Holding]) -> dict[str, Offer]:
    name = names.native_resource if mode == "native" else names.shared_resource
    offers: dict[str, Offer] = {}
    for entry in sorted(judged, key=lambda one: not one.counts):
        resource, card = name(entry.card.model), entry.card
        before, held = offers.get(resource, Offer()), holdings.get(card.uuid, Holding())
        if not entry.counts:
            if resource in offers and held.native == (mode == "native"):
                offers[resource] = replace(before, beside=before.beside + held.containers)
            continue
        out = not (card.healthy and card.offered)
        out_held = before.out_held + (held.containers if out else 0)
        offers[resource] = Offer(before.cards + 1, before.out + out, out_held)
    return offers


@dataclass(frozen=True, slots=True)
class Slot:
    """One device as the kubelet sees it.

    A slot is no card: it says "one more share may start here", and the pod's annotation says on which card.
    So an ill card makes free slots unhealthy, never one that a running container holds.
    """

    id: str
    healthy: bool


def slot_id(number: int) -> str:
    """``s0``, ``s1``, ...: the same ids after every restart."""
    return f"s{number}"


def slots(offer: Offer, per_card: int, in_use: Set[str]) -> tuple[Slot, ...]:
    """All slots: cards × ``per_card``, of which out × ``per_card``, less what is held there, are unhealthy:
    free ones, the last. What is held of cards that do not count is listed on top.

    Slots in use stay listed and healthy even where cards or ``per_card`` became fewer."""
    ids = [slot_id(number) for number in range(offer.cards * per_card + offer.beside)]
    known = set(ids)
    ids += sorted((used for used in in_use if used not in known), key=_order_of_slot)
    free = [identity for identity in ids if identity not in in_use and identity in known]
    out = max(0, offer.out * per_card - offer.out_held)
    unhealthy = set(free[max(0, len(free) - out) :]) if out else set()
    return tuple(Slot(identity, identity not in unhealthy) for identity in ids)


def _order_of_slot(identity: str) -> tuple[int, str]:
    digits = identity[1:]
    return (int(digits), "") if digits.isdecimal() else (1 << 30, identity)


def counters(inventory: Inventory, table: ModelTable, requested: Mapping[str, int]) -> dict[str, int]:
    """Extended resources of the node's status: MiB and core percent that its shares may sum up to.

    They are never a wall: cards × S × M and cards × S × 100, and never below what bound pods request."""
    wanted: dict[str, int] = {}
    sharers = inventory.node_cards.max_sharers
    for resource, offer in inventory.offers.items():
        if not resource.startswith(names.SHARED_PREFIX):
            continue
        row = table.get(resource.removeprefix(names.SHARED_PREFIX))
        if row is not None:
            wanted[names.memory_total_resource(row.name)] = offer.cards * sharers * row.memory_mib
            wanted[names.cores_total_resource(row.name)] = offer.cards * sharers * 100
    for resource, amount in requested.items():
        if is_counter(resource):
            wanted[resource] = max(wanted.get(resource, 0), amount)
    return wanted


def is_counter(resource: str) -> bool:
    """Whether the resource is one of our counters (``volcano.sh/vgpu-<model>-memory`` or ``-cores``)."""
    if resource in (names.LIMIT_MEMORY, names.LIMIT_CORES) or not resource.startswith(names.SHARED_PREFIX):
        return False
    return resource.endswith((names.MEMORY_TOTAL_SUFFIX, names.CORES_TOTAL_SUFFIX))


def labels(node_cards: NodeCards, names_of_vendor: NodeLabels | None) -> dict[str, str]:
    """Node labels: cards by model and their software (ours), and product, count and presence under the
    vendor's common names."""
    usable = [card for card in node_cards.cards if card.model != names.UNKNOWN_MODEL]
    result = {
        names.MODEL_LABEL_PREFIX + model: str(count)
        for model, count in sorted(Counter(card.model for card in usable).items())
    }
    result |= _software(node_cards)
    if node_cards.cards and names_of_vendor is not None:
        product = re.sub(r"[^A-Za-z0-9_.-]+", "-", node_cards.cards[0].product)
        product = product.lstrip("-_.")[:63].rstrip("-_.")  # cut first: with another end no label is taken
        result[names_of_vendor.present] = "true"
        result[names_of_vendor.count] = str(len(node_cards.cards))
        if product:
            result[names_of_vendor.product] = product
    return result


def _software(node_cards: NodeCards) -> dict[str, str]:
    """Vendor, driver, CUDA and capability, where they are known, and the same on all cards."""
    if not node_cards.cards:
        return {}
    capabilities = {card.compute_capability for card in node_cards.cards}
    facts = {
        names.VENDOR_LABEL: node_cards.vendor,
        names.SOFTWARE_LABELS[DRIVER_OF.get(node_cards.vendor, "driver")]: node_cards.driver_version,
        names.SOFTWARE_LABELS["cuda"]: node_cards.cuda_version,
        names.SOFTWARE_LABELS["capability"]: capabilities.pop() if len(capabilities) == 1 else "",
    }
    return {name: value for name, value in facts.items() if _LABEL_VALUE.fullmatch(value)}


def _printable(text: str, limit: int) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)[:limit]


def _bounded(value: int, limit: int) -> int:
    return min(max(value, 0), limit)
