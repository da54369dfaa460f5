"""The admission controller's process: ``vc-egpu admission``."""

import logging
import threading
from collections.abc import Sequence
from typing import Final

from vc_egpu import logs, threads
from vc_egpu.admission import settings as settings_module
from vc_egpu.admission.execution.executor import HELPERS, WRITERS
from vc_egpu.admission.growing.grower import Grower
from vc_egpu.admission.growing.node_groups import NodeGroups, NodeGroupsError
from vc_egpu.admission.intake.loading import NotSyncedError
from vc_egpu.admission.leader import Leadership, SoleLeader
from vc_egpu.admission.loop import Loop
from vc_egpu.admission.parts import Parts
from vc_egpu.admission.serving.http import Server
from vc_egpu.admission.settings import LEASE_NAME, Settings
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.lease import LeaderLease, LeaseTimes
from vc_egpu.kube.signals import when_told_to_end
from vc_egpu.kube.wire.config import ConfigError
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

EXIT_BAD_SETTINGS: Final = 2
POOL_SIZE: Final = WRITERS + HELPERS + 20
"""More are for the lease, the events, and the tokens of readers of metrics."""
_WAIT_S: Final = 0.2

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    settings = settings_module.parse(argv)
    logs.begin("debug" if settings.verbose else "info")
    try:
        # The stack can be removed, and drained before, with any table, be it broken.
        drains = settings.drain or settings.drain_direct
        table = ModelTable() if drains else ModelTable.from_yaml(settings.models.read_text())
        groups = NodeGroups()
        if settings.node_groups is not None and not drains:
            groups = NodeGroups.from_yaml(settings.node_groups.read_text(), table)
        api = ApiConnection.connect(
            settings.kubeconfig,
            pool_size=POOL_SIZE,
            user_agent="vc-egpu-admission",
            qps=settings.qps,
            burst=settings.burst,
        )
    except (ModelTableError, NodeGroupsError, ConfigError, OSError) as error:
        logger.error("cannot start: %s", error)
        return EXIT_BAD_SETTINGS
    threads.take_short_turns()
    stopping = threading.Event()
    when_told_to_end(lambda _number: stopping.set())
    if drains:
        from vc_egpu.admission.drain import drain

        return drain(api, direct_only=settings.drain_direct)
    return Process(api, table, settings, stopping, groups).run()


class Process:
    """Leads, stands by, leads again, until told to stop."""

    def __init__(
        self,
        api: ApiConnection,
        table: ModelTable,
        settings: Settings,
        stopping: threading.Event,
        groups: NodeGroups = NodeGroups(),  # noqa: B008 - frozen
    ) -> None:
        self._api = api
        self._table = table
        self._settings = settings
        self._stopping = stopping
        self._groups = groups
        self._times = LeaseTimes()
        self._loop: Loop | None = None

    def run(self) -> int:
        """Until told to stop; the exit status."""
        server = Server(self._api, self._settings, lambda: self._loop)
        server.start()
        try:
            if not self._settings.leader_elect:
                self.lead(SoleLeader())
                return 0
            lease = LeaderLease(
                self._api,
                self._settings.namespace,
                LEASE_NAME,
                self._settings.identity,
                times=self._times,
            ).start()
            try:
                while not self._stopping.wait(_WAIT_S):
                    if lease.is_leader():
                        self.lead(lease)
            finally:
                lease.stop()
        finally:
            server.stop()
        return 0

    def lead(self, leadership: Leadership) -> None:
        """One leadership, with state of its own from the first list on."""
        epoch = Epoch(leadership)
        fresh_s = self._times.renew_deadline_s - 2 * self._times.retry_s - 1.0
        parts = Parts.of(self._api, self._table, self._settings, epoch, fresh_s=fresh_s)
        self._loop = Loop(parts, self._settings, epoch, self._stopping)
        failed: Exception | None = None
        grower = self._grower(self._loop, parts)
        try:
            grower.start()
            self._loop.run()
        except (NotSyncedError, KubeError) as error:
            logger.error("leadership %d ended: %s", epoch.epoch, error)
            failed = error
        finally:
            self._loop = None
            grower.stop()
            if isinstance(leadership, LeaderLease):
                # However it ended: no plan id may be given twice, and none may look older than one that
                # stands.
                leadership.start_anew(above=max(epoch.epoch, getattr(failed, "newest", -1)))
        if failed is not None:
            self._stopping.wait(1.0)

    def _grower(self, loop: Loop, parts: Parts) -> Grower:
        fenced = self._api.fenced(parts.until)
        return Grower(fenced, self._settings.namespace, self._groups, table=self._table, view=loop.view)


class Epoch:
    """One leadership of a lease: over once the lease has another epoch, and never taken up again."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self.epoch = leadership.epoch

    def remaining_s(self) -> float:
        """Seconds for which writes are allowed."""
        left_s = self._leadership.remaining_s()
        # Asked in this order: what is left of a later leadership must not pass for this one's.
        return left_s if self._leadership.epoch == self.epoch else 0.0
