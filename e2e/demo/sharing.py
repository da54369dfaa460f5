"""Part (i): one card over time. Training has it alone, inference comes, training yields and goes on.

The programs run in the pods of the story; what they got is read from the fake driver's log of the card, which
nobody but the driver writes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fakes.cuda_log import CudaLog, Stretch, Unit, busy_ns, has_begun
from isolation.driver import PROGRAMS, FakeDriver
from localcluster.api import wait_until
from stack.kit import StoryError

from demo.screen import Screen

TRAINING, INFERENCE = "training", "inference"
ALONE_S, SERVE_S, AFTER_S = 1.5, 3, 1.5
BUCKET_S = 0.5
_BAR = 30
_MS = 1_000_000
_S = 1_000_000_000
_REQUEST_GAP_NS = 1 * _MS
"""Requests lie further apart than their kernels."""


@dataclass(frozen=True)
class Sharing:
    """Two pods on one card."""

    run: Callable[..., Any]
    """``run(pod, *command)`` in the pod; raises where the command fails."""
    screen: Screen
    driver: FakeDriver
    card: str
    training: str
    inference: str

    def tell(self) -> None:
        """Run both, show both curves, check what they say."""
        with ThreadPoolExecutor(1) as pool:
            whole_s = ALONE_S + SERVE_S + AFTER_S + 15
            trains = pool.submit(self._program, self.training, TRAINING, whole_s, "train", *_flags(
                steps=0, kernels=1, ns=2 * _MS, every=100_000))  # fmt: skip
            try:
                self._watch(trains)
            finally:
                self.run(self.training, "killall", "train")
                trains.exception()

    def _watch(self, trains: Future[Any]) -> None:
        def check() -> None:
            if trains.done():
                raise StoryError(f"training ended: {trains.exception() or trains.result()}")

        wait_until("the card's log begins", lambda: has_begun(self.driver.timeline), 15, check)
        with CudaLog(self.driver.timeline) as log:
            wait_until("training runs", lambda: bool(list(self._of(log, TRAINING))), 15, check)
            begin_ns = log.now_ns()
            wait_until("training had the card", lambda: log.now_ns() > begin_ns + ALONE_S * _S, 15, check)
            self._program(self.inference, INFERENCE, SERVE_S + 10, "serve", *_flags(
                rate=120, seconds=SERVE_S, kernels=40, ns=_MS // 10))  # fmt: skip
            end_ns = log.now_ns()
            wait_until("training goes on", lambda: log.now_ns() > end_ns + AFTER_S * _S, 15, check)
            self._judge(log, begin_ns, log.now_ns())

    def _program(self, pod: str, label: str, limit_s: float, name: str, *flags: str) -> Any:
        path = f"{PROGRAMS}/{name}"
        return self.run(pod, "env", f"FAKE_CUDA_LABEL={label}", "timeout", str(int(limit_s)), path, *flags)

    def _of(self, log: CudaLog, label: str, since_ns: int = 0) -> list[Stretch]:
        number = log.cards().index(self.card) if self.card in log.cards() else -1
        return [s for s in log.stretches(since_ns) if s.card == number and s.label == label]

    # --- what was seen -------------------------------------------------------------------------------

    def _judge(self, log: CudaLog, begin_ns: int, end_ns: int) -> None:
        training = self._of(log, TRAINING, begin_ns)
        inference = self._of(log, INFERENCE, begin_ns)
        if not inference:
            raise StoryError("inference never ran on the card")
        self._draw(training, inference, begin_ns, end_ns)
        first_ns, last_ns = inference[0].start_ns, inference[-1].end_ns
        alone = _share(training, begin_ns, first_ns)
        after = _share(training, last_ns, end_ns)
        requests = _requests([unit for unit in log.units(begin_ns) if unit.label == INFERENCE])
        beside = _share_in(training, requests)
        if not (alone > 0.5 and after > 0.5 and beside < 0.25):
            raise StoryError(
                f"training had {alone:.0%} of the card alone, {beside:.0%} while requests were served and "
                f"{after:.0%} afterwards"
            )
        waits = sorted((start - enqueued) / _MS for enqueued, start, _ in requests)
        self.screen.fact(
            f"training had {alone:.0%} of the card alone, {beside:.0%} of the time in which one of "
            f"{len(requests)} requests was served, {after:.0%} afterwards; it was held, not killed"
        )
        self.screen.fact(
            f"a request's first kernel began after {waits[len(waits) // 2]:.1f} ms (median; "
            f"{waits[-1]:.1f} ms at most; a kernel of training is 2 ms long)"
        )

    def _draw(
        self, training: Sequence[Stretch], inference: Sequence[Stretch], begin_ns: int, end_ns: int
    ) -> None:
        self.screen.plain(f"{'card ' + self.card:<{_BAR + 13}}training{'':>{_BAR - 7}}inference")
        at_ns = begin_ns
        while at_ns + BUCKET_S * _S <= end_ns:
            until_ns = int(at_ns + BUCKET_S * _S)
            bars = "  ".join(_bar(_share(one, at_ns, until_ns)) for one in (training, inference))
            self.screen.plain(f"{(at_ns - begin_ns) / _S:5.1f} s  {bars}")
            at_ns = until_ns


def _flags(**values: int) -> list[str]:
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]


def _bar(share: float) -> str:
    return f"{'█' * round(share * _BAR):<{_BAR}} {share:4.0%}"


def _share(stretches: Sequence[Stretch], begin_ns: int, end_ns: int) -> float:
    return busy_ns(stretches, begin_ns, end_ns) / max(1, end_ns - begin_ns)


def _requests(units: Sequence[Unit]) -> list[tuple[int, int, int]]:
    """(first kernel launched, first kernel began, last kernel ended) of each, the warm-up left out."""
    starts = [0, *(i for i, (one, two) in enumerate(pairwise(units), 1)
                   if two.enqueued_ns - one.end_ns > _REQUEST_GAP_NS), len(units)]  # fmt: skip
    groups = [units[a:b] for a, b in pairwise(starts) if b - a >= 40]
    return [(group[0].enqueued_ns, group[0].start_ns, group[-1].end_ns) for group in groups]


def _share_in(stretches: Sequence[Stretch], requests: Sequence[tuple[int, int, int]]) -> float:
    busy = sum(busy_ns(stretches, start, end) for _, start, end in requests)
    return busy / max(1, sum(end - start for _, start, end in requests))
