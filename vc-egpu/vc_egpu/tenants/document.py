"""A tenant as one document: its people, what it may have of which card, its quota and its walls.

::

    apiVersion: egpu.volcano.sh/v1
    kind: Tenant
    metadata: {name: research}
    spec:
      groups: {team: ["research:ml-team"], admins: ["research:admin"]}
      models:
        h20: {shares: 32, memoryMiB: 1565936, cores: 1600, cards: 8}
      quota: {cpu: "256", memory: 1Ti, pods: 500}
      network: {profile: internet}

It is no object of the API: :mod:`.render` makes the objects of it. Pure.
"""

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Annotated, Any, Final, Literal, Self

import orjson
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from vc_egpu.volcano.codec.queue_limits import QueueLimits
from vc_egpu.volcano.words.annotations import ModelName
from vc_egpu.volcano.words.quantity import MAX_VALUE, QuantityError, parse

API_VERSION: Final = "egpu.volcano.sh/v1"
KIND: Final = "Tenant"
LONGEST_NAME: Final = 40
"""Characters: the names of roles are made of it."""
_MOST_SHOWN: Final = 8
_OF_THE_SYSTEM: Final = re.compile(r"(kube|openshift)-.*|vc-egpu-system|volcano-system|default")
_QUEUES_OF_VOLCANO: Final = frozenset({"default", "root"})


class DocumentError(ValueError):
    """The document cannot be used. The text has a line for each fault, which begins with the field's path."""


# --- values ----------------------------------------------------------------------------------------


def _label(text: str) -> str:
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", text):
        raise ValueError("lower-case letters, digits and '-', a letter first")
    return text


def _no_system_namespace(text: str) -> str:
    if _OF_THE_SYSTEM.fullmatch(text):
        raise ValueError("is a namespace of the system's: a tenant's Pod Security level would stop its pods")
    return text


def _no_volcano_queue(text: str) -> str:
    if text in _QUEUES_OF_VOLCANO:
        raise ValueError("is a queue of Volcano's own")
    return text


def _group(text: str) -> str:
    if text in {"system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:masters"}:
        raise ValueError("is no group of one tenant's: everybody would be in it")
    return text


def _quantity(raw: object) -> str:
    try:
        quantity = parse(raw)
    except QuantityError as error:
        raise ValueError(str(error)) from error
    if not 0 <= quantity.value <= MAX_VALUE:
        raise ValueError(f"{quantity.text} is below 0 or beyond the largest number")
    return quantity.text


def _range(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"is no range of addresses such as 10.0.0.0/8: {error}") from error


Name = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_label)]
NamespaceName = Annotated[
    str, Field(max_length=63), AfterValidator(_label), AfterValidator(_no_system_namespace)
]
QueueName = Annotated[
    str, Field(max_length=LONGEST_NAME), AfterValidator(_label), AfterValidator(_no_volcano_queue)
]
Group = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(_group)]
Count = Annotated[int, Field(ge=0, le=2**53, strict=True)]
QuantityText = Annotated[str, BeforeValidator(_quantity)]
AddressRange = Annotated[str, AfterValidator(_range)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


# --- the parts of the document ---------------------------------------------------------------------


class Groups(_Part):
    """Groups of people, as your identities name them."""

    team: tuple[Group, ...] = ()
    """They submit. Default: ``<name>:ml-team``."""
    admins: tuple[Group, ...] = ()
    """They lower caps, close and open the queue. Default: ``<name>:admin``."""
    cap_setters: tuple[Group, ...] = ()
    """They raise caps too (verb ``set-cap``). Default: none, only the people who run the cluster."""


class Amounts(_Part):
    """How much of one model, over all shares of the queue together."""

    shares: Count = 0
    """Shares; each counts 1, however small."""
    memory_mib: Annotated[Count | None, Field(alias="memoryMiB")] = None
    """MiB. Default: all memory of as many cards as there are shares."""
    cores: Count | None = None
    """Percent of a card. Default: 100 for each share."""
    cards: Count = 0
    """Native whole cards."""


class Grant(Amounts):
    """A model that the tenant may use."""

    deserved: Amounts | None = None
    """What it should get while others wait. Default: not named."""
    guarantee: Amounts | None = None
    """What no eviction takes. Default: not named."""

    @model_validator(mode="after")
    def _within_the_cap(self) -> Self:
        for which, part in (("deserved", self.deserved), ("guarantee", self.guarantee)):
            for key in ("shares", "memory_mib", "cores", "cards"):
                wanted, cap = getattr(part, key, None), getattr(self, key)
                if wanted is not None and cap is not None and wanted > cap:
                    alias = type(self).model_fields[key].alias
                    raise ValueError(f"{which}.{alias}: {wanted} is above the cap of {cap}")
        return self


class Quota(_Part):
    """What all pods of the namespace may request together, and how many objects there may be.

    Cards are not here: a quota counts pods that wait. Only the queue caps cards.
    """

    pods: Count = 500
    cpu: QuantityText | None = None
    """Sum of requests. Default: no limit."""
    memory: QuantityText | None = None
    """Sum of requests. Default: no limit."""
    memory_limits: QuantityText | None = None
    """Sum of limits; then each container needs a limit. Default: no limit."""
    ephemeral_storage: QuantityText | None = None
    volumes: Count = 50
    """PersistentVolumeClaims."""
    storage: QuantityText | None = None
    """Sum of what these claims request. Default: no limit."""
    jobs: Count = 200
    """Volcano Jobs."""
    batch_jobs: Count = 200
    """Kubernetes Jobs."""
    config_maps: Count = 200
    secrets: Count = 200


class ContainerDefault(_Part):
    """What a container gets that names nothing, and the most that one may name."""

    request: QuantityText
    limit: QuantityText | None = None
    """Default: no limit, or ``max`` where that is named (Kubernetes does it so)."""
    max: QuantityText | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        named = [(key, parse(raw)) for key in ("request", "limit", "max") if (raw := getattr(self, key))]
        for (low_key, low), (high_key, high) in itertools.pairwise(named):
            if low.value > high.value:
                raise ValueError(f"{low_key} {low.text} is above {high_key} {high.text}")
        return self


class Containers(_Part):
    """Defaults of containers. There is none for cards: each container would get cards."""

    cpu: ContainerDefault = ContainerDefault(request="100m")
    memory: ContainerDefault = ContainerDefault(request="256Mi")


class Network(_Part):
    """From where the tenant's pods are called, and where they may call."""

    profile: Literal["isolated", "internet", "open"] = "isolated"
    """``isolated``: the namespace and DNS. ``internet``: public addresses too. ``open``: no policy at all."""
    from_namespaces: tuple[Annotated[str, Field(min_length=1, max_length=63)], ...] = ()
    """Namespaces whose pods may call in, such as an ingress controller's."""
    to: tuple[AddressRange, ...] = ()
    """Further ranges that pods may reach, such as a private object store's."""
    closed: tuple[AddressRange, ...] = ()
    """Public ranges that ``internet`` leaves out: those of nodes, of services, of the API server."""


class Spec(_Part):
    """All that is said about a tenant."""

    namespace: NamespaceName | None = None
    """Default: the tenant's name."""
    queue: QueueName | None = None
    """Default: the tenant's name."""
    groups: Groups = Groups()
    parent: QueueName | None = None
    """The queue above."""
    models: Mapping[ModelName, Grant] = Field(default_factory=dict)
    """By model. Each other model of the cluster's table is capped at 0."""
    weight: Annotated[int, Field(ge=1, le=65535, strict=True)] = 1
    priority: Annotated[Count | None, Field(le=2**31 - 1)] = None
    reclaimable: bool = True
    limits: QueueLimits = QueueLimits()
    """The most that one pod or gang may ask for."""
    high_pods: Count = 0
    """Pods of priority ``high`` at the same time. 0: the tenant may not use it."""
    quota: Quota = Quota()
    other_cards: Mapping[str, Count] = Field(default_factory=dict)
    """Cards of other plugins, by the resource's full name. Each that is not named is capped at 0."""
    containers: Containers = Containers()
    network: Network = Network()
    pod_security: Literal["baseline", "restricted"] = "baseline"


class Metadata(_Part):
    """The tenant's name, and what tools write next to it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Name


class Tenant(_Part):
    """The document."""

    api_version: Literal["egpu.volcano.sh/v1"] = API_VERSION
    kind: Literal["Tenant"] = KIND
    metadata: Metadata
    spec: Spec = Spec()

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        _no_system_namespace(self.namespace)
        _no_volcano_queue(self.queue)
        if self.spec.parent == self.queue:
            raise ValueError(f"spec.parent: {self.queue!r} is the tenant's own queue")
        return self

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Where its pods are."""
        return self.spec.namespace or self.name

    @property
    def queue(self) -> str:
        """The queue that pays for them."""
        return self.spec.queue or self.name

    @property
    def team(self) -> tuple[str, ...]:
        """Groups that submit."""
        return self.spec.groups.team or (f"{self.name}:ml-team",)

    @property
    def admins(self) -> tuple[str, ...]:
        """Groups that edit the queue."""
        return self.spec.groups.admins or (f"{self.name}:admin",)

    def document(self) -> dict[str, Any]:
        """As people write it, without what is left at its default."""
        spec = self.spec.model_dump(by_alias=True, mode="json", exclude_defaults=True)
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self.name}, "spec": spec}

    def encode(self) -> str:
        """The document on one line, as the Namespace keeps it."""
        return orjson.dumps(self.document(), option=orjson.OPT_SORT_KEYS).decode()


# --- reading ---------------------------------------------------------------------------------------


def read(text: str, source: str = "tenant") -> tuple[Tenant, ...]:
    """All tenants of a file; raises :class:`DocumentError`, each line of which begins with ``source``.

    Other kinds of objects in the file are refused: they would not be applied.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise DocumentError(f"{source}: not YAML: {' '.join(str(error).split())}") from error
    if not documents:
        raise DocumentError(f"{source}: there is no document in it")
    tenants = tuple(parse_document(document, source) for document in documents)
    check_apart(tenants, source)
    return tenants


def parse_document(document: object, source: str = "tenant") -> Tenant:
    """One document; raises :class:`DocumentError`."""
    if not isinstance(document, dict):
        raise DocumentError(f"{source}: is no document with apiVersion {API_VERSION} and kind {KIND}")
    if (found := (document.get("apiVersion"), document.get("kind"))) != (API_VERSION, KIND):
        shown = " ".join(str(part)[:63] for part in found)
        raise DocumentError(f"{source}: is {shown!r}, not {API_VERSION} {KIND}")
    try:
        return Tenant.model_validate(document)
    except ValidationError as error:
        lines = [f"{source}: {_sentence(one)}" for one in error.errors()[:_MOST_SHOWN]]
        raise DocumentError("\n".join(lines)) from error


def check_apart(tenants: Iterable[Tenant], source: str = "tenants") -> None:
    """Refuse two tenants with one name, namespace or queue; raises :class:`DocumentError`."""
    seen: dict[tuple[str, str], str] = {}
    for tenant in tenants:
        for what, value in (("name", tenant.name), ("namespace", tenant.namespace), ("queue", tenant.queue)):
            if (what, value) in seen:
                other = seen[what, value]
                raise DocumentError(f"{source}: tenants {other} and {tenant.name} have one {what}, {value!r}")
            seen[what, value] = tenant.name


def _sentence(fault: Any) -> str:
    loc = [str(part) for part in fault["loc"]]
    path = ".".join(part[:63] for part in loc if part != "[key]")
    match fault["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(loc[-1], _words(), 1)
            guess = f"; did you mean {near[0]}?" if near else ""
            return f"{path}: there is no such field{guess}"
        case "missing":
            return f"{path}: is missing"
        case "value_error":
            said, got = str(fault["ctx"]["error"]), fault["input"]
            return f"{path}: {said}{_got(got)}" if path else said
        case _:
            return f"{path}: {fault['msg']}{_got(fault['input'])}"


def _got(raw: object) -> str:
    return "" if isinstance(raw, (dict, list, BaseModel)) or raw is None else f", got {str(raw)[:100]!r}"


def _words() -> list[str]:
    parts = (Tenant, Spec, Groups, Grant, Quota, ContainerDefault, Containers, Network, QueueLimits)
    return sorted({str(field.alias or key) for part in parts for key, field in part.model_fields.items()})
