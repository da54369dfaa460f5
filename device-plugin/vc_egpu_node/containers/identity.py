"""Who is this container, and may it start on its cards.

``promise`` answers the kubelet's Allocate: one CDI device name per container, kept before it is given.
``admit`` answers PreStartContainer, just before the container is created: the kubelet says which container
holds the slots, the API server which cards that container got, the card's room is checked, and only then the
CDI spec is written that the name stands for. Nothing is ever guessed: what cannot be proven does not start.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.codec.plans import epoch_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards, CardShare, NodeCard, NodeCards

from vc_egpu_node.api.pods import NodePods, PodView
from vc_egpu_node.cards.inventory import CORDONED
from vc_egpu_node.containers import admission
from vc_egpu_node.containers.allocations import Allocation, AllocationStore
from vc_egpu_node.containers.cdi import ControlError, Grant, GrantFolder, qualified
from vc_egpu_node.kubelet.podresources import (
    Checkpoint,
    ContainerRef,
    PodResources,
    PodResourcesError,
    UnknownOwnerError,
    owner,
)
from vc_egpu_node.vendors.nvidia.toolkit import CardNames, Toolkit, ToolkitError

log = logging.getLogger(__name__)

GET_TIMEOUT_S: Final = 3.0
OWNER_TRIES: Final = 3
OWNER_PAUSE_S: Final = 0.05
UNCOUNTED: Final = "the node's cards have not been counted yet"

Shares = Sequence[admission.HeldShare]
_decode_cards = lru_cache(maxsize=1024)(Cards.decode)


class Why(Enum):
    """Why a container does not start."""

    NO_PROMISE = "NoPromise"
    NO_OWNER = "NoOwner"
    NO_PLAN = "NoPlan"
    WRONG_PLAN = "WrongPlan"
    CARD_NOT_USABLE = "CardNotUsable"
    NO_ROOM = "NoRoom"
    TOOLKIT = "Toolkit"
    NOT_NOW = "NotNow"
    """The kubelet, the API server or the disk did not answer: the same call may succeed later."""


class NotAdmittedError(Exception):
    """The container must not start (now); the text goes into the pod's event."""

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why = why


@dataclass(frozen=True, slots=True)
class Stock:
    """The cards of the node, as far as they matter to a container that starts."""

    node_cards: NodeCards = field(default_factory=NodeCards)
    nominal_mib: Mapping[str, int] = field(default_factory=dict)
    """Model to nominal memory."""
    known_as: Mapping[str, CardNames] = field(default_factory=dict)
    """UUID to what the driver calls the card now."""
    ready: bool = False
    """False until the cards were counted once."""
    problem: str = ""
    """Why no container may start on any of them."""

    def card(self, uuid: str) -> NodeCard | None:
        """The card of that UUID."""
        return next((card for card in self.node_cards.cards if card.uuid == uuid), None)

    def limits(self, card: NodeCard) -> admission.CardLimits:
        """What the card may hold."""
        return admission.CardLimits(
            uuid=card.uuid,
            memory_mib=self.nominal_mib.get(card.model, card.memory_mib),
            memory_ratio=self.node_cards.memory_ratio,
            core_ratio=self.node_cards.core_ratio,
            ratio_class=self.node_cards.ratio_class,
            max_sharers=self.node_cards.max_sharers,
        )

    def describe(self, share: CardShare) -> dict[str, Any]:
        """What a container may know of its card besides its share."""
        card = self.card(share.uuid)
        return {} if card is None else {"index": card.index, "model": card.model, "product": card.product}


class Identity:
    """Proves containers' identities and lets them in. Thread-safe: the kubelet calls from many threads."""

    def __init__(
        self,
        *,
        node: str,
        allocations: AllocationStore,
        grants: GrantFolder,
        pods: NodePods,
        pod_resources: PodResources,
        checkpoint: Checkpoint,
        toolkit: Toolkit,
        stock: Callable[[], Stock],
        on_change: Callable[[], None] = lambda: None,
        suspended: Callable[[], Collection[str]] = frozenset,
        closed: Callable[[], str] = str,
        on_disk_error: Callable[[OSError], None] = lambda _error: None,
    ) -> None:
        """``suspended``: UIDs of pods that have left their cards; ``closed``: why shares may not start;
        ``on_disk_error`` hears of what could not be written."""
        self._node = node
        self._allocations = allocations
        self._grants = grants
        self._pods = pods
        self._pod_resources = pod_resources
        self._checkpoint = checkpoint
        self._toolkit = toolkit
        self._stock = stock
        self._on_change = on_change
        self._suspended = suspended
        self._closed = closed
        self._on_disk_error = on_disk_error
        self._room = threading.Lock()

    def promise(self, resource: str, ids: frozenset[str]) -> str:
        """The CDI device name for a container that gets these slots; raises :class:`NotAdmittedError`."""
        try:
            allocation = self._allocations.promise(resource, ids)
        except OSError as error:
            self._on_disk_error(error)
            raise NotAdmittedError(Why.NOT_NOW, f"the promise could not be kept on disk: {error}") from error
        self._on_change()
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
        if known is not None:  # the container starts again: same name, same cards, nobody to ask
            self._write(known)
            return known
        ref = self._owner(resource, ids)
        pod = self._pod(ref, self._checkpoint.pod_uid(resource, ids, ref.container))
        grant = self.proven(allocation, ref, pod)
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
        return Grant(
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
        )

    def restore(self, grant: Grant) -> None:
        """Count a container that runs already as let in (no room is asked), and write its files again."""
        self._grants.reserve(grant)
        if grant.native or not self._closed():  # else they would let its next start go without limits
            self._write(grant, running=True)

    def change(self, grants: Sequence[Grant]) -> None:
        """Other limits for containers of one pod that run, all or none: the cards' sums are checked again for
        those that take more, then the books are changed. Files are written by :meth:`rewrite`. Raises
        :class:`NotAdmittedError`."""
        stock = self._stock()
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
        """The files of a container that runs, as its grant is now; raises :class:`NotAdmittedError`."""
        self._write(grant, running=True)

    def _owner(self, resource: str, ids: frozenset[str]) -> ContainerRef:
        for attempt in range(OWNER_TRIES):
            try:
                return owner(self._pod_resources.holders(), resource, ids)
            except PodResourcesError as error:
                raise NotAdmittedError(Why.NOT_NOW, str(error)) from error
            except UnknownOwnerError as error:
                if attempt == OWNER_TRIES - 1:
                    raise NotAdmittedError(Why.NO_OWNER, str(error)) from error
                time.sleep(OWNER_PAUSE_S)
        raise AssertionError("not reached")

    def _pod(self, ref: ContainerRef, uid: str | None) -> PodView:
        """The very pod that the kubelet starts. The watch's copy is taken only if the kubelet's own record
        confirms its UID: under the same name it might still have a pod that was deleted. Without that record
        (its file cannot be read) a deleted pod's container could start in its successor's name: then nobody
        starts unless every other source knows of one pod only."""
        pod = self._pods.known(ref.namespace, ref.pod)
        if pod is not None and pod.uid == uid and pod.cards is not None:
            return pod
        try:
            pod = self._pods.fetch(ref.namespace, ref.pod, GET_TIMEOUT_S)
        except KubeError as error:
            raise NotAdmittedError(
                Why.NOT_NOW, f"pod {ref.namespace}/{ref.pod} could not be read: {error}"
            ) from error
        if pod is None:
            raise NotAdmittedError(Why.NO_OWNER, f"pod {ref.namespace}/{ref.pod} does not exist any more")
        if uid is not None and pod.uid != uid:
            raise NotAdmittedError(
                Why.NO_OWNER, f"the kubelet starts pod UID {uid}, {ref.namespace}/{ref.pod} is {pod.uid} now"
            )
        doubt = self._doubt(pod) if uid is None else ""
        if doubt:
            raise NotAdmittedError(
                Why.NOT_NOW,
                f"the kubelet's record does not say which pod {ref.namespace}/{ref.pod} starts: {doubt}",
            )
        return pod

    def _doubt(self, pod: PodView) -> str:
        """Why a pod of the same name may be meant instead of this one (from the API server), or empty."""
        watched = self._pods.known(pod.namespace, pod.name)
        others = {
            grant.pod_uid
            for grant in self._grants.all()
            if (grant.namespace, grant.pod) == (pod.namespace, pod.name) and grant.pod_uid != pod.uid
        }
        checks = (
            (watched is None, "the watch has not seen it yet"),
            (watched is not None and watched.uid != pod.uid, "the watch has another one"),
            (pod.terminating or (watched is not None and watched.terminating), f"{pod.uid} is being deleted"),
            (bool(others), f"cards are still held by UID {', '.join(sorted(others))}"),
            (self._pods.may_be_remade(pod.namespace, pod.name), "one of that name may have gone just now"),
        )
        return next((text for wrong, text in checks if wrong), "")

    def _let_in(self, grant: Grant) -> None:
        """Check every card and its room, count the grant, write its files; all or nothing."""
        stock = self._stock()
        if not stock.ready:
            raise NotAdmittedError(Why.NOT_NOW, UNCOUNTED)
        for share in grant.shares:
            _usable(stock, share, grant)
        waiting = self._waiting(grant)
        with self._room:
            held = self._held(self._grants.all())
            _fits(stock, held, waiting, grant)
            self._grants.reserve(grant)
        try:
            self._write(grant)
        except NotAdmittedError:
            with suppress(OSError):  # held on then: the next try takes it over, or its pod's end frees it
                self._grants.release(grant.name)
            raise
        self._on_change()

    def _held(self, grants: Iterable[Grant]) -> list[admission.HeldShare]:
        return admission.asleep((share for grant in grants for share in grant.held), self._suspended())

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

    def _write(self, grant: Grant, *, running: bool = False) -> None:
        stock = self._stock()
        closed = stock.problem if stock.ready else UNCOUNTED
        closed = closed if grant.native else closed or self._closed()
        if closed and not running:
            raise NotAdmittedError(Why.NOT_NOW, closed)
        for share in () if running else grant.shares:
            card = stock.card(share.uuid)
            if card is None or not card.healthy:
                reason = "is not on this node" if card is None else f"is ill: {card.reason}"
                raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {share.uuid} {reason}")
        known_as = [stock.known_as.get(share.uuid) or CardNames(share.uuid, -1) for share in grant.shares]
        if running:  # its record is kept whatever became of driver and cards
            known_as = [replace(one, minor=-1) for one in known_as]
        try:
            edits = self._toolkit.edits(known_as, "" if running else stock.node_cards.driver_version)
            described = {share.uuid: stock.describe(share) for share in grant.shares}
            self._grants.write(grant, edits, described, running=running)
        except ToolkitError as error:
            raise NotAdmittedError(Why.TOOLKIT, str(error)) from error
        except ControlError as error:
            raise NotAdmittedError(Why.WRONG_PLAN, str(error)) from error
        except OSError as error:
            self._on_disk_error(error)
            raise NotAdmittedError(Why.NOT_NOW, f"the container's files were not written: {error}") from error


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
        card = stock.card(new.uuid)
        if card is None:
            raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {new.uuid} is not on this node")
        rivals = admission.rivals(held, waiting, new)
        refusal = refusal or admission.refusal(stock.limits(card), rivals, new)
    if refusal:
        raise NotAdmittedError(Why.NO_ROOM, refusal)


def _usable(stock: Stock, share: CardShare, grant: Grant) -> None:
    """Whether a newcomer may use the card at all. A cordoned card takes what was planned before."""
    card = stock.card(share.uuid)
    if card is None:
        raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {share.uuid} is not on this node")
    name = names.native_resource if grant.native else names.shared_resource
    if name(card.model) != grant.resource:
        raise NotAdmittedError(
            Why.WRONG_PLAN, f"card {share.uuid} is a {card.model}, the container asks for {grant.resource}"
        )
    if not card.healthy:
        raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {share.uuid} is ill: {card.reason}")
    if not card.offered and card.reason != CORDONED:
        raise NotAdmittedError(Why.CARD_NOT_USABLE, f"card {share.uuid} is not offered: {card.reason}")
