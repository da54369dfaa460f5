"""Shares that node agents still hold, although the pod may be gone already."""

from collections.abc import Container, Iterable, Mapping, Set

from vc_egpu.core.model.cluster import FULL_CORES_PERCENT, CardId, Node, NodeName, PodUid, Share
from vc_egpu.volcano.codec.pod_codec import DecodedPod

Held = Mapping[CardId, tuple[PodUid, ...]]


class Holdings:
    """Agents name pods, not amounts: the amounts are remembered from the pods."""

    def __init__(self) -> None:
        self._held: dict[NodeName, Held] = {}
        self._shares: dict[PodUid, dict[CardId, Share]] = {}

    @property
    def remembered(self) -> Set[PodUid]:
        """Pods of which the shares are remembered."""
        return self._shares.keys()

    def put(self, node: NodeName, held: Held) -> bool:
        """What a node's agent reports; returns whether it is news."""
        before = self._held.get(node, {})
        if held == before:
            return False
        self._held[node] = held
        left = {uid for uids in held.values() for uid in uids}
        for uid in {uid for uids in before.values() for uid in uids} - left:
            self._shares.pop(uid, None)
        return True

    def remove(self, node: NodeName, living: Container[PodUid]) -> None:
        """The node is gone, and what was held on it. ``living``: pods whose object is there."""
        for uid in (uid for uids in self._held.pop(node, {}).values() for uid in uids):
            if uid not in living:
                self._shares.pop(uid, None)

    def remember(self, pod: DecodedPod) -> None:
        """A pod with cards was seen."""
        if pod.pod.shares:
            self._shares[pod.pod.uid] = {share.card: share for _, share in pod.pod.shares}

    def gone(self, pod: DecodedPod) -> bool:
        """A pod's object is gone; returns whether its node's agent still holds its shares."""
        uid = pod.pod.uid
        held = self._held.get(pod.pod.node, {}) if pod.pod.node is not None else {}
        if any(uid in uids for uids in held.values()):
            return True
        self._shares.pop(uid, None)
        return False

    def on(self, node: Node, pods: Mapping[PodUid, DecodedPod]) -> Iterable[tuple[PodUid, Share]]:
        """(pod, share) of everything held on a node.

        Where pods went before this process came, it is not known how much they had. Then they have together
        all that the card's other shares leave: it cannot have been more.
        """
        for card_id, uids in self._held.get(node.name, {}).items():
            known = {uid: share for uid in uids if (share := self._shares.get(uid, {}).get(card_id))}
            yield from known.items()
            unknown = [uid for uid in uids if uid not in known and uid not in pods]
            card = next((card for card in node.cards if card.uuid == card_id), None)
            if not unknown or card is None:
                continue
            others = [share for uid, share in known.items() if uid not in pods]
            others += [
                share
                for pod in pods.values()
                if pod.pod.node == node.name
                for _, share in pod.pod.shares
                if share.card == card_id
            ]
            # On a card that is promised more than once it is the card's own memory that they may still have.
            memory_mib = (card.memory_mib - sum(share.on_card_mib for share in others)) // len(unknown)
            cores = (FULL_CORES_PERCENT - sum(share.cores_percent for share in others)) // len(unknown)
            for uid in unknown:
                yield uid, Share(card_id, max(1, memory_mib), max(0, cores))

    def uids(self) -> frozenset[PodUid]:
        """All pods that some agent holds shares of."""
        return frozenset(uid for held in self._held.values() for uids in held.values() for uid in uids)
