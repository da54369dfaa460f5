"""One request for several kinds of cards: the annotation, and a pod's spec with one of its alternatives.

Each alternative names a model, how much of it, and what is to run on it: images, environment, commands. The
gang takes one, as it takes one of several models (:mod:`.options`). Nothing else of a pod may differ. Pure.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from vc_egpu.volcano.api.containers import IN_SPEC, containers_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    MAX_CARDS_PER_NODE,
    MAX_MEMORY_MIB,
    MAX_OPTIONS,
    AnnotationError,
    ContainerName,
    ModelName,
    SliceName,
    Wire,
)
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.quantity import is_zero

MAX_BYTES: Final = 16 * 1024
MOST_NAME: Final = 32
"""Characters of an option's name."""
ORDERS: Final = ("ordered", "best")
"""Values of ``egpu.volcano.sh/alternatives-order``."""
_Text = Annotated[str, Field(max_length=4096)]
_Image = Annotated[str, Field(min_length=1, max_length=1024)]
_EnvName = Annotated[str, Field(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]{0,127}$")]
_Env = Annotated[dict[_EnvName, _Text], Field(max_length=64)]
_Words = Annotated[tuple[_Text, ...], Field(max_length=64)]
_PERCENT: Final = r"^([1-9][0-9]?|100)%$"
_UNION: Final = ("int", "constrained-", "function-", "str")
"""How pydantic calls the branches of a union in a path."""
_FIELD_KINDS: Final = ("limits", "requests")


class Alternative(Wire):
    """One way in which the pods of a gang may be made."""

    model_config = ConfigDict(extra="forbid")

    name: ModelName
    model: ModelName | None = None
    """Absent: the name is the model's."""
    kind: Annotated[str, Field(pattern=r"^[a-z0-9]{1,32}$")] | None = None
    """Any model of this vendor that can hold it, in the order of the table; or what it calls its cards."""
    count: Annotated[int, Field(strict=True, ge=1, le=MAX_CARDS_PER_NODE)] | None = None
    """Cards of each container that asks for some; absent: as many as it asks for."""
    memory: (
        Annotated[int, Field(strict=True, ge=1, le=MAX_MEMORY_MIB)]
        | Annotated[str, Field(pattern=_PERCENT)]
        | None
    ) = None
    """MiB on each card, or percent of the model's (``"50%"``); absent: as the template says."""
    cores: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    slice: SliceName | None = None
    """A slice of a card that is cut, by its name. Its size counts, not what the template says."""
    needs: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """What its program needs of the node; absent: as the pod's own annotation or variables say."""
    image: dict[ContainerName, _Image] = Field(default_factory=dict)
    """By container, as are the following."""
    env: dict[ContainerName, _Env] = Field(default_factory=dict)
    """Added to those of the container; one of the same name is replaced."""
    command: dict[ContainerName, _Words] = Field(default_factory=dict)
    args: dict[ContainerName, _Words] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.kind is not None and self.model is not None:
            raise ValueError("kind and model are given; leave one of them out")
        if self.slice is not None and (self.memory is not None or self.cores is not None):
            raise ValueError("a slice has a size; leave memory and cores out")
        return self

    @property
    def written(self) -> str:
        """Its name as its user wrote it."""
        return self.name.removesuffix(f".{self.model}") if self.kind is not None else self.name

    @property
    def of_model(self) -> str:
        """The model whose cards it takes."""
        return self.model or self.name

    def containers(self) -> set[str]:
        """All containers that it names."""
        return {name for by_name in (self.image, self.env, self.command, self.args) for name in by_name}


class _All(Wire):
    version: Literal[1] = 1
    alternatives: Annotated[tuple[Alternative, ...], Field(min_length=1, max_length=MAX_OPTIONS)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        found = [one.name for one in self.alternatives]
        twice = sorted({name for name in found if found.count(name) > 1})
        if twice:
            raise ValueError(f"two alternatives are called {twice[0]}")
        return self


def decode(text: object, table: ModelTable) -> dict[str, Alternative]:
    """By name, the wish of the user first. One of a kind is there once for each model, as ``npu.910b3``.

    Raises :class:`AnnotationError` with the path of what is wrong.
    """
    written = str(text)
    if len(written.encode(errors="replace")) > MAX_BYTES:
        raise AnnotationError(
            f"is {len(written.encode(errors='replace'))} bytes long, the limit is {MAX_BYTES}"
        )
    try:
        entries = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"is no JSON: {error}") from error
    if not isinstance(entries, list):
        raise AnnotationError('is no list: write [{"name": ..., "model": ...}, ...]')
    try:
        found = _All.model_validate({"alternatives": entries})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"][1:] if not str(part).startswith(_UNION))
        raise AnnotationError(f"{path or 'the list'}: {first['msg']}") from error
    options: dict[str, Alternative] = {}
    for index, one in enumerate(found.alternatives):
        for option in _of_kind(one, index, table):
            if option.name in options:
                raise AnnotationError(f"{index}.name: two alternatives are called {option.name}")
            options[option.name] = option
    return options


def _of_kind(one: Alternative, index: int, table: ModelTable) -> list[Alternative]:
    """The alternative; where it names a kind, once for each model of that."""
    if one.kind is None:
        return [one]
    models = table.of_kind(one.kind)
    if not models:
        known = ", ".join(sorted({row.vendor for row in table.models}))
        raise AnnotationError(f"{index}.kind: no model is of kind {one.kind}; these are known: {known}")
    options = [one.model_copy(update={"name": f"{one.name}.{model}", "model": model}) for model in models]
    longest = max(len(option.name) for option in options)
    if longest > MOST_NAME:
        raise AnnotationError(
            f"{index}.name: with a model it has {longest} characters, the limit is {MOST_NAME}"
        )
    return options


def applied(spec: Mapping[str, Any], one: Alternative) -> dict[str, Any]:
    """The pod spec as this alternative wants it.

    Raises :class:`AnnotationError` where it names a container that the pod does not have.
    """
    unknown = one.containers() - {str(container.get("name")) for container in containers_of(spec)}
    if unknown:
        raise AnnotationError(f"{one.name}: there is no container {min(unknown)!r} in the pod")
    return {
        key: [_made(item, one) for item in value] if key in IN_SPEC and isinstance(value, list) else value
        for key, value in spec.items()
    }


def _made(container: Any, one: Alternative) -> Any:
    if not isinstance(container, dict):
        return container
    name = str(container.get("name"))
    made = {**container, "resources": _resources(container.get("resources"), one)}
    if "resources" not in container and not made["resources"]:
        del made["resources"]
    if name in one.image:
        made["image"] = one.image[name]
    if name in one.command:
        made["command"] = list(one.command[name])
    if name in one.args:
        made["args"] = list(one.args[name])
    if added := one.env.get(name):
        given = container.get("env")
        kept = [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
        kept = [entry for entry in kept if entry.get("name") not in added]
        made["env"] = [*kept, *({"name": key, "value": value} for key, value in added.items())]
    return made


def _resources(given: Any, one: Alternative) -> dict[str, Any]:
    resources = given if isinstance(given, dict) else {}
    limits = resources.get("limits")
    cards = limits.get(names.ANY_MODEL) if isinstance(limits, dict) else None
    if cards is None or is_zero(cards):
        return dict(resources)
    wanted: dict[str, Any] = {names.shared_resource(one.of_model): one.count or cards}
    dropped = {names.ANY_MODEL}
    if one.slice is not None:
        dropped |= {names.LIMIT_MEMORY, names.LIMIT_MEMORY_PERCENTAGE, names.LIMIT_CORES}
    if one.memory is not None:
        percent = isinstance(one.memory, str)
        dropped |= {names.LIMIT_MEMORY, names.LIMIT_MEMORY_PERCENTAGE}
        key = names.LIMIT_MEMORY_PERCENTAGE if percent else names.LIMIT_MEMORY
        wanted[key] = str(one.memory).removesuffix("%") if percent else one.memory
    if one.cores is not None:
        wanted[names.LIMIT_CORES] = one.cores
    kept = {
        kind: {
            name: raw for name, raw in (resources.get(kind) or {}).items() if name not in {*dropped, *wanted}
        }
        for kind in _FIELD_KINDS
        if isinstance(resources.get(kind), dict)
    }
    # The API server makes requests of limits; what a template requests of cards is the webhook's.
    return {**resources, **kept, "limits": {**kept.get("limits", {}), **wanted}}
