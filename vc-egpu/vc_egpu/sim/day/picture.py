"""The curves of a day under several ways to hand out cards, as one PNG."""

import io
from collections.abc import Sequence

from vc_egpu.sim.day.played import Outcome

_PIXELS_PER_INCH = 110


def as_png(outcomes: Sequence[Outcome], title: str) -> bytes:
    """One row for each way: cards held and cards that work, and the longest wait of a request.

    Raises ``ImportError`` without matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.5 * len(outcomes) + 0.6), dpi=_PIXELS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13)
    panels = figure.subplots(len(outcomes), 2, squeeze=False, width_ratios=(3, 2), sharex=True)
    longest = max((point.wait_s for one in outcomes for point in one.points), default=1.0)
    for (cards, waits), one in zip(panels, outcomes, strict=True):
        hours = [point.at_s / 3600 for point in one.points]
        inference = [point.inference for point in one.points]
        used = [point.used for point in one.points]
        cards.fill_between(hours, used, color="#8fbcd4", label="training works")
        cards.fill_between(hours, inference, color="#d9822b", label="inference works")
        cards.plot(hours, [point.held for point in one.points], color="#444", linewidth=1.2, label="held")
        cards.set_ylim(0, one.cards * 1.08)
        said = one.figures()
        cards.set_title(
            f"{one.way.name}: {said['used_percent']:.0f} % of the cards' time is used, "
            f"{one.finished} of {one.jobs} training Jobs end, {one.evictions} evictions",
            fontsize=10,
            loc="left",
        )
        cards.set_ylabel("cards")
        waits.plot(hours, [point.wait_s for point in one.points], color="#b5322b", linewidth=1)
        waits.set_ylim(0, longest * 1.08)
        waits.set_ylabel("s")
        waits.set_title(f"longest wait now; p99 of the day {one.wait_s(0.99)} s", fontsize=10, loc="left")
    panels[0][0].legend(fontsize=9, loc="lower right", ncols=3)
    for panel in panels[-1]:
        panel.set_xlabel("hour of the day")
        panel.set_xlim(0, 24)
        panel.set_xticks(range(0, 25, 3))
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
