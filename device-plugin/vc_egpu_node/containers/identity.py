"""Whether a container may start on its cards, and the proof of which container it is.

``promise`` answers the kubelet's Allocate: one CDI device name per container, kept on disk before it is
given. ``admit`` answers PreStartContainer, just before the container is created. The kubelet says which
container holds the slots, and the API server which cards that container got. Then the card's room is
checked, and only then is the CDI spec written that the name stands for. Nothing is ever guessed: what cannot
be proven does not start.
"""

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Protocol

from vc_egpu.volcano.codec.plans import epoch_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards, CardShare, NodeCard, NodeCards

from vc_egpu_node.api.pods import NodePods, PodView
from vc_egpu_node.cards.inventory import CORDONED
from vc_egpu_node.containers import admission
from vc_egpu_node.containers.admission import FULL_CORES, NotAdmittedError, Why
from vc_egpu_node.containers.allocations import Allocation, AllocationStore
from vc_egpu_node.containers.cdi import ControlError, Grant, GrantFolder, qualified
from vc_egpu_node.containers.owners import Owners
from vc_egpu_node.containers.servers import MpsError, why_not
from vc_egpu_node.kubelet.podresources import ContainerRef
from vc_egpu_node.vendors.base import CardReading, ContainerEdits, EditsError
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import LATER, Realised, SliceError, SliceWish

UNLISTED: Final = -1
"""Position of a card that the library does not list."""
UNCOUNTED: Final = "the node's cards have not been counted yet"

Shares = Sequence[admission.HeldShare]
_decode_cards = lru_cache(maxsize=1024)(Cards.decode)


@dataclass(frozen=True, slots=True)
class Stock:
    """The cards of the node, as far as they matter to a container that starts."""

    node_cards: NodeCards = field(default_factory=NodeCards)
    nominal_mib: Mapping[str, int] = field(default_factory=dict)
    """Model to nominal memory."""
    readings: Mapping[str, CardReading] = field(default_factory=dict)
    """UUID to what the vendor's library says of the card now."""
    ready: bool = False
    """False until the cards were counted once."""
    problem: str = ""
    """Why no container may start on any of them."""

    def card(self, uuid: str) -> NodeCard | None:
        """The card of that UUID."""
        return next((card for card in self.node_cards.cards if card.uuid == uuid), None)

    def of(self, grant: Grant) -> list[CardReading]:
        """The grant's cards as last read; by UUID alone where the library does not list one."""
        uuids = (share.uuid for share in grant.shares)
        return [self.readings.get(uuid) or CardReading(uuid, UNLISTED, "", 0) for uuid in uuids]

    def limits(self, card: NodeCard) -> admission.CardLimits:
        """What the card may hold."""
        return admission.CardLimits(
            uuid=card.uuid,
            memory_mib=self.nominal_mib.get(card.model, card.memory_mib),
            memory_ratio=self.node_cards.memory_ratio,
            core_ratio=self.node_cards.core_ratio,
            ratio_class=self.node_cards.ratio_class,
            max_sharers=self.node_cards.max_sharers,
            stack=card.stack,
        )

    def described(self, grant: Grant) -> dict[str, dict[str, Any]]:
        """UUID to what a container may know of its card besides its share."""
        cards = ((share.uuid, self.card(share.uuid)) for share in grant.shares)
        return {
            uuid: {"index": card.index, "model": card.model, "product": card.product} if card else {}
            for uuid, card in cards
        }


class Surroundings(Protocol):
    """The node around a container that starts: what is asked of it, and what it is told."""

    @property
    def stock(self) -> Stock:
        """The node's cards as last counted."""

    @property
    def closed(self) -> str:
        """Why no shares may start; empty: they may."""

    def suspended(self) -> Collection[str]:
        """UIDs of pods that have left their cards."""

    @property
    def takes_turns(self) -> bool:
        """Whether pods may have a card one after the other here."""

    def wake(self) -> None:
        """Slots were promised, or a container was let in."""

    def disk_failed(self, error: OSError) -> None:
        """Something that a container needs was not written."""


class Identity:
    """Proves containers' identities and lets them in. Thread-safe: the kubelet calls from many threads."""

    def __init__(
        self,
        node: str,
        around: Surroundings,
        *,
        allocations: AllocationStore,
        grants: GrantFolder,
        owners: Owners,
        pods: NodePods,
        edits: ContainerEdits,
        slices: SliceBook | None = None,
    ) -> None:
        self._node = node
        self._around = around
        self._allocations = allocations
        self._grants = grants
        self._owners = owners
        self._pods = pods
        self._edits = edits
        self._slices = slices
        self._room = threading.Lock()

    def promise(self, resource: str, ids: frozenset[str]) -> str:
        """The CDI device name for a container that gets these slots; raises :class:`NotAdmittedError`."""
        try:
            allocation = self._allocations.promise(resource, ids)
        except OSError as error:
            self._around.disk_failed(error)
            raise NotAdmittedError(Why.NOT_NOW, f"the promise could not be kept on disk: {error}") from error
        self._around.wake()
        return qualified(allocation.name)

    def admit(self, resource: str, ids: frozenset[str]) -> Grant:
        """Let the container in that holds these slots, its spec written; raises :class:`NotAdmittedError`."""
        allocation = self._allocations.in_force(resource, ids)
        if allocation is None:
            raise NotAdmittedError(
                Why.NO_PROMISE,
                f"{len(ids)} slots of {resource} were never promised by this agent (its state was lost): "
                "delete the pod",
            )
        known = self._grants.get(allocation.name)
        if known is not None:  # the container starts again: same name, same cards, no more questions
            self._start(known)
            return known
        owner = self._owners.of(resource, ids)
        grant = self.proven(allocation, owner.container, owner.pod)
        self._let_in(grant)
        return grant

    def proven(self, allocation: Allocation, ref: ContainerRef, pod: PodView) -> Grant:
        """What the pod's annotation says of this container, every part of it checked."""
        label = f"pod {ref.namespace}/{ref.pod}"
        if pod.cards is None:
            raise NotAdmittedError(
                Why.NO_PLAN, f"{label} has no annotation {names.CARDS}: it was bound without a plan"
            )
        try:
            cards = _decode_cards(pod.cards)
        except AnnotationError as error:
            raise NotAdmittedError(Why.WRONG_PLAN, f"{label}, annotation {names.CARDS}: {error}") from error
        wrong = _mismatch(cards, allocation, ref, pod, self._node)
        if wrong:
            raise NotAdmittedError(Why.WRONG_PLAN, f"{label}, annotation {names.CARDS}: {wrong}")
        grant = Grant(
            name=allocation.name,
            resource=allocation.resource,
            ids=tuple(sorted(allocation.ids)),
            pod_uid=pod.uid,
            namespace=ref.namespace,
            pod=ref.pod,
            container=ref.container,
            plan_id=cards.plan_id,
            epoch=epoch_of(cards.plan_id),
            share_class=cards.share_class,
            core_policy=cards.core_policy,
            native=cards.native,
            shares=cards.containers[ref.container],
            granted_at_s=time.time(),
            gang_pods=cards.gang_pods or 1,
            without_library=self._without_library(cards.containers[ref.container]),
            backend="library" if cards.native else self._backend(cards.containers[ref.container]),
        )
        grant = replace(grant, compute=self._around.stock.node_cards.compute) if grant.limited else grant
        refused = grant.compute == "mps" and why_not(
            grant, self._around.stock.node_cards.mps_namespace, pod.isolation
        )
        if refused:
            raise NotAdmittedError(Why.WRONG_PLAN, f"{label}: {refused}")
        return grant

    def _without_library(self, shares: Iterable[CardShare]) -> bool:
        """Whether these cards are of a kind that no library of ours limits."""
        readings = [self._around.stock.readings.get(share.uuid) for share in shares]
        return any(card is not None and "share" not in card.abilities for card in readings)

    def _backend(self, shares: Sequence[CardShare]) -> str:
        """What keeps such a container to its memory here, as the node tells it now. Slices and cards of
        vendors without a library have ways of their own."""
        if self._without_library(shares) or any(share.slice for share in shares):
            return "library"
        cards = [self._around.stock.card(share.uuid) for share in shares]
        words = {card.isolation for card in cards if card is not None}
        return next((word for word in ("none", "driver") if word in words), "library")

    def restore(self, grant: Grant) -> None:
        """Count a container that runs already as let in, without a check of room, and write its files."""
        self._grants.reserve(grant)
        if (
            not grant.limited or not self._around.closed
        ):  # else they would let its next start go without limits
            self.rewrite(grant)

    def change(self, grants: Sequence[Grant]) -> None:
        """Change the limits of one pod's running containers, all or none. The cards' sums are checked again
        for those that take more, then the books are changed. Files are written by :meth:`rewrite`. Raises
        :class:`NotAdmittedError`."""
        stock = self._around.stock
        names_changed = {grant.name for grant in grants}
        with self._room:
            before = {one.name: one for one in self._grants.all()}
            others = [one for name, one in before.items() if name not in names_changed]
            held = self._held((*others, *grants))
            for grant in grants:
                if grant.name not in before or admission.asks_more(before[grant.name].held, grant.held):
                    _fits(stock, held, (), grant)
            for grant in grants:
                self._grants.reserve(grant)

    def rewrite(self, grant: Grant) -> None:
        """Write the files of a container that runs, as its grant is now, whatever became of driver and cards;
        raises :class:`NotAdmittedError`."""
        stock = self._around.stock
        with self._errors_of_writing():
            realised = self._slices.of(grant.name) if self._slices is not None and grant.sliced else ()
            edits = self._edits.record(stock.of(grant), shared=grant.of_shares, realised=realised)
            self._grants.record(grant, edits, stock.described(grant))

    # --- a container that starts -------------------------------------------------------------------

    def _let_in(self, grant: Grant) -> None:
        """Check every card and its room, count the grant, write its files; all or nothing."""
        stock = self._around.stock
        if not stock.ready:
            raise NotAdmittedError(Why.NOT_NOW, UNCOUNTED)
        if grant.swap and not self._around.takes_turns:
            raise NotAdmittedError(
                Why.NO_ROOM,
                "its cards are to be taken in turns, and this node suspends no pods (components/suspension)",
            )
        for share in grant.shares:
            _planned_for(stock, share, grant)
        waiting = self._waiting(grant)
        with self._room:
            held = self._held(self._grants.all())
            _fits(stock, held, waiting, grant)
            self._grants.reserve(grant)
        try:
            self._start(grant)  # cards and node may have changed while others were counted
        except NotAdmittedError:
            with suppress(OSError):  # held on then: the next try takes it over, or its pod's end frees it
                self._grants.release(grant.name)
            raise
        self._around.wake()

    def _start(self, grant: Grant) -> None:
        """Look at node and cards as they are now, and write the files. Its room is the container's own."""
        stock = self._around.stock
        self._refuse_if_closed(stock, grant)
        for share in grant.shares:
            _in_order(stock, share)
        self._write(stock, grant)

    def _refuse_if_closed(self, stock: Stock, grant: Grant) -> None:
        """Whether the node lets any such container start now."""
        closed = stock.problem if stock.ready else UNCOUNTED
        if grant.limited:
            closed = closed or self._around.closed
        if closed:
            raise NotAdmittedError(Why.NOT_NOW, closed)

    def _write(self, stock: Stock, grant: Grant) -> None:
        driver = stock.node_cards.driver_version
        with self._errors_of_writing():
            realised = self._realised(grant)
            edits = self._edits.edits(stock.of(grant), driver, shared=grant.of_shares, realised=realised)
            self._grants.write(grant, edits, stock.described(grant))

    def _realised(self, grant: Grant) -> tuple[Realised, ...]:
        """Its slices, made or adopted; none for shares of any size."""
        wishes = [
            SliceWish(share.uuid, share.slice, -1 if share.start is None else share.start, share.memory_mib)
            for share in grant.shares
            if share.slice is not None
        ]
        if not wishes:
            return ()
        if self._slices is None:
            raise NotAdmittedError(Why.SLICE, "cards of this node are not cut into slices")
        try:
            return tuple(self._slices.realise(grant.name, wish) for wish in wishes)
        except SliceError as error:
            why = Why.NOT_NOW if error.why in LATER else Why.SLICE
            raise NotAdmittedError(why, f"{error} ({error.why})") from error

    @contextmanager
    def _errors_of_writing(self) -> Iterator[None]:
        """What goes wrong while a container's files are made, as a refusal."""
        try:
            yield
        except EditsError as error:
            raise NotAdmittedError(Why.TOOLKIT, str(error)) from error
        except ControlError as error:
            raise NotAdmittedError(Why.WRONG_PLAN, str(error)) from error
        except MpsError as error:
            raise NotAdmittedError(Why.NOT_NOW, str(error)) from error
        except OSError as error:
            self._around.disk_failed(error)
            raise NotAdmittedError(Why.NOT_NOW, f"the container's files were not written: {error}") from error

    def _held(self, grants: Iterable[Grant]) -> list[admission.HeldShare]:
        return admission.asleep((share for grant in grants for share in grant.held), self._around.suspended())

    def _waiting(self, grant: Grant) -> list[admission.HeldShare]:
        """Shares of later leaders' pods on these cards that are bound here and not let in yet."""
        uuids = [share.uuid for share in grant.shares]
        shares: list[admission.HeldShare] = []
        for pod in self._pods.views():
            text = pod.cards
            if text is None or pod.ended or pod.uid == grant.pod_uid or not any(u in text for u in uuids):
                continue
            try:
                cards = _decode_cards(text)
            except AnnotationError:
                continue
            if cards.pod_uid == pod.uid and cards.node == self._node:
                shares += admission.planned(cards)
        return shares


def _mismatch(cards: Cards, allocation: Allocation, ref: ContainerRef, pod: PodView, node: str) -> str:
    """What in the annotation does not belong to this container, or an empty text."""
    shares = cards.containers.get(ref.container) or ()
    slots, known = len(allocation.ids), ", ".join(sorted(cards.containers)) or "none"
    native = allocation.resource.startswith(names.NATIVE_PREFIX)
    checks = (
        (cards.pod_uid != pod.uid, f"podUid is {cards.pod_uid}, the pod's UID is {pod.uid}"),
        (cards.node != node, f"node is {cards.node}, this is {node}"),
        (epoch_of(cards.plan_id) < 0, f"planId {cards.plan_id!r} is not <epoch>-<number>"),
        (not shares, f"container {ref.container} is not among {known}"),
        (len(shares) != slots, f"container {ref.container} has {len(shares)} cards, but {slots} slots"),
        (len({share.uuid for share in shares}) != len(shares), f"{ref.container} names a card twice"),
        (cards.native != native, f"native is {cards.native}, the container asks for {allocation.resource}"),
    )
    return next((text for wrong, text in checks if wrong), "")


def _fits(stock: Stock, held: Shares, waiting: Shares, grant: Grant) -> None:
    """Whether the host and each of its cards have room for it."""
    refusal = admission.host_refusal(stock.node_cards.host_memory_mib, held, grant.held)
    for new in grant.held:
        card = _known(stock, new.uuid)
        rivals = admission.rivals(held, waiting, new)
        refusal = refusal or admission.refusal(stock.limits(card), rivals, new)
    if refusal:
        raise NotAdmittedError(Why.NO_ROOM, refusal)


def _planned_for(stock: Stock, share: CardShare, grant: Grant) -> None:
    """Whether a newcomer may use the card at all. A cordoned card takes what was planned before."""
    card = _known(stock, share.uuid)
    name = names.native_resource if grant.native else names.shared_resource
    if name(card.model) != grant.resource:
        raise NotAdmittedError(
            Why.WRONG_PLAN, f"card {share.uuid} is a {card.model}, the container asks for {grant.resource}"
        )
    _of_its_kind(card, share, grant)
    _in_order(stock, share)
    if not card.offered and card.reason != CORDONED:
        raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {share.uuid} is not offered: {card.reason}")


def _of_its_kind(card: NodeCard, share: CardShare, grant: Grant) -> None:
    """A slice is on a card that is cut, and nothing else is, but for a whole card that could be."""
    templates = {one.name for one in card.layout.templates} if card.layout is not None else frozenset[str]()
    if share.slice is not None and share.slice not in templates:
        raise NotAdmittedError(Why.WRONG_PLAN, f"card {share.uuid} has no slice {share.slice}")
    if share.start is not None and (card.layout is None or not card.layout.made):
        raise NotAdmittedError(
            Why.WRONG_PLAN, f"card {share.uuid}: no slices are made on it, and the plan says where one begins"
        )
    whole = share.cores == FULL_CORES and (card.layout is None or card.layout.whole)
    if share.slice is None and card.layout is not None and not whole and not grant.native:
        raise NotAdmittedError(Why.WRONG_PLAN, f"card {share.uuid} is cut into slices, the plan names none")


def _in_order(stock: Stock, share: CardShare) -> None:
    """Whether the card is there and well."""
    card = _known(stock, share.uuid)
    if not card.healthy:
        raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {share.uuid} is ill: {card.reason}")


def _known(stock: Stock, uuid: str) -> NodeCard:
    card = stock.card(uuid)
    if card is None:
        raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {uuid} is not on this node")
    return card
