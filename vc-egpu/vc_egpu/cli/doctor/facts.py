"""What ``kubectl egpu doctor`` reads. Whatever cannot be read is said, never guessed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.cli.stop import SWITCH_KEY
from vc_egpu.cli.world import Listing, Transform, light_node, light_pod, list_optional
from vc_egpu.kube import ApiConnection, Json, Resource
from vc_egpu.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HYPER_NODES,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_SLICES,
    VALIDATING_WEBHOOKS,
)
from vc_egpu.kube.wire.errors import Forbidden, KubeError, NotFound, Unavailable
from vc_egpu.volcano.codec.cluster_codec import instant
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.other_plugins import FOREIGN_RESOURCES, asked, matches, slim_slice

RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)

RESOURCE_CLAIMS: Final = tuple(
    Resource(one.group, one.version, "resourceclaims", "ResourceClaim") for one in RESOURCE_SLICES
)
_TRIAL: Final = "vc-egpu-doctor"
_NO_WAY: Final = "failed calling webhook"
"""In the API server's words."""
CLOCKS_DIFFER_S: Final = 5.0
STALE_S: Final = 30.0

NOTHING: Final = Listing(())


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at the cluster."""

    version: str
    """``v1.36.3``; raises at reading if the API server does not answer at all."""
    installed: bool
    """Whether the namespace of the stack exists."""
    nodes: Listing
    kubelet_configs: Mapping[str, Json] = field(default_factory=dict)
    """By node; only of nodes with cards, and only where the user may ask the kubelet."""
    runtime_classes: Listing = NOTHING
    daemon_sets: Listing = NOTHING
    """Those of all namespaces."""
    deployments: Listing = NOTHING
    """Those of all namespaces."""
    crds: Listing = NOTHING
    priority_classes: Listing = NOTHING
    webhooks: Listing = NOTHING
    policy_bindings: Listing = NOTHING
    slices: Listing = NOTHING
    """ResourceSlices: devices under dynamic resource allocation. A cluster may have none."""
    claims: Listing = NOTHING
    """ResourceClaims of all namespaces, what of them is allocated."""
    leases: Listing = NOTHING
    hypernodes: Listing = NOTHING
    """Those of Volcano. A cluster may lack the type."""
    pods: Listing = NOTHING
    """Those of all namespaces."""
    models: str | None = None
    """The model table's text, empty where there is none; None: the user may not see it."""
    policy: str | None = None
    """The node policy's text; likewise."""
    unreached: str = ""
    """What the API server says of a webhook that it does not get through to; empty: it does, or it could not
    be asked."""
    stopped: bool = False
    """Whether the operator's switch stops all admitting."""
    scheduler_configs: Sequence[str] = ()
    """Texts of Volcano's scheduler configuration, where it runs."""
    clock_ahead_s: float = 0.0
    """How far the user's own clock is ahead of the API server's; 0 where nothing looked as if it were."""


def read(api: ApiConnection, cards_only_on: int = 20) -> Facts:
    """Ask the API server. ``cards_only_on``: at most so many kubelets are asked for their configuration."""
    version = str(api.request("GET", "/version").get("gitVersion") or "")
    nodes = list_optional(api, NODES, transform=light_node)
    carded = [str(node["metadata"]["name"]) for node in nodes.items if has_cards(node)][:cards_only_on]
    leases = list_optional(api, LEASES, names.SYSTEM_NAMESPACE)
    webhooks = [list_optional(api, resource) for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)]
    installed = _exists(api)
    return Facts(
        version=version,
        installed=installed,
        nodes=nodes,
        kubelet_configs={name: found for name in carded if (found := _configz(api, name)) is not None},
        runtime_classes=list_optional(api, RUNTIME_CLASSES),
        daemon_sets=list_optional(api, DAEMON_SETS),
        deployments=list_optional(api, DEPLOYMENTS),
        crds=list_optional(api, CUSTOM_RESOURCE_DEFINITIONS),
        priority_classes=list_optional(api, PRIORITY_CLASSES),
        webhooks=Listing(
            [*webhooks[0].items, *webhooks[1].items], webhooks[0].missing or webhooks[1].missing
        ),
        policy_bindings=list_optional(api, ADMISSION_POLICY_BINDINGS),
        slices=_newest(api, RESOURCE_SLICES, slim_slice, "cards of DRA drivers are not seen"),
        claims=_newest(api, RESOURCE_CLAIMS, _slim_claim, "holders of cards of DRA drivers are not seen"),
        leases=leases,
        hypernodes=_newest(api, (HYPER_NODES,), _as_it_is, "which nodes are near each other is not seen"),
        pods=list_optional(api, PODS, transform=_pod_with_asks),
        models=config_text(api, names.MODELS_CONFIG_MAP, "models.yaml"),
        policy=config_text(api, names.POLICY_CONFIG_MAP, "policy.yaml"),
        unreached=_unreached(api) if installed else "",
        stopped=config_text(api, names.SWITCHES_CONFIG_MAP, SWITCH_KEY) == "true",
        scheduler_configs=_scheduler_configs(api),
        clock_ahead_s=_clock_ahead_s(api, leases.items),
    )


def has_cards(node: Json) -> bool:
    """Whether anything says that a node has GPUs: labels, another plugin, or our own resources.

    Simulated nodes have neither kubelet nor runtime to look at.
    """
    if "kwok.x-k8s.io/node" in (node["metadata"].get("annotations") or {}):
        return False
    labels = node["metadata"].get("labels") or {}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return (
        labels.get("nvidia.com/gpu.present") == "true"
        or labels.get("feature.node.kubernetes.io/pci-10de.present") == "true"
        or "egpu.volcano.sh/card-mode" in labels
        or "egpu.volcano.sh/node-cards" in (node["metadata"].get("annotations") or {})
        or any(
            name.startswith("volcano.sh/vgpu-") or matches(name, FOREIGN_RESOURCES) for name in allocatable
        )
    )


def _clock_ahead_s(api: ApiConnection, leases: Sequence[Json]) -> float:
    """Asked where a lease is old or of the future by our own clock: either it is, or the clock is off."""
    own = time.time()
    ages_s = [own - instant((lease.get("spec") or {}).get("renewTime")) for lease in leases]
    if all(-CLOCKS_DIFFER_S <= age_s <= STALE_S for age_s in ages_s):
        return 0.0
    try:
        answer = api.own_review()
        return own - instant(answer["metadata"]["creationTimestamp"])
    except (KubeError, KeyError, TypeError, ValueError):
        return 0.0


def _pod_with_asks(pod: Json) -> Json:
    """A pod without its containers, but with the names of the extended resources that they ask for."""
    asks = asked(pod.get("spec") or {})
    light = light_pod(pod)
    return {**light, "spec": {**light["spec"], "asks": sorted(asks)}} if asks else light


def _newest(api: ApiConnection, versions: Sequence[Resource], transform: Transform, unseen: str) -> Listing:
    """In the newest version that the cluster has; a cluster without them has no such devices."""
    for resource in versions:
        try:
            return Listing(api.list(resource, transform=transform).items)
        except NotFound:
            continue
        except Forbidden:
            return Listing((), f"you may not list {resource.plural}: {unseen}")
    return NOTHING


def _as_it_is(document: Json) -> Json:
    return document


def _slim_claim(claim: Json) -> Json:
    """A claim with no more than its devices and their holders."""
    status = claim.get("status") or {}
    kept = {key: status[key] for key in ("allocation", "reservedFor") if key in status}
    return {"metadata": {key: claim["metadata"].get(key) for key in ("name", "namespace")}, "status": kept}


def _exists(api: ApiConnection) -> bool:
    try:
        api.get(NAMESPACES, names.SYSTEM_NAMESPACE)
    except NotFound:
        return False
    except Forbidden:
        return True
    return True


def _unreached(api: ApiConnection) -> str:
    """Tried with a Queue that is not kept: whatever becomes of it, one answer speaks of the way there."""
    body = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": _TRIAL}, "spec": {}}
    try:
        api.create(QUEUES, body, dry_run=True)
    except Unavailable as error:
        return error.message if _NO_WAY in error.message else ""
    except KubeError:
        return ""
    return ""


def config_text(api: ApiConnection, config_map: str, key: str) -> str | None:
    """One text of one of our ConfigMaps; empty where there is none, None where the user may not see it."""
    try:
        found = api.get(CONFIG_MAPS, config_map, names.SYSTEM_NAMESPACE)
    except NotFound:
        return ""
    except Forbidden:
        return None
    return str((found.get("data") or {}).get(key, ""))


def _configz(api: ApiConnection, node: str) -> Json | None:
    try:
        found = api.request("GET", f"{NODES.path_of(node, subresource='proxy')}/configz", timeout_s=5)
    except Exception:  # noqa: BLE001 - a kubelet that does not answer is told by its node's Ready condition
        return None
    config = found.get("kubeletconfig")
    return config if isinstance(config, dict) else None


def _scheduler_configs(api: ApiConnection) -> list[str]:
    maps = list_optional(api, CONFIG_MAPS, "volcano-system").items
    return [
        text
        for found in maps
        for name, text in (found.get("data") or {}).items()
        if name.endswith(".conf") and "actions" in text
    ]
