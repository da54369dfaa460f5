"""One card over time as a PNG, drawn from the card's log."""

from collections.abc import Sequence
from pathlib import Path

from fakes.cuda_log import Stretch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from demo.curves import MS, OneCard, Request, S, shares

TRAINING, INFERENCE, MARK = "#c96f1e", "#1f5fa8", "#555555"
_BUCKET_NS = 50 * MS
_BEFORE_NS, _AFTER_NS = 5 * MS, 10 * MS


def draw(seen: OneCard, kernel_ms: float, path: Path) -> None:
    """Write the picture. Raises :class:`OSError` where it cannot be written."""
    figure = Figure(figsize=(11, 6.4), dpi=120, layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.25, 1), width_ratios=(1.5, 1))
    _over_time(figure.add_subplot(grid[0, :]), seen)
    _one_request(figure.add_subplot(grid[1, 0]), seen, seen.typical())
    _waits(figure.add_subplot(grid[1, 1]), seen.requests, kernel_ms)
    figure.suptitle(f"Card {seen.card}: low-priority training and high-priority inference (fake CUDA driver)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _over_time(axes: Axes, seen: OneCard) -> None:
    buckets = max(1, (seen.end_ns - seen.begin_ns) // _BUCKET_NS)
    width_s = (seen.end_ns - seen.begin_ns) / S / buckets
    at_s = [(number + 0.5) * width_s for number in range(buckets)]
    for stretches, colour, name in (
        (seen.training, TRAINING, "training (low)"), (seen.inference, INFERENCE, "inference (high)"),
    ):  # fmt: skip
        percent = [100 * value for value in shares(stretches, seen.begin_ns, seen.end_ns, buckets)]
        axes.plot(at_s, percent, color=colour, linewidth=1.6, label=name)
        axes.fill_between(at_s, percent, color=colour, alpha=0.12, linewidth=0)
    limit = 100 * seen.cap
    axes.axhline(limit, color=INFERENCE, linestyle="--", linewidth=1, label=f"inference's cap, {limit:.0f} %")
    for phase in seen.phases:
        left_s = (phase.begin_ns - seen.begin_ns) / S
        if phase is not seen.phases[0]:
            axes.axvline(left_s, color=MARK, linestyle=":", linewidth=1)
        axes.text(left_s + 0.03, 109, phase.name, color=MARK, fontsize=9, va="center")
    axes.set(
        xlim=(0, (seen.end_ns - seen.begin_ns) / S), ylim=(0, 118), yticks=range(0, 101, 20),
        xlabel="time (s)", ylabel=f"share of the card (% of each {_BUCKET_NS // MS} ms)",
    )  # fmt: skip
    axes.legend(loc="lower left", ncols=1, fontsize=9, framealpha=0.9)
    _plain(axes)


def _one_request(axes: Axes, seen: OneCard, request: Request) -> None:
    left_ns, right_ns = request.launched_ns - _BEFORE_NS, request.ended_ns + _AFTER_NS
    older = [one for one in seen.training if one.enqueued_ns < request.launched_ns < one.end_ns]
    fresh = [one for one in seen.training if one not in older]
    for row, stretches, colour, name in (
        (1, fresh, TRAINING, ""), (1, older, "#eebf94", "launched before the request"),
        (0, seen.inference, INFERENCE, ""),
    ):  # fmt: skip
        spans = _spans(stretches, left_ns, right_ns, request.launched_ns)
        axes.broken_barh(
            spans, (row - 0.35, 0.7), color=colour, edgecolor="white", linewidth=0.3, label=name or None
        )
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    axes.axvline(0, color=MARK, linestyle=":", linewidth=1)
    axes.annotate(
        f"launched; its first kernel\nbegins after {request.wait_ns / MS:.1f} ms", xy=(0, 1.5),
        xytext=(-_BEFORE_NS / MS + 0.1, 1.72), fontsize=9, color=MARK, va="center",
    )  # fmt: skip
    axes.set(
        xlim=(-_BEFORE_NS / MS, (right_ns - request.launched_ns) / MS), ylim=(-0.6, 2.1),
        yticks=(0, 1), yticklabels=("inference", "training"),
        xlabel="time since the launch (ms)",
        title="Around one request (the one with the median wait); each bar is a kernel",
    )  # fmt: skip
    axes.title.set_fontsize(10)
    _plain(axes)


def _waits(axes: Axes, requests: Sequence[Request], kernel_ms: float) -> None:
    waits_ms = sorted(request.wait_ns / MS for request in requests)
    percent = [100 * (number + 1) / len(waits_ms) for number in range(len(waits_ms))]
    axes.step(waits_ms, percent, where="post", color=INFERENCE, linewidth=1.6)
    axes.axvline(kernel_ms, color=TRAINING, linestyle="--", linewidth=1)
    axes.text(kernel_ms + 0.05, 8, "one kernel\nof training", color=TRAINING, fontsize=9)
    axes.set(
        xlim=(-0.05, max(3.0, waits_ms[-1] * 1.05)), ylim=(0, 105),
        xlabel="from launch to start of its first kernel (ms)", ylabel="% of requests",
        title=f"How long {len(waits_ms)} requests waited for training",
    )  # fmt: skip
    axes.title.set_fontsize(10)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _spans(
    stretches: Sequence[Stretch], begin_ns: int, end_ns: int, zero_ns: int
) -> list[tuple[float, float]]:
    """(start, length) in ms of what lies within."""
    return [
        ((one.start_ns - zero_ns) / MS, (one.end_ns - one.start_ns) / MS)
        for one in stretches
        if one.end_ns > begin_ns and one.start_ns < end_ns
    ]
