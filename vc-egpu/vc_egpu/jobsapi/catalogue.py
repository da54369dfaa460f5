"""The catalogue of adapted models: a name stands for alternatives with images and sizes. Pure but for files.

The file::

    models:
      - name: qwen2.5-7b
        about: Qwen2.5 7B, fine-tuning
        alternatives:
          - {name: h20, image: reg.example/qwen:cu124, memory: 24576, cores: 30, needs: "cuda>=12.4"}
          - {name: 910b3, image: reg.example/qwen:cann8.5, memory: 32768, cores: 50}

A request that names an entry gets its alternatives, and says itself where it runs and with how many members.
"""

from importlib.resources import files
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vc_egpu.jobsapi.job import volcano_job
from vc_egpu.jobsapi.request import LIMITS, Alternative, CatalogueName, Env, JobRequest, Members, RequestError
from vc_egpu.volcano.needs.compile import compiled
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.needs.text import NeedsError
from vc_egpu.volcano.words.annotations import MAX_OPTIONS
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

MOST_MODELS: Final = 1000
SHIPPED: Final = "catalogue.yaml"


class CatalogueError(ValueError):
    """The file cannot be used; the text names the entry and the field."""


class Adapted(BaseModel):
    """A model that somebody adapted to several kinds of cards."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: CatalogueName
    about: Annotated[str, Field(max_length=200)] = ""
    members: Members = 1
    """Where the request says nothing else."""
    order: Literal["ordered", "best"] = "ordered"
    env: Env = {}
    """For all alternatives; those of the request and of an alternative beat it."""
    alternatives: Annotated[tuple[Alternative, ...], Field(min_length=1, max_length=MAX_OPTIONS)]

    @model_validator(mode="after")
    def _each_has_an_image(self) -> Self:
        if without := next((one.name for one in self.alternatives if one.image is None), None):
            raise RequestError("image", f"alternative {without} has none", LIMITS["image"])
        return self


class Catalogue(BaseModel):
    """All entries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: Annotated[tuple[Adapted, ...], Field(max_length=MOST_MODELS)] = ()

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Parse the file. Raises :class:`CatalogueError`."""
        try:
            found = cls.model_validate({} if (read := read_yaml(text)) is None else read)
        except NotYamlError as error:
            raise CatalogueError(f"is no YAML: {error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(str(part) for part in first["loc"]) or "the file"
            raise CatalogueError(f"{path}: {first['msg']}") from error
        names = [one.name for one in found.models]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise CatalogueError(f"two entries are called {twice}")
        return found

    def entry(self, name: str) -> Adapted:
        """The entry of this name. Raises :class:`.request.RequestError` with the names that there are."""
        found = next((one for one in self.models if one.name == name), None)
        if found is None:
            known = ", ".join(one.name for one in self.models[:20]) or "none: the catalogue is empty"
            raise RequestError("catalogue", f"has no entry {name}", f"one of {known}")
        return found

    def expanded(self, request: JobRequest) -> JobRequest:
        """The request with the alternatives of the entry that it names, if it names one."""
        if request.catalogue is None:
            return request
        entry = self.entry(request.catalogue)
        return request.model_copy(
            update={
                "catalogue": None,
                "alternatives": entry.alternatives,
                "env": {**entry.env, **request.env},
                "order": request.order or entry.order,
                "members": request.members if "members" in request.model_fields_set else entry.members,
            }
        )


def shipped() -> Catalogue:
    """The three worked examples."""
    return Catalogue.from_yaml((files(__package__) / SHIPPED).read_text(encoding="utf-8"))


def problems(
    catalogue: Catalogue, models: ModelTable | None, environments: EnvironmentTable
) -> tuple[str, ...]:
    """What is wrong with entries although each field can be read: models and needs that nothing knows."""
    found = []
    for entry in catalogue.models:
        request = JobRequest(name="x", namespace="x", queue="x", catalogue=entry.name)
        try:
            volcano_job(catalogue.expanded(request), "x")
        except RequestError as error:
            found.append(f"{entry.name}: {error}")
        for one in entry.alternatives:
            of_model = one.model or one.name
            if one.kind is not None:
                if models is not None and not models.of_kind(one.kind):
                    found.append(f"{entry.name}: alternative {one.name}: no model of kind {one.kind}")
            elif models is not None and of_model not in {row.name for row in models.models}:
                found.append(f"{entry.name}: alternative {one.name}: no model {of_model} in the model table")
            try:
                _ = one.needs is None or compiled(one.needs, environments)
            except NeedsError as error:
                found.append(f"{entry.name}: alternative {one.name}: needs {error}")
    return tuple(found)
