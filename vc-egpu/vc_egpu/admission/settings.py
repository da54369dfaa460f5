"""The settings of the admission controller: flags and environment, parsed once, passed down as a value."""

import argparse
import math
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vc_egpu.admission.suspension.stranded import DEFAULT_AFTER_S
from vc_egpu.admission.suspension.suspending import DEFAULT_TIMEOUT_S
from vc_egpu.core.model.policy import BINPACK_RULES, Moving, Policy, RecentUse
from vc_egpu.volcano.needs.file import ENVIRONMENTS
from vc_egpu.volcano.profiles.file import PLACEMENT
from vc_egpu.volcano.words import names

DEFAULT_MODELS: Final = "/etc/vc-egpu/models.yaml"
_BINPACK: Final = "what the placement policy binpack means: see docs/placement.md"
LEASE_NAME: Final = "vc-egpu-admission"
DEFAULT_PORT: Final = 9446
_LONGEST_LABEL: Final = 317
_MOST_RECORD_MIB: Final = 65_536


@dataclass(frozen=True, slots=True)
class Settings:
    """What main() reads."""

    models: Path
    kubeconfig: str | None = None
    namespace: str = names.SYSTEM_NAMESPACE
    """Where the Lease and the switches live."""
    identity: str = ""
    scheduler: str = names.SCHEDULER_DEFAULT
    """What binds the pods of Jobs: ``default-scheduler`` or ``volcano``."""
    leader_elect: bool = True
    qps: float | None = None
    burst: int | None = None
    port: int = DEFAULT_PORT
    """0: any free one; negative: no HTTP server."""
    bind_address: str = "::"
    """IPv4 too: metrics and probes are for other machines."""
    suspend_timeout_s: float = DEFAULT_TIMEOUT_S
    """An order to suspend that a node has not carried out by then is taken back."""
    stranded_after_s: float = DEFAULT_AFTER_S
    """A suspended gang whose cards are gone for so long is evicted and queued again; 0: never."""
    keep_managed_fields: bool = False
    """True: who wrote which field of the PodGroups of Volcano Jobs goes on being noted."""
    policy: Policy = Policy()  # noqa: RUF009 - frozen
    share_metrics: bool = True
    """Whether there is a page of metrics with a series for each share."""
    node_groups: Path | None = None
    """Groups of nodes that can grow; None: no nodes are asked for."""
    environments: Path = ENVIRONMENTS
    """The table of what software needs."""
    placement: Path = PLACEMENT
    """The table of how work is placed."""
    network_levels: tuple[str, ...] = ()
    """Node labels that name the levels of the network, the nearest one first: rack, block, zone."""
    record: Path | None = None
    """Where it is written what comes and ends; None: nowhere."""
    record_mib: int = 64
    """So large is that file at most, and the one before it."""
    drain: bool = False
    drain_direct: bool = False
    verbose: bool = False

    @property
    def nominates(self) -> bool:
        """vc-scheduler has a say in when the pods of a Job are made; otherwise it is ours alone."""
        return self.scheduler == names.SCHEDULER_VOLCANO


def parser() -> argparse.ArgumentParser:
    """The process's flags."""
    flags = argparse.ArgumentParser(
        prog="vc-egpu admission", description="Decide which gangs get which cards, and make room for them."
    )
    flags.add_argument("--kubeconfig", help="default: $KUBECONFIG, the service account, ~/.kube/config")
    flags.add_argument(
        "--models",
        type=Path,
        default=Path(os.environ.get("VC_EGPU_MODELS", DEFAULT_MODELS)),
        help="model table",
    )
    flags.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", names.SYSTEM_NAMESPACE),
        help="of the Lease and the switches",
    )
    flags.add_argument("--identity", default=os.environ.get("POD_NAME", ""), help="name in the Lease")
    flags.add_argument(
        "--scheduler",
        choices=(names.SCHEDULER_DEFAULT, names.SCHEDULER_VOLCANO),
        default=names.SCHEDULER_DEFAULT,
        help="who binds the pods that we do not bind ourselves",
    )
    flags.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="off: the caller sees to it that there is one only",
    )
    flags.add_argument("--qps", type=float, help="bound on requests per second (default: the server's)")
    flags.add_argument("--burst", type=int)
    flags.add_argument("--port", type=int, default=DEFAULT_PORT, help="probes, metrics, snapshot; -1: none")
    flags.add_argument("--bind-address", default="::")
    flags.add_argument(
        "--no-preemption", action="store_true", help="no gang goes for another one, whatever the cause"
    )
    flags.add_argument(
        "--no-reclaim",
        action="store_true",
        help="queues take nothing back: what they deserve orders those that wait, and no more",
    )
    flags.add_argument(
        "--unnamed-models-unlimited",
        action="store_true",
        help="a queue that does not name a model does not cap it, as in Volcano",
    )
    _add_placement(flags)
    flags.add_argument("--max-gang-members", type=int, default=Policy().max_gang_members)
    flags.add_argument(
        "--reclaim-by-weight",
        action="store_true",
        help="a queue that names nothing of a model takes back, and gives back, by its weight",
    )
    _add_spans(flags)
    flags.add_argument(
        "--keep-managed-fields",
        action="store_true",
        help="leave metadata.managedFields on the PodGroups of Volcano Jobs",
    )
    flags.add_argument(
        "--share-metrics",
        choices=("on", "off"),
        default="on",
        help="off: no page /metrics/shares, which has three series for each share",
    )
    for add in (_add_growth, _add_moves, _add_record, _add_drains):
        add(flags)
    flags.add_argument("-v", "--verbose", action="store_true")
    return flags


def _add_growth(parser: argparse.ArgumentParser) -> None:
    """Nodes that are asked for, and what software needs of nodes."""
    parser.add_argument(
        "--environments",
        type=Path,
        default=ENVIRONMENTS,
        help="table of what software needs, for Jobs that have no pods yet; read again when it changes",
    )
    parser.add_argument(
        "--node-groups",
        type=Path,
        help="file of groups of nodes that can grow: while gangs lack cards alone, keep one "
        "ProvisioningRequest for each model",
    )


def _add_placement(parser: argparse.ArgumentParser) -> None:
    """What nodes are near each other, and which are filled first."""
    parser.add_argument(
        "--high-apart",
        action="store_true",
        help="class high and low gangs of several pods, whose launches are not held, share no card",
    )
    parser.add_argument("--binpack", choices=BINPACK_RULES, default=Policy().binpack, help=_BINPACK)
    parser.add_argument(
        "--measured-use",
        choices=("on", "off"),
        default="on",
        help="off: how busy nodes were measured to be plays no part in where work goes",
    )
    parser.add_argument(
        "--placement-rules",
        type=Path,
        default=PLACEMENT,
        help="table of which work is placed otherwise; read again when it changes",
    )
    parser.add_argument(
        "--network-levels",
        type=_labels,
        default=(),
        help="node labels with commas between, the nearest level first, as rack,block,zone: members of a "
        "gang are placed near each other by them, and networkTopology counts its tiers by them, from 1; "
        "where HyperNodes exist they say it instead",
    )


def _labels(text: str) -> tuple[str, ...]:
    """Label keys with commas between."""
    keys = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(keys) != len(set(keys)) or any(
        len(key) > _LONGEST_LABEL or not key.isprintable() or " " in key for key in keys
    ):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different label keys")
    return keys


def _add_moves(parser: argparse.ArgumentParser) -> None:
    """When gangs go to other cards."""
    parser.add_argument(
        "--defrag",
        choices=("off", "waiting", "always"),
        default="off",
        help="waiting: low or restartable gangs move to other cards where one that waits long fits because "
        "of it; always: also where less is left over in pieces, with --binpack=ours",
    )
    parser.add_argument(
        "--defrag-empty-nodes",
        action="store_true",
        help="low or restartable gangs move so that nodes are empty: those get a taint, and an autoscaler "
        f"removes them; needs the rights of the component node-emptying (taint {names.EMPTIED})",
    )
    parser.add_argument(
        "--defrag-per-hour", type=int, default=Moving().per_hour, help="so many gangs move at most"
    )
    parser.add_argument(
        "--defrag-after-s",
        type=float,
        default=Moving().after_s,
        help="nothing moves for a gang that was made less than this ago",
    )
    parser.add_argument(
        "--defrag-hours",
        type=_hours,
        default=Moving().hours,
        metavar="FROM-TO",
        help="hours of the day, in UTC, as 22-6, in which gangs move so that less is left over or nodes are "
        "empty",
    )


def _hours(text: str) -> tuple[int, int]:
    begin, sign, end = text.partition("-")
    if not (sign and begin.isdecimal() and end.isdecimal() and int(begin) < 24 and int(end) <= 24):
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM-TO, as 22-6")
    return int(begin), int(end)


def _add_record(parser: argparse.ArgumentParser) -> None:
    """What came and what ended, for a simulator."""
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="while it leads, write what comes and what ends to this file, for vc-egpu sim --recorded; when "
        "it is full it goes aside as FILE.1",
    )
    parser.add_argument(
        "--record-mib", type=_whole_mib, default=64, help="so large is FILE at most, and FILE.1"
    )


def _whole_mib(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_RECORD_MIB:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {_MOST_RECORD_MIB}")
    return int(text)


def _add_drains(parser: argparse.ArgumentParser) -> None:
    """What is done once instead of leading."""
    parser.add_argument(
        "--drain", action="store_true", help="before removal: lift or report every gate of ours, then exit"
    )
    parser.add_argument(
        "--drain-direct",
        action="store_true",
        help="before an earlier version: delete the waiting pods that only we could bind, so that their "
        "controllers make them again, then exit. Set the webhook's binder to scheduler first",
    )


def _add_spans(parser: argparse.ArgumentParser) -> None:
    """How long is waited for what."""
    parser.add_argument(
        "--min-runtime-s",
        type=float,
        default=Policy().min_runtime_s,
        help="a gang that began less than this ago is evicted for others only if nothing else helps; a queue "
        f"says otherwise by the annotation {names.MIN_RUNTIME}",
    )
    parser.add_argument(
        "--usage-half-life-s",
        type=float,
        default=0.0,
        help="queues are ordered also by what they had lately: use counts half as much after so many "
        "seconds; 0: only what they have now counts. A new leader begins without it",
    )
    parser.add_argument(
        "--reserve-after-s",
        type=float,
        default=Policy().reserve_after_s,
        help="a gang that was the first of its queue and class for so long, with only cards missing, claims "
        "those that will serve it soonest; 0: none ever does",
    )
    parser.add_argument(
        "--replacement-hold-s",
        type=float,
        default=Policy().replacement_hold_s,
        help="cards of failed members",
    )
    parser.add_argument(
        "--suspended-hold-s",
        type=float,
        default=Policy().suspended_hold_s,
        help="after this long a suspended gang keeps what becomes free on its cards from newcomers that are "
        "not of high priority",
    )
    parser.add_argument(
        "--suspend-timeout-s",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        help="an order to suspend that a node has not carried out by then is taken back",
    )
    parser.add_argument(
        "--stranded-after-s",
        type=float,
        default=DEFAULT_AFTER_S,
        help="a suspended gang whose cards are gone for this long is evicted and queued again; 0: never",
    )


def parse(argv: Sequence[str] | None = None) -> Settings:
    """Read the command line; exits with a usage message when it is wrong."""
    flags = parser().parse_args(argv)
    policy = Policy(
        unnamed_model_unlimited=flags.unnamed_models_unlimited,
        preemption=not flags.no_preemption,
        reclaim=not flags.no_reclaim,
        reclaim_by_weight=flags.reclaim_by_weight,
        high_apart=flags.high_apart,
        replacement_hold_s=flags.replacement_hold_s,
        suspended_hold_s=max(0.0, flags.suspended_hold_s),
        min_runtime_s=max(0.0, flags.min_runtime_s),
        recent=RecentUse(flags.usage_half_life_s if 0 < flags.usage_half_life_s < math.inf else 0.0),
        reserve_after_s=flags.reserve_after_s if flags.reserve_after_s > 0 else math.inf,
        max_gang_members=flags.max_gang_members,
        binpack=flags.binpack,
        heeds_measured=flags.measured_use == "on",
        moving=Moving(
            for_waiting=flags.defrag != "off",
            for_fragments=flags.defrag == "always",
            for_empty=flags.defrag_empty_nodes,
            per_hour=max(0, flags.defrag_per_hour),
            after_s=max(0.0, flags.defrag_after_s),
            hours=flags.defrag_hours,
        ),
    )
    return Settings(
        models=flags.models,
        kubeconfig=flags.kubeconfig,
        namespace=flags.namespace,
        identity=flags.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        scheduler=flags.scheduler,
        leader_elect=flags.leader_elect,
        qps=flags.qps,
        burst=flags.burst,
        port=flags.port,
        bind_address=flags.bind_address,
        suspend_timeout_s=max(1.0, flags.suspend_timeout_s),
        stranded_after_s=max(0.0, flags.stranded_after_s),
        keep_managed_fields=flags.keep_managed_fields,
        policy=policy,
        share_metrics=flags.share_metrics == "on",
        node_groups=flags.node_groups,
        environments=flags.environments,
        placement=flags.placement_rules,
        network_levels=flags.network_levels,
        record=flags.record,
        record_mib=flags.record_mib,
        drain=flags.drain,
        drain_direct=flags.drain_direct,
        verbose=flags.verbose,
    )
