"""What is wrong with a gang's members that the admission controller does not say.

Nodes are silent, out of service or gone; cards are ill; containers do not start; pods ask for no cards.
Pure: documents in, sentences out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from vc_egpu.cli import world
from vc_egpu.core.environments import backends
from vc_egpu.core.model.cluster import OUT_OF_SERVICE
from vc_egpu.core.model.words import few
from vc_egpu.kube import Json
from vc_egpu.volcano.api.containers import containers_of, statuses_of, waiting_of
from vc_egpu.volcano.swapping.notes import NodeSwaps, PodSwap
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards
from vc_egpu.volcano.words.resource_names import PER_CARD

_LONGEST: Final = 300


def notes(members: Iterable[Json], nodes: Mapping[str, Json] | None) -> list[str]:
    """One sentence per node and per card that is not in order, under members that hold cards.

    ``nodes`` None: the user may not see them.
    """
    if nodes is None:
        return []
    by_node = places(members)
    return [text for name in sorted(by_node) for text in _of_node(name, nodes.get(name), by_node[name])]


def places(members: Iterable[Json]) -> dict[str, list[Json]]:
    """Members that have not ended, by the name of their node."""
    by_node: dict[str, list[Json]] = defaultdict(list)
    for pod in members:
        name = (pod.get("spec") or {}).get("nodeName")
        if name and not world.finished(pod):
            by_node[name].append(pod)
    return dict(by_node)


def _of_node(name: str, node: Json | None, pods: Sequence[Json]) -> Iterator[str]:
    who = few([str(pod["metadata"]["name"]) for pod in pods])
    if node is None:
        yield f"node {name} is gone: {who} will be removed and placed again"
        return
    taints = {taint.get("key") for taint in (node.get("spec") or {}).get("taints") or ()}
    ready = world.condition(node, "Ready") or {}
    if OUT_OF_SERVICE in taints:
        yield f"node {name} is out of service: {who} will be removed and placed again"
    elif ready.get("status") != "True":
        since = f" since {ready['lastTransitionTime']}" if "lastTransitionTime" in ready else ""
        yield (
            f"node {name} is not ready{since}: the cards of {who} stay held until the node is "
            f"back, is deleted or is tainted {OUT_OF_SERVICE}"
        )
    yield from _ill(name, node, pods)
    yield from _not_held(name, node, pods)
    yield from _together(name, node, pods)


def _together(name: str, node: Json, pods: Sequence[Json]) -> Iterator[str]:
    """Which pods fall together where MPS shares time."""
    inventory = world.inventory_of(node)
    if inventory is None or inventory.compute != backends.MPS:
        return
    held = {card.uuid: set(card.held) for card in inventory.cards}
    with_them: dict[str, set[str]] = {}
    who: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        cards = world.cards_of(pod)
        for uuid in sorted(_shares_of(cards) & held.keys()) if cards else ():
            who[uuid].append(str(pod["metadata"]["name"]))
            with_them[uuid] = (with_them.get(uuid) or held[uuid]) - {str(pod["metadata"]["uid"])}
    for uuid, named in sorted(who.items()):
        more = len(with_them[uuid])
        others = f" and {more} other pod{'' if more == 1 else 's'}" if more else ""
        yield (
            f"{few(sorted(named))}{others} share an MPS server on card {uuid} of node {name}: a fault of one "
            "program there ends the programs of all of them"
        )


def _not_held(name: str, node: Json, pods: Sequence[Json]) -> Iterator[str]:
    """Shares of any size that nothing keeps to their memory."""
    inventory = world.inventory_of(node)
    seen = inventory.cards if inventory else ()
    bare = {card.uuid for card in seen if card.isolation == "none" and card.stack}
    loose = [
        str(pod["metadata"]["name"])
        for pod in pods
        if (cards := world.cards_of(pod)) and not cards.native and _shares_of(cards) & bare
    ]
    if loose:
        yield (
            f"nothing keeps {few(loose)} to the granted memory on node {name}: its operator has switched "
            "limits off, or it has no backend for them"
        )


def unheld(members: Iterable[Json]) -> list[str]:
    """The weaker promise of a low gang of several pods, once it has cards."""
    several = max((cards.gang_pods or 1 for pod in members if (cards := _low(pod)) is not None), default=1)
    if several == 1:
        return []
    return [
        f"{several} pods of class low run at once: none of their launches is held while high works on their "
        "cards. The driver's time slice decides there"
    ]


def turns(pods: Iterable[Json], nodes: Mapping[str, Json] | None) -> list[str]:
    """Where those are that have their cards in turns with others, one sentence each."""
    told: dict[str, Mapping[str, PodSwap]] = {}
    found = []
    for pod in pods:
        cards = None if world.finished(pod) else world.cards_of(pod)
        if cards is None or not any(share.swap for some in cards.containers.values() for share in some):
            continue
        if cards.node not in told:
            told[cards.node] = _swaps((nodes or {}).get(cards.node))
        where = _turn(told[cards.node].get(cards.pod_uid))
        found.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']} {where}")
    return found


def _turn(swap: PodSwap | None) -> str:
    if swap is None:
        return "has its card in turns with others; its node does not say whose turn it is"
    waits = f": {swap.reason}" if swap.reason else ""
    aside = f" ({swap.host_mib} MiB of it lie on the host)" if swap.host_mib else ""
    idles = swap.place == "away" and not waits
    said = {
        "card": "has its card in turns with others, and it is its turn",
        "away": f"waits for its turn on its card{aside}{waits}",
        "leaving": "is leaving its card for another",
        "coming": f"is coming to its card{aside}",
        "lost": f"could not be brought back to its card{waits}. Delete the pod, so that another is made",
    }
    return f"idles while others may have its card{aside}" if idles else said[swap.place]


def _swaps(node: Json | None) -> Mapping[str, PodSwap]:
    text = world.annotations(node).get(names.NODE_SWAPS) if node is not None else None
    try:
        return NodeSwaps.decode(text).pods if text is not None else {}
    except AnnotationError:
        return {}


def _low(pod: Json) -> Cards | None:
    cards = None if world.finished(pod) else world.cards_of(pod)
    return cards if cards is not None and cards.share_class == "low" else None


def _shares_of(cards: Cards) -> set[str]:
    """Cards on which it has a share of any size."""
    return {share.uuid for shares in cards.containers.values() for share in shares if not share.slice}


def _ill(name: str, node: Json, pods: Sequence[Json]) -> Iterator[str]:
    inventory = world.inventory_of(node)
    ill = {card.uuid: card.reason for card in inventory.cards if not card.healthy} if inventory else {}
    on_it: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        cards = world.cards_of(pod)
        for shares in cards.containers.values() if cards else ():
            for share in shares:
                on_it[share.uuid].append(str(pod["metadata"]["name"]))
    for uuid in sorted(ill.keys() & on_it.keys()):
        why = f" ({ill[uuid]})" if ill[uuid] else ""
        yield (
            f"card {uuid} of node {name} is ill{why}: it takes nothing new, "
            f"and {few(sorted(set(on_it[uuid])))} may fail on it"
        )


_UNEVENTFUL: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_SLIPS: Final = (*sorted(PER_CARD), "volcano.sh/gpu", "nvidia.com/gpu")
"""Limits that people name who mean a share, without the one that makes a pod ask for it."""


def starting(members: Iterable[Json]) -> list[str]:
    """One sentence per reason for which containers of members do not start, or start again and again."""
    who: dict[str, list[str]] = defaultdict(list)
    for pod in members:
        for container in statuses_of(pod.get("status") or {}):
            waiting = waiting_of(container)
            if waiting.get("reason", "") not in _UNEVENTFUL:
                said = f": {waiting['message']}" if waiting.get("message") else ""
                who[f"{waiting['reason']}{said}"[:_LONGEST]].append(str(pod["metadata"]["name"]))
    return [f"{few(sorted(set(pods)))}: {reason}" for reason, pods in sorted(who.items())]


def not_ours(members: Sequence[Json]) -> str:
    """Why the admission layer does not look at these pods; empty where it does, or where there are none."""
    if not members or any(world.labels(pod).get(names.MANAGED_LABEL) == "true" for pod in members):
        return ""
    text = "asks for no managed cards: the admission layer has nothing to do with it"
    limits = {
        name
        for pod in members
        for container in containers_of(pod.get("spec") or {})
        for name in (container.get("resources") or {}).get("limits") or ()
    }
    slip = next((name for name in _SLIPS if name in limits), "")
    hint = f"{names.SHARED_PREFIX}<model> in its limits asks for shares"
    return f"{text}; it names {slip}, but {hint}" if slip else text
