"""The worker threads: each takes a key, looks at the object, and asks for the next look or for a retry."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from vc_egpu.jobs.health import Metrics, Pulse
from vc_egpu.jobs.work import Look, Work
from vc_egpu.kube import Key
from vc_egpu.kube.wire.errors import KubeError, LeaseLost, Stale

FENCED_S: Final = 0.2

logger = logging.getLogger(__name__)


class WorkerPool:
    """Threads for each kind of look, until the work is closed."""

    def __init__(
        self, work: Work, look: Callable[[Look, Key], float | None], pulse: Pulse, metrics: Metrics
    ) -> None:
        """``look`` returns in how many seconds to look again, or None; it raises :class:`KubeError`."""
        self._work = work
        self._look = look
        self._pulse = pulse
        self._metrics = metrics
        self._closing = False
        self._threads: list[threading.Thread] = []

    @property
    def started(self) -> bool:
        """Whether there are threads."""
        return bool(self._threads)

    def start(self, kind: Look, count: int) -> None:
        """Begin to look at objects of this kind on so many threads."""
        self._metrics.waiting.labels(kind.value).set_function(lambda: len(self._work.queue(kind)))
        for number in range(count):
            name = f"{kind.value}-{number}"
            thread = threading.Thread(target=self._run, args=(kind,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def ended(self) -> list[str]:
        """The names of threads that ended although the work goes on: a fault of ours."""
        if self._closing:
            return []
        return [thread.name for thread in self._threads if not thread.is_alive()]

    def close(self) -> None:
        """From now on threads end after the look that they are in."""
        self._closing = True

    def join(self, until: float) -> None:
        """Wait for the threads until this time on :func:`time.monotonic`; one that hangs is left behind."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, kind: Look) -> None:
        queue = self._work.queue(kind)
        while (key := queue.get()) is not None:
            self._work.wait()
            if self._closing:
                return
            self._look_once(kind, key)

    def _look_once(self, kind: Look, key: Key) -> None:
        queue, results = self._work.queue(kind), self._metrics.reconciles
        what = f"{kind.value} {'/'.join(filter(None, key))}"
        try:
            with self._pulse.busy(what), self._metrics.seconds.labels(kind.value).time():
                again_s = self._look(kind, key)
        except LeaseLost:
            # Nothing is wrong with the object: the next look comes as soon as this process leads again.
            results.labels(kind.value, "fenced").inc()
            queue.add_after(key, FENCED_S)
        except KubeError as error:
            results.labels(kind.value, type(error).__name__).inc()
            delay_s = queue.retry(key)
            level = logging.DEBUG if isinstance(error, Stale) else logging.WARNING
            logger.log(level, "%s: %s; again in %.2f s", what, error, delay_s)
        except Exception:
            results.labels(kind.value, "fault").inc()
            logger.exception("%s: a fault of ours", what)
            queue.retry(key)
        else:
            results.labels(kind.value, "ok").inc()
            queue.forget(key)
            if again_s is not None:
                queue.add_after(key, again_s)
        finally:
            queue.done(key)
