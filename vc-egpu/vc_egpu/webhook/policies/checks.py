"""The admission policies (CEL): what holds with the webhook down, and what no webhook is asked about."""

from dataclasses import dataclass
from typing import Final

from vc_egpu.volcano import room
from vc_egpu.volcano.resizing.notes import MAX_WISH_BYTES
from vc_egpu.volcano.words import names
from vc_egpu.webhook.policies.expressions import (
    POD_IS_OURS,
    POD_WAS_OR_IS_OURS,
    WRITTEN_BY_US,
    has_gate,
    has_label,
    is_direct,
    own_bytes,
    quoted,
    waits_for_us,
)
from vc_egpu.webhook.policies.form import Json, any_fails, binding, differs, is_by, policy, rule

NODE_NAME_CLAIM: Final = "authentication.kubernetes.io/node-name"
SUPERUSERS: Final = "system:masters"
"""Whom no policy can hold: they may delete it. Simulated nodes get their cards from them."""

PLACE_IN_GANG: Final = (names.QUEUE_NAME, names.TASK_SPEC, names.TASK_INDEX)
"""Volcano's annotations that say where a pod belongs; who may change ``GROUP_NAME`` is another matter."""


@dataclass(frozen=True, slots=True)
class Identities:
    """Usernames as the API server authenticates them."""

    admission: tuple[str, ...] = (f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:vc-egpu-admission",)
    jobs: tuple[str, ...] = (f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:vc-egpu-jobs",)
    node_agents: tuple[str, ...] = (f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:vc-egpu-node-agent",)
    volcano: tuple[str, ...] = ("system:serviceaccount:volcano-system:volcano-controllers",)
    """Volcano's controllers: they name a pod's PodGroup and follow a Job's edits."""
    schedulers: tuple[str, ...] = ("system:serviceaccount:volcano-system:volcano-scheduler",)
    """Schedulers whose Bindings repeat all annotations of their pod, as Volcano's do."""
    binders: tuple[str, ...] = ("system:kube-scheduler",)
    """Other schedulers that bind pods in tenants' namespaces."""

    @property
    def controllers(self) -> tuple[str, ...]:
        """The accounts that may give a pod its PodGroup."""
        return (*self.admission, *self.jobs, *self.volcano)


def admission_policies(identities: Identities | None = None) -> list[Json]:
    """All policies, each followed by its binding."""
    identities = identities or Identities()
    policies = [
        _pods_create(),
        _pods_update(identities),
        _pods_debug(),
        _pods_delete(identities),
        _pods_grace(),
        _bindings(identities),
        _pod_groups(identities),
        _nodes(identities),
        _node_cards(identities),
        _node_taints(identities),
    ]
    found = [document for each in policies for document in (each, binding(each["metadata"]["name"]))]
    told = _not_ours()
    # Should the API server not be able to ask, nothing is lost but a word.
    told["spec"]["failurePolicy"] = "Ignore"
    return [*found, told, binding(told["metadata"]["name"], "Warn")]


def _not_ours() -> Json:
    """Asks that look like ours and are none: no webhook is asked about these pods."""
    amounts = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"

    def asks(name: str) -> str:
        return f"{_containers('object')}.exists(c, {amounts}.exists(m, '{name}' in m))"

    bare = f"({asks(names.LIMIT_MEMORY)} && !({asks(names.VOLCANO_VGPU_NUMBER)}))"
    return policy(
        "vc-egpu-not-ours",
        rule(["pods"], ["CREATE"]),
        f"!({POD_IS_OURS}) && {bare}",
        variables={},
        validations=[
            (
                f"!{bare}",
                f"spec.containers: {names.LIMIT_MEMORY} without a model is none of vc-egpu's; add "
                f"{names.SHARED_PREFIX}<model>",
            ),
        ],
    )


def _pods_create() -> Json:
    # dyn: to the API server's type checker containers and init containers are lists of two kinds.
    containers = _containers("object")
    per_card = quoted((names.LIMIT_MEMORY, names.LIMIT_MEMORY_PERCENTAGE, names.LIMIT_CORES))
    return policy(
        "vc-egpu-pods-create",
        rule(["pods"], ["CREATE"]),
        POD_IS_OURS,
        is_common=True,
        variables={"annotations": "object.metadata.?annotations.orValue({})"},
        validations=[
            (
                waits_for_us("object"),
                f"spec: a pod that asks for cards has schedulerName {names.SCHEDULER_DIRECT} or the gate "
                f"{names.GATE}, the webhook sets one of them",
            ),
            (
                f"object.metadata.?labels[?'{names.MANAGED_LABEL}'].orValue('') == 'true'",
                f"metadata.labels: who asks for cards has {names.MANAGED_LABEL}=true, the webhook sets it",
            ),
            (
                f"'{names.REQUEST}' in variables.annotations",
                f"metadata.annotations: {names.REQUEST} is missing, the webhook writes it",
            ),
            (
                f"!{quoted(_BY_ADMISSION)}.exists(a, a in variables.annotations)",
                f"metadata.annotations: {', '.join(_BY_ADMISSION)} are written by the admission layer alone",
            ),
            (
                f"!{quoted(_WHILE_IT_RUNS)}.exists(a, a in variables.annotations)",
                f"metadata.annotations: {' and '.join(_WHILE_IT_RUNS)} are for pods that run, no pod begins "
                "with them",
            ),
            (
                f"!{containers}.exists(c, {per_card}.exists(k, k in c.?resources.?limits.orValue({{}})))",
                "spec.containers: limits per card are still there, the webhook turns them into totals",
            ),
            (
                "object.spec.?nodeName.orValue('') == ''",
                "spec.nodeName: goes past the admission layer",
            ),
        ],
    )


_OWNERS: Final = "oldObject.metadata.?ownerReferences.orValue([])"
_BY_ADMISSION: Final = (names.CARDS, names.PLAN, names.SUSPEND, names.RESIZED)
_WHILE_IT_RUNS: Final = (names.PAUSE, names.RESIZE)
"""What users wish of pods that have their cards."""
_NOTES: Final = (names.VICTIM_AT, names.RESERVED, names.MOVED)
"""What PodGroups remember of their gangs."""
_BEFORE_AND_AFTER: Final = {
    "old": "oldObject.metadata.?annotations.orValue({})",
    "new": "object.metadata.?annotations.orValue({})",
}
"""The annotations of an update, as variables."""


def _pods_update(identities: Identities) -> Json:
    kept = (
        *WRITTEN_BY_US,
        names.GROUP_UNSEEN,
        names.SUSPEND,
        names.RESIZED,
        names.PRIORITY,
        names.CORE_POLICY,
        *PLACE_IN_GANG,
    )
    label, queue = f".?labels[?'{names.MANAGED_LABEL}']", f".?labels[?'{names.JOB_QUEUE_NAME}']"
    ours = is_by(identities.admission)
    touched = " || ".join(
        f"object.{path} != oldObject.{path}"
        for path in (
            "metadata.?annotations.orValue({})",
            "metadata.?labels.orValue({})",
            "spec.?schedulingGates.orValue([])",
        )
    )
    return policy(
        "vc-egpu-pods-update",
        rule(["pods", "pods/status"], ["UPDATE"]),
        # Most updates are our own, of pods that are ours, and a kubelet's, of the status alone.
        f"{ours} ? !({_ANSWERED_FOR}) : ({POD_WAS_OR_IS_OURS}) && ({touched})",
        variables={
            "controller": is_by(identities.controllers),
            **_BEFORE_AND_AFTER,
            "changed": f"{quoted(kept)}.filter(a, {differs('a')})",
            "pauses": f"{differs(repr(names.PAUSE))} && '{names.PAUSE}' in variables.new",
            "resizes": differs(repr(names.RESIZE)),
            "owners": f"{_OWNERS}.filter(o, o.?controller.orValue(false))",
            "wish": f"variables.new[?'{names.RESIZE}'].orValue('')",
        },
        validations=[
            (f"!({ours})", f"metadata.labels: {_NOT_OURS}"),
            (
                "variables.changed.size() == 0",
                "metadata.annotations: only the admission layer changes these",
                "'metadata.annotations: ' + request.userInfo.username + ' may not change ' + "
                "variables.changed.join(', ') + ', only the admission layer does'",
            ),
            (
                f"object.metadata{label} == oldObject.metadata{label}",
                f"metadata.labels: {names.MANAGED_LABEL} is changed by the admission layer only",
            ),
            (
                f"variables.controller || object.metadata{queue} == oldObject.metadata{queue}",
                f"metadata.labels: {names.JOB_QUEUE_NAME} is changed by controllers only",
            ),
            (
                f"!{has_gate('oldObject')} || {has_gate('object')}",
                f"spec.schedulingGates: {names.GATE} is lifted by the admission layer alone",
            ),
            (
                f"variables.controller || !({differs(repr(names.GROUP_NAME))})",
                f"metadata.annotations: {names.GROUP_NAME} is changed by controllers only",
            ),
            (_ANNOTATIONS_FIT, f"metadata.annotations: {_TOO_LONG}"),
            *_wishes(),
        ],
    )


def _wishes() -> list[tuple[str, str]]:
    """What users may wish of a pod that has its cards: a pause, and another size of its share."""
    return [
        (
            f"!({differs(repr(names.PAUSE))}) || {_may_evict()}",
            f'metadata.annotations: {names.PAUSE} needs the RBAC verb "create" on pods/eviction',
        ),
        (
            f"!variables.pauses || variables.new['{names.PAUSE}'] == 'true'",
            f'metadata.annotations: {names.PAUSE} is "true" or absent',
        ),
        (
            f"!variables.pauses || variables.old[?'{names.CARDS}'].orValue('').contains({_LOW})",
            f"metadata.annotations: {names.PAUSE} is for pods of low priority that have their cards",
        ),
        (
            f"!variables.resizes || ({_may_update_owner()})",
            f'metadata.annotations: {names.RESIZE} needs the RBAC verb "update" on what made the pod',
        ),
        (
            f"!variables.resizes || !('{names.RESIZE}' in variables.new) || "
            f"variables.old[?'{names.CARDS}'].hasValue()",
            f"metadata.annotations: {names.RESIZE} is for pods that have their cards",
        ),
        (
            f"!variables.resizes || size(variables.wish) <= {MAX_WISH_BYTES}",
            f"metadata.annotations: {names.RESIZE} has more than {MAX_WISH_BYTES} bytes",
        ),
    ]


def _containers(pod: str) -> str:
    return f"(dyn({pod}.spec.containers) + dyn({pod}.spec.?initContainers.orValue([])))"


def _pods_debug() -> Json:
    # The webhook refuses privileged containers next to a share. It is not asked about debug containers, so
    # that users can debug a pod while the webhook is away.
    containers = _containers("oldObject")
    shares = f"c.?resources.?requests.orValue({{}}).exists(k, k.startsWith('{names.SHARED_PREFIX}'))"
    new = "!oldObject.spec.?ephemeralContainers.orValue([]).exists(o, o.name == c.name)"
    return policy(
        "vc-egpu-pods-debug",
        rule(["pods/ephemeralcontainers"], ["UPDATE"]),
        f"{has_label('oldObject.metadata')} && {containers}.exists(c, {shares})",
        variables={},
        validations=[
            (
                "!object.spec.?ephemeralContainers.orValue([]).exists(c, "
                f"c.?securityContext.?privileged.orValue(false) && {new})",
                "spec.ephemeralContainers: a privileged container goes past the limits of a share; debug the "
                "pod with another profile, or its node",
            ),
        ],
    )


def _pods_delete(identities: Identities) -> Json:
    return policy(
        "vc-egpu-pods-delete",
        rule(["pods"], ["DELETE"]),
        is_by(identities.admission),
        variables={},
        validations=[(_ANSWERED_FOR, f"metadata.labels: {_NOT_OURS}")],
    )


def _pods_grace() -> Json:
    # The API server takes any time that a delete names, and a later one that names none does not shorten it.
    grace = "request.?options.?gracePeriodSeconds.orValue(0)"
    own = f"oldObject.spec.?terminationGracePeriodSeconds.orValue({_KUBERNETES_GRACE_S})"
    return policy(
        "vc-egpu-pods-grace",
        rule(["pods"], ["DELETE"]),
        f"{has_label('oldObject.metadata')} && "
        f"oldObject.metadata.?annotations[?'{names.PRIORITY}'].orValue('') == 'low'",
        variables={},
        validations=[
            (
                f"{grace} <= {own}",
                "gracePeriodSeconds: above the pod's own terminationGracePeriodSeconds; leave it out, who "
                f'takes the cards of {names.PRIORITY} "low" waits for that',
            ),
        ],
    )


_KUBERNETES_GRACE_S: Final = 30

_ANSWERED_FOR: Final = (
    f"oldObject.metadata.?labels[?'{names.MANAGED_LABEL}'].orValue('') == 'true' || "
    f"'{names.REQUEST}' in oldObject.metadata.?annotations.orValue({{}}) || "
    f"{has_gate('oldObject')} || {is_direct('oldObject')}"
)
"""A pod that the admission layer answers for, as :func:`vc_egpu.volcano.codec.pod_codec.pod` sees it."""
_NOT_OURS: Final = "not managed: the admission layer writes to no pod of others, and removes none"
"""RBAC knows no labels: an intruder with its account could give a system pod another image."""

_ANNOTATIONS_FIT: Final = (
    "variables.controller || variables.new == variables.old || "
    f"{own_bytes('variables.new')} <= {room.MAX_OWN_BYTES} || "
    f"{own_bytes('variables.new')} <= {own_bytes('variables.old')}"
)
"""What was stored beyond the bound may change, and shrink; it does not grow."""
_TOO_LONG: Final = f"more than {room.MAX_OWN_BYTES} bytes in all; put long texts into a ConfigMap"

_LOW: Final = repr('"shareClass":"low"')
"""As it stands in the cards annotation, which only the admission controller writes."""


def _may_evict() -> str:
    """Suspending a pod takes its cards from it, as evicting does: who may do the one may do the other."""
    pod = "authorizer.group('').resource('pods').subresource('eviction')"
    return f"{pod}.namespace(request.namespace).name(request.name).check('create').allowed()"


def _may_update_owner() -> str:
    """A share is what its Job asks for: who may change the one may change the other. For a bare pod, the pod.

    The plural of a kind is its name in small letters and an s: so it is for all that make pods.
    """
    owner = "variables.owners[0]"
    group = f"{owner}.apiVersion.contains('/') ? {owner}.apiVersion.split('/')[0] : ''"
    of_owner = f"authorizer.group({group}).resource({owner}.kind.lowerAscii() + 's')"
    of_pod = "authorizer.group('').resource('pods')"

    def allowed(who: str, name: str) -> str:
        return f"{who}.namespace(request.namespace).name({name}).check('update').allowed()"

    return (
        f"variables.owners.size() == 0 ? {allowed(of_pod, 'request.name')} : "
        f"{allowed(of_owner, f'{owner}.name')}"
    )


def _bindings(identities: Identities) -> Json:
    # The API server copies a Binding's annotations and labels onto the pod, and asks no policy for pods.
    # Nor does any policy here see the pod: equal values are as good as others, from accounts that we trust.
    def brings(what: str, others: tuple[str, ...]) -> str:
        ours = f"k.startsWith('{names.DOMAIN}/') || k in {quoted(others)}"
        return f"object.metadata.?{what}.orValue({{}}).exists(k, {ours})"

    membership = (names.GROUP_NAME, *PLACE_IN_GANG)
    refused = f"a Binding sets none of {names.DOMAIN} on its pod, nor"
    only_cards = f"object.metadata.?annotations.orValue({{}}).all(k, k == '{names.CARDS}')"
    tenant = f"namespaceObject.metadata.?annotations[?'{names.QUEUE_NAME}'].hasValue()"
    annotations = (
        f"variables.scheduler || variables.ours && {only_cards} || !{brings('annotations', membership)}"
    )
    labels = f"!{brings('labels', (names.JOB_QUEUE_NAME,))}"
    named = "variables.scheduler || variables.ours || variables.binder"
    variables = {
        "scheduler": is_by(identities.schedulers),
        "ours": is_by(identities.admission),
        "binder": is_by(identities.binders),
    }
    return policy(
        "vc-egpu-bindings",
        rule(["bindings", "pods/binding"], ["CREATE"]),
        # Nearly all Bindings are in order. Which namespace it is only the validations can see.
        any_fails([annotations, labels, named], variables),
        variables=variables,
        validations=[
            (
                annotations,
                f"metadata.annotations: {refused} {', '.join(membership)}; the operator names the accounts "
                "of schedulers that repeat their pods' annotations",
            ),
            (
                labels,
                f"metadata.labels: {refused} {names.JOB_QUEUE_NAME}",
            ),
            (
                f"{named} || !{tenant}",
                "target: in a tenant's namespace only the admission layer and the schedulers that the "
                "operator named bind pods",
            ),
        ],
    )


def _pod_groups(identities: Identities) -> Json:
    old = "(oldObject == null ? {} : oldObject.metadata.?annotations.orValue({}))"
    queue = "object.?spec.?queue.orValue('')"
    may_use_queue = "authorizer.group('scheduling.volcano.sh').resource('queues')"
    may_use_high = "authorizer.group('scheduling.k8s.io').resource('priorityclasses')"
    high = f"new[?'{names.PRIORITY}'].orValue('') == 'high'"
    ask = f"'{names.SHARED_PREFIX}', '{names.NATIVE_PREFIX}'"
    called = "object.metadata.?name.orValue('')"

    def judged(group: str) -> str:
        found = f"c.?type.orValue('') == '{names.CONDITION_ADMITTED}'"
        return f"{group}.?status.?conditions.orValue([]).exists(c, {found})"

    def asks(group: str) -> str:
        prefix = f"[{ask}].exists(p, k.startsWith(p))"
        return f"{group}.?spec.?minResources.orValue({{}}).exists(k, {prefix} || k == '{names.ANY_MODEL}')"

    return policy(
        "vc-egpu-podgroups",
        rule(["podgroups"], ["CREATE", "UPDATE"], group="scheduling.volcano.sh", version="v1beta1"),
        variables={
            "ours": is_by(identities.admission),
            "controller": is_by(identities.controllers),
            "scheduler": is_by(identities.schedulers),
            "old": old,
            "new": "object.metadata.?annotations.orValue({})",
            "judged": f"oldObject != null && {judged('oldObject')}",
            # The old object counts too: one write could move it and take off what makes it ours.
            "managed": (
                f"'{names.PLAN}' in variables.old || variables.judged || {asks('object')} || "
                f"oldObject != null && {asks('oldObject')}"
            ),
            "moved": f"oldObject != null && {queue} != oldObject.?spec.?queue.orValue('')",
            # Controllers take a group of this name for their own and count its pods to its queue.
            "foisted": f"oldObject == null && {called}.startsWith('{names.LOOSE_GROUP}')",
            "raised": f"variables.{high} && {differs(repr(names.PRIORITY))}",
        },
        validations=[
            (
                f"variables.ours || !({differs(repr(names.PLAN))} || {differs(repr(names.CHOICE))})",
                f"metadata.annotations: {names.PLAN} and {names.CHOICE} are written by the admission layer "
                "alone",
            ),
            (
                f"variables.ours || !({' || '.join(differs(repr(name)) for name in _NOTES)})",
                f"metadata.annotations: {', '.join(_NOTES)} are written by the admission layer alone",
            ),
            (
                f"variables.ours || !variables.managed || {_ANNOTATIONS_FIT}",
                f"metadata.annotations: {_TOO_LONG}",
            ),
            (
                "variables.controller || variables.scheduler || !variables.judged || " + judged("object"),
                f"status.conditions: {names.CONDITION_ADMITTED} is taken off by the admission layer only",
            ),
            (
                "variables.controller || !(variables.managed && variables.moved || variables.foisted) || "
                f"{may_use_queue}.namespace(request.namespace).name({queue}).check('{names.VERB_USE}').allowed()",
                f'spec.queue: needs the RBAC verb "{names.VERB_USE}" on the queue it names',
            ),
            (
                "variables.controller || !variables.raised || "
                f"{may_use_high}.namespace(request.namespace).name('{names.PRIORITY_CLASS_HIGH}')"
                f".check('{names.VERB_USE}').allowed()",
                f'metadata.annotations: {names.PRIORITY} "high" needs the RBAC verb "{names.VERB_USE}" on '
                f"PriorityClass {names.PRIORITY_CLASS_HIGH}",
            ),
        ],
    )


def _nodes(identities: Identities) -> Json:
    claim = f"'{NODE_NAME_CLAIM}'"
    # An intruder on a node has its agent's account too. That account must not draw pods of others to the
    # node, as the kubelet's cannot (admission plugin NodeRestriction). It must also not give the Node an
    # owner, or the garbage collector could delete it.
    shared = (names.NVIDIA_PRODUCT_LABEL, names.NVIDIA_COUNT_LABEL, names.NVIDIA_PRESENT_LABEL)
    own = f"{names.MODEL_LABEL_PREFIX}..., {', '.join(names.AGENT_LABELS)}"
    fine = f"k.startsWith('{names.MODEL_LABEL_PREFIX}') || k in {quoted((*names.AGENT_LABELS, *shared))} || "
    fine += "object.metadata.?labels[?k] == oldObject.metadata.?labels[?k]"
    labels = f"[object, oldObject].all(o, o.metadata.?labels.orValue({{}}).all(k, {fine}))"
    kept = " && ".join(
        f"object.metadata.?{field}.orValue([]) == oldObject.metadata.?{field}.orValue([])"
        for field in ("ownerReferences", "finalizers")
    )
    return policy(
        "vc-egpu-nodes",
        rule(["nodes", "nodes/status"], ["CREATE", "UPDATE", "DELETE"]),
        is_by(identities.node_agents),
        variables={},
        validations=[
            (
                f"request.operation == 'UPDATE' && has(request.userInfo.extra) && {claim} in "
                f"request.userInfo.extra && request.userInfo.extra[{claim}].exists(n, n == request.name)",
                "metadata.name: a node agent writes only the Node it runs on",
            ),
            (
                "request.operation != 'UPDATE' || object.spec == oldObject.spec",
                "spec: a node agent writes annotations, labels and status of its Node, not its spec",
            ),
            (
                f"request.operation != 'UPDATE' || {labels}",
                f"metadata.labels: a node agent writes {own} and {', '.join(shared)}",
            ),
            (
                f"request.operation != 'UPDATE' || {kept}",
                "metadata: a node agent leaves ownerReferences and finalizers of its Node as they are",
            ),
        ],
    )


def _node_taints(identities: Identities) -> Json:
    # The admission controller may have the right to patch Nodes (component node-emptying). RBAC cannot say
    # which field.
    theirs = f"[object, oldObject].map(o, o.spec.?taints.orValue([]).filter(t, t.key != '{names.EMPTIED}'))"
    spec = ("unschedulable", "podCIDR", "podCIDRs", "providerID", "configSource", "externalID")
    same = [f"object.spec.?{field} == oldObject.spec.?{field}" for field in spec]
    kept = ("labels", "annotations", "ownerReferences", "finalizers")
    same += [f"object.metadata.?{field} == oldObject.metadata.?{field}" for field in kept]
    ours = "object.spec.?taints.orValue([]).filter(t, t.key == "
    return policy(
        "vc-egpu-node-taints",
        rule(["nodes", "nodes/status"], ["CREATE", "UPDATE", "DELETE"]),
        is_by(identities.admission),
        variables={"theirs": theirs},
        validations=[
            (
                "request.operation == 'UPDATE' && request.?subResource.orValue('') == ''",
                "the admission controller makes and deletes no Node, and writes no status of one",
            ),
            (
                f"request.operation != 'UPDATE' || ({' && '.join(same)})",
                "the admission controller writes one taint of a Node, and nothing else",
            ),
            (
                "request.operation != 'UPDATE' || (variables.theirs[0] == variables.theirs[1] && "
                f"{ours}'{names.EMPTIED}').all(t, t.effect == 'NoSchedule'))",
                f"spec.taints: the admission controller writes {names.EMPTIED} with NoSchedule alone",
            ),
        ],
    )


def _node_cards(identities: Identities) -> Json:
    # Which agent writes which Node: see _nodes.
    written = names.WRITTEN_BY_AGENTS
    text = f"{quoted(written)}.exists(a, "
    text += "object.metadata.?annotations[?a] != (oldObject == null ? optional.none() : "
    text += "oldObject.metadata.?annotations[?a]))"
    return policy(
        "vc-egpu-node-cards",
        rule(["nodes", "nodes/status"], ["CREATE", "UPDATE"]),
        text,
        variables={},
        validations=[
            (
                f"{is_by(identities.node_agents)} || '{SUPERUSERS}' in request.userInfo.?groups.orValue([])",
                f"metadata.annotations: {', '.join(written[:-1])} and {written[-1]} are written by the "
                "node's agent alone",
            ),
        ],
    )
