"""A pod that may take any of several models or alternatives: its options, and its spec with one of them.

``volcano.sh/vgpu: N`` in the limits of containers, and the names of the models in an annotation. Each option
is read as if the pod had asked for that model alone, so an option that could never be is refused. What
limits per card say in percent is of the option's own model. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.volcano.api.containers import IN_SPEC, containers_of
from vc_egpu.volcano.codec import alternatives
from vc_egpu.volcano.codec.alternatives import Alternative
from vc_egpu.volcano.codec.request import AskError, PodAsk, read_pod, totals_of
from vc_egpu.volcano.needs.pods import Read
from vc_egpu.volcano.needs.pods import read as needed
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.needs.text import NeedsError
from vc_egpu.volcano.podspec.slices import Cut, SliceAskError, cut_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    MAX_OPTIONS,
    AnnotationError,
    Request,
    RequestNeeds,
    RequestOption,
)
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.quantity import QuantityError, is_zero, parse
from vc_egpu.volcano.words.resource_names import classify

_LISTED: Final = names.ALTERNATIVES
_KINDS: Final = ("limits", "requests")


def is_open(spec: Mapping[str, Any]) -> bool:
    """Whether a container of this pod spec asks for cards of one of several models."""
    return any(
        names.ANY_MODEL in amounts and not is_zero(amounts[names.ANY_MODEL])
        for container in containers_of(spec)
        for amounts in _amounts(container)
    )


def read(
    spec: Mapping[str, Any],
    annotations: Mapping[str, Any],
    table: ModelTable,
    path: str = "spec",
    known: Request | None = None,
) -> PodAsk:
    """What a pod asks for, or may ask for. Raises :class:`.request.AskError` for the first that is refused.

    ``known``: as for :func:`.request.read_pod`. ``path``: of the spec, in refusals.
    """
    if known is not None and known.options is not None:
        return _as_known(spec, known, table, path, alike=names.ALTERNATIVES not in annotations)
    try:
        cut = cut_of(annotations)
    except SliceAskError as error:
        raise AskError(f"{path.removesuffix('spec')}metadata.annotations", str(error)) from error
    if not is_open(spec):
        return read_pod(spec, table, path, known, cut)
    if known is not None:
        raise AskError(f"annotation {names.REQUEST}", "does not name the models that the pod may take")
    _check_one_way(spec, path)
    if names.ALTERNATIVES in annotations:
        return _several(_ways(spec, annotations, table, path, cut), _cards_by_container(spec))
    found = {}
    for name in _models(annotations, table, path):
        try:
            found[name] = read_pod(with_model(spec, name), table, path, cut=cut)
        except AskError as error:
            raise AskError(error.path, f"{error.problem} (model {name} of {names.USE_MODELS})") from error
    return _several(found, _cards_by_container(spec))


def _ways(
    spec: Mapping[str, Any], annotations: Mapping[str, Any], table: ModelTable, path: str, cut: Cut
) -> dict[str, PodAsk]:
    """By name, what each alternative asks for. Models of a kind that cannot hold it are left out."""
    found: dict[str, PodAsk] = {}
    refused: dict[str, AskError] = {}
    kinds: dict[str, bool] = {}
    """By name as the user wrote it, of those of a kind: whether any model can hold it."""
    for name, one in _alternatives(annotations, table, path).items():
        try:
            found[name] = _way(spec, one, table, path, cut)
        except AskError as error:
            if one.kind is None:
                raise AskError(error.path, f"{error.problem} (alternative {name} of {_LISTED})") from error
            refused.setdefault(one.written, error)
        if one.kind is not None:
            kinds[one.written] = kinds.get(one.written, False) or name in found
    if without := next((name for name, holds in kinds.items() if not holds), None):
        first = refused[without]
        what = f"{first.problem} (alternative {without} of {_LISTED}; no model of its kind can hold it)"
        raise AskError(first.path, what) from first
    if len(found) > MAX_OPTIONS:
        what = f"are {len(found)} with all models of their kinds, the limit is {MAX_OPTIONS}; name models"
        raise AskError(_where(path, names.ALTERNATIVES), what)
    return found


def _way(spec: Mapping[str, Any], one: Alternative, table: ModelTable, path: str, cut: Cut) -> PodAsk:
    try:
        made = alternatives.applied(spec, one)
    except AnnotationError as error:
        raise AskError(_where(path, names.ALTERNATIVES), str(error)) from error
    return read_pod(made, table, path, cut=Cut(one.slice, cut.hardware) if one.slice else cut)


def with_option(
    spec: Mapping[str, Any],
    annotations: Mapping[str, Any],
    name: str,
    table: ModelTable,
    path: str = "spec",
) -> dict[str, Any]:
    """The pod spec with this option. Raises :class:`.request.AskError` where it cannot be."""
    if names.ALTERNATIVES not in annotations:
        return with_model(spec, name)
    where = _where(path, names.ALTERNATIVES)
    try:
        return alternatives.applied(spec, alternatives.decode(annotations[names.ALTERNATIVES], table)[name])
    except AnnotationError as error:
        raise AskError(where, str(error)) from error
    except KeyError as error:
        raise AskError(where, f"there is no alternative {name}") from error


def needs_of_alternatives(
    annotations: Mapping[str, Any],
    spec: Mapping[str, Any],
    table: ModelTable,
    environments: EnvironmentTable,
) -> dict[str, Read]:
    """What the program of each alternative needs, if the pod has any.

    Raises :class:`.annotations.AnnotationError`, and :class:`.text.NeedsError` with the alternative's name.
    """
    if names.ALTERNATIVES not in annotations or not is_open(spec):
        return {}
    found = {}
    for name, one in alternatives.decode(annotations[names.ALTERNATIVES], table).items():
        said = annotations if one.needs is None else {**annotations, names.NEEDS: one.needs}
        try:
            found[name] = needed(said, alternatives.applied(spec, one), environments)
        except NeedsError as error:
            raise NeedsError(f"{name}.needs: {error}") from error
    return found


def with_needs(request: Request, by_name: Mapping[str, RequestNeeds | None]) -> Request:
    """The request with needs by option; under the empty name are those of the pod as it is made now."""
    told = tuple(one.model_copy(update={"needs": by_name.get(one.name)}) for one in request.options or ())
    return request.model_copy(update={"options": told or None, "needs": by_name[""]})


def with_needs_of(
    request: Request,
    annotations: Mapping[str, Any],
    spec: Mapping[str, Any],
    table: ModelTable,
    environments: EnvironmentTable,
) -> Request:
    """The request of a pod with this spec, with what its program needs: as the webhook writes it.

    Raises as :func:`needs_of_alternatives` does.
    """
    each = needs_of_alternatives(annotations, spec, table, environments)
    if not any(read.needs is not None for read in each.values()):
        return request.model_copy(update={"needs": needed(annotations, spec, environments).needs})
    by_name = {name: read.needs for name, read in each.items()}
    return with_needs(request, {**by_name, "": by_name.get(request.choice or "")})


def chosen(ask: PodAsk, name: str) -> PodAsk:
    """The same ask once this option is chosen; as it is where there is no such option."""
    option = ask.options.get(name)
    if option is None:
        return ask
    return PodAsk(option.containers, option.totals, option.warnings, ask.options, name)


def with_model(spec: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The pod spec with cards of this model in place of those of any."""

    def typed(container: Any) -> Any:
        resources = container.get("resources") if isinstance(container, dict) else None
        if not isinstance(resources, dict):
            return container
        renamed = {
            kind: _renamed(amounts, model)
            for kind in _KINDS
            if isinstance(amounts := resources.get(kind), dict)
        }
        return {**container, "resources": {**resources, **renamed}}

    return {
        key: [typed(item) for item in value] if key in IN_SPEC and isinstance(value, list) else value
        for key, value in spec.items()
    }


def _renamed(amounts: Mapping[str, Any], model: str) -> dict[str, Any]:
    if names.ANY_MODEL not in amounts:
        return dict(amounts)
    kept = {name: raw for name, raw in amounts.items() if name != names.ANY_MODEL}
    return {**kept, names.shared_resource(model): amounts[names.ANY_MODEL]}


def _check_one_way(spec: Mapping[str, Any], path: str) -> None:
    for container in containers_of(spec):
        asked = {name for amounts in _amounts(container) for name, raw in amounts.items() if not is_zero(raw)}
        typed = sorted(name for name in asked if classify(str(name)).is_counted)
        if names.ANY_MODEL in asked and typed:
            raise AskError(
                f'{path}["{str(container.get("name"))[:63]}"]',
                f"{names.ANY_MODEL} and {typed[0][:100]} in one container; it names one model, or takes any",
            )


def _amounts(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    resources = container.get("resources")
    found = [resources.get(kind) for kind in _KINDS] if isinstance(resources, dict) else []
    return [amounts for amounts in found if isinstance(amounts, dict)]


def _where(path: str, name: str) -> str:
    """Where this annotation of a pod stands whose spec is at ``path``."""
    return f'{path.removesuffix("spec")}metadata.annotations["{name}"]'


def _alternatives(annotations: Mapping[str, Any], table: ModelTable, path: str) -> dict[str, Alternative]:
    where = _where(path, names.ALTERNATIVES)
    for other in (names.USE_MODELS, names.AVOID_MODELS, names.MIX_MODELS):
        if other in annotations:
            raise AskError(_where(path, other), f"next to {names.ALTERNATIVES}; leave one of them out")
    try:
        return alternatives.decode(annotations[names.ALTERNATIVES], table)
    except AnnotationError as error:
        raise AskError(where, str(error)) from error


def _models(annotations: Mapping[str, Any], table: ModelTable, spec_path: str) -> list[str]:
    path = _where(spec_path, names.USE_MODELS)
    listed = [part.strip() for part in str(annotations.get(names.USE_MODELS) or "").split(",")]
    models = list(dict.fromkeys(part for part in listed if part))
    if not models:
        known = ", ".join(sorted(row.name for row in table.models)[:MAX_OPTIONS])
        raise AskError(
            path,
            f"is missing: {names.ANY_MODEL} is of one of several models; name them, the wish first (for "
            f"example {known})",
        )
    for model in models:
        if table.get(model) is None:
            raise AskError(path, f"model {model[:63]!r} is not known")
    avoided = {part.strip() for part in str(annotations.get(names.AVOID_MODELS) or "").split(",")}
    models = [model for model in models if model not in avoided]
    if not models:
        raise AskError(path, f"{names.AVOID_MODELS} rules out all of them")
    if len(models) > MAX_OPTIONS:
        raise AskError(path, f"{len(models)} models, the limit is {MAX_OPTIONS}")
    return models


def _several(options: Mapping[str, PodAsk], cards: Mapping[str, int]) -> PodAsk:
    """An ask of which none of these is chosen yet. Until then each container counts its cards alone."""
    totals = {name: {names.ANY_MODEL: count} for name, count in cards.items()}
    warnings = next(iter(options.values())).warnings
    return PodAsk(totals=totals, warnings=warnings, options=options)


def _cards_by_container(spec: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for container in containers_of(spec):
        for amounts in _amounts(container):
            if names.ANY_MODEL in amounts:
                try:
                    found[str(container.get("name"))] = parse(amounts[names.ANY_MODEL]).whole()
                except QuantityError:
                    continue  # refused already, with each of the models
    return found


def _as_known(
    spec: Mapping[str, Any], known: Request, table: ModelTable, path: str, *, alike: bool
) -> PodAsk:
    """The ask of a pod that the webhook has completed before: what the annotation says, where that can be.

    ``alike``: each option takes as many cards as the limits say.
    """
    field = f"annotation {names.REQUEST}"
    cards = _cards_by_container(spec)
    options = {option.name: _option(option, table, field) for option in known.options or ()}
    if known.choice is not None:
        if cards:
            raise AskError(field, f"is of {known.choice}, and the limits name no model")
        asks = read_pod(spec, table, path, Request(containers=known.containers))
        return PodAsk(asks.containers, asks.totals, asks.warnings, options, known.choice)
    for name, option in options.items():
        found = {container: ask.cards for container, ask in option.containers.items()}
        if found != cards if alike else found.keys() != cards.keys():
            raise AskError(field, f"option {name} does not agree with the limits; leave the annotation out")
    return _several(options, cards)


def _option(option: RequestOption, table: ModelTable, field: str) -> PodAsk:
    for ask in option.containers.values():
        model = table.get(ask.model)
        if model is None or ask.native or ask.memory_mib > model.memory_mib:
            raise AskError(field, f"option {option.name} is none that the webhook writes; leave it out")
    totals = {name: totals_of(ask) for name, ask in option.containers.items()}
    return PodAsk(option.containers, totals)
