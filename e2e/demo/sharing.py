"""Part (i): one card over time. Training has it alone, inference comes, training yields and goes on.

The programs run in the pods of the story; what they got is read from the fake driver's log of the card, which
nobody but the driver writes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.cuda_log import CudaLog, Stretch, has_begun
from isolation.driver import PROGRAMS, FakeDriver
from localcluster.api import wait_until
from stack.kit import StoryError

from demo.curves import (
    MS,
    OneCard,
    Phase,
    Request,
    S,
    held,
    over,
    requests_of,
    share,
    shares,
    sparkline,
)
from demo.screen import Screen

PICTURE = Path(__file__).resolve().parents[2] / "build" / "demo" / "one-card.png"
TRAINING, INFERENCE = "training", "inference"
ALONE_S, SERVE_S, FLOOD_S, AFTER_S = 1.5, 2, 1, 1.5
KERNEL_NS, KERNELS, REQUEST_KERNEL_NS = 2 * MS, 40, MS // 10
RATE, FLOOD_RATE = 80, 240
"""Requests a second: a third of the card, and nearly all of it."""
TRIES = 3
WAIT_S = 60
_COLUMNS = 96
_ZOOM_NS = MS // 5
_CAP_SLACK = 0.1


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
    cap: float
    """Part of the card's time that inference is granted."""

    def tell(self) -> None:
        """Run both, show both curves, check what they say.

        On a machine that stalls one measurement may say anything about throughput: a poor one is taken again.
        """
        began_ns = CudaLog.now_ns()
        with ThreadPoolExecutor(1) as pool:
            trains = pool.submit(self._program, self.training, TRAINING, 600, "train", *_flags(
                steps=0, kernels=1, ns=KERNEL_NS, every=100_000))  # fmt: skip
            try:
                seen = self._measured(trains, began_ns)
            finally:
                self.run(self.training, "killall", "train")
                trains.exception()
        self._show(seen)

    def _measured(self, trains: Future[Any], began_ns: int) -> OneCard:
        def check() -> None:
            if trains.done():
                raise StoryError(f"training ended: {trains.exception() or trains.result()}")

        wait_until("the card's log begins", lambda: has_begun(self.driver.timeline), WAIT_S, check)
        with CudaLog(self.driver.timeline) as log:
            wait_until("training runs", lambda: bool(self._of(log, TRAINING, began_ns)), WAIT_S, check)
            for left in reversed(range(TRIES)):
                seen = self._measure(log, check)
                doubt = self._doubt(seen)
                if not doubt:
                    return seen
                if not left:
                    raise StoryError(doubt)
                self.screen.plain(f"measured again: {doubt}")
        raise AssertionError("unreachable")

    def _measure(self, log: CudaLog, check: Callable[[], None]) -> OneCard:
        def pause(name: str, length_s: float) -> Phase:
            begin_ns = log.now_ns()
            wait_until(name, lambda: log.now_ns() > begin_ns + length_s * S, WAIT_S, check)
            return Phase(name, begin_ns, log.now_ns())

        alone = pause("training alone", ALONE_S)
        serving = self._serve(log, f"inference: {RATE} requests/s", RATE, SERVE_S)
        flood = self._serve(log, f"{FLOOD_RATE}/s: above its cap", FLOOD_RATE, FLOOD_S)
        after = pause("inference has gone", AFTER_S)
        begin_ns = alone.begin_ns
        units = [unit for unit in log.units(serving.begin_ns) if unit.label == INFERENCE]
        below_cap = [unit for unit in units if unit.enqueued_ns < serving.end_ns]
        return OneCard(
            self.card,
            self._of(log, TRAINING, begin_ns),
            self._of(log, INFERENCE, begin_ns),
            requests_of(below_cap, KERNELS),
            (
                Phase(alone.name, begin_ns, serving.begin_ns),
                Phase(serving.name, serving.begin_ns, flood.begin_ns),
                Phase(flood.name, flood.begin_ns, flood.end_ns),
                Phase(after.name, flood.end_ns, after.end_ns),
            ),
            self.cap,
        )

    def _serve(self, log: CudaLog, name: str, rate: int, length_s: int) -> Phase:
        """From the first kernel to the last one."""
        called_ns = log.now_ns()
        self._program(self.inference, INFERENCE, WAIT_S, "serve", *_flags(
            rate=rate, seconds=length_s, kernels=KERNELS, ns=REQUEST_KERNEL_NS))  # fmt: skip
        ran = self._of(log, INFERENCE, called_ns)
        if not ran:
            raise StoryError("inference never ran on the card")
        return Phase(name, ran[0].start_ns, ran[-1].end_ns)

    def _program(self, pod: str, label: str, limit_s: float, name: str, *flags: str) -> Any:
        path = f"{PROGRAMS}/{name}"
        return self.run(pod, "env", f"FAKE_CUDA_LABEL={label}", "timeout", str(int(limit_s)), path, *flags)

    def _of(self, log: CudaLog, label: str, since_ns: int = 0) -> list[Stretch]:
        number = log.cards().index(self.card) if self.card in log.cards() else -1
        return [s for s in log.stretches(since_ns) if s.card == number and s.label == label]

    # --- what was seen -------------------------------------------------------------------------------

    def _doubt(self, seen: OneCard) -> str:
        """What is poor about a measurement, which a stalled machine can be the cause of; or nothing."""
        alone, serving, flood, after = seen.phases
        trained = {phase: share(seen.training, phase.begin_ns, phase.end_ns) for phase in seen.phases}
        if min(trained[alone], trained[after]) < 0.5:
            return f"training had {trained[alone]:.0%} of the card alone and {trained[after]:.0%} afterwards"
        if min(trained[serving], trained[flood]) < 0.05:
            return f"training had {trained[serving]:.0%} of the gaps, and {trained[flood]:.0%} beside the cap"
        prompt = [request for request in seen.requests if request.at_once]
        kept = held(seen.training, prompt)
        if not prompt or kept < len(prompt) / 2:
            return f"training was held during {kept} of {len(prompt)} requests only"
        if share(seen.inference, flood.begin_ns, flood.end_ns) > seen.cap + _CAP_SLACK:
            return "inference went above its cap"
        return ""

    def _show(self, seen: OneCard) -> None:
        self._curves(seen)
        self._zoom(seen, seen.typical())
        alone, serving, flood, after = (
            tuple(share(one, phase.begin_ns, phase.end_ns) for one in (seen.training, seen.inference))
            for phase in seen.phases
        )
        waits_ms = sorted(request.wait_ns / MS for request in seen.requests)
        count, prompt = len(seen.requests), [request for request in seen.requests if request.at_once]
        self.screen.fact(
            f"training had {alone[0]:.0%} of the card alone, {serving[0]:.0%} between {count} requests, "
            f"{after[0]:.0%} afterwards; it was held, not killed"
        )
        self.screen.fact(
            f"training yielded within {waits_ms[count // 2]:.1f} ms (median; {waits_ms[-1]:.1f} ms at most; "
            f"its kernels are 2 ms long); during {held(seen.training, prompt)} of {len(prompt)} requests "
            "that came without a pause it launched nothing"
        )
        self.screen.fact(
            f"asking for more than its cap of {seen.cap:.0%}, inference had {flood[1]:.0%}; "
            f"training had {flood[0]:.0%} meanwhile"
        )
        self._draw(seen)

    def _draw(self, seen: OneCard) -> None:
        # Takes a second to load, and nothing else here needs it.
        from demo.picture import draw

        draw(seen, KERNEL_NS / MS, PICTURE)
        self.screen.fact(f"the same as a picture: {PICTURE}")

    def _curves(self, seen: OneCard) -> None:
        self.screen.plain(f"{'':<11}{over(seen.phases, _COLUMNS)}")
        for name, stretches in ((TRAINING, seen.training), (INFERENCE, seen.inference)):
            rows = sparkline(shares(stretches, seen.begin_ns, seen.end_ns, _COLUMNS), height=3)
            for row, text in enumerate(rows):
                label = name if row == len(rows) // 2 else {0: "100 %"}.get(row, "0 %")
                self.screen.plain(f"{label:>9} {'┤'}{text}")
        seconds = (seen.end_ns - seen.begin_ns) / S
        self.screen.plain(f"{'':<11}0 s{f'{seconds:.1f} s':>{_COLUMNS - 3}}")

    def _zoom(self, seen: OneCard, request: Request) -> None:
        begin_ns = request.launched_ns - 25 * _ZOOM_NS
        end_ns = begin_ns + _COLUMNS * _ZOOM_NS
        self.screen.plain(f"one request, a column is {_ZOOM_NS / MS:.1f} ms:")
        for name, stretches in ((TRAINING, seen.training), (INFERENCE, seen.inference)):
            (row,) = sparkline(shares(stretches, begin_ns, end_ns, _COLUMNS))
            self.screen.plain(f"{name:>9} ┤{row}")
        self.screen.plain(f"{'':<11}{'':<25}^ launched; begins after {request.wait_ns / MS:.1f} ms")


def _flags(**values: int) -> Sequence[str]:
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]
