"""What is on cards and in queues, as the admission controller tells it to one caller. Pure."""

from collections.abc import Iterator

from pydantic import BaseModel, Field

from vc_egpu.jobsapi.what_if.documents import TOLD


class _Told(BaseModel):
    """The controller writes camelCase."""

    model_config = TOLD


class Held(_Told):
    """A part of one card, in sums."""

    pods: int = 0
    memory_mib: int = Field(default=0, validation_alias="memoryMiB", description="on the card now")
    suspended_mib: int = Field(
        default=0, validation_alias="suspendedMiB", description="of shares that come back to the card"
    )
    cores_high_percent: int = Field(default=0, description="of shares of class high or none")
    cores_low_percent: int = Field(default=0, description="of shares of class low or none")


class ShareView(_Told):
    """A container's share of one card, in a namespace of yours."""

    namespace: str
    pod: str
    container: str
    gang: str = ""
    queue: str = ""
    share_class: str = Field(default="", validation_alias="class")
    memory_mib: int = Field(validation_alias="memoryMiB")
    on_card_mib: int = Field(validation_alias="onCardMiB", description="0 while the pod is suspended")
    cores_percent: int
    suspension: str


class CardView(_Told):
    """One card."""

    index: int
    model: str
    memory_mib: int = Field(validation_alias="memoryMiB")
    takes_shares: bool = Field(description="whether it takes anything new")
    held: Held = Field(default=Held(), description="by work in namespaces whose pods you may list")
    held_by_others: Held = Field(default=Held(), description="by all other work, without names")
    shares: list[ShareView] = Field(default=[], description="of the same work as held")


class NodeView(_Told):
    """One node with cards."""

    name: str = Field(default="", description="empty for callers who may not list nodes")
    cards: list[CardView] = []


class QueueView(_Told):
    """One queue. Amounts are by resource name, in whole units."""

    name: str
    open: bool
    used: dict[str, int]
    capability: dict[str, int]
    deserved: dict[str, int]
    guarantee: dict[str, int]
    waiting: dict[str, int] = Field(description="gangs that wait, yours and others', by reason")


class WaitingGang(_Told):
    """A gang of yours that waits."""

    gang: str
    queue: str
    share_class: str = Field(default="", validation_alias="class")
    reason: str
    since: float = Field(description="seconds since 1970")
    asks: dict[str, int]


class ViewAnswer(_Told):
    """What you may see of the cluster now."""

    revision: int
    everything: bool = Field(description="you may list the pods of all namespaces")
    namespaces: list[str] = Field(description="whose pods you may list, of those that were asked about")
    nodes: list[NodeView]
    queues: list[QueueView] = Field(description="all if you may list queues, else those of your gangs")
    waiting: list[WaitingGang]
    waiting_of_others: int
    is_cut_short: bool = Field(description="true: something is left out")

    def named_cards(self) -> Iterator[tuple[str, CardView]]:
        """Each card with the name of its node, where nodes have names."""
        return ((node.name, card) for node in self.nodes if node.name for card in node.cards)
