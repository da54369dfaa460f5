"""The clusters in order, and what was done."""

import math
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.submit.ranking import Offer
from vc_egpu.cli.views.table import Table

_STYLES = {
    "starts": "green",
    "makes room": "yellow",
    "waits": "yellow",
    "refused": "red",
    "cannot tell": "red",
}


@dataclass(frozen=True, slots=True)
class Submitted:
    """What the command did."""

    job: str
    """``namespace/name``."""
    submit_id: str
    cluster: str
    """The one that has it; empty: none, or nobody knows."""
    state: str
    """``sent``, ``was there``, ``not sent`` or ``unclear``."""
    why: str
    offers: tuple[Offer, ...]


def shown(done: Submitted) -> RenderableType:
    """A line for each cluster, then one for what was done."""
    parts: list[RenderableType] = []
    if done.offers:
        table = Table("CLUSTER", "CITY", "JOB", "IN", "MORE", "WHY", right=("IN", "MORE"))
        for offer in done.offers:
            table.add_row(
                offer.cluster,
                offer.city,
                Text(offer.chance, style=_STYLES[offer.chance]),
                _span(offer),
                str(offer.more) if offer.chance == "starts" else "",
                offer.why,
            )
        parts.append(table)
    style = {"sent": "bold green", "was there": "bold green", "unclear": "bold red"}.get(done.state, "bold")
    where = f" {done.cluster}" if done.cluster else ""
    text = {"sent": f"sent to{where}", "was there": f"is in{where} already", "unclear": f"unclear in{where}"}
    said = text.get(done.state, done.state)
    parts.append(Text(f"{done.job}: {said}{': ' + done.why if done.why else ''}", style=style))
    return Group(*parts)


def _span(offer: Offer) -> str:
    if offer.chance != "waits":
        return "now" if offer.chance == "starts" else ""
    if offer.starts_in_s == math.inf:
        return "?"
    minutes = math.ceil(offer.starts_in_s / 60)
    return f"{minutes // 60}h{minutes % 60:02}m" if minutes >= 60 else f"{minutes}m"
