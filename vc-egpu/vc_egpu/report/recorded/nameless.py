"""The values of a cluster without the names of pods, gangs, tasks, containers and namespaces.

A name becomes a digest of the object's UID, which nobody can guess. So it is the same in each file and for
each leader. Names of nodes, queues and models stay, and what pods ask of nodes: they decide where work fits.
Rules between pods go, since they name labels and namespaces.
"""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Final

from vc_egpu.core.model.cluster import CardAsk, Gang, Pod, PodShape, PodUid, Snapshot
from vc_egpu.core.model.neighbours import NO_NEIGHBOURS
from vc_egpu.core.profiles.table import Traits

_DIGITS: Final = 16


def digest(uid: str) -> str:
    """What stands for an object of this UID."""
    return sha256(uid.encode()).hexdigest()[:_DIGITS]


def gang_key(gang: Gang) -> str:
    """What stands for a gang's name."""
    return f"gang/{digest(gang.uid)}"


def task_of(gang: Gang, task: str) -> str:
    """What stands for a task of the gang; empty where it has no name."""
    return f"t{digest(gang.uid + task)[:8]}" if task else ""


def shape_of(shape: PodShape) -> PodShape:
    """The shape; its containers are called by their places."""
    options = tuple(replace(option, asks=_asks(option.asks)) for option in shape.options)
    return replace(shape, asks=_asks(shape.asks), options=options, neighbours=NO_NEIGHBOURS)


def _asks(asks: tuple[CardAsk, ...]) -> tuple[CardAsk, ...]:
    return tuple(replace(ask, container=f"c{number}") for number, ask in enumerate(asks))


def pod_of(pod: Pod, gang: Gang | None) -> Pod:
    """The pod; one of which no gang is known takes its room, and no more."""
    place = {ask.container: f"c{number}" for number, ask in enumerate(pod.shape.asks)}
    shares = tuple((place.get(container, "c"), share) for container, share in pod.shares)
    name = digest(pod.uid)
    return replace(
        pod,
        uid=PodUid(name),
        namespace="",
        name=name,
        shape=shape_of(pod.shape),
        gang=gang_key(gang) if gang is not None else None,
        task=task_of(gang, pod.task) if gang is not None else "",
        shares=shares,
        subgroup=(),
        resize=(),
    )


def gang_of(gang: Gang) -> Gang:
    """The gang. What was planned, claimed or moved is left out: it is decided again."""
    return replace(
        gang,
        key=gang_key(gang),
        uid=digest(gang.uid),
        plan=None,
        reservation=None,
        move=None,
        subgroups={},
        partitions={},
        traits=Traits(gang.traits.owner, (), gang.traits.earlier, gang.traits.uses_points),
        min_task_member={task_of(gang, task): least for task, least in gang.min_task_member.items()},
        template=tuple((task_of(gang, task), count, shape_of(what)) for task, count, what in gang.template),
    )


def snapshot_of(snapshot: Snapshot) -> Snapshot:
    """The snapshot. Cards that are held for pods that are gone stay held."""
    pods: Mapping[PodUid, Pod] = {
        one.uid: one
        for one in (pod_of(pod, snapshot.gangs.get(pod.gang or "")) for pod in snapshot.pods.values())
    }
    held = {
        card: tuple((PodUid(digest(uid)), share) for uid, share in shares)
        for card, shares in snapshot.held.items()
    }
    gangs = {one.key: one for one in map(gang_of, snapshot.gangs.values())}
    return replace(snapshot, pods=pods, gangs=gangs, held=held, kept={}, moves_of_gone={}, index=None)
