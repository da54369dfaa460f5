"""Attempts by rights that a tenant has not."""

from typing import Any, Final

from vc_egpu.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    COMMANDS,
    CORE_EVENTS,
    DISRUPTION_BUDGETS,
    LIMIT_RANGES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
    VOLCANO_JOBS,
    Resource,
)

from attacks.requests import (
    DOMAIN,
    MINE,
    OTHERS,
    QUEUE,
    SHARE,
    Attack,
    Json,
    Try,
    act,
    container,
    create,
    delete,
    look,
    patch,
)

_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
_RBAC: Final = "rbac.authorization.k8s.io"
_CAPS: Final = {"volcano.sh/vgpu-h20": 64}


def _queue(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"weight": 1, "capability": _CAPS, **spec}}


def _own_queue(**spec: Any) -> Try:
    return patch(QUEUES, MINE, {"spec": spec}, "W", says="set-cap")


def _binding(role: str) -> Json:
    subject = {"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}
    return {
        "metadata": {"name": "attack"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def _command(name: str, action: str = "AbortJob") -> Json:
    target = {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "name": name, "uid": "$job"}
    return {"metadata": {"name": "attack"}, "action": action, "target": target}


def _queue_command(name: str) -> Json:
    target = {"apiVersion": QUEUES.api_version, "kind": "Queue", "name": name, "uid": "$queue"}
    return {"metadata": {"name": "attack"}, "action": "CloseQueue", "target": target}


_EVICTION: Final = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "train-0"}}
_TOKEN: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
_NO_LIMITS: Final = {"metadata": {"annotations": {f"{DOMAIN}/limits": None}}}
_NO_POD_SECURITY: Final = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
_DEBUG: Final = container("debug", SHARE, securityContext={"privileged": True})
_TAINT: Final = {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}

ATTACKS: Final = (
    Attack(
        14,
        "a queue of its own, or one below another tenant's",
        (create(QUEUES, _queue("attack"), "R"), create(QUEUES, _queue("attack", parent=OTHERS), "R")),
    ),
    Attack(
        15,
        "its queue's cap, weight, guarantee, priority or limit raised; a key removed; another parent",
        (
            _own_queue(capability=_CAPS),
            _own_queue(capability={"volcano.sh/vgpu-t4": None}),
            _own_queue(weight=100),
            _own_queue(priority=100),
            _own_queue(guarantee={"resource": _CAPS}),
            _own_queue(deserved=_CAPS),
            _own_queue(parent=OTHERS),
            patch(
                QUEUES, MINE, {"metadata": {"annotations": {f"{DOMAIN}/limits": None}}}, "W", says="set-cap"
            ),
            patch(QUEUES, OTHERS, {"spec": {"weight": 2}}, "R"),
        ),
    ),
    Attack(
        16,
        "many small queues that are more than their parent together",
        tuple(create(QUEUES, _queue(f"attack-{i}", parent=MINE), "R") for i in range(3)),
    ),
    Attack(
        19,
        "a node labelled, tainted, or its record of cards forged",
        (
            patch(NODES, "n1", {"metadata": {"labels": {f"{DOMAIN}/card-mode": "native"}}}, "R"),
            patch(NODES, "n1", {"metadata": {"annotations": {f"{DOMAIN}/node-cards": "{}"}}}, "R"),
            patch(NODES, "n1", _TAINT, "R"),
        ),
    ),
    Attack(
        23,
        "a claim of dynamic resource allocation",
        (create(_CLAIMS, {"metadata": {"name": "attack"}, "spec": {}}, "R"),),
    ),
    Attack(
        24,
        "a LimitRange, quota or network policy of its own; ours taken away",
        (
            create(LIMIT_RANGES, {"metadata": {"name": "attack"}, "spec": {"limits": []}}, "R"),
            create(RESOURCE_QUOTAS, {"metadata": {"name": "attack"}, "spec": {}}, "R"),
            create(NETWORK_POLICIES, {"metadata": {"name": "attack"}, "spec": {"podSelector": {}}}, "R"),
            patch(RESOURCE_QUOTAS, "tenant", {"spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}, "R"),
            delete(RESOURCE_QUOTAS, "tenant", "R"),
            delete(LIMIT_RANGES, "tenant", "R"),
            delete(NETWORK_POLICIES, "tenant-deny", "R"),
        ),
    ),
    Attack(
        25,
        "cards or privileges of a debug container",
        (
            patch(
                PODS,
                "mine-0",
                {
                    "spec": {
                        "ephemeralContainers": [
                            container("debug", SHARE, securityContext={"privileged": True})
                        ]
                    }
                },
                "R",
                sub="ephemeralcontainers",
            ),
        ),
    ),
    Attack(
        26,
        "a card limit resized in place",
        (
            patch(PODS, "mine-0", {"spec": {"containers": [container(limits={"vgpu_h20": 4})]}}, "KP"),
            patch(PODS, "mine-0", {"spec": {"containers": [container(limits=SHARE)]}}, "R", sub="resize"),
        ),
    ),
    Attack(
        30,
        "a Command on another tenant's Job or queue; another's Command deleted",
        (
            create(COMMANDS, _command("train"), "R", inside=OTHERS),
            create(COMMANDS, _queue_command(OTHERS), "W", says="may not CloseQueue Queue"),
            delete(COMMANDS, "order", "R", inside=OTHERS),
        ),
    ),
    Attack(
        32,
        "its namespace relabelled: Pod Security, queue, tenant",
        (
            patch(
                NAMESPACES, MINE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}, "R"
            ),
            patch(NAMESPACES, MINE, {"metadata": {"annotations": {QUEUE: OTHERS}}}, "R"),
            patch(NAMESPACES, MINE, {"metadata": {"labels": {f"{DOMAIN}/tenant": OTHERS}}}, "R"),
        ),
    ),
    Attack(
        33,
        "more rights bound to itself",
        (
            create(ROLE_BINDINGS, _binding("vc-egpu-suspend"), "R"),
            create(CLUSTER_ROLE_BINDINGS, _binding("cluster-admin"), "R"),
        ),
    ),
    Attack(
        34,
        "a PodGroup's status or queue written",
        (
            patch(POD_GROUPS, "gang", {"status": {"phase": "Running"}}, "R", sub="status"),
            patch(POD_GROUPS, "gang", {"spec": {"queue": OTHERS}}, "R"),
        ),
    ),
    Attack(
        35,
        "pods of others evicted or deleted; a budget that shields its own",
        (
            act(PODS.path(OTHERS, "train-0", "eviction"), _EVICTION, "R"),
            delete(PODS, "train-0", "R", inside=OTHERS),
            create(DISRUPTION_BUDGETS, {"metadata": {"name": "attack"}, "spec": {"maxUnavailable": 0}}, "R"),
        ),
    ),
    Attack(
        38,
        "what other tenants run: pods, gangs, events, secrets, metrics",
        (
            look(PODS, "R"),
            look(POD_GROUPS, "R"),
            look(CORE_EVENTS, "R"),
            look(SECRETS, "R"),
            Try("GET", PODS.path(), "R"),
            Try("GET", "/metrics", "R"),
        ),
    ),
    Attack(
        40,
        "another tenant's service account, by token; a class of its own",
        (
            act(f"/api/v1/namespaces/{OTHERS}/serviceaccounts/default/token", _TOKEN, "R"),
            create(PRIORITY_CLASSES, {"metadata": {"name": "attack"}, "value": 10**6}, "R"),
        ),
    ),
)
