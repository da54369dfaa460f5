"""Shares that node agents report: booked while their pod's object is gone and the agent still has them."""

from collections.abc import Container, Iterable, Iterator

from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.cluster import NodeName, PodUid, Share, ShareClass

Report = tuple[tuple[PodUid, Share], ...]


class HeldShares:
    """The agents' reports, booked where no living pod accounts for them."""

    def __init__(self, ledger: Ledger, living: Container[PodUid]) -> None:
        self._ledger = ledger
        self._living = living
        self._reports: dict[NodeName, Report] = {}
        self._nodes_of: dict[PodUid, dict[NodeName, None]] = {}
        self._bookings: dict[NodeName, dict[PodUid, Booking]] = {}
        self._orphaned: dict[NodeName, None] = {}
        """Nodes with shares of pods whose object is gone: few, where all nodes report all that they hold."""

    def nodes_of(self, uid: PodUid) -> Iterable[NodeName]:
        """Nodes whose agents report shares of this pod, living or not."""
        return self._nodes_of.get(uid, ())

    def orphans(self) -> Iterator[tuple[NodeName, PodUid, Share]]:
        """Shares of pods whose object is gone."""
        for node in self._orphaned:
            for uid, share in self._reports[node]:
                if uid not in self._living:
                    yield node, uid, share

    def report(self, node: NodeName, report: Report) -> None:
        """All that the agent of this node holds, of living pods as well; replaces its last report."""
        self.unbook(node)
        for uid, _ in self._reports.pop(node, ()):
            nodes = self._nodes_of.get(uid)
            if nodes is not None:
                nodes.pop(node, None)
                if not nodes:
                    del self._nodes_of[uid]
        if report:
            self._reports[node] = report
        for uid, _ in report:
            self._nodes_of.setdefault(uid, {})[node] = None
        self.book(node)

    def pod_changed(self, uid: PodUid) -> None:
        """The pod came or went: its shares count as held, or as its own."""
        for node in list(self._nodes_of.get(uid, ())):
            self.unbook(node)
            self.book(node)

    def book(self, node: NodeName) -> None:
        """Enter the node's orphans into the ledger."""
        by_pod: dict[PodUid, list[Share]] = {}
        for uid, share in self._reports.get(node, ()):
            if uid not in self._living:
                by_pod.setdefault(uid, []).append(share)
        if by_pod:
            self._orphaned[node] = None
        bookings = {}
        for uid, shares in by_pod.items():
            # Nobody knows their class any more: they block both sums of cores.
            booking = self._ledger.booking(node, None, shares, ShareClass.UNSET)
            if booking is not None:
                self._ledger.add(booking)
                bookings[uid] = booking
        if bookings:
            self._bookings[node] = bookings

    def unbook(self, node: NodeName) -> None:
        """Take the node's orphans off the ledger."""
        self._orphaned.pop(node, None)
        for booking in self._bookings.pop(node, {}).values():
            self._ledger.remove(booking)

    def bookings_of(self, uid: PodUid) -> list[Booking]:
        """What is booked for this pod, whose object is gone."""
        nodes = self._nodes_of.get(uid, ())
        return [self._bookings[node][uid] for node in nodes if uid in self._bookings.get(node, {})]
