"""Suspended pods whose cards are gone: taken out of the node's inventory, or with their node.

No agent brings a pod back on other cards, so they would sleep until those are there again, which may be
never. After a while their gang is evicted and queued again; the decision says so, from what is noted here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.volcano.codec.pod_codec import DecodedPod

DEFAULT_AFTER_S: Final = 600.0
"""As long as a running gang waits for a replacement's room: a node that reboots is back before."""


@dataclass(slots=True)
class Stranded:
    """Owned by the conductor's thread; times are of its clock, which a new leader starts at zero."""

    mirror: Mirror
    after_s: float = DEFAULT_AFTER_S
    """0: never."""
    _since: dict[PodUid, float] = field(default_factory=dict)

    def look(self, away: Iterable[PodUid], clock: float) -> None:
        """See whose cards are gone among the pods that have left theirs, and for whom that lasts too long."""
        gone = {uid for uid in away if self._what_is_gone(self.mirror.pods.get(uid))}
        for uid in gone ^ self._since.keys():
            pod = self.mirror.pods.get(uid)
            if pod is not None and pod.pod.gang is not None:
                self.mirror.agenda.look_at(pod.pod.gang)
        self._since = {uid: self._since.get(uid, clock) for uid in gone}
        over = {uid for uid, since in self._since.items() if 0 < self.after_s <= clock - since}
        changed = over ^ self.mirror.answers.stranded
        self.mirror.answers.stranded = over
        self.mirror.enter_again(sorted(changed))

    def told_of(self, pod: DecodedPod) -> str:
        """What its owner should know; empty where its cards are there."""
        what = self._what_is_gone(pod) if pod.pod.uid in self._since else ""
        if not what:
            return ""
        if pod.pod.bare:
            return f"{what}, and no controller would replace it, so it waits"
        return f"{what}; it is replaced if that lasts {self.after_s:.0f} s" if self.after_s else what

    def _what_is_gone(self, pod: DecodedPod | None) -> str:
        """Its node, or one of its cards; empty where nothing is, or it is not known."""
        if pod is None or pod.pod.phase is not PodPhase.PLACED or not pod.pod.suspend_ordered:
            return ""
        node = self.mirror.nodes.get(pod.pod.node) if pod.pod.node is not None else None
        if node is None:
            return f"node {pod.pod.node} is gone"
        if not node.offers_cards:
            return ""  # its agent cannot tell now, or has not been asked
        cards = {card.uuid for card in node.cards}
        gone = (share.card for _, share in pod.pod.shares if share.card not in cards)
        card = next(gone, None)
        return f"card {card} is not among the cards of node {node.name} any more" if card is not None else ""
