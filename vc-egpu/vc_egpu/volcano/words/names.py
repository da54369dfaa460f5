"""Every resource, label, annotation, gate and condition name that this project reads or writes, once.

Names under ``volcano.sh`` and ``scheduling.*`` are Volcano's; names under ``egpu.volcano.sh`` are ours.
"""

from typing import Final

DOMAIN: Final = "egpu.volcano.sh"

# --- resources -------------------------------------------------------------------------------
RESOURCE_PREFIX: Final = "volcano.sh/"
SHARED_PREFIX: Final = "volcano.sh/vgpu-"
"""``volcano.sh/vgpu-<model>``: shares of cards of that model."""
NATIVE_PREFIX: Final = "volcano.sh/gpu-"
"""``volcano.sh/gpu-<model>``: whole cards without a library."""
MIG_PREFIX: Final = "volcano.sh/mig-"
"""``volcano.sh/mig-<slice>-<model>``: another spelling of an ask for that slice; no node offers it."""
ANY_MODEL: Final = "volcano.sh/vgpu"
"""Shares of cards of one of several models; :data:`USE_MODELS` names these."""
LIMIT_MEMORY: Final = "volcano.sh/vgpu-memory"
LIMIT_MEMORY_PERCENTAGE: Final = "volcano.sh/vgpu-memory-percentage"
LIMIT_CORES: Final = "volcano.sh/vgpu-cores"
VOLCANO_VGPU_NUMBER: Final = "volcano.sh/vgpu-number"
RESERVED_MODEL_WORDS: Final = frozenset({"number", "memory", "memory-percentage", "cores"})
MEMORY_TOTAL_SUFFIX: Final = "-memory"
CORES_TOTAL_SUFFIX: Final = "-cores"
LOW_SUFFIX: Final = "-low"
"""``volcano.sh/vgpu-<model>-low``, ``-low-cores``: keys of queues alone; no model's name ends so."""

UNKNOWN_MODEL: Final = "unknown"
"""Model of cards whose product the table does not hold; never offered."""


def shared_resource(model: str) -> str:
    """``h20`` -> ``volcano.sh/vgpu-h20``."""
    return SHARED_PREFIX + model


def native_resource(model: str) -> str:
    """``h20`` -> ``volcano.sh/gpu-h20``."""
    return NATIVE_PREFIX + model


def memory_total_resource(model: str) -> str:
    """The counter of MiB over all shares of a pod, ``volcano.sh/vgpu-h20-memory``."""
    return SHARED_PREFIX + model + MEMORY_TOTAL_SUFFIX


def cores_total_resource(model: str) -> str:
    """The counter of core percent over all shares of a pod, ``volcano.sh/vgpu-h20-cores``."""
    return SHARED_PREFIX + model + CORES_TOTAL_SUFFIX


def low_resource(model: str) -> str:
    """The counter of a queue's low shares alone, ``volcano.sh/vgpu-h20-low``."""
    return SHARED_PREFIX + model + LOW_SUFFIX


def low_cores_resource(model: str) -> str:
    """The counter of core percent of a queue's low shares alone, ``volcano.sh/vgpu-h20-low-cores``."""
    return SHARED_PREFIX + model + LOW_SUFFIX + CORES_TOTAL_SUFFIX


# --- ours: what users write ------------------------------------------------------------------
PRIORITY: Final = f"{DOMAIN}/priority"
CORE_POLICY: Final = f"{DOMAIN}/core-policy"
OVERSUBSCRIBE: Final = f"{DOMAIN}/oversubscribe"
CARD_POLICY: Final = f"{DOMAIN}/card-policy"
NODE_POLICY: Final = f"{DOMAIN}/node-policy"
USE_CARDS: Final = f"{DOMAIN}/use-cards"
AVOID_CARDS: Final = f"{DOMAIN}/avoid-cards"
USE_MODELS: Final = f"{DOMAIN}/use-models"
AVOID_MODELS: Final = f"{DOMAIN}/avoid-models"
NEEDS: Final = f"{DOMAIN}/needs"
"""What the program needs of its node: ``cuda>=12.4,torch==2.6``."""
NETWORK_LABEL: Final = f"{DOMAIN}/network"
"""An operator's word for the network of a node."""
MIX_MODELS: Final = f"{DOMAIN}/mix-models"
"""``"true"`` on a pod template: members of one gang may take different models of their lists."""
ALTERNATIVES: Final = f"{DOMAIN}/alternatives"
"""On a Job or a pod template: models with what is to run on each; the gang takes one of them."""
ALTERNATIVES_ORDER: Final = f"{DOMAIN}/alternatives-order"
PAUSE: Final = f"{DOMAIN}/pause"
PREEMPT_WITHIN_QUEUE: Final = f"{DOMAIN}/preempt-within-queue"
"""On a Queue. ``"false"``: high gangs make no room in its cap by low gangs that count there."""
"""``"true"`` on a running pod: its gang shall be suspended until this is taken off every member."""

SLICE: Final = f"{DOMAIN}/slice"
"""On a pod: exactly this template of the card's layout."""
ISOLATION: Final = f"{DOMAIN}/isolation"
"""On a pod: what is to keep it apart, a word of :mod:`vc_egpu.core.environments.backends`."""
EXPECTED_RUNTIME: Final = f"{DOMAIN}/expected-runtime"
"""On a pod: it ends within this time after its start, so that cards claimed for others may be lent to it."""
SUSPEND_SIGNAL: Final = f"{DOMAIN}/suspend-signal"
"""On a pod: the signal at which its program comes to rest between two steps, before it is suspended."""
MIN_RUNTIME: Final = f"{DOMAIN}/min-runtime"
"""On a Queue: a gang of it that began less than this ago is evicted for others only if nothing else helps."""

# --- ours: what the stack writes -------------------------------------------------------------
ROOT_QUEUE: Final = "root"
"""Above all queues; it takes no work itself."""
LONGEST_OBJECT_NAME: Final = 253
"""The API server's limit for most objects."""
LONGEST_TASK: Final = 63
"""Volcano's pods carry the name of their task as a label."""
MANAGED_LABEL: Final = f"{DOMAIN}/managed"
"""Label with the value ``"true"`` on every pod (and task template) that the admission layer plans."""
GATE: Final = f"{DOMAIN}/admission"
REQUEST: Final = f"{DOMAIN}/request"
GROUP_UNSEEN: Final = f"{DOMAIN}/group-unseen"
"""Pod annotation: its PodGroup was not there at the door, so the webhook did not see whose it is."""
CARDS: Final = f"{DOMAIN}/cards"
PLAN: Final = f"{DOMAIN}/plan"
NODE_CARDS: Final = f"{DOMAIN}/node-cards"
MPS: Final = f"{DOMAIN}/mps"
"""As if it were a taint of nodes whose time MPS shares: pods of that namespace which ask for it bear it."""
SUSPEND: Final = f"{DOMAIN}/suspend"
"""Pod annotation: present, the pod shall be suspended; see :mod:`vc_egpu.volcano.codec.suspension`."""
NODE_SUSPENSION: Final = f"{DOMAIN}/node-suspension"
"""Node annotation: how far its agent is with that, by pod."""
RESIZE: Final = f"{DOMAIN}/resize"
"""On a running pod, by a user: other sizes that its shares shall have; see :mod:`.resizing.notes`."""
RESIZED: Final = f"{DOMAIN}/resized"
"""Pod annotation: what became of the last such wish."""
NODE_RESIZES: Final = f"{DOMAIN}/node-resizes"
"""Node annotation: how far its agent is with those, by pod."""
NODE_SWAPS: Final = f"{DOMAIN}/node-swaps"
"""Node annotation: where pods are that take cards in turns, see :mod:`vc_egpu.volcano.swapping.notes`."""
NODE_USE: Final = f"{DOMAIN}/node-use"
"""Node annotation: what its agent measured lately, see :mod:`vc_egpu.volcano.measured.notes`."""
WRITTEN_BY_AGENTS: Final = (NODE_CARDS, NODE_SUSPENSION, NODE_RESIZES, NODE_SWAPS, NODE_USE)
"""Node annotations that only the node's own agent writes."""
NODE_MODE_LABEL: Final = f"{DOMAIN}/card-mode"
"""Node label: how its cards are offered, ``shared`` (default), ``native`` or ``mig``."""
LOOSE_GROUP: Final = "podgroup-"
"""What the PodGroup of a pod that no Volcano Job made is called, before its owner's UID."""
ROLLED_BACK: Final = f"{DOMAIN}/rolled-back"
"""PodGroup annotation: how often and why the gang was rolled back, until when it waits, nodes it avoids."""
VICTIM_AT: Final = f"{DOMAIN}/victim-at"
"""PodGroup annotation: when the whole gang was evicted for others, the last few times."""
RESERVED: Final = f"{DOMAIN}/reserved"
"""PodGroup annotation: since when its gang waits as the first of its queue, and the cards claimed for it."""
MOVED: Final = f"{DOMAIN}/moved"
EMPTIED: Final = f"{DOMAIN}/emptied"
"""The taint of nodes that are to be empty. Its value is the second since the epoch at which it was set."""
STAYS: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""With ``true`` cluster-autoscaler does not remove the node."""
"""PodGroup annotation: the cards that its gang moves to, or when it was moved to other cards last."""
RESTARTABLE: Final = f"{DOMAIN}/restartable"
"""PodGroup annotation a user sets on the Job: "true" lets a gang without priority be moved as a low one."""
CHOICE: Final = f"{DOMAIN}/choice"
"""PodGroup annotation: the model, of several, that its pods are made with."""
CONDITION_ADMITTED: Final = f"{DOMAIN}/Admitted"
CONDITION_SUSPENDED: Final = f"{DOMAIN}/Suspended"
"""On pods and PodGroups: whether it has left its cards for a while, or why it cannot."""
CORDONED_CARDS: Final = f"{DOMAIN}/cordoned-cards"
"""Node annotation an operator sets: comma list of card UUIDs that take nothing new."""

PAIRED: Final = f"{DOMAIN}/paired"
"""On an owner of pods that ``kubectl egpu pair`` changed: its partner, and what was there before."""
QUEUE_LIMITS: Final = f"{DOMAIN}/limits"
"""Queue annotation an operator sets: the most of one ask; see :mod:`vc_egpu.volcano.codec.queue_limits`."""
TENANT_LABEL: Final = f"{DOMAIN}/tenant"
"""On every object that is made of a tenant's document: the tenant's name."""
TENANT_DOCUMENT: Final = f"{DOMAIN}/tenant-document"
"""Namespace annotation: the document that the tenant's objects were made of, as JSON."""

# --- priority classes ------------------------------------------------------------------------
PRIORITY_CLASS_HIGH: Final = "egpu-high"
PRIORITY_CLASS_STANDARD: Final = "egpu-standard"
PRIORITY_CLASS_LOW: Final = "egpu-low"

# --- RBAC verbs of ours on Queues and PriorityClasses ----------------------------------------
VERB_USE: Final = "use"
VERB_SET_CAP: Final = "set-cap"

# --- Volcano's -------------------------------------------------------------------------------
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
"""Pod annotation: the PodGroup's name."""
QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRY_COUNT: Final = "volcano.sh/job-retry-count"
JOB_QUEUE_NAME: Final = "volcano.sh/queue-name"
TEMPLATE_UID: Final = "volcano.sh/template-uid"
PREEMPTABLE: Final = "volcano.sh/preemptable"
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
VOLCANO_USE_GPU_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
VOLCANO_NO_USE_GPU_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
HAMI_USE_GPU_UUID: Final = "nvidia.com/use-gpuuuid"
HAMI_NO_USE_GPU_UUID: Final = "nvidia.com/nouse-gpuuuid"
HAMI_USE_GPU_TYPE: Final = "nvidia.com/use-gputype"
HAMI_NO_USE_GPU_TYPE: Final = "nvidia.com/nouse-gputype"

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""What ``kubectl apply`` writes on all that it applies (client-side)."""
SCHEDULER_VOLCANO: Final = "volcano"
SCHEDULER_DEFAULT: Final = "default-scheduler"
SCHEDULER_DIRECT: Final = "vc-egpu"
"""A pod that names it waits for the admission layer alone, which binds it."""

# --- where the stack lives -------------------------------------------------------------------
SYSTEM_NAMESPACE: Final = "vc-egpu-system"
"""The product's namespace, as the manifests make it; every process takes another one by a flag."""
MODELS_CONFIG_MAP: Final = "vc-egpu-models"
ENVIRONMENTS_CONFIG_MAP: Final = "vc-egpu-environments"
PLACEMENT_CONFIG_MAP: Final = "vc-egpu-placement"
"""ConfigMap in it: the table of GPU models, key ``models.yaml``."""
POLICY_CONFIG_MAP: Final = "vc-egpu-node-policy"
"""ConfigMap in it: how nodes offer their cards, key ``policy.yaml``."""
SWITCHES_CONFIG_MAP: Final = "vc-egpu-switches"
"""ConfigMap in it; ``stopAdmitting: "true"`` in it lets nothing new begin."""

USUAL_WORK_CONFIG_MAP: Final = "vc-egpu-usual-work"
"""ConfigMap in it: what work usually comes, as the admission controller has learned it."""

MEMBERS_WEBHOOK: Final = f"members.{DOMAIN}"
"""The one webhook that pods pass unchanged while it does not answer: most of them are foreign pods."""

# --- node agent ------------------------------------------------------------------------------
MODEL_LABEL_PREFIX: Final = f"model.{DOMAIN}/"
VENDOR_LABEL: Final = f"{DOMAIN}/vendor"
SOFTWARE_LABELS: Final = {
    fact: f"{DOMAIN}/{fact}" for fact in ("driver", "cuda", "capability", "hdk", "hyhal")
}
"""Node labels by what they tell: for people, and for tools that select nodes. Nothing of ours reads them."""
AGENT_LABELS: Final = (VENDOR_LABEL, *SOFTWARE_LABELS.values())
"""Node labels with a name of their own that the node's agent writes."""
"""Node label ``model.egpu.volcano.sh/<model>``: number of cards of that model."""
NVIDIA_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
NVIDIA_COUNT_LABEL: Final = "nvidia.com/gpu.count"
NVIDIA_PRESENT_LABEL: Final = "nvidia.com/gpu.present"
CDI_KIND: Final = f"{DOMAIN}/vgpu"
"""CDI vendor/class; a device's full name is ``egpu.volcano.sh/vgpu=<name>``."""
CHECKPOINT: Final = f"{DOMAIN}/checkpoint"
"""Annotation of the pods that a node's agent makes to suspend and resume processes: what they shall do."""
ENV_CARDS: Final = "EGPU_CARDS"
"""Environment variable in the container: its own entry of the cards annotation, JSON."""
