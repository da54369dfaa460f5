"""What others' pods hold of each card, of a view that one user got."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vc_egpu.cli.views.cards import UNSEEN_NOTE, CardRow, CardsReport
from vc_egpu.jobsapi.client import JobsApiError, JobsClient
from vc_egpu.jobsapi.what_if.view import Held, ViewAnswer


def held_by_others(view: ViewAnswer, namespaces: Sequence[str]) -> Mapping[str, Mapping[int, Held]]:
    """By node and index of the card, what all pods hold that are not in these namespaces.

    It is empty where the view was made for other rights than the reader has. A card that the view leaves out
    is absent.
    """
    if view.everything or not set(namespaces) <= set(view.namespaces):
        return {}
    found: dict[str, dict[int, Held]] = {}
    for node, card in view.named_cards():
        found.setdefault(node, {})[card.index] = card.held_by_others
    return found


def with_others(report: CardsReport, jobs: JobsClient, namespace: str) -> CardsReport:
    """The same with what others hold; where that is not told, a note says why."""
    try:
        with jobs:
            held = held_by_others(jobs.view([namespace]), [namespace])
    except JobsApiError as error:
        note = f"what others hold is not known: the jobs API says {error}"
        return replace(report, notes=(*report.notes, note))
    rows = tuple(_with(row, held.get(row.node, {}).get(row.index)) for row in report.cards)
    is_short = any(row.unseen and not row.others_known for row in rows)
    notes = tuple(note for note in report.notes if is_short or note != UNSEEN_NOTE)
    return replace(report, cards=rows, notes=notes)


def _with(row: CardRow, others: Held | None) -> CardRow:
    if others is None:
        return row
    return replace(
        row,
        used_mib=row.used_mib + others.memory_mib,
        suspended_mib=row.suspended_mib + others.suspended_mib,
        cores_high_percent=row.cores_high_percent + others.cores_high_percent,
        cores_low_percent=row.cores_low_percent + others.cores_low_percent,
        unseen=others.pods,
        others_known=True,
    )
