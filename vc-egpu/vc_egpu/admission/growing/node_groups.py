"""What the operator says about groups of nodes that can grow: a YAML file, read once.

::

    groups:
      - model: h20
        podTemplate: vc-egpu-node-h20
        mostNodes: 4
"""

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from vc_egpu.volcano.words.annotations import MAX_CARDS_PER_NODE, ModelName
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
MOST_NODES: Final = 1000

_ObjectName = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
_ParameterKey = Annotated[str, StringConstraints(min_length=1, max_length=63)]
_ParameterValue = Annotated[str, StringConstraints(max_length=255)]


class NodeGroupsError(ValueError):
    """The file cannot be used; the text names the entry and the field."""


class NodeGroup(BaseModel):
    """Nodes of one model that come empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    model: ModelName
    pod_template: Annotated[_ObjectName, Field(alias="podTemplate")]
    """A PodTemplate in our namespace. One pod of it fills a whole node by its cpu. It is never made."""
    most_nodes: Annotated[int, Field(alias="mostNodes", ge=1, le=MOST_NODES)]
    """Nodes with this model that the cluster may have in all, those that are there included."""
    cards_per_node: Annotated[int | None, Field(alias="cardsPerNode", ge=1, le=MAX_CARDS_PER_NODE)] = None
    """None: as the model table says."""
    provisioning_class: Annotated[_ObjectName, Field(alias="provisioningClass")] = ATOMIC
    parameters: Annotated[dict[_ParameterKey, _ParameterValue], Field(max_length=100)] = {}
    """For the class, as it defines them."""


class NodeGroups(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: tuple[NodeGroup, ...] = ()

    @model_validator(mode="after")
    def _one_a_model(self) -> Self:
        models = [group.model for group in self.groups]
        twice = {model for model in models if models.count(model) > 1}
        if twice:
            raise ValueError(f"model {min(twice)!r} has two groups; one is possible")
        return self

    @classmethod
    def from_yaml(cls, text: str, table: ModelTable) -> Self:
        """Parse the file; a model that is not in the table is refused. Raises :class:`NodeGroupsError`."""
        try:
            found = cls.model_validate(read_yaml(text) or {})
        except NotYamlError as error:
            raise NodeGroupsError(f"node groups: not YAML: {' '.join(str(error).split())}") from error
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(str(part) for part in first["loc"])
            raise NodeGroupsError(f"node groups, {path}: {first['msg']}".replace(", :", ":")) from error
        for number, group in enumerate(found.groups):
            if table.get(group.model) is None:
                where = f"node groups, groups.{number}.model"
                raise NodeGroupsError(f"{where}: {group.model!r} is not in the model table")
        return found
