"""Wishes for other sizes of running pods' shares: judged by a decision, written on the pods, and followed
until their nodes have applied them.

Everything about one wish stands on its pod. A leader that is killed at any point leaves the next step to do,
and no more. A write is conditional on the version of the pod that was read.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from vc_egpu.admission.carry_out.plans import Plans
from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.execution.outcomes import OrderWrite
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written
from vc_egpu.admission.execution.writes import card_shares
from vc_egpu.admission.resizing.known import Shares
from vc_egpu.admission.telling.reports import pod_reference
from vc_egpu.core.model.cluster import CardId, Instant, PodPhase, PodUid, Share
from vc_egpu.core.model.plan import Resize
from vc_egpu.volcano import room
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.resizing.notes import (
    MAX_WHY,
    ResizeNote,
    ResizeWish,
    Stage,
    changes,
    next_step,
    note_on,
    wish_on,
    with_sizes,
)
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards, CardShare

Annotations = Mapping[str, str | None]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    """What is written on a pod: it is sent again where no answer says whether it happened."""

    pod: DecodedPod
    annotations: Annotations
    note: ResizeNote
    shares: Shares | None


@dataclass(slots=True)
class Resizes:
    """Owned by the loop's thread."""

    work: Work
    plans: Plans
    _writing: dict[PodUid, _Write] = field(default_factory=dict)
    _unknown: dict[PodUid, _Write] = field(default_factory=dict)
    _lowering: set[PodUid] = field(default_factory=set)
    """Pods whose agents have so much time and no more."""

    def __bool__(self) -> bool:
        """Whether something is to be looked at again although nothing happens."""
        return bool(self._lowering)

    # --- what decisions ask for ------------------------------------------------------------------

    def begin(self, resize: Resize, now: Instant) -> None:
        """Write what a decision says about a wish."""
        pod = self.work.mirror.pods.get(resize.pod)
        if pod is None or self._is_busy(pod):
            return
        try:
            wish = wish_on(_annotations(pod))
            cards = Cards.decode(_annotations(pod).get(names.CARDS) or "")
        except AnnotationError:
            return  # it is another one by now: read, and judged again
        if wish is None:
            return
        if resize.why:
            self._send(pod, _Write(pod, *self._refusal(pod, wish, cards, resize.why, now), None))
            return
        meanwhile, then = card_shares(resize.meanwhile), card_shares(resize.then)
        lowers = any(
            after.memory_mib < share.memory_mib or after.on_card_mib < share.on_card_mib
            for name, shares in meanwhile.items()
            for share, after in zip(shares, then[name], strict=True)
        )
        note = self._note(pod, wish, cards, Stage.LOWERING if lowers else Stage.APPLYING, now)
        note = note.model_copy(update={"then": {name: then[name] for name in note.was}})
        annotations = {
            names.RESIZE: None,
            names.RESIZED: note.encode(),
            names.CARDS: with_sizes(cards, meanwhile).encode(),
        }
        self._send(pod, _Write(pod, annotations, note, resize.meanwhile))

    def _note(
        self, pod: DecodedPod, wish: ResizeWish | None, cards: Cards, stage: Stage, now: Instant
    ) -> ResizeNote:
        named = wish.containers if wish is not None else {}
        return ResizeNote(
            pod_uid=pod.pod.uid,
            number=self.plans.next_id(),
            stage=stage,
            id=wish.id if wish is not None else "",
            since=int(now),
            was={name: shares for name, shares in cards.containers.items() if name in named},
            then={},
        )

    def _refusal(
        self, pod: DecodedPod, wish: ResizeWish | None, cards: Cards, why: str, now: Instant
    ) -> tuple[Annotations, ResizeNote]:
        note = self._note(pod, wish, cards, Stage.REFUSED, now)
        then = {}
        for name, shares in note.was.items():
            size = wish.containers[name].model_dump(exclude_none=True) if wish is not None else {}
            size |= {"physical_mib": None} if "memory_mib" in size else {}
            then[name] = tuple(share.model_copy(update=size) for share in shares)
        note = note.model_copy(update={"why": why[:MAX_WHY], "then": then})
        return {names.RESIZE: None, names.RESIZED: note.encode()}, note

    # --- what the objects ask for ----------------------------------------------------------------

    def drive(self, key: str, now: Instant) -> None:
        """The next step for each member of a gang about which something is under way."""
        for uid, pod in self.work.mirror.members.get(key, {}).items():
            if pod.pod.phase is not PodPhase.PLACED or self._is_busy(pod):
                continue
            if uid in self._unknown:
                self._send(pod, self._unknown.pop(uid))
            elif names.RESIZED in _annotations(pod) or names.RESIZE in _annotations(pod):
                self._follow(pod, now)

    def _follow(self, pod: DecodedPod, now: Instant) -> None:
        annotations = _annotations(pod)
        note = note_on(annotations, pod.pod.uid)
        self._lowering.discard(pod.pod.uid)
        try:
            cards = Cards.decode(annotations.get(names.CARDS) or "")
        except AnnotationError:
            return  # the gang says so already
        step = next_step(note, self.work.mirror.resizes.about(pod), now) if note is not None else None
        if step is not None:
            written: dict[str, str | None] = {names.RESIZED: step.note.encode()}
            shares = None
            if step.sizes:
                written[names.CARDS] = with_sizes(cards, step.sizes).encode()
                shares = _larger(pod.pod.shares, step.sizes)
            self._send(pod, _Write(pod, written, step.note, shares))
            return
        if note is not None and note.stage is Stage.LOWERING:
            self._lowering.add(pod.pod.uid)
            return
        try:
            wish_on(annotations)
        except AnnotationError as error:
            why = f"annotation {names.RESIZE} is malformed: {error}"
            self._send(pod, _Write(pod, *self._refusal(pod, None, cards, why, now), None))

    def tick(self) -> None:
        """Look at those again that have only so much time."""
        pods = (self.work.mirror.pods.get(uid) for uid in self._lowering)
        self.work.agenda.look_at(
            *(pod.pod.gang for pod in pods if pod is not None and pod.pod.gang is not None)
        )

    def _is_busy(self, pod: DecodedPod) -> bool:
        return pod.pod.uid in self._writing or not self.work.may_try(pod.pod.gang or "")

    def _send(self, pod: DecodedPod, write: _Write) -> None:
        uid, text = pod.pod.uid, write.annotations[names.RESIZED] or ""
        if not room.fits(pod.annotation_bytes, names.RESIZED, text):
            logger.warning(
                "pod %s/%s: its annotations leave no room for an answer", pod.pod.namespace, pod.pod.name
            )
            return
        self._writing[uid] = write
        self.work.mirror.resizes.send(uid, write.shares)
        self.work.mirror.enter_again([uid])
        self.work.executor.annotate("resize", pod.pod.gang or "", write.pod, write.annotations)

    # --- what came of it -------------------------------------------------------------------------

    def done(self, done: OrderWrite) -> None:
        """A write ended; what stands on the pod was entered."""
        write = self._writing.pop(done.uid, None)
        result = done.result
        match result:
            case Unknown() if write is not None and not done.gone:
                self._unknown[done.uid] = write  # what was booked stays booked until an answer comes
                return
            case Written():
                self._told(write)
            case Overtaken() | Later() | Unknown() | Denied():
                pass  # read and judged again
            case _:
                assert_never(result)
        self.work.mirror.resizes.sent(done.uid)
        self.work.mirror.enter_again([done.uid])
        self.work.agenda.look_at(done.gang)

    def _told(self, write: _Write | None) -> None:
        if write is None:
            return
        sizes, events = "; ".join(changes(write.note)), self.work.reports.events
        match write.note.stage:
            case Stage.REFUSED:
                self.work.count("resizes_refused")
                text = f"{sizes}: {write.note.why}" if sizes else write.note.why
                events.event(pod_reference(write.pod), "Warning", "ResizeRefused", text)
            case Stage.DONE:
                self.work.count("resized")
                events.event(pod_reference(write.pod), "Normal", "Resized", sizes)
            case Stage.LOWERING | Stage.APPLYING:
                pass  # its end is told
            case _:
                assert_never(write.note.stage)

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self._writing.pop(uid, None)
        self._unknown.pop(uid, None)
        self._lowering.discard(uid)


def _larger(now: Shares, sizes: Mapping[str, Sequence[CardShare]]) -> Shares:
    """What counts while the annotation changes: of each amount the larger one."""
    after = {(name, CardId(share.uuid)): share for name, shares in sizes.items() for share in shares}
    return tuple((name, _larger_share(share, after.get((name, share.card)))) for name, share in now)


def _larger_share(share: Share, after: CardShare | None) -> Share:
    if after is None:
        return share
    memory_mib = max(share.memory_mib, after.memory_mib)
    physical_mib = max(share.on_card_mib, after.on_card_mib)
    return Share(
        share.card,
        memory_mib,
        max(share.cores_percent, after.cores),
        whole=share.whole,
        physical_mib=physical_mib if physical_mib < memory_mib else None,
    )


def _annotations(pod: DecodedPod) -> Mapping[str, str]:
    return (pod.source.get("metadata") or {}).get("annotations") or {}
