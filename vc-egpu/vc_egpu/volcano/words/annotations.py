"""Codecs of the annotations that the webhook, the admission layer and the node agent exchange.

Each has a version and is decoded with bounds: pods and nodes are hostile input. A wrong field raises
:class:`AnnotationError`, whose text names the path of the field. The plan annotation has its own module,
:mod:`vc_egpu.volcano.codec.plans`.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from vc_egpu.core.layouts.table import MAX_PLACES, MAX_TEMPLATES, Layout, Place, Template
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.topology.links import Near

MAX_MEMORY_MIB: Final = 16 * 1024 * 1024
"""16 TiB: far above any card, small enough that sums over a cluster stay within 64 bits."""
MAX_CARDS_PER_NODE: Final = 64
MAX_MEMORY_RATIO: Final = 10.0
MAX_HOST_MEMORY_MIB: Final = 256 * 1024 * 1024
"""256 TiB."""
CARD_CORES_PERCENT: Final = 100
MAX_OPTIONS: Final = 8
"""Each is tried in a decision."""

Uuid = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
ModelName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?$")]
MemoryMib = Annotated[int, Field(strict=True, ge=1, le=MAX_MEMORY_MIB)]
CoresPercent = Annotated[int, Field(strict=True, ge=0, le=CARD_CORES_PERCENT)]
SliceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$")]
ContainerName = Annotated[str, Field(min_length=1, max_length=63)]


def _known_cause(word: object) -> object:
    """A later version may write a cause that this one does not know. The rest of its text still holds."""
    return Cause.PRIORITY if isinstance(word, str) and word not in set(Cause) else word


CauseWord = Annotated[Cause, BeforeValidator(_known_cause)]


class AnnotationError(ValueError):
    """An annotation does not have the form that this version reads; the text names the field."""


def _wire_name(field: str) -> str:
    """``memory_mib`` -> ``memoryMiB``, everything else plain camel case."""
    return to_camel(field).replace("Mib", "MiB")


class Wire(BaseModel):
    """Camel case on the wire, immutable in memory; unknown fields are ignored so that N reads N+1."""

    model_config = ConfigDict(alias_generator=_wire_name, populate_by_name=True, frozen=True, extra="ignore")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse ``text``; raises :class:`AnnotationError` with the path of the first wrong field."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(str(part) for part in first["loc"]) or "the document"
            raise AnnotationError(f"{path}: {first['msg']}") from error

    def encode(self) -> str:
        """Compact JSON, keys in field order: equal values give equal texts."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


class ContainerRequest(Wire):
    """What one container asks for, as the webhook understood it."""

    model: ModelName
    cards: Annotated[int, Field(strict=True, ge=1, le=MAX_CARDS_PER_NODE)]
    """Number of different cards."""
    memory_mib: MemoryMib
    """On each card."""
    cores_percent: CoresPercent
    """On each card; 0 is no compute guarantee."""
    native: bool = False
    """Whole cards without the isolation library (``volcano.sh/gpu-<model>``)."""
    whole: bool = False
    """Nothing but the model was named: the whole card, alone on it."""
    slice: SliceName | None = None
    """The slice of fixed size that it gets, whose amounts these are; absent: a share of any size."""
    asked_mib: MemoryMib | None = None
    """What was asked for before it was rounded up to that slice."""
    asked_cores: CoresPercent | None = None


class RequestNeeds(Wire):
    """What a pod's program needs of its node, as the webhook compiled it."""

    text: Annotated[str, Field(max_length=512)] = ""
    """As the user wrote it, or the names of the variables that said so."""
    ways: Annotated[tuple[Annotated[str, Field(max_length=4096)], ...], Field(min_length=1, max_length=64)]
    """Any of these; in each, conditions on facts of nodes with commas between them."""
    presumed: bool | None = None
    """Read off the containers: what a node does not tell is taken for met."""


class RequestOption(Wire):
    """One of several ways in which a pod takes cards; all members of its gang take the one of this name."""

    name: ModelName
    containers: Annotated[dict[ContainerName, ContainerRequest], Field(min_length=1, max_length=64)]
    needs: RequestNeeds | None = None
    """What the program of this one needs; where no option has any, what the pod needs."""


class Request(Wire):
    """``egpu.volcano.sh/request``: a pod's asks by container; empty for members without cards.

    They are empty as well for a pod that may take several models, while none is chosen.
    """

    version: Literal[1] = 1
    containers: Annotated[dict[ContainerName, ContainerRequest], Field(max_length=64)] = {}
    core_policy: Literal["hard", "soft"] = "hard"
    oversubscribe: bool = False
    """Shares' memory may spill to the host."""
    swap: Literal[True] | None = None
    """It has its cards in turns with others. Older versions take it for one that shares none of its card."""
    options: Annotated[tuple[RequestOption, ...], Field(min_length=1, max_length=MAX_OPTIONS)] | None = None
    """What it may ask for, the wish of its user first."""
    choice: ModelName | None = None
    """The option that ``containers`` are of."""
    mixes: bool | None = None
    """Members of its gang may take different options."""
    order: Literal["best"] | None = None
    """``best``: while none can start, the option that will start soonest is chosen."""
    needs: RequestNeeds | None = None

    @model_validator(mode="after")
    def _chosen(self) -> Self:
        options = self.options or ()
        if len({option.name for option in options}) != len(options):
            raise ValueError("two options have the same name")
        chosen = next((option for option in options if option.name == self.choice), None)
        if self.choice is not None and chosen is None:
            raise ValueError(f"choice {self.choice} is none of the options")
        if options and self.containers != (chosen.containers if chosen is not None else {}):
            raise ValueError("containers are not those of the choice")
        return self


class CardShare(Wire):
    """One card of one container."""

    uuid: Uuid
    memory_mib: MemoryMib
    cores: CoresPercent
    """Percent of the card's compute; 0 is no guarantee."""
    physical_mib: MemoryMib | None = None
    """The part of the memory that may lie on the card; absent: all of it. The rest may spill to the host."""
    swap: Literal[True] | None = None
    """It has the card in turns with others; absent: it shares it. ``physical_mib`` is then what is booked."""
    slice: SliceName | None = None
    """Its template, where it is a slice of fixed size."""
    start: Annotated[int, Field(strict=True, ge=0, lt=MAX_PLACES)] | None = None
    """Where that slice begins, on cards with places."""

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.physical_mib is not None and self.physical_mib > self.memory_mib:
            raise ValueError(f"physicalMiB {self.physical_mib} is above memoryMiB {self.memory_mib}")
        return self

    @property
    def on_card_mib(self) -> int:
        """Memory that is booked on the card."""
        return self.memory_mib if self.physical_mib is None else self.physical_mib

    @property
    def most_on_card_mib(self) -> int:
        """Memory that may lie on the card: in its turn a program has all of it there."""
        return self.memory_mib if self.swap else self.on_card_mib


class Cards(Wire):
    """``egpu.volcano.sh/cards``: which cards a pod got, written once by the admission layer."""

    version: Literal[1] = 1
    pod_uid: Annotated[str, Field(min_length=1, max_length=64)]
    node: Annotated[str, Field(min_length=1, max_length=253)]
    plan_id: Annotated[str, Field(min_length=1, max_length=128)]
    """``<lease epoch>-<counter>``: see :mod:`vc_egpu.volcano.codec.plans`."""
    share_class: Literal["high", "unset", "low"] = "unset"
    core_policy: Literal["hard", "soft"] = "hard"
    native: bool = False
    gang_pods: Annotated[int, Field(strict=True, ge=2)] | None = None
    """Pods that have to run at once, where these are several: what one of them waits for may be another."""
    containers: Annotated[dict[ContainerName, tuple[CardShare, ...]], Field(max_length=64)]


NEAR_LETTERS: Final[Mapping[str, Near]] = {
    "i": Near.SWITCH,
    "x": Near.SWITCHES,
    "h": Near.BRIDGE,
    "n": Near.NODE,
    "s": Near.SYSTEM,
}
"""Ways over PCIe in an inventory. ``-`` stands for the card itself, and for a way that is not known."""
LETTER_OF: Final[Mapping[Near, str]] = {way: letter for letter, way in NEAR_LETTERS.items()}
MAX_LINKS: Final = 1024
MAX_LINK_MB_S: Final = 1_000_000


class NodeTemplate(Wire):
    """One size of slice, see :class:`vc_egpu.core.layouts.table.Template`."""

    name: SliceName
    memory_mib: MemoryMib
    cores: CoresPercent
    parts: Annotated[dict[str, Annotated[int, Field(strict=True, ge=0, le=65536)]], Field(max_length=8)] = {}
    size: Annotated[int, Field(strict=True, ge=0, le=MAX_PLACES)] = 0
    """In memory slices, where slices lie at places."""
    starts: Annotated[tuple[Annotated[int, Field(strict=True, ge=0, lt=MAX_PLACES)], ...],
                      Field(max_length=MAX_PLACES)] = ()  # fmt: skip
    """Where such a slice may begin. Empty: the card has no places, and the parts alone decide."""


class NodeLayout(Wire):
    """What a card may be cut into, as the node says: see :class:`vc_egpu.core.layouts.table.Layout`."""

    totals: Annotated[dict[str, Annotated[int, Field(strict=True, ge=0, le=65536)]], Field(max_length=16)]
    templates: Annotated[tuple[NodeTemplate, ...], Field(min_length=1, max_length=MAX_TEMPLATES)]
    whole: bool = True
    made: bool = False
    """A slice is made for each container. So slices on the card that no pod of ours has take room."""

    def layout(self, name: str) -> Layout:
        """The value; raises :class:`vc_egpu.core.layouts.table.LayoutError`."""
        templates = tuple(
            Template(
                t.name, t.memory_mib, t.cores, t.parts, tuple(Place(start, t.size) for start in t.starts)
            )
            for t in self.templates
        )
        return Layout(name, self.totals, templates, self.whole)


class NodeSlice(Wire):
    """One slice that lies on a card."""

    id: Annotated[str, Field(max_length=96)]
    template: Annotated[str, Field(max_length=63)]
    """Empty: it is of no size that the card's model has."""
    start: Annotated[int, Field(strict=True, ge=-1, lt=MAX_PLACES)] = -1
    owner: Annotated[str, Field(max_length=64)] = ""
    """UID of the pod that has it; empty: no pod of ours."""


class NodeCard(Wire):
    """One card as the node agent sees it."""

    uuid: Uuid
    index: Annotated[int, Field(strict=True, ge=0, lt=MAX_CARDS_PER_NODE)]
    """Position on the node (NVML's order); the plan annotation refers to cards by it."""
    model: ModelName
    product: Annotated[str, Field(max_length=128)] = ""
    memory_mib: MemoryMib
    """What NVML reports; the ledger uses the model table's nominal memory."""
    healthy: bool = True
    offered: bool = True
    """False: not offered by us at all (native elsewhere, too little memory, another plugin has it)."""
    reason: Annotated[str, Field(max_length=256)] = ""
    """Why it is ill or not offered, for people."""
    sm_count: Annotated[int, Field(ge=0, le=4096)] = 0
    clock_mhz: Annotated[int, Field(ge=0, le=100_000)] = 0
    compute_capability: Annotated[str, Field(max_length=16)] = ""
    links: Annotated[dict[str, int], Field(max_length=MAX_CARDS_PER_NODE)] = {}
    """Peer UUID to number of direct links (NVLink)."""
    switch_links: Annotated[int, Field(strict=True, ge=0, le=MAX_LINKS)] = 0
    """Links (NVLink) that end at a switch."""
    link_mb_s: Annotated[int, Field(strict=True, ge=0, le=MAX_LINK_MB_S)] = 0
    """What one link carries each way, in MB/s; 0: the driver does not tell."""
    near: Annotated[str, Field(pattern=r"^[ixhns-]*$", max_length=MAX_CARDS_PER_NODE)] = ""
    """The way over PCIe to the card with index 0, 1 and so on, a letter each: see :data:`NEAR_LETTERS`."""
    held: tuple[Annotated[str, Field(max_length=64)], ...] = ()
    """UIDs of pods whose share on this card the agent still holds (CDI file not yet released)."""
    layout: NodeLayout | None = None
    """What it may be cut into; absent: shares of any size."""
    slices: Annotated[tuple[NodeSlice, ...], Field(max_length=64)] = ()
    stack: bool = True
    """False: high does not run over low on it."""
    isolation: Annotated[str, Field(max_length=16)] = "library"
    """What keeps containers apart on it."""
    group: Annotated[int, Field(strict=True, ge=-1, lt=1024)] = -1
    """Cards of one group are joined more closely than others; -1: it has none."""
    module: Annotated[int, Field(strict=True, ge=-1, lt=1024)] = -1
    """Cards of one module share a board; -1: it has none."""


class NodeCards(Wire):
    """``egpu.volcano.sh/node-cards``: the inventory that a node's agent writes on its Node."""

    version: Literal[1] = 1
    agent_version: Annotated[str, Field(max_length=64)] = ""
    mode: Literal["shared", "native", "mig"] = "shared"
    vendor: Annotated[str, Field(max_length=32)] = "nvidia"
    driver_version: Annotated[str, Field(max_length=64)] = ""
    cuda_version: Annotated[str, Field(max_length=32)] = ""
    core_ratio: Annotated[float, Field(ge=0.01, le=10.0)] = 1.0
    memory_ratio: Annotated[float, Field(ge=0.01, le=MAX_MEMORY_RATIO)] = 1.0
    """Memory promised per card; what is above 1 is for shares that may spill to the host."""
    ratio_class: Literal["high", "low"] | None = None
    """The only class that has more than there is; None: all."""
    host_memory_mib: Annotated[int, Field(strict=True, ge=0, le=MAX_HOST_MEMORY_MIB)] = 0
    """Host memory that cards' memory may spill or be suspended to; 0: none."""
    max_sharers: Annotated[int, Field(strict=True, ge=1, le=1000)] = 100
    problem: Annotated[str, Field(max_length=512)] = ""
    """Non-empty: the node takes nothing, and why."""
    warning: Annotated[str, Field(max_length=512)] = ""
    """Non-empty: the node takes work, and this is to be put right."""
    compute: Annotated[str, Field(min_length=1, max_length=16)] = "library"
    """What shares the time of its cards: a word of :data:`vc_egpu.core.environments.backends.Compute`."""
    mps_namespace: Annotated[str, Field(max_length=63)] = ""
    """With ``mps``: whose programs run under its MPS servers."""
    cards: Annotated[tuple[NodeCard, ...], Field(max_length=MAX_CARDS_PER_NODE)] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({card.uuid for card in self.cards}) != len(self.cards):
            raise ValueError("two cards have the same uuid")
        if len({card.index for card in self.cards}) != len(self.cards):
            raise ValueError("two cards have the same index")
        return self
