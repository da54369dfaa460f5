"""Which clusters are asked: those of a file, or all contexts of the kubeconfig.

The file::

    clusters:
      - {name: hz1, title: Hangzhou 1, city: Hangzhou, kubeconfig: ~/.kube/hz1}
      - {name: sh1, city: Shanghai, context: sh1, prometheus: {url: "http://prometheus.sh1:9090"}}
    links:
      - {between: [hz1, sh1], mbitPerS: 10000}
"""

import os
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from vc_egpu.kube.wire.config import contexts
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

VARIABLE: Final = "VC_EGPU_CLUSTERS"
"""Names the file where no flag does."""
MOST_CLUSTERS: Final = 100

_Name = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$")
]
_Text = Annotated[str, StringConstraints(max_length=200)]


class CatalogueError(Exception):
    """There is no list of clusters that can be used; the text names the file and the field."""


class Metrics(BaseModel):
    """The Prometheus that scrapes a cluster's stack. Files are named as ``kubeconfig`` is."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    url: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    token_file: Annotated[str, Field(alias="tokenFile", max_length=4096)] = ""
    """With a bearer token; empty: none is sent."""
    ca_file: Annotated[str, Field(alias="caFile", max_length=4096)] = ""
    """The authority of its certificate; empty: those of the machine."""


class Site(BaseModel):
    """One cluster, as the user reaches it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Name
    title: _Text = ""
    city: _Text = ""
    kubeconfig: _Text | None = None
    """A path; None: the usual one. ``~`` is the home folder, and a relative one stands next to the file."""
    context: Annotated[str, StringConstraints(max_length=253)] | None = None
    prometheus: Metrics | None = None
    """What reports of use are made from."""


class Link(BaseModel):
    """What lies between two clusters, both ways."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    between: tuple[_Name, _Name]
    mbit_per_s: Annotated[int, Field(alias="mbitPerS", ge=1, le=10_000_000)]


class Catalogue(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clusters: Annotated[tuple[Site, ...], Field(min_length=1, max_length=MOST_CLUSTERS)]
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [site.name for site in self.clusters]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"cluster {min(twice)!r} stands there twice")
        for link in self.links:
            if unknown := set(link.between) - set(names):
                raise ValueError(f"a link names cluster {min(unknown)!r}, which is not in the file")
            if link.between[0] == link.between[1]:
                raise ValueError(f"a link leads from {link.between[0]!r} to itself")
        return self

    def mbit_per_s(self, one: str, other: str) -> int | None:
        """Between two clusters; None: the file does not say."""
        found = (link.mbit_per_s for link in self.links if set(link.between) == {one, other})
        return next(found, None)


def of_file(path: str) -> Catalogue:
    """Read the file. Raises :class:`CatalogueError`."""
    file = Path(path).expanduser()
    try:
        found = Catalogue.model_validate(read_yaml(file.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except NotYamlError as error:
        raise CatalogueError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CatalogueError(
            f"{path}, {where}: {first['msg']}" if where else f"{path}: {first['msg']}"
        ) from error
    sites = tuple(_beside(site, file.parent) for site in found.clusters)
    return found.model_copy(update={"clusters": sites})


def of_contexts(kubeconfig: str | None) -> Catalogue:
    """One cluster for each context of the kubeconfig. Raises :class:`CatalogueError`."""
    named = contexts(kubeconfig)
    if not named:
        raise CatalogueError(f"there are no contexts in {kubeconfig or 'the kubeconfig'}")
    if len(named) > MOST_CLUSTERS:
        raise CatalogueError(
            f"{len(named)} contexts are more than {MOST_CLUSTERS}: name those wanted in a file"
        )
    # A context may be called anything at all: its name is shown, and never a path.
    sites = (Site.model_construct(name=name, kubeconfig=kubeconfig, context=name) for name in named)
    return Catalogue.model_construct(clusters=tuple(sites), links=())


def chosen(clusters: str | None, kubeconfig: str | None, *, all_contexts: bool) -> Catalogue | None:
    """What the flags ask for; None: one cluster. Raises :class:`CatalogueError`."""
    if all_contexts:
        return of_contexts(kubeconfig)
    if clusters is None:
        return None
    path = clusters or os.environ.get(VARIABLE, "")
    if not path:
        raise CatalogueError(f"--clusters needs a file, or ${VARIABLE} names one")
    return of_file(path)


def _beside(site: Site, folder: Path) -> Site:
    changes: dict[str, object] = {}
    if site.kubeconfig is not None:
        changes["kubeconfig"] = _path(site.kubeconfig, folder)
    if site.prometheus is not None:
        names = ("token_file", "ca_file")
        files = {name: _path(value, folder) for name in names if (value := getattr(site.prometheus, name))}
        changes["prometheus"] = site.prometheus.model_copy(update=files)
    return site.model_copy(update=changes)


def _path(text: str, folder: Path) -> str:
    path = Path(text).expanduser()
    return str(path if path.is_absolute() else folder / path)
