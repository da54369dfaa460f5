"""The operator's table: what software needs, in rows ``{when, build, needs}``.

``images`` are rows ``{image, needs}``: a pattern with ``*`` and ``?``, and what such images need where their
users say nothing. The first that matches counts. With ``shipped: true`` the rows of the stack follow these.

``when`` names a line of a program (``torch==2.6``) and ``needs`` what that line needs: conditions on nodes,
or on other software of the table. A list of needs is any of them. Rows of one program with different builds
are alternatives. Where several rows of one build match, the first counts.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib.resources import files
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from vc_egpu.core.environments.needs import Atom
from vc_egpu.volcano.needs.text import NODE_FACTS, NeedsError, read
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

MOST_ROWS: Final = 1000
MOST_PATTERN: Final = 256
MOST_STARS: Final = 8
LONGEST_IMAGE: Final = 1024
"""Longer names match no row: each star goes over the whole name."""
MOST_KNOWN: Final = 4096
_Text = Annotated[str, Field(min_length=1, max_length=512)]


class TableError(ValueError):
    """The table cannot be used; the text names the row."""


class Row(BaseModel):
    """What one line of a program needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: _Text
    build: Annotated[str, Field(max_length=32)] = ""
    needs: _Text | Annotated[tuple[_Text, ...], Field(min_length=1, max_length=16)]

    @property
    def line(self) -> Atom:
        """The program and its line, or lines."""
        return read(self.when)[0]

    @property
    def ways(self) -> tuple[tuple[Atom, ...], ...]:
        """Any of these, each of which is to hold as a whole."""
        return tuple(read(text) for text in ((self.needs,) if isinstance(self.needs, str) else self.needs))

    @model_validator(mode="after")
    def _readable(self) -> Self:
        lines = read(self.when)
        if len(lines) != 1 or lines[0].op not in {"==", "in"}:
            raise ValueError(f"when {self.when!r}: write name==version or name in version|version")
        if lines[0].fact in NODE_FACTS:
            raise ValueError(f"when {self.when!r}: {lines[0].fact} is a fact of nodes")
        if any(not atom.op for way in self.ways for atom in way):
            raise ValueError(f"needs {self.needs!r}: a part has no version")
        return self


class ImageRow(BaseModel):
    """What images of these names need."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: Annotated[str, Field(min_length=1, max_length=MOST_PATTERN)]
    needs: _Text | Annotated[tuple[_Text, ...], Field(min_length=1, max_length=16)]

    @property
    def texts(self) -> tuple[str, ...]:
        """Any of these, each of which is to hold as a whole."""
        return (self.needs,) if isinstance(self.needs, str) else self.needs

    @model_validator(mode="after")
    def _few_stars(self) -> Self:
        if self.image.count("*") > MOST_STARS or "[" in self.image:
            raise ValueError(f"image {self.image!r}: at most {MOST_STARS} *, and no [")
        for text in self.texts:
            read(text)
        return self


class EnvironmentTable(BaseModel):
    """All rows."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    rows: Annotated[tuple[Row, ...], Field(max_length=MOST_ROWS)] = ()
    images: Annotated[tuple[ImageRow, ...], Field(max_length=MOST_ROWS)] = ()
    shipped: bool = False
    """The rows of the stack follow these, but for those whose line and build stand here already."""
    _known: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)
    """Needs by image, of those that were asked for."""

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Parse the file. Raises :class:`TableError`."""
        try:
            found = cls.model_validate(read_yaml(text) or {})
        except NotYamlError as error:
            raise TableError(f"no YAML: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(str(part) for part in first["loc"][:3])
            raise TableError(f"{path or 'the table'}: {first['msg']}") from error
        except NeedsError as error:
            raise TableError(str(error)) from error
        if found.shipped:
            found = found._with(shipped())
        found._check_names()
        return found

    def _with(self, others: "EnvironmentTable") -> Self:
        """These rows, and those of the others that are of no line and build of these."""
        own = {(str(row.line), row.build) for row in self.rows}
        more = tuple(row for row in others.rows if (str(row.line), row.build) not in own)
        return self.model_copy(update={"rows": (*self.rows, *more)})

    @cached_property
    def by_program(self) -> Mapping[str, tuple[tuple[Row, Atom, tuple[tuple[Atom, ...], ...]], ...]]:
        """By name of the program its rows, each with its line and its ways."""
        found: dict[str, list[tuple[Row, Atom, tuple[tuple[Atom, ...], ...]]]] = {}
        for row in self.rows:
            found.setdefault(row.line.fact, []).append((row, row.line, row.ways))
        return {name: tuple(rows) for name, rows in found.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """All names that needs may have."""
        return tuple(sorted({*NODE_FACTS, *self.by_program}))

    def needs_of_image(self, image: str) -> tuple[str, ...]:
        """What the first row says that matches the image, any of it; empty: none does. Thread-safe."""
        if not self.images or len(image) > LONGEST_IMAGE:
            return ()
        known = self._known.get(image)
        if known is None:
            known = next((row.texts for row in self.images if fnmatchcase(image, row.image)), ())
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[image] = known
        return known

    def _check_names(self) -> None:
        for number, row in enumerate(self.images):
            for atom in (atom for text in row.texts for atom in read(text)):
                if atom.fact not in self.names:
                    raise TableError(f"images.{number}.needs: {atom.fact!r} is no fact and no row's program")
        seen: set[tuple[str, str]] = set()
        for number, line in enumerate(self.rows):
            for atom in (atom for way in line.ways for atom in way):
                if atom.fact not in self.names:
                    raise TableError(f"rows.{number}.needs: {atom.fact!r} is no fact and no row's program")
            key = (str(line.line), line.build)
            if key in seen:
                raise TableError(f"rows.{number}.when: {line.when} {line.build} stands in the table twice")
            seen.add(key)


@cache
def shipped() -> EnvironmentTable:
    """The table that comes with the stack."""
    return EnvironmentTable.from_yaml(files(__package__).joinpath("environments.yaml").read_text())
