"""A client-side flow limit: a bucket of tokens that fills at a steady rate."""

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """At most ``burst`` calls at once and ``qps`` per second on average; thread-safe, in order of arrival."""

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps must be above 0 and burst at least 1, got {qps} and {burst}")
        self._qps = qps
        self._burst = float(burst)
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._tokens = float(burst)
        self._filled_at = clock()

    def take(self) -> float:
        """Take one token, waiting for it; returns the seconds waited."""
        with self._lock:
            # A negative balance is a queue: each caller books its turn and then sleeps outside the lock.
            self._fill()
            self._tokens -= 1.0
            wait_s = max(0.0, -self._tokens / self._qps)
        if wait_s > 0:
            self._sleep(wait_s)
        return wait_s

    def try_take(self) -> bool:
        """Take a token if one is there now."""
        with self._lock:
            self._fill()
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
