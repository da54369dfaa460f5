"""What a control page says, and how it is made from what the containers of a node were granted. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.volcano.words.annotations import CardShare

from vc_egpu_node.containers.admission import ShareClass
from vc_egpu_node.containers.cdi import ControlError, Grant
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.unseen_memory import NOTHING, Beyond

MIB: Final = 1024 * 1024
_CLASSES: Final[Mapping[ShareClass, int]] = {
    "unset": abi.CLASS_UNSET,
    "low": abi.CLASS_LOW,
    "high": abi.CLASS_HIGH,
}
_PREFERENCE: Final = (abi.CLASS_HIGH, abi.CLASS_UNSET, abi.CLASS_LOW)
"""Where there are more peers than a page holds."""

_NUMBERS: Final = (
    "memory_bytes", "physical_bytes", "context_bytes", "cores_percent", "core_policy", "weight", "flags",
)  # fmt: skip
"""What a card's entry holds besides its names."""


@dataclass(frozen=True, slots=True)
class Timings:
    """The node's settings that every page carries."""

    hysteresis_us: int = 2_000
    lease_ms: int = 100
    hang_ms: int = 30_000
    in_flight_us: int = 500
    low_floor_percent: int = 5
    low_floor_after_ms: int = 60_000

    def __post_init__(self) -> None:
        if not 0 <= self.low_floor_percent <= 100:
            raise ValueError(f"low_floor_percent is {self.low_floor_percent}, not 0..100")
        for name in ("hysteresis_us", "lease_ms", "hang_ms", "in_flight_us", "low_floor_after_ms"):
            if not 0 <= getattr(self, name) < 1 << 32:
                raise ValueError(f"{name} is {getattr(self, name)}, not within 32 bits")


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a page says of a card besides the share."""

    pci_bus_id: str = ""
    context_bytes: int = 0
    """Learnt overhead of one process's context; 0: not known."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One card of a container."""

    uuid: str
    pci_bus_id: str
    memory_bytes: int
    physical_bytes: int
    context_bytes: int
    cores_percent: int
    core_policy: int
    weight: int
    flags: int


@dataclass(frozen=True, slots=True)
class Peer:
    """A container whose activity matters."""

    name: str
    peer_class: int
    cards: int
    """Bit i: it shares the page's card i."""
    pod_cards: int
    """Bit i: this pod's containers use the card i of the peer's own pages."""
    card_of: tuple[int, ...]
    """For each card of the page: index in the peer's own pages (0 where the bit is not set)."""


@dataclass(frozen=True, slots=True)
class Control:
    """One page, but for the lock."""

    name: str
    own_class: int
    limits: tuple[Limit, ...]
    peers: tuple[Peer, ...] = ()
    suspended: bool = False
    unheld: bool = False
    """No higher class holds its launches."""
    timings: Timings = field(default_factory=Timings)
    host_memory_mib: int = 0
    beyond: Beyond = NOTHING
    """The part of its memory that the library does not count by itself."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.limits) <= abi.MAX_CARDS:
            raise ControlError(
                f"{len(self.limits)} cards for one container, the library knows {abi.MAX_CARDS}"
            )
        if len(self.peers) > abi.MAX_PEERS:
            raise ControlError(f"{len(self.peers)} peers, a page holds {abi.MAX_PEERS}")
        if len(self.beyond.processes) > abi.MAX_BEYOND:
            raise ControlError(f"{len(self.beyond.processes)} processes, a page holds {abi.MAX_BEYOND}")
        texts = [(self.name, abi.NAME_BYTES), *((peer.name, abi.NAME_BYTES) for peer in self.peers)]
        texts += [(limit.uuid, abi.UUID_BYTES) for limit in self.limits]
        texts += [(limit.pci_bus_id, abi.PCI_BYTES) for limit in self.limits]
        for text, size in texts:
            if len(text.encode()) >= size:
                raise ControlError(f"{text[:100]!r} has more than {size - 1} bytes")


def shared(grant: Grant) -> bool:
    """Whether the library stands in that container: native cards go without it."""
    return grant.limited


def controls(
    grants: Iterable[Grant],
    wanted: Iterable[str],
    *,
    paged: frozenset[str],
    facts: Mapping[tuple[str, str], CardFacts],
    timings: Timings,
    suspended: frozenset[str] = frozenset(),
    let_go: frozenset[str] = frozenset(),
    beyond: Mapping[str, Beyond] | None = None,
) -> dict[str, Control]:
    """The pages of the containers named in ``wanted``.

    ``paged`` names the containers that have pages: others have no activity to look at. ``facts`` is by
    container name and card UUID, ``beyond`` by container name. ``let_go`` names those of pods that
    end. Raises :class:`ControlError`.
    """
    everyone = list(grants)
    by_name = {grant.name: grant for grant in everyone}
    on_card: dict[str, list[Grant]] = {}
    by_pod: dict[str, list[Grant]] = {}
    for grant in everyone:
        by_pod.setdefault(grant.pod_uid, []).append(grant)
        for share in grant.shares:
            on_card.setdefault(share.uuid, []).append(grant)
    result = {}
    for name in wanted:
        grant = by_name[name]
        pod_cards = {share.uuid for one in by_pod[grant.pod_uid] for share in one.shares}
        near = {one.name: one for uuid in pod_cards for one in on_card[uuid] if one.name in paged}
        near.pop(name, None)
        timed = grant.compute == "library"
        result[name] = Control(
            name=name,
            own_class=_CLASSES[grant.share_class] if timed else abi.CLASS_UNSET,
            limits=tuple(_limit(grant, share, facts, on_card[share.uuid]) for share in grant.shares),
            peers=_peers(grant, near.values(), pod_cards) if timed else (),
            suspended=name in suspended,
            unheld=grant.unheld or name in let_go,
            timings=timings,
            host_memory_mib=sum(share.memory_mib - share.most_on_card_mib for share in grant.shares),
            beyond=(beyond or {}).get(name, NOTHING),
        )
    return result


def neighbours(grants: Iterable[Grant], changed: Iterable[Grant]) -> set[str]:
    """Names of the containers whose pages may change because these grants came, went or changed. They are
    all that share a card with the pods concerned, and the rest of those containers' pods."""
    everyone, touched = list(grants), list(changed)
    pods = {grant.pod_uid for grant in touched}
    cards = {share.uuid for grant in [*touched, *everyone] if grant in touched or grant.pod_uid in pods
             for share in grant.shares}  # fmt: skip
    pods |= {grant.pod_uid for grant in everyone if any(share.uuid in cards for share in grant.shares)}
    return {grant.name for grant in everyone if grant.pod_uid in pods}


def _limit(
    grant: Grant, share: CardShare, facts: Mapping[tuple[str, str], CardFacts], here: Sequence[Grant]
) -> Limit:
    known = facts.get((grant.name, share.uuid), CardFacts())
    timed = grant.compute == "library"  # else no cap and no hold is the library's
    soft = abi.CORES_SOFT if grant.core_policy == "soft" else abi.CORES_HARD
    high_here = timed and any(one.share_class == "high" for one in here)
    spills = share.most_on_card_mib < share.memory_mib
    return Limit(
        uuid=share.uuid,
        pci_bus_id=known.pci_bus_id,
        memory_bytes=share.memory_mib * MIB,
        physical_bytes=share.most_on_card_mib * MIB,
        context_bytes=known.context_bytes,
        cores_percent=share.cores if share.cores and timed else 100,
        core_policy=soft if share.cores and timed else abi.CORES_FREE,
        weight=max(1, share.cores),
        flags=(abi.CARD_SPILL if spills else 0) | (abi.CARD_HIGH_HERE if high_here else 0),
    )


def _peers(grant: Grant, near: Iterable[Grant], pod_cards: set[str]) -> tuple[Peer, ...]:
    """High ones first, then those on the container's own cards; what does not fit is left out."""
    own = {share.uuid: index for index, share in enumerate(grant.shares)}
    peers = []
    for other in near:
        card_of = [0] * len(own)
        mask = 0
        for index, share in enumerate(other.shares):
            if share.uuid in own:
                mask |= 1 << own[share.uuid]
                card_of[own[share.uuid]] = index
        if other.pod_uid == grant.pod_uid and not mask:
            continue  # the pod's own containers on other cards hold no container back here
        common = sum(1 << index for index, share in enumerate(other.shares) if share.uuid in pod_cards)
        peers.append(Peer(other.name, _CLASSES[other.share_class], mask, common, tuple(card_of)))
    peers.sort(key=lambda peer: (_PREFERENCE.index(peer.peer_class), not peer.cards, peer.name))
    return tuple(peers[: abi.MAX_PEERS])


# --- the page ------------------------------------------------------------------------------------


def encode(control: Control, *, sequence: int, generation: int) -> bytes:
    """The page's bytes."""
    page = abi.ControlPage(
        magic=abi.CONTROL_MAGIC,
        abi_major=abi.ABI_MAJOR,
        abi_minor=abi.ABI_MINOR,
        bytes=abi.CONTROL_BYTES,
        sequence=sequence,
        generation=generation,
        name=control.name.encode(),
        own_class=control.own_class,
        suspended=int(control.suspended),
        unheld=int(control.unheld),
        card_count=len(control.limits),
        peer_count=len(control.peers),
        host_memory_mib=control.host_memory_mib,
    )
    for key in Timings.__dataclass_fields__:
        setattr(page, key, getattr(control.timings, key))
    for card, limit in zip(page.cards, control.limits, strict=False):
        card.uuid, card.pci_bus_id = limit.uuid.encode(), limit.pci_bus_id.encode()
        for key in _NUMBERS:
            setattr(card, key, getattr(limit, key))
    for slot, peer in zip(page.peers, control.peers, strict=False):
        slot.name, slot.peer_class = peer.name.encode(), peer.peer_class
        slot.cards, slot.pod_cards = peer.cards, peer.pod_cards
        for index, own in enumerate(peer.card_of):
            slot.peer_card_of[index] = own
    page.beyond_bytes[: len(control.beyond.always)] = control.beyond.always
    page.beyond_count = len(control.beyond.processes)
    for entry, (owner, card_index, size) in zip(page.beyond, control.beyond.processes, strict=False):
        entry.owner, entry.bytes_card = owner, size | card_index
    return bytes(page)


def decode(data: bytes) -> Control | None:
    """What a page says, the lock left out; None if it is no page of this version."""
    if len(data) < abi.CONTROL_LEAST_BYTES:
        return None
    page = abi.ControlPage.from_buffer_copy(data.ljust(abi.CONTROL_BYTES, b"\0"))
    whole = (page.magic, page.abi_major) == (abi.CONTROL_MAGIC, abi.ABI_MAJOR) and len(data) >= min(
        page.bytes, abi.CONTROL_BYTES
    )
    counts = (
        (page.card_count, abi.MAX_CARDS),
        (page.peer_count, abi.MAX_PEERS),
        (page.beyond_count, abi.MAX_BEYOND),
    )
    if not whole or any(count > most for count, most in counts):
        return None
    try:
        limits = tuple(
            Limit(card.uuid.decode(), card.pci_bus_id.decode(), card.memory_bytes, card.physical_bytes,
                  card.context_bytes, card.cores_percent, card.core_policy, card.weight, card.flags)
            for card in page.cards[: page.card_count]
        )  # fmt: skip
        return Control(
            name=page.name.decode(),
            own_class=page.own_class,
            limits=limits,
            peers=tuple(
                Peer(peer.name.decode(), peer.peer_class, peer.cards, peer.pod_cards,
                     tuple(peer.peer_card_of[: len(limits)]))
                for peer in page.peers[: page.peer_count]
            ),
            suspended=bool(page.suspended),
            unheld=bool(page.unheld),
            timings=Timings(**{key: getattr(page, key) for key in Timings.__dataclass_fields__}),
            host_memory_mib=page.host_memory_mib,
            beyond=Beyond(
                tuple(page.beyond_bytes[: len(limits)]) if any(page.beyond_bytes) else (),
                tuple((one.owner, one.bytes_card & 0xFFF, one.bytes_card & ~0xFFF)
                      for one in page.beyond[: page.beyond_count]),
            ),
        )  # fmt: skip
    except (ValueError, UnicodeDecodeError):
        return None
