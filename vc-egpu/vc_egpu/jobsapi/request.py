"""What a caller may ask for, with bounds. Every refusal names the field and its limit. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vc_egpu.volcano.codec.alternatives import MAX_BYTES
from vc_egpu.volcano.needs import text as needs_text
from vc_egpu.volcano.words.annotations import MAX_CARDS_PER_NODE, MAX_MEMORY_MIB, MAX_OPTIONS

MOST_BODY_BYTES: Final = 256 * 1024
MOST_MEMBERS: Final = 2048
LONGEST_NAME: Final = 50
"""Volcano's pods are called after their Job, its task and a number, and a label takes 63 characters."""
MOST_ENV: Final = 64
MOST_WORDS: Final = 64
LONGEST_TEXT: Final = 4096
LONGEST_IMAGE: Final = 1024
MOST_CPU_MILLI: Final = 1_000_000
MOST_HOST_MEMORY_MIB: Final = 16 * 1024 * 1024
_DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,%d}[a-z0-9])?$"
_MODEL: Final = r"^[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?$"
_QUEUE: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"

LIMITS: Final[Mapping[str, str]] = {
    "name": f"1 to {LONGEST_NAME} of a-z, 0-9 and -, with a letter or digit at both ends",
    "namespace": "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends",
    "queue": "1 to 253 of a-z, 0-9, - and ., with a letter or digit at both ends",
    "quota": "as queue",
    "model": "1 to 32 of a-z, 0-9, - and ., with a letter or digit at both ends",
    "kind": "as model; in an alternative: gpu, npu, dcu or a vendor",
    "slice": "1 to 63 of letters, digits, ., _, + and -, with a letter or digit first",
    "models": f"1 to {MAX_OPTIONS} models, each as model",
    "catalogue": "1 to 63 of a-z, 0-9, - and ., with a letter or digit at both ends",
    "members": f"a whole number from 1 to {MOST_MEMBERS}",
    "count": f"a whole number from 1 to {MAX_CARDS_PER_NODE}",
    "memory": f'MiB from 1 to {MAX_MEMORY_MIB}, or percent from "1%" to "100%"',
    "cores": "a whole number from 1 to 100, percent of each card",
    "cpu_milli": f"a whole number from 1 to {MOST_CPU_MILLI}",
    "host_memory_mib": f"a whole number from 1 to {MOST_HOST_MEMORY_MIB}",
    "run_as_user": f"a whole number from 1 to {(1 << 31) - 1}",
    "image": f"1 to {LONGEST_IMAGE} characters without spaces",
    "command": f"at most {MOST_WORDS} texts of at most {LONGEST_TEXT} characters",
    "args": f"at most {MOST_WORDS} texts of at most {LONGEST_TEXT} characters",
    "env": f"at most {MOST_ENV} variables: names of 1 to 128 of letters, digits, -, _ and ., no digit "
    f"first, texts of at most {LONGEST_TEXT} characters",
    "needs": f"1 to {needs_text.MOST_ATOMS} parts in {needs_text.LONGEST} characters: cuda>=12.4,torch==2.6",
    "priority": "high or low",
    "order": "ordered or best",
    "alternatives": f"1 to {MAX_OPTIONS} of different names, {MAX_BYTES} bytes together",
}
"""What each field may hold, as refusals and the OpenAPI document say it."""
_OF_THE_ENTRY: Final = ("image", "count", "memory", "cores", "needs", "command", "args")
"""What the catalogue says, where one is named."""
_UNION: Final = ("int", "constrained-", "function-", "str", "[key]")
"""How pydantic calls the branches of a union, and the keys of a mapping, in a path."""
_ONE_OF: Final = ("model", "kind", "models", "alternatives", "catalogue")


_Document = TypeVar("_Document", bound=BaseModel)


class RequestError(ValueError):
    """A request is refused: where, why, and what would do."""

    def __init__(self, field: str, message: str, limit: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
        self.limit = limit


def _said(name: str) -> Any:
    return Field(description=LIMITS[name])


_Whole = Annotated[int, Field(strict=True)]
Name = Annotated[str, Field(pattern=_DNS_LABEL % (LONGEST_NAME - 2)), _said("name")]
Namespace = Annotated[str, Field(pattern=_DNS_LABEL % 61), _said("namespace")]
Queue = Annotated[str, Field(pattern=_QUEUE), _said("queue")]
Model = Annotated[str, Field(pattern=_MODEL), _said("model")]
CatalogueName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"), _said("catalogue")]
Members = Annotated[_Whole, Field(ge=1, le=MOST_MEMBERS), _said("members")]
Count = Annotated[_Whole, Field(ge=1, le=MAX_CARDS_PER_NODE), _said("count")]
Kind = Annotated[str, Field(pattern=r"^[a-z0-9]{1,32}$"), _said("kind")]
Slice = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$"), _said("slice")]
Memory = Annotated[
    Annotated[_Whole, Field(ge=1, le=MAX_MEMORY_MIB)]
    | Annotated[str, Field(pattern=r"^([1-9][0-9]?|100)%$")],
    _said("memory"),
]
Cores = Annotated[_Whole, Field(ge=1, le=100), _said("cores")]
CpuMilli = Annotated[_Whole, Field(ge=1, le=MOST_CPU_MILLI), _said("cpu_milli")]
HostMemoryMib = Annotated[_Whole, Field(ge=1, le=MOST_HOST_MEMORY_MIB), _said("host_memory_mib")]
UserId = Annotated[_Whole, Field(ge=1, le=(1 << 31) - 1), _said("run_as_user")]
Image = Annotated[str, Field(max_length=LONGEST_IMAGE, pattern=r"^[!-~]+$"), _said("image")]
_Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Words = Annotated[tuple[_Text, ...], Field(max_length=MOST_WORDS)]
_EnvName = Annotated[str, Field(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]{0,127}$")]
Env = Annotated[dict[_EnvName, _Text], Field(max_length=MOST_ENV), _said("env")]
Needs = Annotated[str, Field(min_length=1, max_length=needs_text.LONGEST), _said("needs")]


class _Bounded(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Bounded):
    """What runs on the cards, and how much of them it takes."""

    image: Image | None = None
    count: Count | None = None
    memory: Memory | None = None
    cores: Cores | None = None
    env: Env = {}
    needs: Needs | None = None
    command: Annotated[Words, _said("command")] | None = None
    args: Annotated[Words, _said("args")] | None = None

    @model_validator(mode="after")
    def _readable_needs(self) -> Self:
        if self.needs is not None:
            try:
                needs_text.read(self.needs)
            except needs_text.NeedsError as error:
                raise RequestError("needs", str(error), LIMITS["needs"]) from error
        return self


class Alternative(Part):
    """One way to run: a model of cards, and what differs on it."""

    name: Model
    model: Model | None = None
    kind: Kind | None = None
    slice: Slice | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.kind is not None and self.model is not None:
            raise RequestError("kind", "is given next to model", "one of model, kind")
        if self.slice is not None and (self.memory is not None or self.cores is not None):
            raise RequestError("slice", "has a size of its own", "without memory and cores")
        return self


class JobRequest(Part):
    """One Job: members that all start, or none does."""

    name: Name
    namespace: Namespace | None = None
    queue: Queue | None = None
    quota: Annotated[Queue, _said("quota")] | None = None
    model: Model | None = None
    kind: Annotated[Model, _said("kind")] | None = None
    models: (
        Annotated[tuple[Model, ...], Field(min_length=1, max_length=MAX_OPTIONS), _said("models")] | None
    ) = None
    alternatives: (
        Annotated[tuple[Alternative, ...], Field(min_length=1, max_length=MAX_OPTIONS), _said("alternatives")]
        | None
    ) = None
    catalogue: CatalogueName | None = None
    members: Members = 1
    order: Annotated[Literal["ordered", "best"], _said("order")] | None = None
    priority: Annotated[Literal["high", "low"], _said("priority")] | None = None
    cpu_milli: CpuMilli | None = None
    host_memory_mib: HostMemoryMib | None = None
    run_as_user: UserId | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [name for name in _ONE_OF if getattr(self, name) is not None]
        one_of = f"exactly one of {', '.join(_ONE_OF)}"
        if len(given) != 1:
            field = given[1] if given else "model"
            raise RequestError(field, f"{len(given)} of these are given", one_of)
        if (self.queue is None) == (self.quota is None):
            raise RequestError("queue", "is given twice or not at all", "exactly one of queue, quota")
        if given[0] in {"model", "kind", "models"} and self.image is None:
            raise RequestError("image", "is missing", LIMITS["image"])
        if given[0] in {"alternatives", "catalogue"}:
            self._check_alternatives(given[0])
        elif self.order is not None:
            raise RequestError("order", "belongs to alternatives", "only with alternatives or catalogue")
        return self

    def _check_alternatives(self, given: str) -> None:
        for name in _OF_THE_ENTRY if given == "catalogue" else ():
            if getattr(self, name) is not None:
                raise RequestError(name, "stands in the catalogue's entry", "not with catalogue")
        named = [one.name for one in self.alternatives or ()]
        if twice := next((name for name in named if named.count(name) > 1), None):
            raise RequestError("alternatives", f"two are called {twice}", LIMITS["alternatives"])
        for index, one in enumerate(self.alternatives or ()):
            if one.image is None and self.image is None:
                raise RequestError(f"alternatives.{index}.image", "is missing", LIMITS["image"])

    @property
    def in_queue(self) -> str:
        """The queue whose cap it counts in."""
        return self.queue or self.quota or ""


def read(body: bytes) -> JobRequest:
    """The request of a body. Raises :class:`RequestError` for the first thing that is wrong."""
    return checked(JobRequest, body)


def checked(kind: type[_Document], body: bytes | Mapping[str, Any]) -> _Document:
    """A document as this model. Raises :class:`RequestError`."""
    try:
        if isinstance(body, bytes):
            return kind.model_validate_json(body)
        return kind.model_validate(body)
    except ValidationError as error:
        raise _first(error, kind) from error


def _first(error: ValidationError, kind: type[BaseModel]) -> RequestError:
    first = error.errors(include_url=False)[0]
    loc = [str(part) for part in first["loc"]]
    inner = first.get("ctx", {}).get("error")
    parts = [part for part in loc if not part.startswith(_UNION)]
    if isinstance(inner, RequestError):
        return RequestError(".".join((*parts, inner.field)), inner.message, inner.limit)
    if first["type"] == "json_invalid":
        return RequestError("body", first["msg"], f"one JSON object of at most {MOST_BODY_BYTES} bytes")
    if not parts:
        return RequestError("body", first["msg"], "one JSON object")
    if first["type"] == "extra_forbidden":
        return RequestError(".".join(parts)[:256], "there is no such field", _known(kind, parts))
    limit = next((LIMITS[part] for part in reversed(parts) if part in LIMITS), "")
    return RequestError(".".join(parts)[:256], _plain(first["msg"]), limit)


def _plain(message: str) -> str:
    """Without the pattern: the limit says it in words."""
    return "has signs that it may not have, or is too long" if "match pattern" in message else message


def _known(kind: type[BaseModel], parts: list[str]) -> str:
    inside = Alternative if "alternatives" in parts[:-1] else kind
    return f"one of {', '.join(inside.model_fields)}"
