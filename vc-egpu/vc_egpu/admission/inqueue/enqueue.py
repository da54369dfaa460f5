"""Gangs whose pods are not made, because their PodGroup was not moved from Pending to Inqueue.

Where no vc-scheduler looks after our gangs, we are the enqueuer: their pods are gated, so making them takes
no room. But a few at a time: see :mod:`.filling`.

Under vc-scheduler the ``enqueue`` action of its stock configuration holds a PodGroup back while the cluster
is full. The pods that would make room are never seen then. Such a gang is planned from its Job's template,
and enqueued once its plan is ready.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from vc_egpu.admission.inqueue.filling import Filling
from vc_egpu.admission.state.gangs import NO_TEMPLATE, Group, Template
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.books.capacity import MANY
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.gangs import OVER
from vc_egpu.core.model.resources import shape_key
from vc_egpu.volcano.api.containers import IN_SPEC
from vc_egpu.volcano.codec import options, plans, pod_codec
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.codec.request import AskError
from vc_egpu.volcano.needs.table import EnvironmentTable, shipped
from vc_egpu.volcano.podspec.node_wishes import excess, long_list
from vc_egpu.volcano.podspec.plugin_ports import plugin_ports, with_ports
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.resource_names import PER_CARD

GRACE_S: Final = 2.0
"""vc-scheduler enqueues what it has room for within a session or two."""
UNMADE_S: Final = 600.0
"""A plan whose gang was enqueued and has no pod by then is given up. A running gang waits as long for the
room of a replacement. A quota keeps the pods out, say, and no other gang could have the cards."""
_NONE: Final[Mapping[str, Document]] = MappingProxyType({})


@dataclass(slots=True)
class Pending:
    """Since when PodGroups that ask for cards are pending, by gang."""

    since: dict[str, float] = field(default_factory=dict)
    urgent: dict[str, None] = field(default_factory=dict)
    """The gangs of high priority among them, in the same order."""
    read: dict[str, str] = field(default_factory=dict)
    """The version of the Job, of RuntimeClasses and of needs, that a gang's template was taken from."""
    filling: Filling = field(default_factory=Filling)
    unmade: dict[str, float] = field(default_factory=dict)
    """Since when the plans of gangs that were planned from their template are ready, and they have no pod."""
    given_up: set[str] = field(default_factory=set)
    """Gangs that had none for too long: enqueued without a plan, so that no pod goes for nothing again."""

    def __bool__(self) -> bool:
        return bool(self.since or self.unmade)

    def look(self, key: str, mirror: Mirror, clock: float) -> None:
        """A gang changed."""
        group = mirror.groups.get(key)
        if group is not None and key not in self.given_up and _expects_pods(group):
            self._adopt(key, group, mirror)
        self._expect_pods(key, mirror, clock)
        if group is None or not is_held_back(group, mirror):
            self.since.pop(key, None)
            self.urgent.pop(key, None)
            self.read.pop(key, None)
            if group is not None and not group.outstanding:
                mirror.set_template(key, NO_TEMPLATE)  # what is to come comes as a pod
            return
        if key not in self.since:
            self.since[key] = clock
            job = job_of(group, mirror)
            named = _template_of(job, mirror).share_class if job is not None else None
            if (group.decoded.gang.share_class if named is None else named) is ShareClass.HIGH:
                self.urgent[key] = None

    def _adopt(self, key: str, group: Group, mirror: Mirror) -> None:
        """A leader before this one made the plan: of what, its Job says."""
        job = job_of(group, mirror) if not mirror.templates.get(key, NO_TEMPLATE).rows else None
        if job is not None and not job["metadata"].get("deletionTimestamp"):
            mirror.set_template(key, _template_of(job, mirror))

    def _expect_pods(self, key: str, mirror: Mirror, clock: float) -> None:
        group = mirror.groups.get(key)
        if group is None or mirror.members.get(key):
            self.given_up.discard(key)
        elif _is_ready(group) and mirror.templates.get(key, NO_TEMPLATE).rows:
            # Whatever its phase: who has no pod is taken back to Pending now and then, see ``unheard``.
            self.unmade.setdefault(key, clock)
            return
        self.unmade.pop(key, None)

    def due(self, clock: float) -> list[str]:
        """Those that waited long enough."""
        return [key for key, since in self.since.items() if clock - since >= GRACE_S]

    def unplanned(self, mirror: Mirror, clock: float) -> list[str]:
        """Those that waited long enough and are to have pods before a plan.

        Without a Volcano Job it is not known what their pods will be. The others were planned and given up.
        """
        return [
            key
            for key in self.due(clock)
            if key in self.given_up or job_of(mirror.groups[key], mirror) is None
        ]

    def plan_from_templates(self, mirror: Mirror, clock: float) -> None:
        """Give the decision what the pods of those that waited long enough will be; each Job is read once."""
        for key in self.due(clock):
            job = job_of(mirror.groups[key], mirror) if key not in self.given_up else None
            around = f"{mirror.around.runtime_revision}/{mirror.around.needs_revision}"
            version = f"{job['metadata']['resourceVersion']}/{around}" if job else ""
            if job is not None and self.read.get(key) != version:
                self.read[key] = version
                mirror.set_template(key, _template_of(job, mirror))

    def give_up(self, mirror: Mirror, clock: float) -> None:
        """Expect no pods any more of gangs that were without for too long: their plans do not hold then."""
        for key in [key for key, since in self.unmade.items() if clock - since >= UNMADE_S]:
            del self.unmade[key]
            self.given_up.add(key)
            mirror.set_template(key, NO_TEMPLATE)

    def admit(self, mirror: Mirror, clock: float) -> list[str]:
        """Those to enqueue now, of high priority first, then the oldest; the others follow as these fill."""
        for key in self.filling.overdue(clock):
            if key in self.since:  # could not be enqueued: behind all others, or a few would keep them out
                self.since[key] = self.since.pop(key)
                self.urgent.pop(key, None)
        return self.filling.admit(chain(self.urgent, self.since), self.since, mirror, clock)


def _is_ready(group: Group) -> bool:
    return group.plan is not None and group.plan.state == "ready"


def _expects_pods(group: Group) -> bool:
    """Whether its plan was made from a template, and the pods are still to come."""
    planned = next(iter(group.outstanding), None)  # either all of these have their pods, or none has
    plan = group.effective
    return planned is not None and plan is not None and plan.members[planned].uid == plans.NO_UID


def is_held_back(group: Group, mirror: Mirror) -> bool:
    """Pending, of a gang that asks for cards, and without a live pod.

    Other operators' gangs ask by their PodGroup. Some operators make no pod before its phase has changed.
    With others the pods are there and planned. But vc-scheduler binds none of a PodGroup for which it has no
    room, and it counts limits per card, too.
    """
    if group.decoded.phase not in {"", "Pending"}:
        return False
    owner = group.decoded.owner
    if owner is not None and owner.is_volcano_job:
        job = job_of(group, mirror)
        if job is None or not is_managed(job) or job["metadata"].get("deletionTimestamp"):
            return False  # one that is being deleted gets no pods, however long a finalizer keeps it
    elif not group.decoded.asks:
        return False
    elif _is_ready(group):
        return True
    return all(m.pod.phase in OVER for m in mirror.members.get(group.decoded.gang.key, {}).values())


def job_of(group: Group, mirror: Mirror) -> Document | None:
    """The Volcano Job that owns a PodGroup."""
    owner = group.decoded.owner
    if owner is None or not owner.is_volcano_job:
        return None
    namespace = group.decoded.gang.key.split("/", 1)[0]
    job = mirror.around.jobs.get((namespace, owner.name))
    return job if job is not None and job["metadata"]["uid"] == owner.uid else None


def is_managed(job: Document) -> bool:
    """Whether the webhook marked the Job's pods as ours."""
    try:
        return any(_labels(task).get(names.MANAGED_LABEL) == "true" for task in _tasks(job))
    except AttributeError:  # a template can hold anything
        return False


def _template_of(job: Document, mirror: Mirror) -> Template:
    around = mirror.around
    return template(
        job, mirror.table, around.runtime_classes, mirror.rules.enter, environments=around.environments
    )


def template(
    job: Document,
    table: ModelTable,
    runtime_classes: Mapping[str, Document] = _NONE,
    among: Callable[[DecodedPod], DecodedPod] = lambda pod: pod,
    *,
    environments: EnvironmentTable | None = None,
) -> Template:
    """The pods that a Job will have; the empty one for a Job that cannot be read, or is not ours.

    ``among`` adds what rules of other pods say about a pod. ``runtime_classes``, by name, and the Job's
    plugins add to pods what their template does not show. ``environments`` says what software needs; None:
    as the shipped table has it.
    Two thousand million replicas are cut to what a gang can have: each becomes a member in the decision.
    """
    rows, classes, left = [], set(), MANY
    for task in _tasks(job) if is_managed(job) else ():
        pod_template = task.get("template") or {}
        spec = pod_template.get("spec") or {}
        metadata = pod_template.get("metadata") or {}
        try:
            said = metadata.get("annotations") or {}
            ask = options.read(spec, said, table)
            request = ask.request(
                oversubscribe=said.get(names.OVERSUBSCRIBE) == "true",
                swap=said.get(names.OVERSUBSCRIBE) == "swap",
                mixes=said.get(names.MIX_MODELS) == "true",
                best=said.get(names.ALTERNATIVES_ORDER) == "best",
            )
            request = options.with_needs_of(request, said, spec, table, environments or shipped())
            name = plans.task_name(str(task["name"]))
            full = _filled_in(job, name, spec, runtime_classes)
            document = _as_pod(job, name, metadata, full, request.encode())
            pod = among(pod_codec.pod(document, table))
            hash(shape_key(pod.pod.shape))  # what is no word where one belongs (a label's value, say)
            replicas = min(int(task.get("replicas") or 0), left)
        except (AskError, KeyError, TypeError, ValueError, AttributeError):
            return NO_TEMPLATE  # the webhook refuses its pods, or nobody can read them
        if not name or excess(spec) or long_list(metadata.get("annotations") or {}):
            return NO_TEMPLATE  # its pods cannot be made, or cannot be decided about
        rows.append((name, replicas, pod.pod.shape))
        left -= replicas
        if pod.share_class is not None:
            classes.add(pod.share_class)
    # As with pods: should two classes meet, the gang gets the lower one.
    return Template(tuple(rows), min(classes, default=None), str(job["spec"].get("queue") or ""))


def _filled_in(job: Document, task: str, spec: Document, runtime_classes: Mapping[str, Document]) -> Document:
    """The spec with what the Job's controller and the API server will add to it."""
    found = runtime_classes.get(str(spec.get("runtimeClassName") or ""))
    full = dict(_with_ports(job, task, spec))
    if found is None:
        return full
    scheduling = found.get("scheduling") or {}
    if overhead := (found.get("overhead") or {}).get("podFixed"):
        full["overhead"] = overhead
    if selector := scheduling.get("nodeSelector"):
        full["nodeSelector"] = {**(full.get("nodeSelector") or {}), **selector}
    if tolerations := scheduling.get("tolerations"):
        full["tolerations"] = [*(full.get("tolerations") or ()), *tolerations]
    return full


def _with_ports(job: Document, task: str, spec: Document) -> Document:
    """The spec with the ports that the Job's plugins will open, where these are ports of the node."""
    if not spec.get("hostNetwork"):
        return spec
    containers = spec.get("containers") or []
    found = [str(container.get("name")) for container in containers]
    ports = plugin_ports(job["spec"].get("plugins") or {}, task, found)
    return {**spec, "containers": with_ports(containers, ports)}


def _as_pod(job: Document, task: str, metadata: Mapping[str, Any], spec: Document, request: str) -> Document:
    named = {
        names.JOB_NAME: job["metadata"]["name"],
        names.JOB_NAMESPACE: job["metadata"]["namespace"],
        names.JOB_QUEUE_NAME: str(job["spec"].get("queue") or ""),
        names.TASK_SPEC: task,
    }
    return {
        "metadata": {
            "name": "template",
            "namespace": job["metadata"]["namespace"],
            "uid": "template",
            "resourceVersion": "0",
            "labels": {**(metadata.get("labels") or {}), **named, names.MANAGED_LABEL: "true"},
            "annotations": {**(metadata.get("annotations") or {}), names.REQUEST: request},
        },
        "spec": {
            **spec,
            **{
                kind: [_without_limits_per_card(container) for container in spec[kind]]
                for kind in IN_SPEC
                if spec.get(kind)
            },
        },
    }


def _without_limits_per_card(container: Mapping[str, Any]) -> Document:
    """As the webhook leaves a pod's container: no node offers what is meant per card."""
    resources = {
        kind: {name: amount for name, amount in (amounts or {}).items() if name not in PER_CARD}
        if kind in {"limits", "requests"}
        else amounts
        for kind, amounts in (container.get("resources") or {}).items()
    }
    return {**container, "resources": resources}


def _tasks(job: Document) -> list[Any]:
    return list((job.get("spec") or {}).get("tasks") or ())


def _labels(task: Mapping[str, Any]) -> Mapping[str, str]:
    return ((task.get("template") or {}).get("metadata") or {}).get("labels") or {}
