"""``kubectl egpu queues``: caps, what is used, who waits and why. Pure: documents in, rows out."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from vc_egpu.cli import world
from vc_egpu.core.model.cluster import Queue, has_members
from vc_egpu.kube import Json
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.words.names import (
    ROOT_QUEUE,
    cores_total_resource,
    memory_total_resource,
    native_resource,
    shared_resource,
)
from vc_egpu.volcano.words.resource_names import classify

_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Amount:
    """One counted resource in one queue; ``cap`` None is unlimited."""

    resource: str
    used: int
    cap: int | None
    deserved: int | None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue."""

    name: str
    parent: str
    state: str
    amounts: tuple[Amount, ...]
    admitted: int
    """Gangs of which members hold cards or are admitted."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Gangs that wait, by reason."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class QueuesReport:
    """All queues, and what is to be said beside them."""

    queues: tuple[QueueRow, ...]
    notes: tuple[str, ...]


def report(
    queues: Iterable[Json], groups: Iterable[Json], pods: Iterable[Json], *, partial: str = ""
) -> QueuesReport:
    """Count what the pods of each queue hold, children's use within their parents'.

    ``partial`` says in words that not all could be read: then a queue holds at least what its status says.
    """
    groups, pods = list(groups), list(pods)
    members = world.members_of(pods)
    queue_of_group = {
        world.key(group): world.queue_of(group, members.get(world.key(group), ())) for group in groups
    }
    used: dict[str, Counter[str]] = defaultdict(Counter)
    holding: set[str] = set()
    for pod in pods:
        key = world.group_key(pod)
        queue = queue_of_group.get(key) or world.checked_queue(pod)
        if queue and not world.finished(pod) and (amounts := held(pod)):
            used[queue].update(amounts)
            holding.add(key)
    documents = {str(document["metadata"]["name"]): document for document in queues}
    total = _rolled_up(documents, used, _counted(documents) if partial else {})
    gangs = [group for group in groups if _is_gang(group, members.get(world.key(group), ()))]
    waiting, admitted = _verdicts(gangs, queue_of_group, holding)
    if partial:
        admitted |= Counter({name: _running(document) for name, document in documents.items()})
    rows = [
        _row(documents[name], total.get(name, Counter()), admitted[name], waiting.get(name, Counter()))
        for name in sorted(documents)
    ]
    lost = sorted(set(waiting) - set(documents))
    notes = [partial] if partial else []
    notes += [f"{sum(waiting[name].values())} gangs name queue {name}, which does not exist" for name in lost]
    return QueuesReport(tuple(rows), tuple(notes))


def held(pod: Json) -> Counter[str]:
    """Amounts by typed resource that a pod holds cards for."""
    amounts: Counter[str] = Counter()
    cards, request = world.cards_of(pod), world.request_of(pod)
    if cards is None or request is None:
        return amounts
    for container, shares in cards.containers.items():
        ask = request.containers.get(container)
        if ask is None:
            continue
        if ask.native:
            amounts[native_resource(ask.model)] += len(shares)
            continue
        amounts[shared_resource(ask.model)] += len(shares)
        amounts[memory_total_resource(ask.model)] += sum(share.memory_mib for share in shares)
        amounts[cores_total_resource(ask.model)] += sum(share.cores for share in shares)
    return amounts


def _is_gang(group: Json, members: Iterable[Json]) -> bool:
    single = cluster_codec.is_single(cluster_codec.owner_of(group["metadata"]))
    return has_members(single=single, there=not all(map(world.finished, members)))


def _allocated(queue: Json) -> Counter[str]:
    """What the queue's controller counts for it, some moments behind; nothing where that cannot be read."""
    try:
        counted = cluster_codec.amounts((queue.get("status") or {}).get("allocated"))
    except (ValueError, TypeError, AttributeError):
        return Counter()
    return Counter({name: amount for name, amount in counted.items() if classify(name).is_managed})


def _running(queue: Json) -> int:
    count = (queue.get("status") or {}).get("running")
    return count if isinstance(count, int) else 0


def _counted(documents: Mapping[str, Json]) -> dict[str, Counter[str]]:
    counted = {name: _allocated(document) for name, document in documents.items()}
    return {name: amounts for name, amounts in counted.items() if amounts}


def _rolled_up(
    documents: Mapping[str, Json], used: Mapping[str, Counter[str]], counted: Mapping[str, Counter[str]]
) -> dict[str, Counter[str]]:
    """What each queue and those below it use, and at least what is ``counted`` for them."""
    # Volcano's scheduler counts what a queue holds to all above it, too, up to the root; ours does not.
    already = ROOT_QUEUE in counted
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for name in {**used, **counted}:
        own = used.get(name, Counter())
        amounts = own if already else own | counted.get(name, Counter())
        above: str | None = name
        for _ in range(_MAX_DEPTH):
            if not above:
                break
            total[above].update(amounts)
            above = ((documents.get(above) or {}).get("spec") or {}).get("parent")
    if already:
        for name, amounts in counted.items():
            total[name] |= amounts
    return total


def _verdicts(
    groups: Iterable[Json], queue_of_group: Mapping[str, str], holding: Container[str]
) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """Gangs that wait by reason, and those that are in: of one that grows beyond its cap both is true."""
    waiting: dict[str, Counter[str]] = defaultdict(Counter)
    admitted: Counter[str] = Counter()
    for group in groups:
        found, key = world.condition(group) or {}, world.key(group)
        if (group.get("status") or {}).get("phase") == "Completed":
            continue
        queue = queue_of_group[key]
        if found.get("status") == "True" or key in holding:
            admitted[queue] += 1
        if found and found.get("status") != "True":
            waiting[queue][found.get("reason") or "Unknown"] += 1
    return waiting, admitted


def _row(document: Json, used: Counter[str], admitted: int, waiting: Counter[str]) -> QueueRow:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    problem = ""
    try:
        queue = cluster_codec.queue(document)
    except (ValueError, TypeError, KeyError) as error:
        queue, problem = Queue(name=document["metadata"]["name"]), f"cannot be read: {error}"
    models = {*world.models_in(queue.capability), *world.models_in(queue.deserved), *world.models_in(used)}
    spellings = (shared_resource, memory_total_resource, cores_total_resource, native_resource)
    candidates = [spelling(model) for model in sorted(models) for spelling in spellings]
    resources = [r for r in candidates if r in queue.capability or r in queue.deserved or used[r]]
    return QueueRow(
        name=str(document["metadata"]["name"]),
        parent=str(spec.get("parent") or ""),
        state=str(status.get("state") or "Open"),
        amounts=tuple(
            Amount(name, used[name], queue.capability.get(name), queue.deserved.get(name))
            for name in resources
        ),
        admitted=admitted,
        waiting=dict(sorted(waiting.items())),
        problem=problem,
    )
