"""Members of plans in force that carry no plan id yet: booked and charged by what was planned for them.

Once a pod under a member's key carries the plan, the pod counts and the plan's booking ends.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.books.use import QueueUse
from vc_egpu.core.model.cluster import (
    Gang,
    MemberPlacement,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    ShareClass,
    plan_key,
)

_K = TypeVar("_K")
_V = TypeVar("_V")


class PlannedMembers:
    """What plans in force take, in addition to the pods.

    ``gangs`` and ``pods`` are the index's, and are read only.
    """

    def __init__(
        self,
        ledger: Ledger,
        uses: QueueUse,
        gangs: Mapping[str, Gang],
        pods: Mapping[PodUid, Pod],
        amounts: Callable[[PodShape, ShareClass], Mapping[str, int]],
    ) -> None:
        self.bookings: dict[str, dict[str, Booking]] = {}
        """By gang and plan key; a gang is in here exactly while it has a plan."""
        self._ledger = ledger
        self._uses = uses
        self._gangs = gangs
        self._pods = pods
        self._amounts = amounts
        self._charges: dict[str, dict[str, tuple[QueueName, Mapping[str, int]]]] = {}
        self._carriers: dict[str, dict[str, dict[PodUid, None]]] = {}
        """By gang and plan key: the pods under that key."""
        self._on: dict[NodeName, dict[tuple[str, str], None]] = {}

    # --- plans -----------------------------------------------------------------------------------

    def enter(self, gang: Gang) -> None:
        """The gang is in the index, and has this plan or none; the one before has been dropped."""
        if gang.plan is None:
            return
        self.bookings[gang.key] = {}
        self._charges[gang.key] = {}
        for key, placement in gang.plan.members.items():
            if placement.node is not None:
                self._on.setdefault(placement.node, {})[gang.key, key] = None
            self._refresh(gang.key, key)

    def drop(self, gang_key: str) -> None:
        """Forget the plan of the gang, which the index still has as it was."""
        before = self._gangs.get(gang_key)
        if before is not None and before.plan is not None:
            for key, placement in before.plan.members.items():
                if placement.node is not None:
                    discard(self._on, placement.node, (gang_key, key))
        for booking in self.bookings.pop(gang_key, {}).values():
            self._ledger.remove(booking)
        for charge in self._charges.pop(gang_key, {}).values():
            self._uses.add(*charge, -1)

    # --- pods ------------------------------------------------------------------------------------

    def pod_came(self, pod: Pod) -> None:
        """The pod is in the index, under its key in the plan of its gang."""
        if pod.gang is not None:
            key = plan_key(pod)
            self._carriers.setdefault(pod.gang, {}).setdefault(key, {})[pod.uid] = None
            self._refresh(pod.gang, key)

    def pod_went(self, pod: Pod, *, replaced: bool) -> None:
        """The pod is not in the index any more. ``replaced``: the same one comes back under the same key."""
        if pod.gang is None:
            return
        key = plan_key(pod)
        keys = self._carriers.get(pod.gang, {})
        discard(keys, key, pod.uid)
        if not keys:
            self._carriers.pop(pod.gang, None)
        if not replaced:
            self._refresh(pod.gang, key)

    # --- nodes -----------------------------------------------------------------------------------

    def book(self, node: NodeName) -> None:
        """Enter what is planned on the node into the ledger."""
        for gang_key, key in self._on.get(node, ()):
            gang = self._gangs[gang_key]
            if gang.plan is not None and not self._carried(gang_key, key, gang.plan.plan_id):
                self._book(gang, key, gang.plan.members[key], self._shape(gang, key))

    def unbook(self, node: NodeName) -> None:
        """Take it off the ledger."""
        for gang, key in self._on.get(node, ()):
            booking = self.bookings[gang].pop(key, None)
            if booking is not None:
                self._ledger.remove(booking)

    def on(self, node: NodeName) -> Iterator[tuple[str, Booking]]:
        """What is planned on the node: each member's gang and what is booked for it."""
        for gang, key in self._on.get(node, ()):
            booking = self.bookings[gang].get(key)
            if booking is not None:
                yield gang, booking

    # --- one member ------------------------------------------------------------------------------

    def _refresh(self, gang_key: str, key: str) -> None:
        """Count the planned member, unless a pod under its key carries the plan: then the pod counts."""
        gang = self._gangs.get(gang_key)
        plan = gang.plan if gang is not None else None
        if gang is None or plan is None or gang_key not in self.bookings:
            return
        booking = self.bookings[gang_key].pop(key, None)
        if booking is not None:
            self._ledger.remove(booking)
        charge = self._charges[gang_key].pop(key, None)
        if charge is not None:
            self._uses.add(*charge, -1)
        placement = plan.members.get(key)
        if placement is None or self._carried(gang_key, key, plan.plan_id):
            return
        shape = self._shape(gang, key)
        if shape is not None:
            charges = self._amounts(shape, gang.share_class)
            self._charges[gang_key][key] = (gang.queue, charges)
            self._uses.add(gang.queue, charges)
        self._book(gang, key, placement, shape)

    def _book(self, gang: Gang, key: str, placement: MemberPlacement, shape: PodShape | None) -> None:
        if placement.node is None:
            return
        shares = [share for _, share in placement.shares]
        share_class, several = gang.share_class, gang.is_of_several
        booking = self._ledger.booking(placement.node, shape, shares, share_class, several=several)
        if booking is not None:
            booking = booking.to_come()
            self._ledger.add(booking)
            self.bookings[gang.key][key] = booking

    def _carried(self, gang_key: str, key: str, plan_id: str) -> bool:
        carriers = self._carriers.get(gang_key, {}).get(key, ())
        return any(self._pods[uid].plan_id == plan_id for uid in carriers)

    def _shape(self, gang: Gang, key: str) -> PodShape | None:
        # With two pods under one key it is the one that the gang's view shows, whichever came first.
        for uid in sorted(self._carriers.get(gang.key, {}).get(key, ()), reverse=True):
            if self._pods[uid].phase is PodPhase.GATED:
                return self._pods[uid].shape
        task, _, _ = key.rpartition("/")
        return next((shape for name, _, shape in gang.template if name == task), None)


def discard(groups: dict[_K, dict[_V, None]], group: _K, member: _V) -> None:
    """Take a member out of its group, and the group with its last one; nothing where it is not there."""
    members = groups.get(group)
    if members is None:
        return
    members.pop(member, None)
    if not members:
        del groups[group]
