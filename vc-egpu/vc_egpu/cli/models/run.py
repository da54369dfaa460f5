"""``kubectl egpu models``: read the cluster, propose rows, and write them where the user says so."""

import argparse
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType

from vc_egpu.cli import world
from vc_egpu.cli.models.found import Proposal, proposals
from vc_egpu.cli.models.table_text import CannotAddError, with_rows
from vc_egpu.cli.views.table import Table
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import CONFIG_MAPS, NODES
from vc_egpu.kube.wire.errors import Conflict, NotFound
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

KEY: Final = "models.yaml"
_ADDED: Final = (
    "- Put the rows into your overlay or the chart's values, too: an upgrade writes the table again.",
    "- The webhook and the agents read the table within two minutes. Admission reads it when it starts:",
    "  kubectl -n vc-egpu-system rollout restart deployment vc-egpu-admission",
    "- Queues give nothing of a model that they do not name.",
)


@dataclass(frozen=True, slots=True)
class ModelsReport:
    """Products that the table lacks."""

    proposals: tuple[Proposal, ...]
    added: tuple[str, ...]
    """Names of models that were added now."""


def run(api: ApiConnection, options: argparse.Namespace) -> ModelsReport:
    """Raises :class:`CannotAddError` before anything is written."""
    held = _held(api)
    text = str((held.get("data") or {}).get(KEY) or "")
    try:
        table = ModelTable.from_yaml(text)
    except ModelTableError as error:
        raise CannotAddError(str(error)) from error
    nodes = api.list(NODES, transform=world.light_node).items
    told = {world.name(node): world.inventory_of(node) for node in nodes}
    found = proposals({name: one for name, one in told.items() if one is not None}, table)
    unknown = sorted(set(options.model) - {one.name for one in found})
    if unknown:
        raise CannotAddError(f"no row is proposed for {', '.join(unknown)}")
    chosen = [one for one in found if one.row and (not options.model or one.name in options.model)]
    if options.add and chosen:
        _write(api, held, with_rows(text, [one.row for one in chosen]))
    return ModelsReport(found, tuple(one.name for one in chosen) if options.add else ())


def _held(api: ApiConnection) -> Json:
    try:
        return api.get(CONFIG_MAPS, names.MODELS_CONFIG_MAP, names.SYSTEM_NAMESPACE)
    except NotFound:
        raise CannotAddError(
            f"there is no ConfigMap {names.MODELS_CONFIG_MAP}: is the stack there?"
        ) from None


def _write(api: ApiConnection, held: Json, text: str) -> None:
    """Only over what was read."""
    body = {"metadata": {"resourceVersion": held["metadata"]["resourceVersion"]}, "data": {KEY: text}}
    try:
        api.patch(CONFIG_MAPS, names.MODELS_CONFIG_MAP, body, names.SYSTEM_NAMESPACE)
    except Conflict:
        raise CannotAddError("the table was changed meanwhile: look again") from None


def shown(found: ModelsReport) -> RenderableType:
    """One line per product, and the rows below."""
    if not found.proposals:
        return Group("the model table has a row for every card")
    table = Table("MODEL", "MIB", "CARDS", "NODES", "PRODUCT", right=("MIB", "CARDS", "NODES"))
    for one in found.proposals:
        table.add_row(one.name or "-", str(one.memory_mib), str(one.cards), str(one.nodes), one.product)
    problems = [f"{one.product or '(no name)'}: {one.problem}" for one in found.proposals if one.problem]
    rows = [f"  - {one.row}" for one in found.proposals if one.row]
    if found.added:
        return Group(table, *problems, f"added to the model table: {', '.join(found.added)}", *_ADDED)
    return Group(table, *problems, *(["rows for the model table (--add adds them):", *rows] if rows else []))
