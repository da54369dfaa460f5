"""All pods of a node that leave their cards: low ones as they are ordered to, and those that take turns."""

from collections.abc import Mapping

from vc_egpu_node.api.node import Teller
from vc_egpu_node.suspension.facts import spilled_mib
from vc_egpu_node.suspension.suspender import Store, SuspendedPod
from vc_egpu_node.suspension.work import Worker
from vc_egpu_node.suspension.world import TURNS, Parts, Suspension
from vc_egpu_node.swapping.swapping import NodeAround, Settled, Swapping, begins_closed
from vc_egpu_node.swapping.totals import Totals


class Leaving:
    """What the agent starts, stops and asks."""

    def __init__(self, parts: Parts) -> None:
        """Raises ``OSError``."""
        self._parts = parts
        self._suspension = Suspension(parts, also_away=self._turned_away)
        facts = parts.facts()
        parts.isolation.begins_closed = begins_closed
        teller = Teller(parts.node.say_swaps)
        around = NodeAround(parts, facts, self._booked, teller)
        worker = Worker(
            Settled(self._suspension.helper),
            facts,
            look=lambda: parts.wall.last,
            shortage=self._suspension.shortage,
        )
        self._swapping = Swapping(around, worker, Store(parts.settings.state_dir / TURNS), teller)
        parts.wall.after_look = self._looked
        parts.pods.subscribe(self._swapping.suspender.poke)

    def start(self) -> None:
        """Begin to look."""
        self._suspension.suspender.start()
        self._swapping.suspender.start()

    def stop(self) -> None:
        """End; what is under way is left to the next agent."""
        self._suspension.suspender.stop()
        self._swapping.suspender.stop()

    def suspended(self) -> frozenset[str]:
        """UIDs of pods whose memory has left their cards."""
        return self._suspension.suspender.suspended() | self._swapping.suspender.suspended()

    def pods(self) -> list[SuspendedPod]:
        """For metrics: all that leave or left their cards."""
        return [*self._suspension.pods(), *self._swapping.suspender.pods()]

    @property
    def totals(self) -> Totals:
        """Likewise: what hand-overs were."""
        return self._swapping.pairs.totals

    def unsaid_s(self) -> float:
        """Likewise: for how long the Node has not said how far they are."""
        return max(self._suspension.unsaid_s(), self._swapping.teller.unsaid_s())

    def _turned_away(self) -> frozenset[str]:
        return self._swapping.suspender.suspended()

    def _looked(self) -> None:
        self._suspension.suspender.poke()
        self._swapping.suspender.poke()

    def _booked(self) -> Mapping[str, int]:
        """By pod UID: host memory of those that take no turns."""
        grants = self._parts.grants.all()
        turns = {grant.pod_uid for grant in grants if grant.swap}
        low, spilled = self._suspension.suspender.booked_mib(), spilled_mib(grants)
        everyone = {uid: low.get(uid, 0) + spilled.get(uid, 0) for uid in {*low, *spilled}}
        return {uid: mib for uid, mib in everyone.items() if uid not in turns}
