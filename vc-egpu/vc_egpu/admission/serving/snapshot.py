"""``/v1/snapshot``: one moment of the cluster as a JSON document.

The rows are for programs that look at cards, gangs and queues. ``snapshot`` holds everything that a decision
reads, so that a simulator can start from the saved page.
"""

from typing import Any

from vc_egpu.admission.view import View
from vc_egpu.core.check.recount import use_by_queue
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.report import snapshot_codec
from vc_egpu.report.cards import CardRow, cards
from vc_egpu.report.gangs import GangRow, condition_of, gangs
from vc_egpu.report.queues import QueueRow, queues
from vc_egpu.report.shares import ShareRow, shares

Json = dict[str, Any]


def document(view: View) -> Json:
    """The view for programs."""
    snapshot = view.snapshot
    gang_rows = gangs(snapshot, {key: condition_of(verdict) for key, verdict in view.verdicts.items()})
    return {
        "version": 1,
        "revision": snapshot.revision,
        "epoch": view.epoch,
        "admitting": view.admitting,
        "cards": [_card(row) for row in cards(snapshot, shares(snapshot))],
        "gangs": [_gang(row) for row in gang_rows],
        "queues": [_queue(row) for row in queues(snapshot, use_by_queue(snapshot), gang_rows)],
        "snapshot": snapshot_codec.encode(snapshot),
    }


def _card(row: CardRow) -> Json:
    return {
        "node": row.node,
        "uuid": row.uuid,
        "index": row.index,
        "model": row.model,
        "memoryMiB": row.memory_mib,
        "usable": row.takes_shares,
        "problem": row.problem,
        "shares": [_share(share) for share in row.shares],
    }


def _share(row: ShareRow) -> Json:
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "container": row.container,
        "gang": row.gang,
        "memoryMiB": row.memory_mib,
        "physicalMiB": row.on_card_mib,
        "suspension": row.suspension.value,
        "cores": row.cores_percent,
        "terminating": row.phase is PodPhase.TERMINATING,
    }


def _gang(row: GangRow) -> Json:
    said = row.condition
    return {
        "key": row.key,
        "queue": row.queue,
        "class": row.share_class.name.lower(),
        "minMember": row.min_member,
        "planId": row.plan_id,
        "reason": said.reason if said is not None else "",
        "message": said.message if said is not None else "",
        "numbers": dict(said.numbers) if said is not None else {},
    }


def _queue(row: QueueRow) -> Json:
    return {
        "name": row.name,
        "open": row.is_open,
        "used": row.used,
        "capability": dict(row.capability),
        "deserved": dict(row.deserved),
    }
