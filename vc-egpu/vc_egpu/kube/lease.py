"""Leader election on a Lease, and the fence that keeps a former leader from writing.

All times are on this process's monotonic clock, because a wall clock may jump:

- A candidate takes over when it has seen the Lease *unchanged* for ``duration_s``. A deleted Lease counts as
  unchanged. Only its own holder may make it again at once.
- The leader renews every ``retry_s``. It may write until the *sending* of its last successful renewal plus
  ``renew_deadline_s`` (:meth:`LeaderLease.may_write_until`). After that it has stopped leading.
- A leadership whose time ran out is never renewed, even if the process was stopped and did not see it. The
  next process that takes the Lease leads under another epoch, also if it is the same one.
- ``renew_deadline_s`` is below ``duration_s``. The difference is left for requests that are already sent.

Each taking-over raises ``spec.leaseTransitions``: that number is the leader's ``epoch``. It must never fall,
so a new Lease in place of a deleted one starts with minutes since 2024, not with 0.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import LEASES
from vc_egpu.kube.wire.errors import AlreadyExists, KubeError, NotFound
from vc_egpu.kube.wire.transport import Json

_EPOCH_ZERO: Final = datetime(2024, 1, 1, tzinfo=UTC)
_RECORD: Final = ("holderIdentity", "renewTime", "leaseTransitions", "leaseDurationSeconds")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds; the defaults are those of Kubernetes' own controllers."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                f"0 < retry_s < renew_deadline_s < duration_s is needed, got {self.retry_s}, "
                f"{self.renew_deadline_s}, {self.duration_s}"
            )


class LeaderLease:
    """Takes the Lease, keeps it, and says for how long writes are allowed. It is a fence (``remaining_s``).

    ``on_started(epoch)`` and ``on_stopped()`` run on the lease's own thread and must return quickly, for
    renewals wait. Most processes end when they stop leading. A process that goes on has to build its state
    again.
    """

    def __init__(
        self,
        api: ApiConnection,
        namespace: str,
        name: str,
        identity: str,
        *,
        times: LeaseTimes | None = None,
        on_started: Callable[[int], None] | None = None,
        on_stopped: Callable[[], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not identity:
            raise ValueError("a lease needs an identity that no other process has")
        self._api = api.unlimited()
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or LeaseTimes()
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._may_write_until = float("-inf")
        self._epoch = 0
        self._floor = 0
        self._leading = False
        self._observed: Json | None = None
        self._observed_at = float("-inf")
        self._holder = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease-{name}", daemon=True)

    # --- asked by others -----------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of this leadership; larger than that of every earlier one. 0 before the first."""
        return self._epoch

    @property
    def holder(self) -> str:
        """The holder of the Lease, as last seen; empty when there is none."""
        return self._holder

    def is_leader(self) -> bool:
        """Whether writes are allowed right now."""
        return self.remaining_s() > 0

    def may_write_until(self) -> float:
        """On :func:`time.monotonic`: last renewal (its sending) + renew deadline; -inf when not leading."""
        with self._lock:
            return self._may_write_until

    def remaining_s(self) -> float:
        """Seconds for which writes are still allowed; zero or less: none."""
        with self._lock:
            # One look at both: who saw that it is over must not have missed a renewal in between.
            return self._may_write_until - self._monotonic()

    def led_epoch(self) -> int | None:
        """The epoch under which writes are allowed right now; None: they are not."""
        with self._lock:
            return self._epoch if self._may_write_until > self._monotonic() else None

    def start_anew(self, above: int) -> None:
        """Lead under an epoch larger than ``above`` or not at all: else this leadership ends at once."""
        with self._lock:
            self._floor = max(self._floor, above + 1)
            if self._epoch < self._floor:
                self._may_write_until = float("-inf")

    # --- life ----------------------------------------------------------------------------------------

    def start(self) -> "LeaderLease":
        """Begin to try, on a thread of its own."""
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop leading and give the Lease back, so that a standby need not wait for it to run out."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def turn(self) -> None:
        """Renew the Lease, or take it if it is free. The lease's thread does this every ``retry_s``."""
        try:
            self._try()
        except KubeError as error:
            logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
        except Exception:
            logger.exception("lease %s/%s: a fault of ours", self._namespace, self._name)
        self._end_if_over()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.turn()
            self._stopping.wait(self._times.retry_s)
        if self._leading:
            self._stop_leading("asked to stop")
            self._release()

    def _try(self) -> None:
        """Renew, or take the Lease if it is free; sets the fence only after the server said yes."""
        if self._leading and self._epoch < self._floor:
            self._stop_leading(f"the next epoch has to be {self._floor} at least")
        self._end_if_over()
        limit_s = self._request_limit_s()
        try:
            lease = self._api.get(LEASES, self._name, self._namespace, timeout_s=limit_s)
        except NotFound:
            # The holder may not know yet, and it writes until its time is over.
            if self._leading or self._observed is None or self._free(self._observed):
                self._create()
            return
        spec = lease.setdefault("spec", {})
        if self._leading and spec.get("holderIdentity") != self._identity:
            self._stop_leading(f"{spec.get('holderIdentity') or 'no process'} holds the lease")
        # From the answer's coming on: its holder may have renewed it while the question was on its way.
        self._observe(lease, self._monotonic())
        if not self._leading and not self._free(spec):
            return
        next_epoch = max(self._floor, int(spec.get("leaseTransitions") or 0) + 1)
        epoch = self._epoch if self._leading else next_epoch
        sent_at = self._monotonic()
        lease["spec"] = self._spec(epoch, spec)
        answer = self._api.update(LEASES, lease, timeout_s=self._request_limit_s())
        self._renewed(answer, sent_at, epoch)

    def _end_if_over(self) -> None:
        if self._leading and self.remaining_s() <= 0:
            self._stop_leading("not renewed in time")

    def _create(self) -> None:
        minutes = int((datetime.now(UTC) - _EPOCH_ZERO).total_seconds() // 60)
        # The one that was deleted may have been made in this very minute.
        seen = int((self._observed or {}).get("leaseTransitions") or 0)
        epoch = max(self._epoch + 1, minutes, seen + 1, self._floor)
        if self._leading:
            self._stop_leading("the lease was deleted")
        sent_at = self._monotonic()
        lease: Json = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec(epoch, {}),
        }
        try:
            answer = self._api.create(LEASES, lease, timeout_s=self._request_limit_s())
        except AlreadyExists:
            return
        self._renewed(answer, sent_at, epoch)

    def _request_limit_s(self) -> float:
        """Shorter than what is left, so that a renewal that hangs does not outlive the leadership."""
        if self._leading:
            return max(0.1, min(self._times.renew_deadline_s / 2, self.remaining_s()))
        return self._times.renew_deadline_s / 2

    def _spec(self, epoch: int, old: Json) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration_s)),
            "leaseTransitions": epoch,
            "acquireTime": (old.get("acquireTime") or now) if self._leading else now,
            "renewTime": now,
        }

    def _observe(self, lease: Json, at: float) -> None:
        spec = lease["spec"]
        record = {key: spec.get(key) for key in _RECORD}
        self._holder = spec.get("holderIdentity") or ""
        if record != self._observed:
            self._observed, self._observed_at = record, at

    def _free(self, spec: Json) -> bool:
        holder = spec.get("holderIdentity")
        if not holder or holder == self._identity:
            return True
        # The holder's own duration counts: it may have been started with longer times than ours.
        duration_s = max(self._times.duration_s, float(spec.get("leaseDurationSeconds") or 0))
        return self._monotonic() - self._observed_at >= duration_s

    def _renewed(self, lease: Json, sent_at: float, epoch: int) -> None:
        self._observe(lease, sent_at)
        began = not self._leading
        with self._lock:
            if epoch < self._floor:
                return  # asked for a higher epoch while the answer was on its way
            if not began and self._may_write_until <= self._monotonic():
                return  # too late, even if no caller has asked yet: the next try takes the Lease again
            # The epoch first: no write under the new leadership may carry the old number.
            self._epoch = epoch
            self._leading = True
            self._may_write_until = sent_at + self._times.renew_deadline_s
        if began:
            logger.info("lease %s/%s: leading, epoch %d", self._namespace, self._name, epoch)
            if self._on_started is not None:
                self._on_started(epoch)

    def _stop_leading(self, why: str) -> None:
        with self._lock:
            self._may_write_until = float("-inf")
        self._leading = False
        logger.warning("lease %s/%s: no longer leading: %s", self._namespace, self._name, why)
        if self._on_stopped is not None:
            self._on_stopped()

    def _release(self) -> None:
        try:
            lease = self._api.get(LEASES, self._name, self._namespace, timeout_s=2.0)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                self._api.update(LEASES, lease, timeout_s=2.0)
        except KubeError as error:
            logger.info("lease %s/%s: not given back: %s", self._namespace, self._name, error)
