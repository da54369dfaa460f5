"""Which container holds how much of which card: one row for each share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from vc_egpu.core.check.recount import HOLDING
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    NodeName,
    Pod,
    PodPhase,
    PodUid,
    QueueName,
    Share,
    ShareClass,
    Snapshot,
    SuspensionState,
    class_of,
)

CLASS_WORDS: Final = {ShareClass.LOW: "low", ShareClass.UNSET: "", ShareClass.HIGH: "high", None: ""}
"""A class as labels of metrics and columns of reports name it."""


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One container's share of one card, from its placement until its pod is over."""

    namespace: str
    pod: str
    pod_uid: PodUid
    container: str
    node: NodeName | None
    uuid: CardId
    model: str
    """The card's; empty where no node reports that card now."""
    queue: QueueName | None
    """Where it counts."""
    gang: str | None
    share_class: ShareClass | None
    """None where the pod does not say it and its gang is not known."""
    memory_mib: int
    on_card_mib: int
    """What lies on the card while the pod is there; the rest of its memory is spilled to the host."""
    cores_percent: int
    phase: PodPhase
    suspension: SuspensionState
    asleep: bool
    """The pod was told to leave the card and has left it."""
    booked_on_host: bool
    """Its memory counts on the host for its suspension: from the order until the pod runs again."""
    could_be_suspended: bool
    """The node's agent says so, and no order stands yet."""
    slice: str = ""
    """Its template, where it is a slice of fixed size."""
    spilled_mib: int = 0
    """Booked on the host while it is not suspended."""
    swap: bool = False
    """It has the card in turns with others."""

    @property
    def occupies_mib(self) -> int:
        """What it takes of the card's memory now."""
        return 0 if self.asleep else self.on_card_mib


def shares(snapshot: Snapshot) -> tuple[ShareRow, ...]:
    """All shares of pods that hold cards now or come back to them."""
    models = {card.uuid: card.model for node in snapshot.nodes.values() for card in node.cards}
    return shares_of(snapshot.pods.values(), snapshot.gangs, models)


def holds(pod: Pod) -> bool:
    """Whether a pod has cards now or comes back to them."""
    return bool(pod.shares) and pod.phase in HOLDING


def shares_of(
    pods: Iterable[Pod], gangs: Mapping[str, Gang], models: Mapping[CardId, str]
) -> tuple[ShareRow, ...]:
    """The shares of these pods; ``models`` are those of the cards that nodes report."""
    return tuple(
        _row(gangs.get(pod.gang) if pod.gang is not None else None, pod, container, share, models)
        for pod in pods
        if holds(pod)
        for container, share in pod.shares
    )


def by_card(rows: Iterable[ShareRow]) -> Mapping[CardId, list[ShareRow]]:
    """The same rows by their card."""
    found: dict[CardId, list[ShareRow]] = {}
    for row in rows:
        found.setdefault(row.uuid, []).append(row)
    return found


def _row(gang: Gang | None, pod: Pod, container: str, share: Share, models: Mapping[CardId, str]) -> ShareRow:
    return ShareRow(
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        container=container,
        node=pod.node,
        uuid=share.card,
        model=models.get(share.card, ""),
        queue=gang.queue if gang is not None else pod.queue,
        gang=pod.gang,
        share_class=class_of(pod, gang, None),
        memory_mib=share.memory_mib,
        on_card_mib=share.on_card_mib,
        cores_percent=share.cores_percent,
        phase=pod.phase,
        suspension=pod.suspension,
        asleep=pod.asleep,
        booked_on_host=pod.suspend_ordered or pod.suspension is not SuspensionState.RUNNING,
        could_be_suspended=pod.suspendable and not pod.suspend_ordered,
        slice=share.slice,
        spilled_mib=share.spilled_mib,
        swap=share.swap,
    )
