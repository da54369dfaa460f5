"""Part (j): two programs that each want the whole card's memory share it; the rest lies in the host's."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from localcluster.api import wait_until
from prometheus_client.parser import text_string_to_metric_families
from stack.kit import Kit, StoryError
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano.annotations import CardShare

from demo.screen import Screen

CARD_USED, SPILLED = "DCGM_FI_DEV_FB_USED", "egpu_node_container_memory_managed_mib"
SYSTEM, AGENTS, METRICS_PORT = "vc-egpu-system", "app.kubernetes.io/name=vc-egpu-node-agent", 9445
TIMEOUT_S = 60
MIB = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True)
class Spilling:
    """Pods whose programs take memory and keep it."""

    screen: Screen
    shares: Mapping[str, CardShare]
    """What each pod was granted, all of it on one card."""
    card_mib: int
    log: Callable[[str], str]
    """What a pod's program has said so far."""
    metrics: Callable[[], str]
    """What the agent of the card's node says."""

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

        answer = _first(f"{pod} has its memory", said)
        granted_mib = self.shares[pod].memory_mib
        if answer["code"] or answer["total"] != granted_mib * MIB:
            raise StoryError(f"{pod} was granted {granted_mib} MiB, its program says {answer}")
        return int(answer["got"]) // MIB

    def _where(self, card: str, wanted_mib: int) -> tuple[int, dict[str, int]]:
        """MiB used on the card, and MiB of each pod in the host's memory, as soon as they add up."""

        def look() -> tuple[int, dict[str, int]] | None:
            used, spilled = 0, dict.fromkeys(self.shares, 0)
            for family in text_string_to_metric_families(self.metrics()):
                for sample in family.samples:
                    labels = sample.labels
                    if sample.name == CARD_USED and labels["UUID"] == card:
                        used = int(sample.value)
                    if sample.name == SPILLED and labels["pod"] in spilled:
                        spilled[labels["pod"]] = int(sample.value)
            return (used, spilled) if used + sum(spilled.values()) >= wanted_mib else None

        return _first("the node's figures show all of it", look)


def agent_metrics(kit: Kit, node: str) -> str:
    """What the agent of a node says to Prometheus."""
    pods = kit.api.list(PODS, SYSTEM, label_selector=AGENTS, field_selector=f"spec.nodeName={node}").items
    if len(pods) != 1:
        raise StoryError(f"{node} has {len(pods)} agents")
    name = pods[0]["metadata"]["name"]
    return kit.api.request_text(f"{PODS.path(SYSTEM, name)}:{METRICS_PORT}/proxy/metrics")


def _first(what: str, look: Callable[[], T | None]) -> T:
    """The first thing that ``look`` finds."""
    found: list[T] = []

    def check() -> bool:
        seen = look()
        if seen is not None:
            found.append(seen)
        return bool(found)

    wait_until(what, check, TIMEOUT_S)
    return found[0]
