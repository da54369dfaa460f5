"""How well the cards of one pod are linked, in words. Pure: values and documents in, sentences out."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

from vc_egpu.cli import partial_snapshot
from vc_egpu.core.model.cluster import Card, CardId
from vc_egpu.core.topology.ways import ends_of, wiring_of
from vc_egpu.kube import Json
from vc_egpu.volcano.words.model_table import ModelTable

_NO_TABLE: Final = ModelTable()
_GB: Final = 1000


def told(cards: Sequence[Card], held: Iterable[CardId]) -> str:
    """The worst pair and the ring of the cards that a pod holds; empty for one card, or if none tells."""
    own = {*held}
    places = [place for place, card in enumerate(cards) if card.uuid in own]
    wiring = wiring_of(cards)
    score = wiring.score(places) if wiring is not None else None
    if score is None:
        return ""
    pairs = (ends_of(cards[one], cards[other]) for one, other in combinations(places, 2))
    worst = min(pairs, key=lambda ends: ends.mb_s)
    return f"{worst.word} at worst, {_rate(score.worst_mb_s)}; ring {_rate(score.ring_mb_s)}"


def of_card(card: Card, cards: Sequence[Card]) -> str:
    """What leads from one card to the others of its node: ``NV2 3,4; PIX 1``; empty where none is told."""
    if wiring_of(cards) is None:
        return ""
    by_way: dict[tuple[int, str], list[int]] = {}
    for other in cards:
        if other.uuid != card.uuid:
            ends = ends_of(card, other)
            by_way.setdefault((-ends.mb_s, ends.word), []).append(other.index)
    return "; ".join(
        f"{word} {','.join(map(str, sorted(peers)))}" for (_, word), peers in sorted(by_way.items())
    )


def notes(members: Iterable[Json], nodes: Mapping[str, Json] | None) -> list[str]:
    """One sentence for each member that has several cards. ``nodes`` None: the user may not see them."""
    if nodes is None:
        return []
    found = []
    pods = partial_snapshot.pods_of(members).pods.values()
    wanted = {pod.node for pod in pods if pod.node is not None and len(pod.shares) > 1}
    known = partial_snapshot.nodes_of((nodes[name] for name in sorted(wanted & nodes.keys())), _NO_TABLE)
    for pod in sorted(pods, key=lambda pod: pod.name):
        node = known.nodes.get(pod.node) if pod.node is not None else None
        if node is None:
            continue
        held = {share.card for _, share in pod.shares}
        if said := told(node.cards, held):
            which = ", ".join(str(card.index) for card in node.cards if card.uuid in held)
            found.append(f"{pod.name} has cards {which} of {node.name}: {said}")
    return found


def _rate(mb_s: int) -> str:
    return f"{mb_s / _GB:g} GB/s"
