"""What NVIDIA's images say of themselves in their environment: ``NVIDIA_REQUIRE_*`` and ``CUDA_VERSION``.

A value holds terms with spaces between them, any of which is to hold. A term holds factors with commas
between them, all of which are. NVIDIA's own tool checks them only where it starts the container, and not with
CDI. Unknown words are ignored with a warning, as the newer of NVIDIA's two tools does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from vc_egpu.core.environments.needs import Atom
from vc_egpu.core.environments.versions import VersionError, parse

PREFIX: Final = "NVIDIA_REQUIRE_"
DISABLE: Final = "NVIDIA_DISABLE_REQUIRE"
CUDA_VERSION: Final = "CUDA_VERSION"
MOST_WAYS: Final = 64
LONGEST_VALUE: Final = 4096
_FACTS: Final = {"cuda": "cuda", "driver": "driver", "arch": "capability", "brand": "brand"}
_OPERATORS: Final = ("!=", "<=", ">=", "=", "<", ">")
_TRUE: Final = frozenset({"1", "t", "true", "y", "yes", "on"})

Ways = tuple[tuple[Atom, ...], ...]


@dataclass(frozen=True, slots=True)
class ImageWords:
    """What an image asks for. ``names``: the variables that say so."""

    ways: Ways = ()
    names: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read(environment: Mapping[str, str]) -> ImageWords:
    """What these variables ask of a node; each variable is to hold."""
    if environment.get(DISABLE, "").strip().lower() in _TRUE:
        return ImageWords()
    ways: Ways = ((),)
    names: list[str] = []
    warnings: list[str] = []
    wanted = {name: value for name, value in sorted(environment.items()) if _is_read(name)}
    if f"{PREFIX}CUDA" not in wanted and (old := _of_cuda_version(environment.get(CUDA_VERSION, ""))):
        wanted[CUDA_VERSION] = old
    for name, value in wanted.items():
        found, ignored = terms(value)
        warnings += [f"{name}: {text}" for text in ignored]
        if not found:
            continue
        both = tuple(dict.fromkeys((*one, *two) for one, two in product(ways, found)))
        if len(both) > MOST_WAYS:
            warnings.append(f"{name}: more than {MOST_WAYS} combinations; it is ignored")
            continue
        ways = both
        names.append(name)
    return ImageWords(ways if names else (), tuple(names), tuple(warnings))


def is_word(name: str) -> bool:
    """Whether this variable of a container may say what it needs, or that nothing it says counts."""
    return name in {DISABLE, CUDA_VERSION} or _is_read(name)


def _is_read(name: str) -> bool:
    return name.startswith(PREFIX) and "JETPACK" not in name.removeprefix(PREFIX)


def _of_cuda_version(text: str) -> str:
    """What an image of CUDA x.y.z needs, where it says no more: a driver for x.y."""
    try:
        numbers = parse(text).numbers
    except VersionError:
        return ""
    return f"cuda>={numbers[0]}.{numbers[1] if len(numbers) > 1 else 0}"


def terms(value: str) -> tuple[Ways, tuple[str, ...]]:
    """(the ways that a value allows, what of it is ignored and why). No ways: nothing is asked."""
    if len(value) > LONGEST_VALUE:
        return (), (f"is longer than {LONGEST_VALUE} characters; it is ignored",)
    found: list[tuple[Atom, ...]] = []
    ignored: list[str] = []
    for term in value.split():
        atoms: list[Atom] = []
        for factor in term.split(","):
            atom = _factor(factor)
            if atom is None:
                ignored.append(f"{factor[:64]!r} is not understood; it is ignored")
            else:
                atoms.append(atom)
        if not atoms:
            continue
        found.append(tuple(atoms))
    ways = tuple(dict.fromkeys(found))
    if len(ways) > MOST_WAYS:
        return (), (*ignored, f"has more than {MOST_WAYS} terms; it is ignored")
    return ways, tuple(ignored)


def _factor(text: str) -> Atom | None:
    op = next((op for op in _OPERATORS if op in text), "")
    if not op:
        return None
    name, value = text.split(op, 1)
    fact = _FACTS.get(name)
    if fact is None or not value:
        return None
    if fact == "brand":
        return Atom(fact, op, value) if op in {"=", "!="} and value.isalnum() else None
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in value.split(".")):
        return None
    return Atom(fact, op, value)
