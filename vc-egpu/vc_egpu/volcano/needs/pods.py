"""What a pod needs of its node: what its user wrote, else what the environment of its containers says."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, Final

from vc_egpu.core.environments import backends
from vc_egpu.core.environments.needs import NO_NEEDS, Atom, Needs
from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.needs import nvidia
from vc_egpu.volcano.needs.compile import Ways, compiled
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.needs.text import LONGEST, NeedsError, way
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import RequestNeeds

_MOST_BYTES: Final = 4096
"""More than all this a pod's annotation does not hold of its needs."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a pod needs, and what is to be said to the person who applies it."""

    needs: RequestNeeds | None = None
    warnings: tuple[str, ...] = ()


def read(annotations: Mapping[str, Any], spec: Mapping[str, Any], table: EnvironmentTable) -> Read:
    """What a pod with this spec needs; the user's word beats what its containers say.

    What is to keep its containers apart from others is a need like the rest. Raises :class:`.text.NeedsError`
    for an annotation that cannot be used."""
    return _kept_apart(_of_software(annotations, spec, table), annotations)


def _kept_apart(found: Read, annotations: Mapping[str, Any]) -> Read:
    asked = str(annotations.get(names.ISOLATION) or "")
    # A slice is found by its size, on the cards that have it.
    needed = None if annotations.get(names.SLICE) else backends.condition(asked)
    if needed is None:
        return found
    text = f"{names.ISOLATION}: {asked}"
    if found.needs is None:
        return replace(found, needs=RequestNeeds(text=text, ways=(str(needed),)))
    ways = tuple(f"{each},{needed}" for each in found.needs.ways)
    both = f"{found.needs.text}, {text}"[:LONGEST]
    return replace(found, needs=found.needs.model_copy(update={"text": both, "ways": ways}))


def _of_software(annotations: Mapping[str, Any], spec: Mapping[str, Any], table: EnvironmentTable) -> Read:
    written = annotations.get(names.NEEDS)
    if written is not None:
        ways = compiled(str(written), table)
        return Read(RequestNeeds(text=str(written), ways=_texts(ways)))
    ways, said, warnings = _of_containers(spec, table)
    if not ways:
        return Read(warnings=tuple(warnings))
    texts = _texts(ways)
    if sum(map(len, texts)) > _MOST_BYTES:
        return Read(warnings=(*warnings, f"{', '.join(said)}: asks for too many things; it is ignored"))
    told = (
        f"{', '.join(said)}: taken for what the program needs ({' or '.join(texts[:2])}"
        f"{' ...' if len(texts) > 2 else ''}); nodes that do not tell are taken for fit. "
        f"The annotation {names.NEEDS} beats it"
    )
    return Read(RequestNeeds(text=", ".join(said)[:512], ways=texts, presumed=True), (*warnings, told))


def _of_containers(spec: Mapping[str, Any], table: EnvironmentTable) -> tuple[Ways, list[str], list[str]]:
    """(ways, the variables and images that say so, warnings) of all containers together.

    Variables in a container's spec beat the row of the table for its image.
    """
    ways: Ways = ()
    said: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for container in containers_of(spec):
        found = nvidia.read(_environment(container))
        warnings.update(dict.fromkeys(found.warnings))
        if not found.ways:
            found = _of_image(str(container.get("image") or ""), table)
        if not found.ways:
            continue
        both = found.ways if not ways else tuple((*one, *two) for one, two in product(ways, found.ways))
        both = tuple(dict.fromkeys(tuple(dict.fromkeys(each)) for each in both))
        if len(both) <= nvidia.MOST_WAYS:
            ways = both
            said.update(dict.fromkeys(found.names))
    return ways, list(said), list(warnings)


def _of_image(image: str, table: EnvironmentTable) -> nvidia.ImageWords:
    """What the operator's row for this image says. What leads nowhere says nothing."""
    ways: dict[tuple[Atom, ...], None] = {}
    for text in table.needs_of_image(image):
        with suppress(NeedsError):
            ways.update(dict.fromkeys(compiled(text, table)))
    return nvidia.ImageWords(tuple(ways), (f"image {image}",)) if ways else nvidia.ImageWords()


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the container's spec sets to a text."""
    listed = container.get("env")
    return {
        str(entry["name"]): entry["value"]
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict) and "name" in entry and isinstance(entry.get("value"), str)
    }


def _texts(ways: Ways) -> tuple[str, ...]:
    return tuple(",".join(str(atom) for atom in each) for each in ways)


@lru_cache(maxsize=4096)
def needs_of(text: str, ways: tuple[str, ...], *, presumed: bool) -> Needs:
    """The value for the decision. Raises :class:`.text.NeedsError` for ways that were not compiled."""
    return Needs(text, tuple(way(each) for each in ways), presumed)


def needs_in(said: RequestNeeds | None) -> Needs:
    """The same of what the webhook wrote on a pod; none where it wrote nothing."""
    if said is None:
        return NO_NEEDS
    return needs_of(said.text, said.ways, presumed=bool(said.presumed))
