"""Pods at creation: checked, completed, gated."""

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from vc_egpu.core.model.gangs import option_of
from vc_egpu.volcano.api.containers import IN_SPEC, containers_of
from vc_egpu.volcano.codec import options
from vc_egpu.volcano.codec.request import AskError, PodAsk, names_without_effect, read_pod
from vc_egpu.volcano.podspec.way import Way, waits_for_us, way_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Request
from vc_egpu.volcano.words.knobs import slips
from vc_egpu.volcano.words.makers import controller_of
from vc_egpu.volcano.words.priority import ClassName, PriorityError, class_of, objections_to_low, resolve
from vc_egpu.volcano.words.resource_names import classify, is_spelling
from vc_egpu.webhook.protocol.context import (
    DEFAULT_QUEUE,
    Context,
    Review,
    annotations_of,
    items,
    labels_of,
    mapping,
    spec_of,
)
from vc_egpu.webhook.protocol.decision import Decision, Json, Refusal, allow, refuse
from vc_egpu.webhook.protocol.questions import Subject
from vc_egpu.webhook.reviews import (
    access,
    gangs,
    membership,
    needs,
    queue_limits,
    several,
    size_limits,
    specs,
    without_effect,
)

_ANNOTATIONS = "metadata.annotations"
VOLCANO_JOB_GROUP = "batch.volcano.sh/"
POD_ROOM_BYTES: Final = 48 * 1024
"""For the request, the cards of 64 containers, an order to leave them, and what controllers add."""


def review_pod(review: Review, context: Context) -> Decision:
    """Complete a pod that asks for cards or carries the managed label; everything else is left alone.

    Raises :class:`~vc_egpu.webhook.protocol.questions.Unanswered` when it needs to know more.
    """
    if review.old_object is not None or review.operation != "CREATE":
        return _applied_again(review, context)
    try:
        return _review(review, context)
    except (Refusal, AskError, PriorityError) as refusal:
        return refuse(str(refusal))


def _review(review: Review, context: Context) -> Decision:
    pod, annotations, spec = review.object, annotations_of(review.object), spec_of(review.object)
    size_limits.check_pods([spec], "spec")
    specs.refuse_forged(annotations, _ANNOTATIONS, request_too=False)
    labelled = specs.check_label(labels_of(pod), "metadata.labels")
    known = _completed_before(pod, labelled=labelled)
    ask = options.read(spec, annotations, context.table, known=known)
    if not ask.is_managed and not labelled:
        specs.refuse_forged(annotations, _ANNOTATIONS, request_too=True)
        if not membership.is_member(review, context):
            if waits_for_us(spec):
                # The admission layer answers for whatever has it, and takes it for a member of what it names.
                field, value = _what_waits(spec)
                raise Refusal(f"{field}: {value} is written by the webhook; leave it out")
            return allow(pod, {**pod, "spec": _without_zeroes(spec, ask)}, ask.warnings)
    size_limits.check_room(annotations, {}, POD_ROOM_BYTES, "what the stack tells a pod", _ANNOTATIONS)
    specs.check_placement(spec, "spec")
    specs.check_isolation(spec, "spec", ask)
    knobs = specs.check_knobs(annotations, _ANNOTATIONS, ask, context.table)
    knobs.warnings += without_effect.of_pod(spec, annotations, "")
    knobs.warnings += without_effect.of_limits(ask, annotations, context.offers, "")
    group = membership.pod_group(review, context)
    ask, spec = _as_chosen(ask, spec, review, group, context)
    scheduler, warning = specs.scheduler_for(
        spec.get("schedulerName", ""),
        "spec.schedulerName",
        _scheduler(spec, ask, group, context, grouped=bool(annotations.get(names.GROUP_NAME))),
    )
    cls = _class(review, context, group)
    specs.check_mps(annotations, _ANNOTATIONS, ask, cls)
    queue = _queue(review, context, group, ask, low=cls == "low")
    with_job = _checked_with_its_job(review, context, group)
    if not with_job:
        size_limits.check_annotations(annotations, {}, _ANNOTATIONS)
        specs.check_grace(spec, cls, context, "spec")
    priority_class = specs.priority_class_for(
        str(spec.get("priorityClassName") or ""),
        cls,
        context,
        "spec.priorityClassName",
        preemption_policy=spec.get("preemptionPolicy") or None,
    )
    request = ask.request(
        knobs.core_policy,
        oversubscribe=knobs.oversubscribe,
        swap=knobs.swap,
        mixes=knobs.mixes,
        best=knobs.best,
    )
    if ask.is_managed:
        request, told = needs.with_needs(request, known, pod, _ANNOTATIONS, context, ask=ask)
        knobs.warnings += told
    metadata = _metadata(pod, request, cls, "" if with_job else queue)
    if group is None and membership.named(review):
        metadata["annotations"][names.GROUP_UNSEEN] = "true"
    if controller_of(pod) and not context.settings.keep_managed_fields:
        # No user applies the pods that a controller makes. Without the first record of who wrote which field,
        # the API server keeps none. Then each later write costs a third less, and each copy is 40 % smaller.
        metadata.pop("managedFields", None)
    completed = {
        **pod,
        "metadata": metadata,
        "spec": _spec(spec, ask, scheduler, priority_class, context.priority_classes.get(priority_class)),
    }
    warnings = [*ask.warnings, *knobs.warnings, *([warning] if warning else [])]
    if cls == "low":
        warnings += objections_to_low(annotations, labels_of(pod), "metadata")
    return allow(pod, completed, [*warnings, *slips(annotations, labels_of(pod), "metadata")])


def _as_chosen(
    ask: PodAsk, spec: dict[str, Any], review: Review, group: Json | None, context: Context
) -> tuple[PodAsk, dict[str, Any]]:
    """The pod with the model that was chosen for its gang; as it is where none is chosen yet.

    What a pod requests never changes: one that was made before the choice is made again.
    """
    if not ask.options or ask.choice:
        return ask, spec
    maker = controller_of(review.object)
    if not maker:
        raise Refusal(
            f"spec: {names.ANY_MODEL} in a pod without a controller: the pod is made again once its model is "
            "chosen, and no controller would do so; make it by a Job or a Deployment, or name the model"
        )
    own = context.pod_groups.get((review.namespace, f"{names.LOOSE_GROUP}{maker.get('uid')}"))
    choice = annotations_of(group or own or {}).get(names.CHOICE)
    name = option_of(str(choice or ""), str(annotations_of(review.object).get(names.TASK_SPEC) or ""))
    if name not in ask.options:
        return ask, spec
    said = annotations_of(review.object)
    return options.chosen(ask, name), options.with_option(spec, said, name, context.table)


def _without_zeroes(spec: Json, ask: PodAsk) -> Json:
    """The spec without asks for 0 cards. The admission policies go by names, and would refuse the pod."""
    completed = {
        key: [complete_container(mapping(container), ask, whole_pod=True) for container in items(spec[key])]
        for key in IN_SPEC
        if any(names_without_effect(mapping(container)) for container in items(spec.get(key)))
    }
    return {**spec, **completed}


def _is_gated(spec: Json) -> bool:
    return any(mapping(gate).get("name") == names.GATE for gate in items(spec.get("schedulingGates")))


def _what_waits(spec: Json) -> tuple[str, str]:
    """The field by which a pod waits for us, and what stands there."""
    if _is_gated(spec):
        return "spec.schedulingGates", names.GATE
    return "spec.schedulerName", names.SCHEDULER_DIRECT


def _scheduler(spec: Json, ask: PodAsk, group: Json | None, context: Context, *, grouped: bool) -> str:
    """What will bind the pod: we ourselves, or the scheduler that the operator named."""
    other = context.settings.scheduler_of(grouped=grouped)
    theirs = bool(context.settings.ungrouped_scheduler_name) and not context.settings.direct_without_group
    if not grouped and theirs:
        return other  # its PodGroup is made by a controller that looks for that name
    refused = names.ROLLED_BACK in annotations_of(group or {})
    if _is_gated(spec) or not ask.is_managed or refused:
        # A gate stays. A member without cards goes where a scheduler finds room. And where a node refused
        # what was planned, a scheduler looks at more than we do.
        return other
    choice = way_of(spec, by_scheduler=context.settings.binder != "direct")
    return names.SCHEDULER_DIRECT if choice.way is Way.DIRECT else other


def _completed_before(pod: Json, *, labelled: bool) -> Request | None:
    """The request annotation of a pod that has been here before (another webhook changed it since).

    A pod that brings the annotation without all the rest of what the webhook writes has forged it.
    """
    annotations, spec = annotations_of(pod), spec_of(pod)
    if names.REQUEST not in annotations:
        return None
    per_card = any(
        is_spelling(name)
        for container in containers_of(spec)
        for name in mapping(mapping(mapping(container).get("resources")).get("limits"))
    )
    if not (labelled and waits_for_us(spec)) or per_card:
        specs.refuse_forged(annotations, _ANNOTATIONS, request_too=True)
    return specs.decode_request(annotations[names.REQUEST])


def _applied_again(review: Review, context: Context) -> Decision:
    """Take the per-card limits out again that a second ``kubectl apply`` of a bare pod brings back.

    Only where they ask for what the pod has: a changed ask is left to the API server, which refuses it.
    """
    pod, spec, annotations = review.object, spec_of(review.object), annotations_of(review.object)
    if names.REQUEST not in annotations:
        return allow()
    try:
        request = specs.decode_request(annotations[names.REQUEST])
        ask = read_pod(_without(spec, {"memory-total", "cores-total"}), context.table)
    except (Refusal, AskError):
        return allow()
    if dict(ask.containers) != dict(request.containers):
        return allow()
    return allow(pod, {**pod, "spec": _without_zeroes(_without(spec, {"per-card", "mig"}), PodAsk())})


def _without(spec: dict[str, Any], kinds: Set[str]) -> dict[str, Any]:
    """The pod spec without these kinds of our resources in its containers."""

    def strip(container: Json) -> Json:
        resources = mapping(container.get("resources"))
        kept = {
            kind: {k: v for k, v in mapping(amounts).items() if classify(k).kind not in kinds}
            for kind, amounts in resources.items()
            if kind in {"limits", "requests"}
        }
        return {**container, "resources": {**resources, **kept}} if resources else container

    return {
        key: [strip(mapping(item)) for item in value] if key in IN_SPEC else value
        for key, value in spec.items()
    }


# --- which queue, which class -----------------------------------------------------------------------


def _checked_with_its_job(review: Review, context: Context, group: Json | None) -> bool:
    """True for pods that a Job controller makes of a Volcano Job: queue and class were checked with the Job.

    They also come when the queue has been closed or its cap lowered since; then they wait, with a reason.
    A group in another queue than its Job's was not: Volcano's controllers leave it where they made it. Nor
    was a Job that asks for no cards, whose pods have their ask from elsewhere (a LimitRange, say).
    """
    owner = controller_of(review.object)
    if (
        group is None
        or review.subject.user not in context.settings.job_controllers
        or owner.get("kind") != "Job"
        or not str(owner.get("apiVersion") or "").startswith(VOLCANO_JOB_GROUP)
    ):
        return False
    job = _job(review, context)
    return not job or (spec_of(job).get("asks") is not False and _queue_of(job) == _queue_of(group))


def _queue_of(obj: Json) -> str:
    return str(spec_of(obj).get("queue") or DEFAULT_QUEUE)


def _subjects(review: Review) -> list[Subject]:
    account = specs.service_account_of(spec_of(review.object))
    mine = Subject.of_service_account(review.namespace, account)
    return [review.subject] if review.subject.user == mine.user else [review.subject, mine]


def _queue(review: Review, context: Context, group: Json | None, ask: PodAsk, *, low: bool) -> str:
    """The queue that pays, checked; where there is a PodGroup it is the group's."""
    with_job = _checked_with_its_job(review, context, group)
    annotation = annotations_of(review.object).get(names.QUEUE_NAME)
    path = f'{_ANNOTATIONS}["{names.QUEUE_NAME}"]'
    namespace = context.namespaces.get(review.namespace) or {}
    own = str(annotation or annotations_of(namespace).get(names.QUEUE_NAME) or "")
    if group is None:
        queue = own
    elif own and not with_job and _queue_of(group) == DEFAULT_QUEUE:
        queue = own  # Volcano writes its default where the group's maker named none
    else:
        queue = _queue_of(group)
        if annotation and annotation != queue:
            raise Refusal(f"{path}: {str(annotation)[:63]!r}, but its PodGroup is in queue {queue!r}")
        path = f"spec.queue of PodGroup {mapping(group.get('metadata')).get('name')!r}"
    if with_job:
        return queue
    # A controller would be told, not its user; and it tries a refused pod ever more seldom, at last every 17
    # minutes. A pod that is there says itself what it waits for, and goes on once the queue is open. A new
    # queue below this one would stop the replacements of all inference in it.
    controlled = bool(controller_of(review.object))
    access.check_queue(queue, _subjects(review), review.namespace, context, path, from_controller=controlled)

    def holds(asks: Sequence[PodAsk]) -> None:
        gangs.check_caps(asks[0].sums(), queue, context, path, "the pod", low=low)
        queue_limits.check_ask(asks[0], queue, context, "spec.containers")

    several.check([ask], holds)
    return queue


def _class(review: Review, context: Context, group: Json | None) -> ClassName:
    """The pod's class: its own annotation (the template's), its Job's, its PodGroup's."""
    own = class_of(annotations_of(review.object), _ANNOTATIONS)
    job = class_of(annotations_of(_job(review, context)), "metadata.annotations of the Job")
    grouped = class_of(annotations_of(group or {}), "metadata.annotations of the PodGroup")
    cls = resolve(own, job, grouped)
    if cls == "high":
        with_job = _checked_with_its_job(review, context, group) and (own or job) is not None
        if not with_job:
            # A PodGroup is not reviewed: who only wrote "high" on one has not been asked for leave.
            path = f'{_ANNOTATIONS}["{names.PRIORITY}"]'
            access.check_high(_subjects(review), review.namespace, context, path)
    return cls


def _job(review: Review, context: Context) -> Json:
    owner = controller_of(review.object)
    if not str(owner.get("apiVersion") or "").startswith(VOLCANO_JOB_GROUP):
        return {}
    job = context.jobs.get((review.namespace, str(owner.get("name")))) or {}
    return job if mapping(job.get("metadata")).get("uid") == owner.get("uid") else {}


# --- what is written --------------------------------------------------------------------------------


def _metadata(pod: Json, request: Request, cls: ClassName, queue: str) -> dict[str, Any]:
    """Metadata with the label, the request, the class and, where it was checked here, the queue."""
    metadata = mapping(pod.get("metadata"))
    annotations = {**annotations_of(pod), names.REQUEST: request.encode()}
    if queue:
        annotations[names.QUEUE_NAME] = queue
    if cls != "unset":
        annotations[names.PRIORITY] = cls
    if cls == "low" and names.PREEMPTABLE not in labels_of(pod):
        annotations.setdefault(names.PREEMPTABLE, "true")  # Volcano's scheduler obeys what a user wrote
    labels = {**labels_of(pod), names.MANAGED_LABEL: "true"}
    return {**metadata, "annotations": annotations, "labels": labels}


def _spec(
    spec: dict[str, Any], ask: PodAsk, scheduler: str, priority_class: str, priority: Json | None
) -> dict[str, Any]:
    completed = {**spec, "schedulerName": scheduler}
    for key in IN_SPEC:
        containers = items(spec.get(key))
        if containers:
            completed[key] = [complete_container(container, ask, whole_pod=True) for container in containers]
    if scheduler != names.SCHEDULER_DIRECT and not _is_gated(spec):
        completed["schedulingGates"] = [*items(spec.get("schedulingGates")), {"name": names.GATE}]
    if spec.get("priorityClassName") != priority_class:
        completed["priorityClassName"] = priority_class
        # Filled in from another class before we were asked; the API server fills them in again.
        completed.pop("priority", None)
        completed.pop("preemptionPolicy", None)
    if priority is not None and "priority" not in completed:
        # What the API server would fill in: a pod that it need not change does not come here once more.
        completed["priority"] = priority.get("value", 0)
        completed["preemptionPolicy"] = priority.get("preemptionPolicy", "PreemptLowerPriority")
    return completed


def complete_container(container: Json, ask: PodAsk, *, whole_pod: bool) -> Json:
    """The container with its totals. In a pod (``whole_pod``) per-card limits and asks for 0 go, and the
    limits get the totals too. In a Job's template nothing is taken away."""
    totals = ask.totals.get(str(mapping(container).get("name")))
    dropped = names_without_effect(mapping(container)) if whole_pod else frozenset()
    if totals is None and not dropped:
        return container
    resources = mapping(container.get("resources"))
    if totals is not None and whole_pod:
        kinds = (mapping(resources.get(kind)) for kind in ("limits", "requests"))
        dropped |= {name for amounts in kinds for name in amounts if is_spelling(name)}
    return {
        **container,
        "resources": {
            **resources,
            **{
                kind: _with_totals(mapping(resources.get(kind)), totals or {}, dropped)
                for kind in ("limits", "requests")
                if totals is not None or kind in resources
            },
        },
    }


def _with_totals(amounts: Mapping[str, Any], totals: Mapping[str, int], dropped: Set[str]) -> dict[str, Any]:
    kept = {k: v for k, v in amounts.items() if k not in dropped}
    # What stands there already is the same number, perhaps written otherwise: it stays as it is.
    return {**kept, **{name: str(amount) for name, amount in totals.items() if name not in kept}}
