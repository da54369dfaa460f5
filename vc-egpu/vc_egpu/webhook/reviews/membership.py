"""Which PodGroup a pod may name, and which pods without an ask are members of a gang that asks.

Other operators have gangs as well as Volcano Jobs. They make PodGroups for their own kinds (a RayCluster, an
MPIJob, a PyTorchJob, a LeaderWorkerSet), and pods that name them. Some of these pods need no cards. A pod
belongs to a group if its controller owns the group. It also belongs if the group's owner made that
controller, as far as Kubernetes' own kinds show it. Pods are such a kind: a Spark driver makes its executors.
Otherwise the pod's creator must be allowed to change the PodGroup, as such an operator is.

What this rule does not do: it keeps no tenant out. An owner reference is a claim, and Kubernetes checks it
for no user. So each user that may create pods in a namespace can write the group's own owner into them. A
chain of owners gives no more than that. Three other rules keep tenants apart:

- The group and each maker are looked for in the pod's own namespace. No claim leads into another one.
- The pod counts in the group's queue. Its creator or its account must be allowed to use that queue.
- Class ``high`` has a right of its own.

Links are compared by UID, so that no later object of the same name is taken for a maker. A chain has few
links, and ends at a circle, because each link may cost a request.
"""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of
from vc_egpu.volcano.words.resource_names import asked_in
from vc_egpu.webhook.protocol.context import Context, Review, annotations_of, mapping, spec_of
from vc_egpu.webhook.protocol.decision import Json, Refusal
from vc_egpu.webhook.protocol.questions import (
    Access,
    MakerLookup,
    PodGroupLookup,
    Unanswered,
    any_allowed,
)

PATH: Final = f'metadata.annotations["{names.GROUP_NAME}"]'
_GROUP: Final = "scheduling.volcano.sh"
_MOST_LOOKS: Final = 4
"""For an executor whose driver is the node of a TrainJob: the driver, a batch Job, a JobSet; one to spare."""


def pod_group(review: Review, context: Context) -> Json | None:
    """The PodGroup that the pod names; None where it names none, or one that is not there yet.

    Refuses a PodGroup of another owner, and a missing one for a pod without an owner. Raises
    :class:`~vc_egpu.webhook.protocol.questions.Unanswered`.
    """
    name = named(review)
    if not name:
        return None
    group, mine = _find(review.namespace, name, context), controller_of(review.object)
    if group is None:
        if not mine:
            raise Refusal(f"{PATH}: PodGroup {name!r} does not exist in namespace {review.namespace!r}")
        # Some make it when they see the first of its pods: a LeaderWorkerSet's belongs to its leading pod.
        return None
    if _belongs(review, name, group, context):
        return group
    owner = controller_of(group)
    whose = f"{mine.get('kind')} {str(mine.get('name'))[:63]!r}" if mine else "nobody"
    raise Refusal(
        f"{PATH}: PodGroup {name!r} belongs to {owner.get('kind')} {owner.get('name')!r}, "
        f"this pod to {whose}; "
        f'and {review.subject} may not update that PodGroup (RBAC verb "update" on podgroups.{_GROUP})'
    )


def is_member(review: Review, context: Context) -> bool:
    """Whether a pod that asks for no cards belongs to a gang that does, and so starts with it or not at all.

    A pod that cannot be held back (it is bound already), or that is not the gang's own, is left alone and not
    refused.
    """
    name = named(review)
    if not name or spec_of(review.object).get("nodeName"):
        return False
    group = _find(review.namespace, name, context)
    return group is not None and asks(group) and _belongs(review, name, group, context)


def named(review: Review) -> str:
    """The name of the PodGroup that the pod names; empty where it names none."""
    return str(annotations_of(review.object).get(names.GROUP_NAME) or "")[: names.LONGEST_OBJECT_NAME]


def asks(group: Json) -> bool:
    """Whether a PodGroup's ``minResources`` name cards."""
    return asked_in(mapping(spec_of(group).get("minResources"))) is not None


def _find(namespace: str, name: str, context: Context) -> Json | None:
    group = context.pod_groups.get((namespace, name))
    if group is None:
        question = PodGroupLookup(namespace, name)
        known, group = context.answers.pod_group(question)
        if not known:
            raise Unanswered([question])
    return group


def _belongs(review: Review, name: str, group: Json, context: Context) -> bool:
    owner, mine = controller_of(group), controller_of(review.object)
    return not owner or _is_kin(mine, owner, review.namespace, context) or _may_change(review, name, context)


def _is_kin(mine: Mapping[str, Any], owner: Mapping[str, Any], namespace: str, context: Context) -> bool:
    """Whether the group's owner made what makes the pod."""
    passed: set[str] = set()
    while mine.get("uid") != owner.get("uid"):
        question = MakerLookup.of(namespace, mine)
        if question is None or question.uid in passed or len(passed) == _MOST_LOOKS:
            return False
        passed.add(question.uid)
        known, mine = context.answers.maker(question)
        if not known:
            raise Unanswered([question])
    return bool(mine.get("uid"))


def _may_change(review: Review, name: str, context: Context) -> bool:
    question = Access(review.subject, "update", _GROUP, "podgroups", name, review.namespace)
    return any_allowed(context.answers, [question])
