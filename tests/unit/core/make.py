"""Short ways to write the values of a test's cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Resources,
    Share,
    ShareClass,
    Snapshot,
)

GIB = 1 << 30
H20_MIB = 98304


def node(
    name: str = "n1", cards: int = 2, *, model: str = "h20", cpu_milli: int = 64000, **more: Any
) -> Node:
    """A node with cards ``<name>/0`` and on."""
    memory = {"h20": H20_MIB, "t4": 15360}[model]
    return Node(
        name=NodeName(name),
        allocatable=more.pop("allocatable", Resources(cpu_milli, 256 * GIB, 0, 110)),
        cards=tuple(Card(CardId(f"{name}/{i}"), i, model, memory) for i in range(cards)),
        **more,
    )


def shape(
    memory_mib: int = 0, cores: int = 0, *, cards: int = 1, cpu_milli: int = 1000, **more: Any
) -> PodShape:
    """A pod with one container that asks for ``cards`` shares; without memory, for no card at all."""
    asks = (CardAsk("main", "h20", cards, memory_mib, cores),) if memory_mib else ()
    return PodShape(asks=more.pop("asks", asks), requests=more.pop("requests", Resources(cpu_milli)), **more)


def gang(key: str, *, share_class: ShareClass = ShareClass.UNSET, least: int = 1, **more: Any) -> Gang:
    """A gang of queue ``all``, unless said otherwise."""
    queue = QueueName(more.pop("queue", "all"))
    return Gang(key, f"uid-{key}", queue, share_class, 0, least, more.pop("created", 0.0), **more)


def pods(key: str, count: int, what: PodShape, task: str = "w", **more: Any) -> list[Pod]:
    """Gated pods of a gang."""
    return [
        Pod(
            PodUid(f"{key}-{task}-{i}"),
            "ns",
            f"{key}-{task}-{i}",
            what,
            PodPhase.GATED,
            None,
            key,
            task,
            i,
            **more,
        )
        for i in range(count)
    ]


def placed(pod: Pod, *cards: str, plan_id: str = "1-0", started: float = 0.0, **more: Any) -> Pod:
    """The pod on its cards; all on one node, which the first names."""
    ask = pod.shape.asks[0]
    shares = tuple(
        ("main", Share(CardId(card), ask.memory_mib, ask.cores_percent, ask.whole, ask.native))
        for card in cards
    )
    values = {
        "uid": pod.uid, "namespace": pod.namespace, "name": pod.name, "shape": pod.shape,
        "phase": PodPhase.PLACED,
        "node": NodeName(cards[0].partition("/")[0]), "gang": pod.gang, "task": pod.task, "index": pod.index,
        "shares": shares, "plan_id": plan_id, "started": started,
    }  # fmt: skip
    return Pod(**{**values, **more})


def queue(name: str = "all", **more: Any) -> Queue:
    """A queue that may use plenty."""
    caps = more.pop("capability", {"volcano.sh/vgpu-h20": 1000, "volcano.sh/vgpu-t4": 1000})
    return Queue(QueueName(name), capability=caps, **more)


def snapshot(
    nodes: Iterable[Node] = (),
    gangs: Iterable[Gang] = (),
    members: Iterable[Pod] = (),
    queues: Iterable[Queue] = (),
    held: Mapping[CardId, tuple[tuple[PodUid, Share], ...]] | None = None,
    **more: Any,
) -> Snapshot:
    """One moment."""
    return Snapshot(
        revision=1,
        nodes={entry.name: entry for entry in nodes},
        pods={entry.uid: entry for entry in members},
        gangs={entry.key: entry for entry in gangs},
        queues={entry.name: entry for entry in (*queues, *([] if queues else [queue()]))},
        held=held or {},
        **more,
    )


def state(seen: Snapshot) -> ClusterState:
    """Books into which all of this was entered, as they live on from event to event."""
    found = ClusterState({"h20": H20_MIB})
    for entry in seen.queues.values():
        found.put_queue(entry)
    for one in seen.nodes.values():
        found.put_node(one)
    for known in seen.gangs.values():
        found.put_gang(known)
    for member in seen.pods.values():
        found.put_pod(member)
    return found
