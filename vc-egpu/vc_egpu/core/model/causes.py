"""Why a gang has to go. The cause travels with it: decision, plan, order, event, metric."""

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What makes pods leave their cards."""

    PRIORITY = "priority"
    """A gang of higher priority needs the cards."""
    RECLAIM = "reclaim"
    """A queue below what it deserves takes back what another queue borrowed."""
    GUARANTEE = "guarantee"
    """A queue needs what it is guaranteed."""
    DEFRAGMENTATION = "defragmentation"
    """Another gang fits once this one has moved."""
    HEALTH = "health"
    """A card of the gang is ill."""
    DRAIN = "drain"
    """An operator empties the node."""
    ROLLBACK = "rollback"
    """The gang could not start, or could not come back to its cards."""
    NODE = "node"
    """The node or the card is not there any more."""
    BYPASS = "bypass"
    """The pod was bound without a plan."""
    WISH = "wish"
    """A user of the gang asked for a pause."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one queue has, and deserves, of one kind of card; in millionths of a card.

    A share counts as the larger one of its parts of a card's memory and of its compute. A queue that names
    nothing deserves nothing.
    """

    queue: str
    resource: str
    """The kind of card: ``volcano.sh/vgpu-<model>``, or ``volcano.sh/gpu-<model>`` for native ones."""
    has_microcards: int
    deserved_microcards: int
