"""What a pod asks of cards: from the limits of its containers to the ``Request`` annotation and the totals.

Pure, and used twice: by the webhook at the door, and by each process that reads a Job's template before its
pods exist. Memory is in MiB per card, cores are percent of one card, totals are sums over a container's
cards. Every refusal names the field, the number and the limit.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from vc_egpu.volcano.api.containers import containers_of, is_sidecar
from vc_egpu.volcano.podspec.slices import UNCUT, Cut, SliceAskError, announced, rounded, spelled_out
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import CARD_CORES_PERCENT, ContainerRequest, Request, RequestOption
from vc_egpu.volcano.words.model_table import GpuModel, ModelTable
from vc_egpu.volcano.words.quantity import Quantity, QuantityError, is_zero, parse
from vc_egpu.volcano.words.resource_names import PER_CARD, ResourceName, asked_in, classify

MIB: Final = 1 << 20
MAX_CONTAINERS: Final = 64
_CLOSE_ENOUGH: Final = 0.5
_CARD_KINDS: Final = frozenset({"shared", "native", "volcano", "any", "mig"})
"""Kinds of resources of which one unit is a card."""
_BYTE_SUFFIXES: Final = frozenset({"Mi", "Gi", "Ti", "Pi", "Ei"})


class AskError(ValueError):
    """An ask that is refused. ``field`` is the path of what is wrong, ``problem`` says number and limit."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class PodAsk:
    """The asks of one pod (or task template)."""

    containers: Mapping[str, ContainerRequest] = field(default_factory=dict)
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By container: the resources that queues and schedulers count, e.g. ``volcano.sh/vgpu-h20-memory``."""
    warnings: tuple[str, ...] = ()
    """Sentences about limits that mean nothing."""
    options: Mapping[str, "PodAsk"] = field(default_factory=dict)
    """What it may ask for, by name, the wish of its user first; see :mod:`.options`."""
    choice: str = ""
    """The option that ``containers`` are of; empty: none is chosen yet."""

    @property
    def is_managed(self) -> bool:
        """True if any container asks for cards."""
        return bool(self.containers or self.options)

    @property
    def ways(self) -> tuple["PodAsk", ...]:
        """What may come of it: its options, or itself where it asks for one thing."""
        return (self,) if self.choice or not self.options else tuple(self.options.values())

    @property
    def cards(self) -> int:
        """Cards of one pod, whichever option it takes."""
        return sum(ask.cards for ask in self.ways[0].containers.values())

    @property
    def models(self) -> frozenset[str]:
        """All models asked for."""
        return frozenset(ask.model for way in self.ways for ask in way.containers.values())

    def sums(self) -> dict[str, int]:
        """Totals over all containers: what one pod counts in its queue."""
        sums: dict[str, int] = {}
        for totals in self.totals.values():
            for resource, amount in totals.items():
                sums[resource] = sums.get(resource, 0) + amount
        return sums

    def request(
        self,
        core_policy: Literal["hard", "soft"] = "hard",
        *,
        oversubscribe: bool = False,
        swap: bool = False,
        mixes: bool = False,
        best: bool = False,
    ) -> Request:
        """The annotation's value."""
        options = [
            RequestOption(name=name, containers=dict(option.containers))
            for name, option in self.options.items()
        ]
        return Request(
            containers=dict(self.containers),
            core_policy=core_policy,
            oversubscribe=oversubscribe,
            swap=True if swap else None,
            options=tuple(options) or None,
            choice=self.choice or None,
            mixes=True if mixes and options else None,
            order="best" if best and options else None,
        )


def is_managed(spec: Mapping[str, Any]) -> bool:
    """True if any container of this pod spec asks for more than 0 of a model in its limits or requests."""
    return any(
        asked_in(_resources(container, kind)) is not None
        for container in containers_of(spec)
        for kind in ("limits", "requests")
    )


def names_without_effect(container: Mapping[str, Any]) -> frozenset[str]:
    """The resources that say nothing because the container asks for 0 cards: models, totals, limits per card.

    Limits per card stay where the container has cards of another model, or Volcano's own vGPUs.
    """
    amounts = [_resources(container, kind) for kind in ("limits", "requests")]
    if not any(is_zero(raw) for each in amounts for raw in each.values()):
        return frozenset()
    mine = {str(name) for each in amounts for name in each if _concerns_us(name)}
    asked = {str(name) for each in amounts for name, raw in each.items() if not is_zero(raw)} & mine
    models = {classify(name).model for name in asked if classify(name).is_counted}
    none = {name for name in mine - asked if classify(name).is_managed and classify(name).model not in models}
    asks_for_none = any(classify(name).is_counted or classify(name).kind == "any" for name in none)
    has_cards = any(classify(name).kind in _CARD_KINDS for name in asked)
    return frozenset(none | (PER_CARD & mine) if asks_for_none and not has_cards else none)


def read_pod(
    spec: Mapping[str, Any],
    table: ModelTable,
    path: str = "spec",
    known: Request | None = None,
    cut: Cut = UNCUT,
) -> PodAsk:
    """Read all asks of a pod spec. Raises :class:`AskError` for the first that is refused.

    ``known`` is the request annotation of a pod that the webhook has completed before. Such a pod has no
    per-card limits any more. So the annotation is believed, as far as the totals in the limits agree with it.
    ``cut`` is what the annotations say of slices of fixed size.
    """
    if not is_managed(spec):
        if known is not None and known.containers:
            name = min(known.containers)
            raise AskError(
                f"annotation {names.REQUEST}", f"names container {name!r}, which asks for no cards"
            )
        return PodAsk(warnings=tuple(_without_effect(spec, path)))
    asks: dict[str, ContainerRequest] = {}
    totals: dict[str, Mapping[str, int]] = {}
    for where, container, sidecar in _containers(spec, path):
        before = known.containers.get(str(container.get("name"))) if known else None
        ask = _read_container(container, where, table, before, cut)
        if ask is None:
            continue
        if not sidecar:
            raise AskError(
                where, "ordinary init containers cannot have cards; use a sidecar (restartPolicy: Always)"
            )
        asks[str(container.get("name"))] = ask
        totals[str(container.get("name"))] = totals_of(ask)
    if len(asks) > MAX_CONTAINERS:
        raise AskError(path, f"{len(asks)} containers ask for cards, the limit is {MAX_CONTAINERS}")
    if known is not None and set(known.containers) != set(asks):
        odd = min(set(known.containers) ^ set(asks))
        raise AskError(f"annotation {names.REQUEST}", f"does not agree with the limits of container {odd!r}")
    _check_pod(asks, table, path)
    told = (announced(name, ask) for name, ask in asks.items())
    return PodAsk(asks, totals, (*_without_effect(spec, path), *(sentence for sentence in told if sentence)))


def totals_of(ask: ContainerRequest) -> dict[str, int]:
    """The countable resources of one container: cards, and for shares N × MiB and N × percent."""
    if ask.native:
        return {names.native_resource(ask.model): ask.cards}
    totals = {
        names.shared_resource(ask.model): ask.cards,
        names.memory_total_resource(ask.model): ask.cards * ask.memory_mib,
    }
    if ask.cores_percent:
        totals[names.cores_total_resource(ask.model)] = ask.cards * ask.cores_percent
    return totals


def _containers(spec: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """(path, container, may have cards): containers proper and sidecars may, other init containers not."""
    for index, container in enumerate(_items(spec, "initContainers")):
        yield (
            _path(path, "initContainers", container, index),
            container,
            is_sidecar(container),
        )
    for index, container in enumerate(_items(spec, "containers")):
        yield _path(path, "containers", container, index), container, True


def _path(path: str, kind: str, container: Mapping[str, Any], index: int) -> str:
    name = container.get("name")
    return f'{path}.{kind}["{name[:63]}"]' if isinstance(name, str) and name else f"{path}.{kind}[{index}]"


def _items(spec: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = spec.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _resources(container: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    resources = container.get("resources")
    value = resources.get(kind) if isinstance(resources, dict) else None
    return value if isinstance(value, dict) else {}


def _without_effect(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    """Sentences about limits per card of containers that ask for 0 cards."""
    for where, container, _ in _containers(spec, path):
        idle, limits = names_without_effect(container), _resources(container, "limits")
        model = next((name for name in sorted(idle) if classify(name).is_counted), "")
        for name in sorted(PER_CARD & idle & limits.keys()):
            yield f"{_limit(where, name)}: {str(limits[name])[:63]} has no effect next to {model[:100]}: 0"


def _read_container(
    container: Mapping[str, Any],
    where: str,
    table: ModelTable,
    before: ContainerRequest | None,
    cut: Cut,
) -> ContainerRequest | None:
    limits = {name: raw for name, raw in _resources(container, "limits").items() if _concerns_us(name)}
    _check_requests(_resources(container, "requests"), limits, where)
    idle = names_without_effect(container)
    kinds = {name: classify(name) for name in limits}
    limits = {
        name: raw
        for name, raw in limits.items()
        if name not in idle and not (kinds[name].kind == "volcano" and is_zero(raw))
    }
    if not limits:
        return None
    try:
        limits, cut = spelled_out(limits, cut)
    except SliceAskError as error:
        raise AskError(where, str(error)) from error
    kinds = {name: classify(name) for name in limits}
    for name, kind in kinds.items():
        if kind.kind == "volcano":
            raise AskError(
                _limit(where, name), "Volcano's own vGPUs and typed ones cannot be in one pod; name a model"
            )
    if names.ANY_MODEL in kinds:
        problem = f"which models may it be? Name them in the annotation {names.USE_MODELS}"
        raise AskError(_limit(where, names.ANY_MODEL), problem)
    counted = sorted(name for name, kind in kinds.items() if kind.kind in {"shared", "native"})
    if not counted:
        name = min(limits)
        problem = "no model is named with it" + _example(table)
        raise AskError(_limit(where, name), problem)
    # A word that is no model is a typing error (vgpu-mem): to name it helps more than "two models".
    models = [_model(kinds[name].model, _limit(where, name), table) for name in counted]
    if len(counted) > 1:
        raise AskError(
            where, f"two models in one container: {counted[0]} and {counted[1]}; a container takes one"
        )
    resource, model = counted[0], models[0]
    ask = _ask_of(limits, resource, model, where, before)
    if ask is not before:
        try:
            ask = rounded(ask, model, table, cut)
        except SliceAskError as error:
            raise AskError(where, str(error)) from error
    elif ask.slice is not None and not _is_slice(ask, model, table):
        raise AskError(f"annotation {names.REQUEST}", f"a {model.name} has no slice {ask.slice} of that size")
    _check_totals(limits, kinds, ask, where)
    return ask


def _ask_of(
    limits: Mapping[str, Any], resource: str, model: GpuModel, where: str, before: ContainerRequest | None
) -> ContainerRequest:
    native = classify(resource).kind == "native"
    what = f"cards on the largest {model.name} node"
    cards = _within(limits[resource], 1, model.cards_per_node, _limit(where, resource), what)
    per_card = sorted(PER_CARD & limits.keys())
    if native and per_card:
        raise AskError(
            _limit(where, per_card[0]),
            f"{resource} is whole cards without sharing: it takes no {_tail(per_card[0])}",
        )
    if before is not None and not per_card:
        return _ask_as_known(limits, (model, cards, native), where, before)
    memory_mib, cores = _memory(limits, model, where), _cores(limits, where)
    whole = memory_mib is None
    if whole and (odd := _odd_count(cards, model)):
        raise AskError(_limit(where, resource), odd)
    return ContainerRequest(
        model=model.name,
        cards=cards,
        memory_mib=model.memory_mib if memory_mib is None else memory_mib,
        cores_percent=CARD_CORES_PERCENT if whole else cores,
        native=native,
        whole=whole,
    )


def _odd_count(cards: int, model: GpuModel) -> str:
    """Why a container cannot have so many whole cards of the model; empty: it can."""
    if model.counts and cards not in model.counts:
        several = ", ".join(map(str, model.counts[:-1]))
        return f"{cards} cards: a {model.name} is given out by {several} or {model.counts[-1]}"
    if cards > 1 and cards % model.unit:
        return f"{cards} cards: a module of {model.name} has {model.unit}, ask for 1 or for whole modules"
    return ""


def _is_slice(ask: ContainerRequest, model: GpuModel, table: ModelTable) -> bool:
    layout = table.layout_of(model)
    amounts = (ask.slice, ask.memory_mib, ask.cores_percent)
    templates = layout.templates if layout is not None else ()
    known = {(one.name, one.memory_mib, one.cores_percent) for one in templates}
    return amounts in known and ask.cards == 1 and not ask.native and not ask.whole


def _ask_as_known(
    limits: Mapping[str, Any], counted: tuple[GpuModel, int, bool], where: str, before: ContainerRequest
) -> ContainerRequest:
    """The ask of a completed container: what the annotation says, if the totals say the same.

    ``counted`` is (model, cards, native) as the limits name them.
    """
    model, cards, native = counted
    path = f"annotation {names.REQUEST}"
    agrees = (before.model, before.cards, before.native) == (model.name, cards, native)
    if before.memory_mib > model.memory_mib:
        raise AskError(
            path, f"memoryMiB {before.memory_mib} is above the {model.memory_mib} MiB of a {model.name}"
        )
    expected = totals_of(before)
    if not agrees or any(
        _whole(limits.get(name, 0), _limit(where, name)) != n for name, n in expected.items()
    ):
        raise AskError(
            path, f"does not agree with the limits of {where}; it is written by the webhook, leave it out"
        )
    full = (before.memory_mib, before.cores_percent) == (model.memory_mib, CARD_CORES_PERCENT)
    if native and not (full and before.whole):
        raise AskError(path, f"claims part of a card for {where}, whose limits name whole ones")
    if before.whole and not full:
        raise AskError(path, f"claims a whole card for {where}, whose totals say otherwise")
    return before


def _memory(limits: Mapping[str, Any], model: GpuModel, where: str) -> int | None:
    """MiB on each card, None where none is named (the whole card)."""
    path, percent_path = _limit(where, names.LIMIT_MEMORY), _limit(where, names.LIMIT_MEMORY_PERCENTAGE)
    if names.LIMIT_MEMORY in limits and names.LIMIT_MEMORY_PERCENTAGE in limits:
        raise AskError(
            percent_path,
            f"{limits[names.LIMIT_MEMORY_PERCENTAGE]} % and "
            f"{names.LIMIT_MEMORY} {limits[names.LIMIT_MEMORY]}: give one of the two",
        )
    if names.LIMIT_MEMORY_PERCENTAGE in limits:
        raw = limits[names.LIMIT_MEMORY_PERCENTAGE]
        percent = _within(raw, 1, 100, percent_path, "percent of the card's memory")
        return max(1, model.memory_mib * percent // 100)
    if names.LIMIT_MEMORY not in limits:
        return None
    quantity = _quantity(limits[names.LIMIT_MEMORY], path)
    if quantity.suffix in _BYTE_SUFFIXES:
        raise AskError(path, f"{quantity.text}: the unit is MiB, did you mean {_mib_of(quantity)}?")
    what = f"MiB on a card of model {model.name}"
    if quantity.value > max(model.memory_mib, MIB) and _mib_of(quantity) <= model.memory_mib:
        what += f"; the unit is MiB, did you mean {_mib_of(quantity)}?"
    return _within(limits[names.LIMIT_MEMORY], 1, model.memory_mib, path, what)


def _cores(limits: Mapping[str, Any], where: str) -> int:
    """Percent of each card's compute; 0 where none is named."""
    if names.LIMIT_CORES not in limits:
        return 0
    path = _limit(where, names.LIMIT_CORES)
    cores = _within(limits[names.LIMIT_CORES], 1, CARD_CORES_PERCENT, path, "percent of a card's compute")
    if names.LIMIT_MEMORY not in limits and names.LIMIT_MEMORY_PERCENTAGE not in limits:
        raise AskError(
            path,
            f"{cores} without memory: name {names.LIMIT_MEMORY} or {names.LIMIT_MEMORY_PERCENTAGE} as well",
        )
    return cores


def _check_totals(
    limits: Mapping[str, Any], kinds: Mapping[str, ResourceName], ask: ContainerRequest, where: str
) -> None:
    """Totals are ours to write: a total that a user wrote must be the same number."""
    expected = totals_of(ask)
    for name, kind in kinds.items():
        if kind.kind == "low":
            raise AskError(_limit(where, name), "is a key of queues, no container asks for it; leave it out")
        if kind.kind not in {"memory-total", "cores-total"}:
            continue
        written = _whole(limits[name], _limit(where, name))
        if written != expected.get(name, 0):
            unit = "MiB" if kind.kind == "memory-total" else "cores"
            each = ask.memory_mib if kind.kind == "memory-total" else ask.cores_percent
            right = (
                f"{expected.get(name, 0)} ({ask.cards} × {each} {unit})" if kind.model == ask.model else "0"
            )
            raise AskError(_limit(where, name), f"{written} is written, the sum is {right}; leave it out")


def _check_requests(requests: Mapping[str, Any], limits: Mapping[str, Any], where: str) -> None:
    for name, raw in requests.items():
        if not _concerns_us(name):
            continue
        path = f'{where}.resources.requests["{name}"]'
        if name not in limits and is_zero(raw):
            continue
        if name not in limits:
            raise AskError(path, f"{raw} is requested without a limit; cards are named in limits")
        if _quantity(raw, path).value != _quantity(limits[name], _limit(where, name)).value:
            raise AskError(path, f"{raw} differs from the limit {limits[name]}; leave the request out")


def _check_pod(asks: Mapping[str, ContainerRequest], table: ModelTable, path: str) -> None:
    """All containers of a pod are on one node: no node may be too small for the sum."""
    if len({ask.native for ask in asks.values()}) > 1:
        raise AskError(path, "shares (vgpu-) and whole cards (gpu-) in one pod: no node offers both")
    for name in sorted({ask.model for ask in asks.values()}):
        model, mine = table.get(name), [ask for ask in asks.values() if ask.model == name]
        if model is None:
            continue
        memory_mib = sum(ask.cards * ask.memory_mib for ask in mine)
        cores = sum(ask.cards * ask.cores_percent for ask in mine)
        for amount, per_card, unit in (
            (memory_mib, model.memory_mib, "MiB"),
            (cores, CARD_CORES_PERCENT, "cores"),
        ):
            limit = per_card * model.cards_per_node
            if amount > limit:
                raise AskError(
                    path,
                    f"its containers ask for {amount} {unit} of {name} together, "
                    f"the largest node has {limit} ({model.cards_per_node} × {per_card})",
                )


def _model(name: str, path: str, table: ModelTable) -> GpuModel:
    model = table.get(name)
    if model is not None:
        return model
    known = sorted(row.name for row in table.models)
    words = [*known, *sorted(names.RESERVED_MODEL_WORDS)]
    near = [row for row in known if row.startswith(f"{name.lower()}-")]
    near = near or difflib.get_close_matches(name.lower(), words, n=1, cutoff=_CLOSE_ENOUGH)
    if near and near[0] in names.RESERVED_MODEL_WORDS:
        raise AskError(path, f"{name[:63]!r} is no model, did you mean {names.shared_resource(near[0])}?")
    if near:
        raise AskError(
            path, f"model {name[:63]!r} is not known, did you mean {' or '.join(map(repr, near[:3]))}?"
        )
    raise AskError(path, f"model {name[:63]!r} is not known; known are {', '.join(known) or 'none'}")


def _example(table: ModelTable) -> str:
    first = min((row.name for row in table.models), default=None)
    return f" (for example {names.shared_resource(first)}: 1)" if first else ""


def _concerns_us(name: object) -> bool:
    return isinstance(name, str) and classify(name).kind != "foreign"


def _limit(where: str, name: str) -> str:
    return f'{where}.resources.limits["{name[:100]}"]'


def _tail(name: str) -> str:
    return name.removeprefix(names.RESOURCE_PREFIX)


def _mib_of(quantity: Quantity) -> int:
    return max(1, round(quantity.value / MIB))


def _quantity(raw: object, path: str) -> Quantity:
    try:
        return parse(raw)
    except QuantityError as error:
        raise AskError(path, str(error)) from error


def _whole(raw: object, path: str) -> int:
    try:
        return parse(raw).whole()
    except QuantityError as error:
        raise AskError(path, str(error)) from error


def _within(raw: object, low: int, high: int, path: str, what: str) -> int:
    """The whole number, if it is within its limits; ``what`` says what is counted."""
    limits = f"it must be {low} to {high} {what}"
    try:
        value = parse(raw).whole()
    except QuantityError as error:
        raise AskError(path, f"{error}; {limits}") from error
    if not low <= value <= high:
        side = f"above {high}" if value > high else f"below {low}"
        raise AskError(path, f"{value} is {side}; {limits}")
    return value
