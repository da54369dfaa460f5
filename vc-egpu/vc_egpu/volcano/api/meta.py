"""What all typed API objects share: exact round trips, refusals with a path, metadata, quantities.

A model keeps fields that it does not know: newer Volcano versions may have some. It writes back exactly what
was set: ``Job.parse(document).document() == document``. One exception: ``null`` is the same as absent, as it
is for the API server. Values of the wrong type or outside their range are refused with :class:`ModelError`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

Json = dict[str, Any]

INT32_MAX: Final = 2**31 - 1
QUANTITY_PATTERN: Final = (
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$"
)
DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

Int32 = Annotated[int, Field(strict=True, ge=-(2**31), le=INT32_MAX)]
Count = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
Positive = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]
LONGEST_QUANTITY: Final = 64
"""Characters. ``9223372036854775807`` has 19."""
LONGEST_DURATION: Final = 64
"""Characters. Go's longest, ``2562047h47m16.854775807s``, has 24."""
LONGEST_PATH: Final = 4096
"""Bytes of a path on Linux."""
Quantity = Annotated[
    Annotated[int, Field(strict=True)]
    | Annotated[str, StringConstraints(max_length=LONGEST_QUANTITY, pattern=QUANTITY_PATTERN)],
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "maxLength": LONGEST_QUANTITY,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A Kubernetes quantity as it stands in the object: a whole number or a text like ``500m`` or ``4Gi``."""
Quantities = dict[str, Quantity]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""RFC 3339, kept as text: parsing and formatting would not round-trip."""
GoDuration = Annotated[
    str,
    StringConstraints(
        max_length=LONGEST_DURATION,
        pattern=r"^-?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$",
    ),
]
"""Go's notation: ``90s``, ``1h30m``; at most :data:`LONGEST_DURATION` characters."""
AnyObject = Annotated[Json, WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
"""A part whose fields belong to Kubernetes, not to Volcano: passed on as it is."""
SubdomainName = Annotated[str, StringConstraints(max_length=253, pattern=DNS_SUBDOMAIN)]
LabelName = Annotated[str, StringConstraints(max_length=63, pattern=DNS_LABEL)]


class SupportKind(StrEnum):
    """How far a field of Volcano's takes effect in this project."""

    SUPPORTED = "supported"
    KEPT = "kept"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Support:
    """Put into a field's ``Annotated``; fields without one are supported."""

    kind: SupportKind
    note: str = ""


def kept(note: str) -> Support:
    """Stored and passed on; nothing of ours acts on it."""
    return Support(SupportKind.KEPT, note)


def refused(note: str) -> Support:
    """Our Job controller refuses a Job that sets it, by name (Volcano's own controllers take it)."""
    return Support(SupportKind.REFUSED, note)


def supported(note: str) -> Support:
    """Supported, with something worth saying."""
    return Support(SupportKind.SUPPORTED, note)


@dataclass(frozen=True, slots=True)
class CrdDefault:
    """The API server fills the field in with this value (CRDs only; the model's own default is separate)."""

    value: int | str


class ModelError(ValueError):
    """An object does not fit its model. ``problems`` has (path, what is wrong), the path as in kubectl."""

    def __init__(self, kind: str, problems: tuple[tuple[str, str], ...]) -> None:
        first_path, first_text = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{kind}: {first_path}: {first_text}{more}")
        self.kind = kind
        self.problems = problems


_DOCUMENT: Final = MappingProxyType({"document": True})
"""Validation context: what is validated is a document of the API server."""


class ApiModel(BaseModel):
    """Camel case in documents, unknown fields kept, only what was set is written."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        validate_assignment=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any, info: ValidationInfo) -> Any:
        # Only for documents: at an assignment the data are the model's own values, None among them.
        if (
            info.context is _DOCUMENT
            and isinstance(data, Mapping)
            and any(value is None for value in data.values())
        ):
            return {key: value for key, value in data.items() if value is not None}
        return data

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Read a document; raises :class:`ModelError` with all paths that are wrong."""
        try:
            return cls.model_validate(document, context=_DOCUMENT)
        except ValidationError as error:
            problems = tuple(
                (_path(problem["loc"]), _text(problem["msg"], problem["input"])) for problem in error.errors()
            )
            raise ModelError(cls.__name__, problems) from error

    def document(self) -> Json:
        """The JSON document: what was set, and what a default was changed into."""
        out: Json = {}
        for name, field in type(self).model_fields.items():
            value = _plain(getattr(self, name))
            if value is None:
                continue
            if name in self.model_fields_set or (isinstance(value, (dict, list)) and value):
                out[field.alias or name] = value
        for key, value in (self.__pydantic_extra__ or {}).items():
            out[key] = _plain(value)
        return out


class OwnerReference(ApiModel):
    """Which object this one belongs to."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiModel):
    """Standard metadata; the fields that nothing here reads are kept as unknown ones."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: list[OwnerReference] = Field(default_factory=list)
    finalizers: list[str] = Field(default_factory=list)


class ApiObject(ApiModel):
    """A whole object. Subclasses name their ``apiVersion`` and ``kind``."""

    api_version: str
    kind: str
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    GROUP: ClassVar[str]
    VERSION: ClassVar[str]
    PLURAL: ClassVar[str]
    NAMESPACED: ClassVar[bool] = True

    def document(self) -> Json:
        """As for every model; ``apiVersion`` and ``kind`` are there even if they were not set."""
        return {"apiVersion": self.api_version, "kind": self.kind, **super().document()}

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster-wide object."""
        namespace = self.metadata.namespace
        return f"{namespace}/{self.metadata.name}" if namespace else self.metadata.name


class NetworkTopology(ApiModel):
    """How close members must be."""

    mode: Annotated[Literal["hard", "soft"] | None, CrdDefault("hard")] = None
    """Whether the constraint must hold (hard) or should (soft)."""
    highest_tier_allowed: Annotated[int | None, Field(strict=True, ge=0)] = None
    """The highest tier that members may span."""
    highest_tier_name: Annotated[str | None, Field(max_length=253)] = None
    """The same by name; not together with the number."""


class LabelSelectorRequirement(ApiModel):
    """One expression of a label selector."""

    key: str
    operator: str
    values: list[str] = Field(default_factory=list)


class LabelSelector(ApiModel):
    """Which labels an object must have."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: list[LabelSelectorRequirement] = Field(default_factory=list)


def _plain(value: Any) -> Any:
    if isinstance(value, ApiModel):
        return value.document()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, StrEnum):
        return value.value
    return value


def _path(location: tuple[int | str, ...]) -> str:
    """``spec.tasks[0].replicas``; the names that pydantic adds for members of a union are left out."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.startswith(("constrained-", "function-")) and part not in {"int", "str"}:
            text += f".{part}" if text else part
    return text or "the object"


def _text(message: str, value: Any) -> str:
    shown = repr(value)
    return f"{message[0].lower()}{message[1:]}, got {shown if len(shown) <= 80 else shown[:77] + '...'}"
