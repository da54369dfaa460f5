"""Limits of containers that run. The admission layer rewrites the pod's cards annotation; the agent checks
the cards' sums again and applies what fits, in place.

Only the admission layer may write that annotation (an admission policy of the cluster sees to it). Memory,
cores, class and core policy may change; the cards of a running container cannot.

Where a user wished for less memory, the admission layer first asks for the limit to be lowered, by a note on
the pod. The limit is lowered, unless the container uses more; only then is the annotation written.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from vc_egpu.volcano.codec.plans import epoch_of
from vc_egpu.volcano.resizing.notes import ResizeNote, Stage, lowered, note_on
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards

from vc_egpu_node.api.pods import NodePods, PodView
from vc_egpu_node.containers.admission import NotAdmittedError
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.containers.identity import Identity
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.resizes import Resizes, used_too_much

log = logging.getLogger(__name__)

REFUSED: Final = "LimitsNotApplied"
"""Reason of the pod's event."""


class NotChangeableError(ValueError):
    """The annotation says something that a running container cannot become; the text says what."""


def wanted(grants: Iterable[Grant], cards: Cards, pod_uid: str, node: str) -> list[tuple[Grant, Grant]]:
    """(before, after) of the pod's containers whose grant is another one now; raises
    :class:`NotChangeableError`. Pure."""
    changes = []
    for grant in grants:
        after = _after(grant, cards, pod_uid, node)
        if after != grant:
            changes.append((grant, after))
    return changes


def _after(grant: Grant, cards: Cards, pod_uid: str, node: str) -> Grant:
    if cards.pod_uid != pod_uid or cards.node != node:
        raise NotChangeableError(f"it names pod UID {cards.pod_uid} on {cards.node}")
    if cards.native != grant.native:
        raise NotChangeableError(f"native became {cards.native}")
    epoch = epoch_of(cards.plan_id)
    if epoch < 0:
        raise NotChangeableError(f"planId {cards.plan_id!r} is not <epoch>-<number>")
    shares = {share.uuid: share for share in cards.containers.get(grant.container, ())}
    own = [share.uuid for share in grant.shares]
    if set(shares) != set(own) or len(cards.containers[grant.container]) != len(own):
        raise NotChangeableError(
            f"container {grant.container} runs on {', '.join(own)}: its cards cannot change"
        )
    return replace(
        grant,
        plan_id=cards.plan_id,
        epoch=epoch,
        share_class=cards.share_class,
        core_policy=cards.core_policy,
        gang_pods=cards.gang_pods or grant.gang_pods,
        shares=tuple(shares[uuid] for uuid in own),  # their order on the page is the container's own
    )


class LiveLimits:
    """Applies them. One thread calls it."""

    def __init__(
        self,
        *,
        node: str,
        grants: GrantFolder,
        pods: NodePods,
        identity: Identity,
        isolation: Isolation,
        tell: Callable[[str, str, str, str, str], None],
        count: Callable[[str], None] = lambda _outcome: None,
        used_mib: Callable[[Grant], Mapping[str, int]] = lambda _grant: {},
    ) -> None:
        """``tell`` warns on a pod (namespace, name, UID, reason, sentence); ``count`` counts ``applied`` and
        ``refused``. ``used_mib`` is what the driver sees of a container, by card UUID."""
        self._node = node
        self._grants = grants
        self._pods = pods
        self._identity = identity
        self._isolation = isolation
        self._tell = tell
        self._count = count
        self._refused: dict[str, str] = {}
        self._used_mib = used_mib
        self._resizes = Resizes()

    @property
    def told(self) -> str | None:
        """What the Node shall say about resizes; None: nothing."""
        return self._resizes.text()

    def apply(self) -> int:
        """Look at every pod that holds cards; how many containers' limits changed. Pods that are being
        deleted are let go: their programs have to come to their handlers."""
        if not self._pods.synced:
            return 0
        by_pod: dict[str, list[Grant]] = {}
        for grant in self._grants.all():
            by_pod.setdefault(grant.pod_uid, []).append(grant)
        changed: list[Grant] = []
        views = list(self._pods.views())
        leaving = {pod.uid for pod in views if pod.terminating}
        self._isolation.let_go((one for uid in leaving for one in by_pod.get(uid, ())), self._grants.all)
        here = [pod for pod in views if pod.uid in by_pod and pod.cards is not None and not pod.ended]
        self._resizes.keep(_waiting_notes(here))
        for pod in here:
            changed += self._of_pod(pod, pod.cards or "", by_pod[pod.uid])
        self._refused = {uid: text for uid, text in self._refused.items() if uid in by_pod}
        self._enforce(changed)
        if self._isolation.driver is not None:
            self._isolation.driver.settle(self._grants.all())
        for pod in here:
            self._check_lowered(pod)
        return len(changed)

    def _enforce(self, changed: list[Grant]) -> None:
        if changed:
            self._isolation.refresh(self._grants.all(), changed)
            for grant in changed:
                if self._isolation.driver is not None:
                    self._isolation.driver.change(grant)
                self._file(grant)

    def _of_pod(self, pod: PodView, text: str, grants: list[Grant]) -> list[Grant]:
        note = self._resizes.note(pod.uid)
        try:
            cards = Cards.decode(text)
            changes = wanted(grants, self._target(pod, cards, note, grants), pod.uid, self._node)
            if changes:
                self._identity.change([after for _, after in changes])
        except (AnnotationError, NotChangeableError, NotAdmittedError) as error:
            self._say(pod, f"annotation {names.CARDS} is not applied, the limits stay: {error}")
            self._resizes.refuse(pod.uid, str(error))
            return []
        self._refused.pop(pod.uid, None)
        if note is not None and note.stage is Stage.APPLYING:
            self._resizes.applied(pod.uid)
        for before, after in changes:
            if note is None:
                self._isolation.lower(before, after)
            self._count("applied")
            log.info("%s/%s/%s has other limits now", after.namespace, after.pod, after.container)
        return [after for _, after in changes]

    def _target(self, pod: PodView, cards: Cards, note: ResizeNote | None, grants: list[Grant]) -> Cards:
        """What the containers are to be held to: less memory only where they use no more."""
        if note is None or note.stage is not Stage.LOWERING or self._resizes.is_refused(pod.uid):
            return cards
        if self._resizes.is_lowered(pod.uid):
            return lowered(cards, note)
        missing = sorted(note.then.keys() - {grant.container for grant in grants})
        why = f"container {missing[0]} does not run yet" if missing else self._too_much(grants, cards, note)
        if why:
            self._resizes.refuse(pod.uid, why)
        return cards if why else lowered(cards, note)

    def _check_lowered(self, pod: PodView) -> None:
        """The limits are lowered: what was allocated a moment before counts, too."""
        note = self._resizes.note(pod.uid)
        if note is None or note.stage is not Stage.LOWERING or not self._resizes.is_open(pod.uid):
            return
        grants = [grant for grant in self._grants.all() if grant.pod_uid == pod.uid]
        why = self._behind(grants) or self._too_much(grants, Cards.decode(pod.cards or ""), note)
        if not why:
            self._resizes.lowered(pod.uid)
            return
        self._resizes.refuse(pod.uid, why)
        self._enforce(self._of_pod(pod, pod.cards or "", grants))

    def _behind(self, grants: list[Grant]) -> str:
        """Which container the driver still lets have more."""
        driver = self._isolation.driver
        return (
            next(filter(None, (driver.behind(one.name) for one in grants)), "") if driver is not None else ""
        )

    def _too_much(self, grants: list[Grant], cards: Cards, note: ResizeNote) -> str:
        """Which container uses more memory than the note leaves it, with the numbers."""
        had, target = cards.containers, lowered(cards, note).containers
        found = (
            used_too_much(
                one.container, had.get(one.container, ()), target.get(one.container, ()), self._used(one)
            )
            for one in grants
        )
        return next(filter(None, found), "")

    def _used(self, grant: Grant) -> Mapping[str, int]:
        """MiB by card: the larger one of what its library charged and what the driver sees."""
        seen, charged = self._used_mib(grant), self._isolation.charged_mib(grant)
        return {uuid: max(seen.get(uuid, 0), charged.get(uuid, 0)) for uuid in seen.keys() | charged.keys()}

    def _say(self, pod: PodView, text: str) -> None:
        if self._refused.get(pod.uid) != text:
            self._refused[pod.uid] = text
            self._count("refused")
            log.warning("%s/%s: %s", pod.namespace, pod.name, text)
            self._tell(pod.namespace, pod.name, pod.uid, REFUSED, text)

    def _file(self, grant: Grant) -> None:
        """For the next start and the next agent; in force it is already."""
        try:
            self._identity.rewrite(grant)
        except NotAdmittedError as error:
            log.warning("the files of %s still say the old limits: %s", grant.name, error)


def _waiting_notes(pods: Iterable[PodView]) -> dict[str, ResizeNote]:
    """By pod UID, the notes about which something is to be done here."""
    notes = ((pod.uid, note_on({names.RESIZED: pod.resized}, pod.uid)) for pod in pods if pod.resized)
    return {uid: note for uid, note in notes if note is not None and note.waits_for_agent}
