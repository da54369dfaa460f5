"""Containers on cards: what was granted, what is used, how long launches waited, and suspension."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.metrics.family import MIB
from vc_egpu.metrics.vocabulary import node

from vc_egpu_node.metrics.compute_time import ShareKey
from vc_egpu_node.metrics.view import View
from vc_egpu_node.suspension.suspender import SuspendedPod
from vc_egpu_node.wall.wall import Account

_PERCENT: Final = 0.01


def container_families(view: View) -> Iterator[Metric]:
    """All of containers; what was granted leads, so that an idle one is there with 0."""
    accounts = {(one.namespace, one.pod, one.container, one.uuid): one for one in view.accounts}
    suspended = {(one.namespace, one.pod): one for one in view.suspensions}
    yield from _granted(view)
    yield from _used(view, accounts)
    yield from _waited(view, accounts, suspended)
    if view.full and (view.isolated or accounts):
        yield from _counted_by_the_library(accounts, suspended)


def _keys(view: View) -> Iterator[ShareKey]:
    for grant in view.grants:
        for share in grant.shares:
            yield grant.namespace, grant.pod, grant.container, share.uuid


def _granted(view: View) -> Iterator[Metric]:
    memory, cores = node.MEMORY_GRANTED.gauges(), node.CORES_GRANTED.gauges()
    seconds = node.SHARE_SECONDS.counters()
    for grant in view.grants:
        for share in grant.shares:
            labels = (grant.namespace, grant.pod, grant.container, share.uuid)
            memory.add_metric(labels, share.memory_mib * MIB)
            cores.add_metric(labels, round(share.cores * _PERCENT, 4))
            seconds.add_metric(labels, max(0.0, view.now_s - grant.granted_at_s))
    yield from (memory, cores, seconds)


def _used(view: View, accounts: Mapping[ShareKey, Account]) -> Iterator[Metric]:
    """Where the driver does not tell who runs on a card, nothing is shown: that is no 0."""
    memory, compute = node.MEMORY_USED.gauges(), node.COMPUTE_USED_SECONDS.counters()
    uses = {(one.namespace, one.pod, one.container, one.uuid): one for one in view.uses}
    for key in _keys(view):
        use, account, tells = uses.get(key), accounts.get(key), view.tells(key[3])
        if tells:
            memory.add_metric(key, use.memory_mib * MIB if use is not None else 0)
        if tells or key in view.compute_s:
            compute.add_metric(key, view.compute_s.get(key, 0.0))
        elif account is not None:
            compute.add_metric(key, account.activity.busy_s)
    yield from (memory, compute)


def _waited(
    view: View, accounts: Mapping[ShareKey, Account], pods: Mapping[tuple[str, str], SuspendedPod]
) -> Iterator[Metric]:
    launches, away = node.LAUNCH_WAIT_SECONDS.counters(), node.SUSPENDED_SECONDS.counters()
    for key in _keys(view):
        account, pod = accounts.get(key), pods.get(key[:2])
        if account is not None:
            launches.add_metric((*key, "class"), account.activity.held_s)
            launches.add_metric((*key, "share"), account.activity.capped_s)
        away.add_metric(key, pod.suspended_s if pod is not None else 0.0)
    if view.isolated or accounts:
        yield launches
    yield away


def _counted_by_the_library(
    accounts: Mapping[ShareKey, Account], pods: Mapping[tuple[str, str], SuspendedPod]
) -> Iterator[Metric]:
    """As the library in the container counts: an estimate where the container is hostile."""
    charged, managed = node.MEMORY_CHARGED.gauges(), node.MEMORY_MANAGED.gauges()
    beyond, aside = node.MEMORY_BEYOND.gauges(), node.MEMORY_SUSPENDED.gauges()
    units, longest = node.UNITS.counters(), node.LONGEST_UNIT_SECONDS.gauges()
    for key, one in accounts.items():
        charged.add_metric(key, one.charged_mib * MIB)
        managed.add_metric(key, one.managed_mib * MIB)
        beyond.add_metric(key, one.beyond_mib * MIB)
        units.add_metric(key, one.activity.units)
        longest.add_metric(key, one.activity.longest_s)
        pod = pods.get(key[:2])
        if pod is not None:
            is_away = pod.state is SuspensionState.SUSPENDED
            aside.add_metric(key, one.charged_mib * MIB if is_away else 0)
    yield from (charged, managed, beyond, units, longest)
    if pods:
        yield aside


def pod_families(view: View) -> Iterator[Metric]:
    """Pods that are or were suspended; nothing where there are none."""
    pods = list(view.suspensions)
    if not pods:
        return
    seconds, host = node.POD_SUSPENDED_SECONDS.counters(), node.POD_SUSPENDED_BYTES.gauges()
    state = node.POD_SUSPENSION_STATE.gauges()
    for one in pods:
        seconds.add_metric((one.namespace, one.pod), one.suspended_s)
        host.add_metric((one.namespace, one.pod), one.host_mib * MIB)
        state.add_metric((one.namespace, one.pod, one.state), 1.0)
    yield from (seconds, host, state)


def swap_families(view: View) -> Iterator[Metric]:
    """Hand-overs of cards that are taken in turns; nothing where there were none."""
    totals = view.swaps
    if totals is None or not totals.moved_bytes:
        return
    for metric, value in (
        (node.SWAP_HAND_OVERS, float(totals.hand_overs)),
        (node.SWAP_SECONDS, totals.seconds),
        (node.SWAP_BYTES, float(totals.moved_bytes)),
    ):
        family = metric.counters()
        family.add_metric((), value)
        yield family
