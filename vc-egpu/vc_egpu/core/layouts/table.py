"""Which slice templates a card may hold together, as a small table. Values only, and no vendor.

A template is a fixed size of slice. It takes parts of the card, such as compute cores or codecs. On some
cards it also takes a place among the card's memory slices. A card holds slices for as long as no part is
used up and no two places overlap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

ANYWHERE: Final = -1
"""Start of a slice on a card without places."""
MAX_TEMPLATES: Final = 16
MAX_PLACES: Final = 64
"""Memory slices of one card, at most."""


class LayoutError(ValueError):
    """The table contradicts itself; the text names the template."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slice may lie, in the card's own memory slices."""

    start: int
    size: int

    @property
    def mask(self) -> int:
        """One bit for each memory slice that it covers."""
        return ((1 << self.size) - 1) << self.start


@dataclass(frozen=True, slots=True)
class Template:
    """One size of slice."""

    name: str
    memory_mib: int
    """What a slice of this template has, and what it is charged."""
    cores_percent: int
    """Its part of the compute of the card, rounded down."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """What it takes of the card's totals, by dimension."""
    places: tuple[Place, ...] = ()
    """Empty: the card has no places, and its parts alone decide."""

    def __hash__(self) -> int:
        return hash((self.name, self.memory_mib, self.places))

    def place_at(self, start: int) -> Place | None:
        """Its place that begins there."""
        return next((place for place in self.places if place.start == start), None)


@dataclass(frozen=True, slots=True)
class Held:
    """One slice that lies on a card."""

    template: str
    start: int = ANYWHERE


@dataclass(frozen=True, slots=True)
class Layout:
    """What a card may hold. Raises :class:`LayoutError` where the table contradicts itself."""

    name: str
    totals: Mapping[str, int]
    """What the card has, by dimension."""
    templates: tuple[Template, ...]
    """By size: no later one has less memory than an earlier one."""
    whole: bool = True
    """Whether a card on which no slice lies may be given out as a whole."""

    def __hash__(self) -> int:
        return hash((self.name, self.templates, self.whole))

    def __post_init__(self) -> None:
        names = [template.name for template in self.templates]
        if not 1 <= len(names) <= MAX_TEMPLATES or len(set(names)) < len(names):
            raise LayoutError(f"layout {self.name} needs 1 to {MAX_TEMPLATES} templates of different names")
        for template in self.templates:
            self._check(template)
        sizes = [template.memory_mib for template in self.templates]
        if sizes != sorted(sizes):
            raise LayoutError(f"layout {self.name} does not list its templates by memory, the smallest first")
        if len({bool(template.places) for template in self.templates}) > 1:
            raise LayoutError(f"layout {self.name} has places for some of its templates only")

    def _check(self, template: Template) -> None:
        where = f"template {template.name} of layout {self.name}"
        if template.memory_mib < 1 or not 0 <= template.cores_percent <= 100:
            raise LayoutError(f"{where} has {template.memory_mib} MiB and {template.cores_percent} cores")
        for dimension, amount in template.parts.items():
            if not 0 <= amount <= self.totals.get(dimension, -1):
                raise LayoutError(f"{where} takes {amount} {dimension}, which the card does not have")
        if not template.places and not any(template.parts.values()):
            raise LayoutError(f"{where} takes nothing of the card")
        for place in template.places:
            if place.start < 0 or place.size < 1 or place.start + place.size > MAX_PLACES:
                raise LayoutError(f"{where} begins at {place.start} and is {place.size} long")

    @property
    def placed(self) -> bool:
        """Whether its slices lie at places."""
        return bool(self.templates[0].places)

    def template(self, name: str) -> Template | None:
        """The template of that name."""
        return next((one for one in self.templates if one.name == name), None)

    def index(self, name: str) -> int:
        """Position of the template, -1 where the layout has none of that name."""
        return next((i for i, one in enumerate(self.templates) if one.name == name), -1)

    def rounded(self, memory_mib: int, cores_percent: int) -> Template | None:
        """The smallest template that has at least so much of both; None: the largest has less."""
        fitting = (
            t for t in self.templates if t.memory_mib >= memory_mib and t.cores_percent >= cores_percent
        )
        return min(fitting, key=lambda t: (t.memory_mib, t.cores_percent), default=None)

    def misfit(self, held: Iterable[Held]) -> str:
        """Why a card cannot hold these together; empty: it can."""
        used = dict.fromkeys(self.totals, 0)
        covered = 0
        for one in held:
            template = self.template(one.template)
            if template is None:
                return f"{one.template} is no template of layout {self.name}"
            for dimension, amount in template.parts.items():
                used[dimension] += amount
            if not self.placed:
                continue
            place = template.place_at(one.start)
            if place is None:
                return f"{one.template} cannot begin at {one.start}"
            if covered & place.mask:
                return f"{one.template} at {one.start} overlaps another slice"
            covered |= place.mask
        over = next((d for d, amount in used.items() if amount > self.totals[d]), "")
        return f"{used[over]} {over} of {self.totals[over]} are held" if over else ""
