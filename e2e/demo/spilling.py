"""Part (j): two programs that each want the whole card's memory share it; the rest lies in the host's."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stack.figures import Figures, first
from stack.kit import StoryError
from vc_egpu.volcano.words.annotations import CardShare

from demo.screen import Screen

MIB = 1 << 20


@dataclass(frozen=True)
class Spilling:
    """Pods whose programs take memory and keep it."""

    screen: Screen
    shares: Mapping[str, CardShare]
    """What each pod was granted, all of it on one card."""
    card_mib: int
    log: Callable[[str], str]
    """What a pod's program has said so far."""
    figures: Callable[[], Figures]
    """Of the card's node."""

    def tell(self) -> None:
        """Wait until all have their memory, say where it lies."""
        card = self._one_card()
        got = {pod: self._got_mib(pod) for pod in self.shares}
        wanted = sum(got.values())
        if wanted <= self.card_mib:
            raise StoryError(f"{got} MiB fit on a card of {self.card_mib}: nothing is shown")
        on_card, spilled = self._where(card, wanted)
        self.screen.fact("; ".join(f"the program of {pod} has {mib} MiB" for pod, mib in sorted(got.items())))
        self.screen.fact(
            f"on the card {on_card} of {self.card_mib} MiB are used; in the host's memory lie "
            f"{' and '.join(str(spilled[pod]) for pod in sorted(spilled))} MiB of theirs"
        )

    def _one_card(self) -> str:
        cards = {share.uuid for share in self.shares.values()}
        if len(cards) != 1:
            raise StoryError(f"{', '.join(self.shares)} are on {len(cards)} cards, not on one")
        (card,) = cards
        for pod, share in sorted(self.shares.items()):
            self.screen.plain(
                f"{pod}  granted {share.memory_mib} MiB of {card}, {share.on_card_mib} of them on the card"
            )
        return card

    def _got_mib(self, pod: str) -> int:
        """What its program says it got, once it has said so."""

        def said() -> dict[str, Any] | None:
            lines = [line for line in self.log(pod).splitlines() if line.startswith("{")]
            return json.loads(lines[-1]) if lines else None

        answer = first(f"{pod} has its memory", said)
        granted_mib = self.shares[pod].memory_mib
        if answer["code"] or answer["total"] != granted_mib * MIB:
            raise StoryError(f"{pod} was granted {granted_mib} MiB, its program says {answer}")
        return int(answer["got"]) // MIB

    def _where(self, card: str, wanted_mib: int) -> tuple[int, dict[str, int]]:
        """MiB used on the card, and MiB of each pod in the host's memory, as soon as they add up."""

        def look() -> tuple[int, dict[str, int]] | None:
            figures = self.figures()
            spilled = {pod: figures.spilled_mib.get(pod, 0) for pod in self.shares}
            used = figures.used_mib[card]
            return (used, spilled) if used + sum(spilled.values()) >= wanted_mib else None

        return first("the node's figures show all of it", look)
