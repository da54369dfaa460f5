"""Which resources there are and where they live: the only place that spells API paths."""

from dataclasses import dataclass
from typing import Final

from vc_egpu.volcano.api.paths import segment


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API: group (empty for core), version, plural name, kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``, as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The request path. ``namespace=None`` of a namespaced resource means all namespaces.

        Raises :class:`~vc_egpu.volcano.api.paths.PathNameError`, a ``ValueError``, for a name, namespace or
        subresource that would address another object.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, got {namespace!r}")
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.plural} {name!r}: a namespace is needed")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", segment(namespace, self.plural, "namespace")]
        parts.append(self.plural)
        if name is not None:
            parts.append(segment(name, self.plural))
        if subresource:
            parts.append(segment(subresource, self.plural, "subresource"))
        return "/".join(parts)

    def path_of(self, name: str, namespace: str | None = None, subresource: str | None = None) -> str:
        """The path of one object: a name that is missing must not mean all of them."""
        segment(name, self.plural)
        return self.path(namespace, name, subresource)


PODS: Final = Resource("", "v1", "pods", "Pod")
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES: Final = Resource("", "v1", "services", "Service")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PERSISTENT_VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CORE_EVENTS: Final = Resource("", "v1", "events", "Event")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
BATCH_JOBS: Final = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
JOB_SETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
_RBAC: Final = ("rbac.authorization.k8s.io", "v1")
ROLES: Final = Resource(*_RBAC, "roles", "Role")
ROLE_BINDINGS: Final = Resource(*_RBAC, "rolebindings", "RoleBinding")
CLUSTER_ROLES: Final = Resource(*_RBAC, "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(*_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest"
)
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SELF_SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
SELF_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
RESOURCE_SLICES: Final = tuple(
    Resource("resource.k8s.io", version, "resourceslices", "ResourceSlice", namespaced=False)
    for version in ("v1", "v1beta2", "v1beta1")
)
"""In each version that clusters serve, the newest first; what we read of them is the same in all."""
VOLCANO_JOBS: Final = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
COMMANDS: Final = Resource("bus.volcano.sh", "v1alpha1", "commands", "Command")
HYPER_NODES: Final = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False)
POD_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
QUEUES: Final = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
