"""What the user changes before the question is asked."""

from dataclasses import dataclass

from vc_egpu.core.model.cluster import NodeName, QueueName
from vc_egpu.whatif.hypothesis import Hypothesis

MOST_NODES = 1000


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Empty nodes like one that is there."""

    like: NodeName
    count: int


@dataclass(frozen=True, slots=True)
class Drain:
    """A node takes nothing new, and its pods go."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class SetCap:
    """Another cap of a queue; ``amount`` None: none at all."""

    queue: QueueName
    resource: str
    amount: int | None


@dataclass(frozen=True, slots=True)
class End:
    """A gang is over."""

    gang: str


Change = AddNodes | Drain | SetCap | End


class BadChangeError(ValueError):
    """The words of a change are not understood; the text says what would be."""


def add_nodes(text: str) -> AddNodes:
    """``NODE=COUNT``. Raises :class:`BadChangeError`."""
    like, sign, count = text.rpartition("=")
    if not sign or not like or not count.isdecimal() or not 1 <= int(count) <= MOST_NODES:
        raise BadChangeError(f"{text!r} is not NODE=COUNT, as in n1=4 (1 to {MOST_NODES} nodes)")
    return AddNodes(NodeName(like), int(count))


def set_cap(text: str) -> SetCap:
    """``QUEUE:RESOURCE=AMOUNT``, or ``none`` for the amount. Raises :class:`BadChangeError`."""
    where, sign, amount = text.rpartition("=")
    queue, colon, resource = where.partition(":")
    is_amount = amount == "none" or (amount.isascii() and amount.isdecimal() and len(amount) <= 15)
    if not (sign and colon and queue and resource and is_amount):
        raise BadChangeError(f"{text!r} is not QUEUE:RESOURCE=AMOUNT, as in research:volcano.sh/vgpu-h20=16")
    return SetCap(QueueName(queue), resource, None if amount == "none" else int(amount))


def apply(change: Change, cluster: Hypothesis) -> tuple[str, ...]:
    """Change the cluster; the gangs that have to find new places by it.

    Raises :class:`~.hypothesis.UnknownThingError`.
    """
    match change:
        case AddNodes(like, count):
            cluster.add_nodes(like, count)
        case Drain(node):
            return cluster.drain(node)
        case SetCap(queue, resource, amount):
            cluster.set_cap(queue, resource, amount)
        case End(gang):
            cluster.end(gang)
    return ()
