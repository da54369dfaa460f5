"""``kubectl egpu cards``: who shares what."""

import difflib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from vc_egpu.cli import partial_snapshot, world
from vc_egpu.cli.resizing import told as resized
from vc_egpu.cli.views import links, trouble
from vc_egpu.core.environments import backends
from vc_egpu.core.measured.use import CardUse, known
from vc_egpu.core.model.cluster import CardId, Instant, Node, NodeName, PodUid, SuspensionState
from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import CONFIG_MAPS, NODES
from vc_egpu.kube.wire.errors import Forbidden, NotFound
from vc_egpu.report import cards as card_rows
from vc_egpu.report.shares import ShareRow, shares
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder, answer_to
from vc_egpu.volcano.measured.notes import current as use_now
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards, NodeCard, NodeCards
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

_NO_TABLE: Final = ModelTable()
UNSEEN_NOTE: Final = "+? stands for what pods have that are not seen here"


@dataclass(frozen=True, slots=True)
class Sharer:
    """One container's share of one card."""

    pod: str
    """``namespace/name``."""
    container: str
    share_class: str
    """high, unset or low."""
    memory_mib: int
    on_card_mib: int
    """What of it may lie on the card; 0 while the pod is suspended."""
    cores_percent: int
    phase: str
    """The pod's; ``Suspended`` while it has left its cards for a while."""
    queue: str
    card_set: str = ""
    """How well all cards of the pod on this node are linked; empty for one card, or where none is told."""
    slice: str = ""
    """Name of its size, where the card is cut into slices of fixed size."""


@dataclass(frozen=True, slots=True)
class CardRow:
    """One card and who is on it."""

    node: str
    index: int
    uuid: str
    model: str
    memory_mib: int
    """What the ledger counts."""
    used_mib: int
    """On the card itself; at least so much where pods are ``unseen`` and nobody tells what these hold, as the
    cores below."""
    suspended_mib: int
    """Memory of shares that have left the card for a while and come back to it."""
    cores_high_percent: int
    """Promised to high and unset shares together."""
    cores_low_percent: int
    """Promised to unset and low shares together."""
    state: str
    """``ok``, or why it takes nothing new."""
    sharers: tuple[Sharer, ...]
    unseen: int
    """Pods that the agent still holds a share for and that are not among the pods that were read."""
    others_known: bool = False
    """What pods hold that were not read is in the figures."""
    links: str = ""
    """How it reaches the other cards of its node, the best way first; empty where the agent does not tell."""
    isolation: str = ""
    """What keeps containers to their memory on it; empty where the agent does not tell. What shares its time
    comes behind, where that is not the library."""
    compute_points: int | None = None
    """How busy it was in the last 15 minutes, in percent; None: its agent does not tell."""
    memory_points: int | None = None
    """The same of its memory."""


@dataclass(frozen=True, slots=True)
class CardsReport:
    """All cards, and what else is to be said."""

    cards: tuple[CardRow, ...]
    notes: tuple[str, ...]


def read(api: ApiConnection, namespace: str) -> CardsReport:
    """The report of the cluster, as far as the user may see it."""
    nodes = api.list(NODES, transform=world.light_node).items
    pods = world.pods_on_cards(api, namespace)
    answered, table = with_answers(nodes, pods.items), model_table(api)
    return report(nodes, answered, table, partial=pods.missing, now=time.time())


def with_answers(nodes: Iterable[Json], pods: Iterable[Json]) -> Iterator[Json]:
    """What its metadata do not tell of a pod that was told to leave its cards, its node's agent says."""
    answers: dict[str, PodSuspension] | None = None
    for pod in pods:
        text = world.annotations(pod).get(names.SUSPEND)
        if text is None or (pod.get("status") or {}).get("conditions"):
            yield pod
            continue
        if answers is None:
            answers = {uid: said for node in nodes for uid, said in _answers(node).items()}
        try:
            state = answer_to(SuspendOrder.decode(text), answers.get(pod["metadata"]["uid"])).state
        except AnnotationError:
            state = SuspensionState.RUNNING
        said = [{"type": names.CONDITION_SUSPENDED, "status": "True", "reason": state.value.capitalize()}]
        yield {**pod, "status": {**(pod.get("status") or {}), "conditions": said}}


def _answers(node: Json) -> Mapping[str, PodSuspension]:
    text = world.annotations(node).get(names.NODE_SUSPENSION)
    try:
        return NodeSuspension.decode(text).pods if text is not None else {}
    except AnnotationError:
        return {}


def model_table(api: ApiConnection) -> ModelTable:
    """The model table; an empty one where the user may not read it."""
    try:
        found = api.get(CONFIG_MAPS, names.MODELS_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        return ModelTable.from_yaml((found.get("data") or {}).get("models.yaml", ""))
    except (Forbidden, NotFound, ModelTableError):
        return _NO_TABLE


def report(
    nodes: Iterable[Json],
    pods: Iterable[Json],
    table: ModelTable = _NO_TABLE,
    *,
    partial: str = "",
    now: Instant | None = None,
) -> CardsReport:
    """The rows of these nodes and pods.

    A card of a model that the table lacks counts what its driver reports. ``partial`` says in words that not
    all pods could be read. ``now``: without it nothing is said of how busy cards were.
    """
    pods = list(pods)
    documents = {world.name(node): node for node in nodes}
    decoded, known = partial_snapshot.nodes_of(documents.values(), table), partial_snapshot.pods_of(pods)
    seen = partial_snapshot.snapshot(nodes=decoded.nodes, pods=known.pods)
    share_rows = shares(seen)
    notes = [partial] if partial else []
    for name, inventory in decoded.inventories.items():
        if inventory.problem:
            notes.append(f"{name} takes nothing: {inventory.problem}")
        if strangers := world.cordoned_strangers(documents[name], inventory):
            notes.append(f"{name} cordons {', '.join(strangers)}, which it has not")
    reported = {card.uuid: card for found in decoded.inventories.values() for card in found.cards}
    compute_of = {card.uuid: found.compute for found in decoded.inventories.values() for card in found.cards}
    state_of = {
        uuid: state
        for name, inventory in decoded.inventories.items()
        for uuid, state in states(documents[name], inventory)
    }
    busy = {uuid: card for node in documents.values() for uuid, card in _busy_cards(node, now).items()}
    sets, ways = _sets(decoded.nodes.values(), share_rows), _ways(decoded.nodes.values())
    rows = [
        _row(
            row,
            [
                _sharer(share, known.phases[share.pod_uid], sets.get((row.node, share.pod_uid), ""))
                for share in row.shares
            ],
            state=state_of[row.uuid],
            unseen=sum(uid not in known.pods for uid in set(reported[row.uuid].held)),
            ways=ways.get(row.uuid, ""),
            isolation=backends.shown(reported[row.uuid].isolation, compute_of[row.uuid]),
            use=busy.get(row.uuid),
        )
        for row in sorted(card_rows.cards(seen, share_rows), key=lambda row: (row.node, row.index))
    ]
    if any(row.unseen for row in rows):
        notes.append(UNSEEN_NOTE)
    if not rows:
        without = len(decoded.nodes) - len(decoded.inventories)
        notes.append(f"no node has cards ({without} without an agent's inventory): try `kubectl egpu doctor`")
    notes += _lost(share for share in share_rows if share.uuid not in reported)
    notes += _unheld(rows, pods)
    notes += trouble.turns(pods, documents)
    notes += resized.sizes(pods)
    return CardsReport(tuple(rows), tuple(notes))


def _busy_cards(node: Json, now: Instant | None) -> Mapping[str, CardUse]:
    use = use_now(world.annotations(node).get(names.NODE_USE), now) if now is not None else None
    return use.cards if use is not None else {}


def _unheld(rows: Iterable[CardRow], pods: Iterable[Json]) -> list[str]:
    """What low gangs of several pods mean for high on the same card."""
    several: dict[str, int] = {}
    for pod in pods:
        try:
            own = Cards.decode(world.annotations(pod).get(names.CARDS) or "")
        except AnnotationError:
            continue
        if own.share_class == "low" and own.gang_pods:
            several[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = own.gang_pods
    return [
        f"{row.node} card {row.index}: {one.pod} is one of {several[one.pod]} pods of a low gang. "
        "High does not hold its launches there: the driver's time slice decides"
        for row in rows
        if any(one.share_class == "high" for one in row.sharers)
        for one in row.sharers
        if one.pod in several
    ]


def _sets(nodes: Iterable[Node], rows: Iterable[ShareRow]) -> dict[tuple[NodeName, PodUid], str]:
    """By node and pod, how well its cards there are linked; pods with one card are left out."""
    node_of = {card.uuid: node for node in nodes for card in node.cards}
    held: dict[tuple[NodeName, PodUid], set[CardId]] = defaultdict(set)
    for row in rows:
        if row.uuid in node_of:
            held[node_of[row.uuid].name, row.pod_uid].add(row.uuid)
    return {
        (name, uid): links.told(node_of[next(iter(cards))].cards, cards)
        for (name, uid), cards in held.items()
        if len(cards) > 1
    }


def _ways(nodes: Iterable[Node]) -> dict[CardId, str]:
    return {card.uuid: links.of_card(card, node.cards) for node in nodes for card in node.cards}


def _lost(rows: Iterable[ShareRow]) -> list[str]:
    pods: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        pods[row.uuid].append(f"{row.namespace}/{row.pod}")
    return [f"{', '.join(pods[uuid])} holds {uuid}, which no node reports now" for uuid in sorted(pods)]


def of_node(whole: CardsReport, node: str) -> CardsReport:
    """The cards of one node; where it has none, a note names what is near, or some nodes that have cards."""
    cards = tuple(card for card in whole.cards if card.node == node)
    if cards:
        return replace(whole, cards=cards)
    known = sorted({card.node for card in whole.cards})
    near = difflib.get_close_matches(node, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are some on {few(known) or 'none'}"
    return CardsReport((), (*whole.notes, f"no cards on {node}; {hint}"))


def _sharer(share: ShareRow, phase: str, card_set: str) -> Sharer:
    return Sharer(
        pod=f"{share.namespace}/{share.pod}",
        container=share.container,
        share_class=share.share_class.name.lower() if share.share_class is not None else "unset",
        memory_mib=share.memory_mib,
        on_card_mib=share.occupies_mib,
        cores_percent=share.cores_percent,
        phase=phase,
        queue=share.queue or "",
        card_set=card_set,
        slice=share.slice,
    )


def _row(
    row: card_rows.CardRow,
    sharers: list[Sharer],
    *,
    state: str,
    unseen: int,
    ways: str,
    isolation: str,
    use: CardUse | None,
) -> CardRow:
    return CardRow(
        node=row.node,
        index=row.index,
        uuid=row.uuid,
        model=row.model,
        memory_mib=row.memory_mib,
        used_mib=row.allocated_mib,
        suspended_mib=row.suspended_mib,
        cores_high_percent=row.cores_high_percent,
        cores_low_percent=row.cores_low_percent,
        state=state,
        sharers=tuple(sorted(sharers, key=lambda sharer: sharer.pod)),
        unseen=unseen,
        links=ways,
        isolation=isolation,
        compute_points=known(use.compute_points) if use is not None else None,
        memory_points=known(use.memory_points) if use is not None else None,
    )


def states(node: Json, inventory: NodeCards) -> Iterator[tuple[str, str]]:
    """By UUID, ``ok`` or the first that keeps a card from taking anything new."""
    whole = "node takes nothing" if inventory.problem else ""
    whole = whole if world.is_ready(node) else "node not ready"
    mode = "" if inventory.mode == "shared" else inventory.mode
    rest = "node cordoned" if (node.get("spec") or {}).get("unschedulable") else mode
    cordoned = world.cordoned(node)
    for card in inventory.cards:
        own = _ill(card) or ("cordoned" if card.uuid in cordoned else "")
        yield card.uuid, whole or own or rest or "ok"


def _ill(card: NodeCard) -> str:
    if card.healthy and card.offered:
        return ""
    word = "not offered" if card.healthy else "ill"
    return f"{word}: {card.reason}" if card.reason else word
