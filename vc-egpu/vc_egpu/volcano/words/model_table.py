"""The operator's table of GPU models: product names, nominal memory, cards per node.

Validation at the door goes by this table, not by the nodes that happen to be up. It is a YAML file
(a ConfigMap in the cluster)::

    models:
      - name: h20
        products: ["NVIDIA H20"]
        memoryMiB: 98304
        cardsPerNode: 8
"""

import json
import re
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vc_egpu.core.layouts.table import MAX_PLACES, MAX_TEMPLATES, Layout, Place, Template
from vc_egpu.core.topology.groups import NO_GROUP, GroupRule
from vc_egpu.volcano.words.annotations import (
    MAX_CARDS_PER_NODE,
    CoresPercent,
    MemoryMib,
    ModelName,
    SliceName,
)
from vc_egpu.volcano.words.names import (
    CORES_TOTAL_SUFFIX,
    LOW_SUFFIX,
    MEMORY_TOTAL_SUFFIX,
    RESERVED_MODEL_WORDS,
)
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

KINDS: Final = {"gpu": "nvidia", "npu": "ascend", "dcu": "hygon"}
"""What vendors call their cards."""


class ModelTableError(ValueError):
    """The table cannot be used; the text names the entry and the field."""


class PlaceRow(BaseModel):
    """Where slices of a template may begin, and how long they are, in memory slices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Annotated[int, Field(ge=1, le=MAX_PLACES)]
    starts: Annotated[tuple[Annotated[int, Field(ge=0, lt=MAX_PLACES)], ...], Field(min_length=1)]


class TemplateRow(BaseModel):
    """One size of slice."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: SliceName
    memory_mib: Annotated[MemoryMib, Field(alias="mib")]
    cores_percent: Annotated[CoresPercent, Field(alias="cores")]
    parts: dict[str, Annotated[int, Field(ge=0)]] = {}
    places: PlaceRow | None = None


class LayoutRow(BaseModel):
    """What a card may be cut into."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    totals: dict[str, Annotated[int, Field(ge=0)]] = {}
    templates: Annotated[tuple[TemplateRow, ...], Field(min_length=1, max_length=MAX_TEMPLATES)]
    whole: bool = True
    """Whether a card that is not cut may be given out as a whole."""

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        self.layout("layout")
        return self

    def layout(self, name: str) -> Layout:
        """The value that decisions go by; raises :class:`vc_egpu.core.layouts.table.LayoutError`."""
        return Layout(
            name,
            self.totals,
            tuple(
                Template(
                    row.name,
                    row.memory_mib,
                    row.cores_percent,
                    row.parts,
                    tuple(Place(start, row.places.size) for start in row.places.starts) if row.places else (),
                )
                for row in self.templates
            ),
            self.whole,
        )


class GpuModel(BaseModel):
    """One row of the table."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: ModelName
    products: tuple[str, ...] = ()
    """Exact product names as NVML gives them; compared without regard to case and surrounding blanks."""
    memory_mib: Annotated[MemoryMib, Field(alias="memoryMiB")]
    """Nominal memory: what the ledger counts per card. Cards that report less are not offered."""
    cards_per_node: Annotated[int, Field(alias="cardsPerNode", ge=1, le=MAX_CARDS_PER_NODE)] = 8
    vendor: Annotated[str, Field(pattern=r"^[a-z0-9]{1,32}$")] = "nvidia"
    """The vendor, as nodes tell it by the fact ``kind``."""
    layout: str = ""
    """Name of the layout in the same table; empty: its cards are never cut."""
    stack: bool = True
    """False: a part of such a card is always a slice, and high does not run over low on it."""
    counts: tuple[Annotated[int, Field(ge=1, le=MAX_CARDS_PER_NODE)], ...] = ()
    """How many cards a container may have as a whole; empty: any number."""
    groups: tuple[tuple[Annotated[int, Field(ge=0, lt=MAX_CARDS_PER_NODE)], ...], ...] = ()
    """Cards that are joined more closely, by their index on the node; empty: as the agent reports them."""
    within: Annotated[int, Field(ge=0, le=MAX_CARDS_PER_NODE)] = 0
    """Asks for at most so many whole cards lie in one group."""
    even: bool = False
    """Larger asks take as many cards of each group."""
    unit: Annotated[int, Field(ge=1, le=MAX_CARDS_PER_NODE)] = 1
    """Asks for several whole cards are for a multiple of this, and take whole modules."""

    @property
    def rule(self) -> GroupRule | None:
        """Which cards of a node one container may get together; None: any."""
        rule = GroupRule(self.within, self.even, self.unit)
        return rule if rule != GroupRule() else None

    def group_of(self, index: int, reported: int) -> int:
        """The group of a card of this model. ``reported``: what its node's agent says."""
        if not self.groups:
            return reported
        return next((number for number, group in enumerate(self.groups) if index in group), NO_GROUP)

    @model_validator(mode="after")
    def _groups_are_apart(self) -> Self:
        indexes = [index for group in self.groups for index in group]
        if len(set(indexes)) < len(indexes):
            raise ValueError(f"a card is in two groups of {self.name!r}")
        return self

    @model_validator(mode="after")
    def _name_is_free(self) -> Self:
        if self.name in RESERVED_MODEL_WORDS:
            raise ValueError(f"{self.name!r} is reserved and never a model")
        if self.name.endswith((MEMORY_TOTAL_SUFFIX, CORES_TOTAL_SUFFIX)):
            raise ValueError(f"{self.name!r} would be mistaken for a counter of another model")
        if self.name.endswith(LOW_SUFFIX):
            raise ValueError(f"{self.name!r} would be mistaken for what low shares of another model count")
        return self


class ModelTable(BaseModel):
    """All models of a cluster, looked up by name or by product."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[GpuModel, ...] = ()
    layouts: dict[str, LayoutRow] = {}

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [model.name for model in self.models]
        products = [product.strip().lower() for model in self.models for product in model.products]
        for what, values in (("model", names), ("product", products)):
            twice = {value for value in values if values.count(value) > 1}
            if twice:
                raise ValueError(f"{what} {min(twice)!r} stands in the table twice")
        return self

    @model_validator(mode="after")
    def _layouts_are_there(self) -> Self:
        for model in self.models:
            if model.layout and model.layout not in self.layouts:
                raise ValueError(f"model {model.name!r} has the layout {model.layout!r}, which is not there")
            if not model.stack and not model.layout:
                raise ValueError(f"model {model.name!r} does not stack, and has no layout")
        return self

    def layout_of(self, model: GpuModel) -> LayoutRow | None:
        """What cards of the model are cut into; None: they are not."""
        return self.layouts.get(model.layout)

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Parse the file; raises :class:`ModelTableError`."""
        try:
            return cls.model_validate(_document(text) or {})
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(str(part) for part in first["loc"])
            got = "" if isinstance(first["input"], (dict, list)) else f", got {str(first['input'])[:100]!r}"
            where = f"model table, {path}" if path else "model table"
            raise ModelTableError(f"{where}: {first['msg']}{got}") from error

    def get(self, name: str) -> GpuModel | None:
        """The row of a model, or None."""
        return next((model for model in self.models if model.name == name), None)

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """The names of all models of a vendor, in the order of the table; see also :data:`KINDS`."""
        vendor = KINDS.get(kind, kind)
        return tuple(model.name for model in self.models if model.vendor == vendor)

    def of_product(self, product: str) -> GpuModel | None:
        """The row whose products hold this NVML product name, or None."""
        wanted = product.strip().lower()
        return next((m for m in self.models if wanted in (p.strip().lower() for p in m.products)), None)


_VENDOR_WORDS: Final = frozenset({"nvidia", "tesla", "geforce", "hygon", "huawei"})
"""Left out of a proposed name."""


def proposed_name(product: str) -> str:
    """What cards of a product may be called: in small letters, without the vendor's name. It may be taken."""
    words = re.findall(r"[a-z0-9]+", product.lower())
    name = "-".join(word for word in words if word not in _VENDOR_WORDS).removeprefix("ascend")
    return name[:32].strip("-") or "card"


def proposed_row(name: str, product: str, memory_mib: int) -> str:
    """A row as text, for a list of models. A name that YAML takes for a number or the like is quoted."""
    quoted = name if read_yaml(name) == name else json.dumps(name)
    return (
        f"{{name: {quoted}, products: [{json.dumps(product, ensure_ascii=False)}], memoryMiB: {memory_mib}}}"
    )


def _document(text: str) -> Any:
    try:
        return read_yaml(text)
    except NotYamlError as error:
        raise ModelTableError(f"model table: not YAML: {' '.join(str(error).split())}") from error
