"""Guarantee: low gangs leave the cards that another queue is guaranteed, when a gang of that queue comes.

Low gangs may use such cards while they are idle. A gang whose queue, with it, uses no more than it is
guaranteed gets them back.
"""

from collections.abc import Iterator, Mapping, Sequence

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import QueueName
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.resources import NATIVE_PREFIX, model_of, native_resource, shared_resource
from vc_egpu.core.room.hunt import Hunt, Quarry
from vc_egpu.core.trial.trial import Trial


def hunts(trial: Trial, view: GangView, members: Sequence[Member]) -> Iterator[Hunt]:
    """One round: low gangs of all queues but the one that is guaranteed the cards, and those below it."""
    if not trial.policy.preemption:
        return
    amounts = trial.amounts_of(members)
    owner = owner_of(trial, view.gang.queue, amounts)
    if owner is None:
        return
    kinds = tuple(sorted(_kinds(amounts)))
    holders = sorted(trial.index.holders.queues())
    quarry = tuple(Quarry(name, (), kinds) for name in holders if owner not in trial.chain(name))
    if quarry:
        yield Hunt(Cause.GUARANTEE, quarry=quarry, kinds=kinds)


def owner_of(trial: Trial, queue: QueueName, amounts: Mapping[str, int]) -> QueueName | None:
    """The queue, or the nearest one above it, that is guaranteed these amounts with what it uses.

    None: none is. Judged by what the guarantee names of the models that are asked for.
    """
    kinds = _kinds(amounts)
    for name in trial.chain(queue):
        entry = trial.queues.get(name)
        named = [resource for resource in entry.guarantee if kind_of(resource) in kinds] if entry else []
        if entry is None or not kinds or {kind_of(resource) for resource in named} != kinds:
            continue
        use = trial.use_of(name)
        if all(use.get(r, 0) + amounts.get(r, 0) <= entry.guarantee[r] for r in named):
            return name
    return None


def _kinds(amounts: Mapping[str, int]) -> set[str]:
    return {kind for resource in amounts if (kind := kind_of(resource)) is not None}


def kind_of(resource: str) -> str | None:
    """The resource that counts the cards of which this one counts the cards, memory or cores."""
    model = model_of(resource)
    if model is None:
        return None
    return native_resource(model) if resource.startswith(NATIVE_PREFIX) else shared_resource(model)
