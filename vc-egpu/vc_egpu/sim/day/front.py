"""One day without and with shares as the picture of the front page, for a light and for a dark page."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from vc_egpu.sim.day.played import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PIXELS_PER_INCH: Final = 160
_INFERENCE, _TRAINING = "#e08a2e", "#4a93bd"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a page."""

    page: str
    text: str
    faint: str
    """The colour of cards that are held and do nothing."""


LIGHT: Final = Theme("#ffffff", "#1f2328", "#dfe3e8")
DARK: Final = Theme("#0d1117", "#e6edf3", "#30363d")


def as_front_png(rows: Sequence[tuple[str, Outcome]], theme: Theme) -> bytes:
    """A row for each outcome under its title: what cards do over the day, and its sums on the right.

    Raises ``ImportError`` without matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (9.6, 2.15 * len(rows) + 0.7)
    figure = Figure(figsize=size, dpi=_PIXELS_PER_INCH, layout="constrained", facecolor=theme.page)
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(rows), 1, squeeze=False, sharex=True)[:, 0]
    for panel, (title, one) in zip(panels, rows, strict=True):
        _draw(panel, title, one, theme)
    panels[-1].set_xlabel("hour of the day", color=theme.text, fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    for text in legend.get_texts():
        text.set_color(theme.text)
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor=theme.page)
    return file.getvalue()


def _draw(panel: "Axes", title: str, one: Outcome, theme: Theme) -> None:
    hours = [point.at_s / 3600 for point in one.points]
    used = [point.used for point in one.points]
    inference = [point.inference for point in one.points]
    held = [float(point.held) for point in one.points]
    look: dict[str, Any] = {"step": "post", "linewidth": 0.0}
    panel.fill_between(hours, inference, color=_INFERENCE, label="inference works", **look)
    panel.fill_between(hours, inference, used, color=_TRAINING, label="training works", **look)
    panel.fill_between(hours, used, held, color=theme.faint, label="handed out, and idle", **look)
    panel.set_facecolor(theme.page)
    panel.set_xlim(0, 24)
    panel.set_xticks(range(0, 25, 3))
    panel.set_ylim(0, one.cards)
    panel.set_yticks([0, one.cards // 2, one.cards])
    panel.set_ylabel("cards", color=theme.text, fontsize=10)
    panel.tick_params(colors=theme.text, labelsize=9)
    for name, spine in panel.spines.items():
        spine.set_visible(name in {"left", "bottom"})
        spine.set_color(theme.text)
    panel.set_title(title, loc="left", color=theme.text, fontsize=12, fontweight="bold")
    said = one.figures()
    told = (
        (f"{said['used_percent']:.0f} %", "of card time is work"),
        (f"{said['training_card_hours']:.0f}", "card-hours of training"),
        (f"{one.finished} of {one.jobs}", "training Jobs end"),
    )
    for at, (number, words) in zip((0.86, 0.53, 0.2), told, strict=True):
        look = {"transform": panel.transAxes, "color": theme.text, "clip_on": False, "va": "center"}
        panel.text(1.02, at, number, fontsize=15, fontweight="bold", **look)
        panel.text(1.02, at - 0.14, words, fontsize=9, **look)
