"""Faults on an installed stack, one for each alert: each begins, and is mended at the end of its block.

A wave is a set of faults that leave each other alone: they begin together and are mended together.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from isolation.installed import pod_on_one_card
from isolation.world import PAST_THE_PRELOAD, c_program
from localcluster import RealNode
from localcluster.api import wait_until
from outcomes import disturb
from outcomes.workload import DEAF, Json, Task, job, shares
from outcomes.world import capability
from stack.fakes import nvml_state
from stack.install import NAMESPACE, Stack
from stack.kit import is_gated, running
from stack.suspension import until_suspendable
from vc_egpu.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, POD_TEMPLATES, PODS
from vc_egpu.volcano.words import names

from rigs.alertmanager import Labels, Sink
from rigs.suspension import ADMISSION

TEAM: Final = "team-a"
"""Namespace and queue; the routes that we ship name a tenant of that name."""
LOOSE: Final = "loose"
"""A namespace of nobody."""
FULL: Final = "full"
"""A queue whose one share is held by a pod that does nothing."""
POLICY: Final = "defaults: {coreRatio: 3.0, hostMemoryMiB: 120000, recoveryS: 5}\n"
SLEEP: Final = ("/bin/sh", "-c", "trap exit TERM; while :; do sleep 0.2; done")
RUNTIME_FILE: Final = "/etc/containerd/config.toml"
RUNTIME: Final = (
    'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "nvidia"\n'
)
BOUND_PAST_US: Final = 16
CARDS: Final = 4
CHECKPOINT: Final = "vc-egpu-checkpoint"


@dataclass
class Scene:
    """Where faults happen: two nodes with four cards each, a team, and a store that takes samples."""

    stack: Stack
    sink: Sink
    lines: dict[str, list[str]] = field(default_factory=dict)
    """By UUID: what its driver says beside the usual."""
    sound: dict[str, str] = field(default_factory=dict)
    """By node: what its driver says while all is well."""

    @property
    def one(self) -> RealNode:
        """The first node."""
        return self.stack.cluster.nodes[0]

    @property
    def two(self) -> RealNode:
        """The second one."""
        return self.stack.cluster.nodes[1]

    def queue(self, name: str, **cap: Any) -> Json:
        """A queue with that cap."""
        spec = {"weight": 1, "reclaimable": True, "capability": cap}
        return {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }

    def prepare(self) -> None:
        """The team, its queues, and a policy under which cards are promised three times."""
        kit = self.stack.kit
        kit.api.patch(CONFIG_MAPS, names.POLICY_CONFIG_MAP, {"data": {"policy.yaml": POLICY}}, NAMESPACE)
        for name in (TEAM, LOOSE):
            kit.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        kit.apply(*_may_use(TEAM, LOOSE))
        one_share = capability(1, memory_mib=10_000, cores=100)
        kit.apply(self.queue(TEAM, **capability(64)), self.queue(FULL, **one_share))
        for node in self.stack.cluster.nodes:
            self.sound[node.name] = nvml_state(node.name, CARDS)
            self.say(node)
            disturb.restart_agent(self.stack, node)

    def say(self, node: RealNode) -> None:
        """Let its driver say all that is known here."""
        text = self.sound[node.name]
        for uuid, lines in self.lines.items():
            text = text.replace(f"card={uuid}\n", "\n".join([f"card={uuid}", *lines, ""]))
        self.stack.set_cards(node, text)

    def end(self, *pods: str, namespace: str = TEAM) -> None:
        """Delete pods with force, and wait until they are gone."""
        gone = ("--ignore-not-found", "--force", "--grace-period=0", "--wait=false")
        self.stack.kit.kubectl("delete", "pod", *pods, "-n", namespace, *gone)
        self.stack.kit.pods_until("they are gone", namespace, lambda found: not set(pods) & set(found))

    def run(self, *pods: Json) -> None:
        """Make pods of the team, and wait until they run."""
        wanted = {pod["metadata"]["name"] for pod in pods}
        self.stack.kit.apply(*pods)
        self.stack.kit.pods_until("they run", TEAM, lambda found: wanted <= set(running(found)) or None, 120)


def _may_use(*namespaces: str) -> list[Json]:
    """The accounts of these namespaces may use queues and classes: controllers ask in nobody's name."""
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["use"]},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["use"]},
    ]
    api, metadata = {"apiVersion": f"{rbac}/v1"}, {"name": "faults-use"}
    groups = [
        {"apiGroup": rbac, "kind": "Group", "name": f"system:serviceaccounts:{name}"} for name in namespaces
    ]
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "faults-use"}
    return [
        {**api, "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {**api, "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": role, "subjects": groups},
    ]


def pod(name: str, mib: int, command: tuple[str, ...] = SLEEP, **more: Any) -> Json:
    """A pod of the team on one card."""
    return pod_on_one_card(TEAM, name, mib, command, **more)


Begin = Callable[[Scene], AbstractContextManager[object]]


@dataclass(frozen=True)
class Fault:
    """What makes one alert fire; ``told`` is what its labels must say."""

    alert: str
    what: str
    begin: Begin
    told: Mapping[str, str] = field(default_factory=dict)

    def shown_by(self, labels: Labels) -> bool:
        """Whether this alert is of this fault."""
        return labels["alertname"] == self.alert and self.told.items() <= labels.items()


# --- tables and switches --------------------------------------------------------------------------------


def table(config_map: str, file: str, text: str) -> Begin:
    """A ConfigMap of ours that cannot be read."""

    @contextlib.contextmanager
    def begin(scene: Scene) -> Iterator[None]:
        api = scene.stack.kit.api
        before = (api.get(CONFIG_MAPS, config_map, NAMESPACE).get("data") or {}).get(file)
        api.patch(CONFIG_MAPS, config_map, {"data": {file: text}}, NAMESPACE)
        yield
        api.patch(CONFIG_MAPS, config_map, {"data": {file: before}}, NAMESPACE)

    return begin


@contextlib.contextmanager
def stopped(scene: Scene) -> Iterator[None]:
    """The operator stops admitting, and goes on."""
    scene.stack.egpu("stop-admitting", "--all")
    yield
    scene.stack.egpu("stop-admitting", "--all", "--undo")


@contextlib.contextmanager
def store_refuses(scene: Scene) -> Iterator[None]:
    """The remote store takes no samples any more."""
    wait_until("samples are taken", lambda: scene.sink.taken > 1, 60)
    scene.sink.refuses.set()
    yield
    scene.sink.refuses.clear()


@contextlib.contextmanager
def agents_may_not_write(scene: Scene) -> Iterator[None]:
    """Agents may not write their Nodes any more, and there is something to say: a card falls ill."""
    who = "system:serviceaccount:vc-egpu-system:vc-egpu-node-agent"
    with (
        _without_rule(scene, "vc-egpu-node-agent", "nodes", "patch", who),
        ill(f"GPU-{scene.two.name}-1", "error=15")(scene),
    ):
        yield


@contextlib.contextmanager
def _without_rule(scene: Scene, role: str, resource: str, verb: str, who: str) -> Iterator[None]:
    """A ClusterRole that has lost one verb on one kind."""
    kit = scene.stack.kit

    def may() -> bool:
        done = kit.kubectl("auth", "can-i", verb, resource, "--as", who, check=False)
        return bool(done.stdout.strip() == "yes")

    before = json.loads(kit.kubectl("get", "clusterrole", role, "-o", "json").stdout)["rules"]
    fewer = [
        {**rule, "verbs": [one for one in rule["verbs"] if one != verb]}
        if resource in rule["resources"]
        else rule
        for rule in before
    ]
    for rules in (fewer, before):
        patch = json.dumps([{"op": "replace", "path": "/rules", "value": rules}])
        kit.kubectl("patch", "clusterrole", role, "--type=json", "-p", patch)
        wait_until("the right is as it should be", lambda rules=rules: may() is (rules is before), 30)  # type: ignore[misc]
        if rules is fewer:
            yield


# --- cards ----------------------------------------------------------------------------------------------


def ill(uuid: str, *lines: str) -> Begin:
    """The driver says something else of one card; ``{one}`` and ``{two}`` are the nodes."""

    @contextlib.contextmanager
    def begin(scene: Scene) -> Iterator[None]:
        card = uuid.format(one=scene.one.name, two=scene.two.name)
        (node,) = [node for node in (scene.one, scene.two) if card.startswith(f"GPU-{node.name}-")]
        scene.lines[card] = list(lines)
        scene.say(node)
        yield
        del scene.lines[card]
        scene.say(node)

    return begin


@contextlib.contextmanager
def unknown_mode(scene: Scene) -> Iterator[None]:
    """A node's label names a way to offer cards that is none."""
    kubectl, node = scene.stack.kit.kubectl, scene.two.name
    kubectl("label", "node", node, f"{names.NODE_MODE_LABEL}=both")
    yield
    kubectl("label", "node", node, f"{names.NODE_MODE_LABEL}-")


@contextlib.contextmanager
def runtime_hands_out_all(scene: Scene) -> Iterator[None]:
    """The vendor's runtime becomes the default one of a node; agents look when they start."""
    scene.one.run(["sh", "-c", f"mkdir -p /etc/containerd; cat > {RUNTIME_FILE}"], text_in=RUNTIME)
    disturb.restart_agent(scene.stack, scene.one)
    yield
    scene.one.run(["rm", RUNTIME_FILE])
    disturb.restart_agent(scene.stack, scene.one)


# --- processes ------------------------------------------------------------------------------------------


def none_of(deployment: str) -> Begin:
    """A Deployment of ours without pods."""

    @contextlib.contextmanager
    def begin(scene: Scene) -> Iterator[None]:
        api = scene.stack.kit.api
        before = api.get(DEPLOYMENTS, deployment, NAMESPACE)["spec"]["replicas"]
        api.patch(DEPLOYMENTS, deployment, {"spec": {"replicas": 0}}, NAMESPACE)
        yield
        api.patch(DEPLOYMENTS, deployment, {"spec": {"replicas": before}}, NAMESPACE)

    return begin


@contextlib.contextmanager
def frozen_agent(scene: Scene) -> Iterator[None]:
    """The agent of a node hangs."""
    agent = disturb.agent_processes(scene.two)
    agent.freeze()
    yield
    agent.thaw()


@contextlib.contextmanager
def no_agent(scene: Scene) -> Iterator[None]:
    """A node with a pod on a card loses its agent: the DaemonSet does not want it any more."""
    scene.run(pod("alone", 1_000, nodeSelector={"kubernetes.io/hostname": scene.one.name}))
    scene.stack.kit.kubectl("label", "node", scene.one.name, "type=kwok")
    yield
    scene.stack.kit.kubectl("label", "node", scene.one.name, "type-")
    scene.end("alone")


@contextlib.contextmanager
def short_certificate(scene: Scene) -> Iterator[None]:
    """The webhook makes certificates that hold for three days."""
    kit, name = scene.stack.kit, "VC_EGPU_WEBHOOK_SERVING_LIFETIME_S"
    webhook, pods = "deployment/vc-egpu-webhook", "app.kubernetes.io/name=vc-egpu-webhook"
    before = kit.api.get(DEPLOYMENTS, "vc-egpu-webhook", NAMESPACE)["spec"]["replicas"]
    for change in (f"{name}=259200", f"{name}-"):
        # One that runs on would make the certificate again by what it was told before.
        kit.kubectl("scale", webhook, "-n", NAMESPACE, "--replicas=0")
        kit.kubectl("wait", "--for=delete", "pod", "-l", pods, "-n", NAMESPACE, "--timeout=120s")
        kit.kubectl("delete", "secret", "vc-egpu-webhook-tls", "-n", NAMESPACE)
        kit.kubectl("set", "env", webhook, "-n", NAMESPACE, change)
        kit.kubectl("scale", webhook, "-n", NAMESPACE, f"--replicas={before}")
        kit.kubectl("rollout", "status", webhook, "-n", NAMESPACE)
        if change.endswith("259200"):
            yield


# --- work -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def rogue(scene: Scene) -> Iterator[None]:
    """A program goes past the library, and takes more than its pod was granted."""
    scene.run(pod("rogue", 4_000, ("/usr/bin/python3", "-c", PAST_THE_PRELOAD.replace("{mib}", "9000"))))
    yield
    scene.end("rogue")


@contextlib.contextmanager
def scattered_room(scene: Scene) -> Iterator[None]:
    """A gang of nine large shares, of which each of eight cards takes one: most memory stays free."""
    gang = job("scattered", Task(shares(60_000), replicas=9), queue=TEAM)
    scene.stack.kit.kubectl("apply", "-n", TEAM, "-f", "-", text_in=json.dumps(gang))
    yield
    scene.stack.kit.kubectl("delete", "vcjob", "scattered", "-n", TEAM)


@contextlib.contextmanager
def idle(scene: Scene) -> Iterator[None]:
    """A pod holds all that its queue may have, and does nothing."""
    scene.run(pod("idle", 9_900, annotations={names.QUEUE_NAME: FULL}))
    yield
    scene.end("idle")


@contextlib.contextmanager
def bound_past_us(scene: Scene) -> Iterator[None]:
    """Pods that somebody binds without a plan: no container of theirs starts. Their queue is full."""
    kit = scene.stack.kit
    names_of = [f"past-{number}" for number in range(BOUND_PAST_US)]
    for name in names_of:
        body = pod(name, 100, annotations={names.QUEUE_NAME: FULL})
        body["metadata"]["namespace"] = LOOSE
        kit.apply(body)
    assert all(is_gated(found) for found in kit.api.list(PODS, LOOSE).items)
    target = {"apiVersion": "v1", "kind": "Node", "name": scene.one.name}
    for name in names_of:
        path = f"/api/v1/namespaces/{LOOSE}/pods/{name}/binding"
        body = {"apiVersion": "v1", "kind": "Binding", "target": target, "metadata": {"name": name}}
        kit.kubectl("create", "--raw", path, "-f", "-", text_in=json.dumps(body))
    yield
    scene.end(*names_of, namespace=LOOSE)


@contextlib.contextmanager
def deaf_victims(scene: Scene) -> Iterator[None]:
    """Low pods on all cards are to make room, and do not hear that they are to end."""
    more = {"terminationGracePeriodSeconds": 300}
    low = Task(shares(80_000), replicas=8, priority="low", command=DEAF, more=more)
    high = Task(shares(60_000), replicas=2, priority="high")
    kubectl = scene.stack.kit.kubectl
    kubectl("apply", "-n", TEAM, "-f", "-", text_in=json.dumps(job("deaf", low, queue=TEAM)))
    scene.stack.kit.pods_until("low runs", TEAM, lambda pods: len(running(pods, "deaf-")) == 8 or None, 120)
    kubectl("apply", "-n", TEAM, "-f", "-", text_in=json.dumps(job("urgent", high, queue=TEAM)))
    yield
    kubectl("delete", "vcjob", "deaf", "-n", TEAM, "--wait=false")
    scene.end(*(name for name in _pods(scene) if name.startswith("deaf-")))
    kubectl("delete", "vcjob", "urgent", "-n", TEAM)


def _pods(scene: Scene) -> list[str]:
    return [str(found["metadata"]["name"]) for found in scene.stack.kit.api.list(PODS, TEAM).items]


# --- suspension -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _checkpoint_fails(scene: Scene, call: str) -> Iterator[None]:
    """The driver refuses one call of each helper."""
    api = scene.stack.kit.api
    before = api.get(POD_TEMPLATES, CHECKPOINT, NAMESPACE)["template"]["spec"]["containers"]
    fault = {"name": "FAKE_CUDA_FAULTS", "value": f"{call}:1:9:2"}
    worse = [{**before[0], "env": [*before[0]["env"], fault]}]
    for containers in (worse, before):
        patch: Any = [{"op": "replace", "path": "/template/spec/containers", "value": containers}]
        api.patch(POD_TEMPLATES, CHECKPOINT, patch, NAMESPACE, kind="json")
        if containers is worse:
            yield


@contextlib.contextmanager
def _trains(scene: Scene, name: str) -> Iterator[None]:
    """A low pod that can be suspended."""
    training = c_program("train", ns=200_000, kernels=10, every=50, **{"memory-mib": 1_000})
    scene.run(pod(name, 8_000, training, annotations={names.PRIORITY: "low"}))
    until_suspendable(scene.stack.kit, [scene.stack.kit.api.get(PODS, name, TEAM)])
    yield
    scene.end(name)


@contextlib.contextmanager
def not_suspended(scene: Scene) -> Iterator[None]:
    """A user suspends training, and the driver does not take it off its card."""
    with _trains(scene, "stays"), _checkpoint_fails(scene, "cuCheckpointProcessCheckpoint"):
        command = [str(Path(sys.executable).with_name("kubectl-egpu")), "suspend", "stays", "-n", TEAM]
        asks = subprocess.Popen([*command, "--kubeconfig", str(scene.stack.cluster.kubeconfig)])
        yield
        asks.wait(120)


@contextlib.contextmanager
def not_resumed(scene: Scene) -> Iterator[None]:
    """Suspended training cannot come back, while there is no controller that would evict it."""
    kit = scene.stack.kit
    with _trains(scene, "away"):
        scene.stack.egpu("suspend", "away", "-n", TEAM)
        kit.until("it is away", NODES, lambda nodes: '"suspended"' in json.dumps(nodes).replace("\\", ""))
        with none_of("vc-egpu-admission")(scene), _checkpoint_fails(scene, "cuCheckpointProcessRestore"):
            kit.pods_until("nobody decides", NAMESPACE, lambda pods: not running(pods, "vc-egpu-admission"))
            who = (
                f"--as={ADMISSION}",
                "--as-group=system:serviceaccounts",
                "--as-group=system:authenticated",
            )
            kit.kubectl("annotate", "pod", "away", "-n", TEAM, f"{names.SUSPEND}-", *who)
            yield
        disturb.wait_own_ready(scene.stack)


WAVES: Final[Mapping[str, tuple[Fault, ...]]] = {
    "tables": (
        Fault(
            "VcEgpuModelTableRejected",
            "ConfigMap vc-egpu-models gets a text that is no table",
            table(names.MODELS_CONFIG_MAP, "models.yaml", "models: 7\n"),
        ),
        Fault(
            "VcEgpuTableRejected",
            "ConfigMap vc-egpu-placement gets a text that is no table",
            table(names.PLACEMENT_CONFIG_MAP, "placement.yaml", "rules: 7\n"),
        ),
        Fault(
            "VcEgpuPolicyBroken",
            "ConfigMap vc-egpu-node-policy gets a text that is no policy",
            table(names.POLICY_CONFIG_MAP, "policy.yaml", "defaults: 7\n"),
        ),
        Fault("VcEgpuAdmittingStopped", "`kubectl egpu stop-admitting --all`", stopped),
        Fault("VcEgpuUsageFallsBehind", "the remote store answers 503", store_refuses),
    ),
    "cards": (
        Fault("VcEgpuCardIll", "the driver has lost a card", ill("GPU-{one}-2", "error=15"), {"index": "2"}),
        Fault(
            "VcEgpuRowsWaitForReset",
            "the driver says that rows wait for a reset",
            ill("GPU-{one}-3", "remap_pending=1"),
            {"index": "3"},
        ),
        Fault(
            "VcEgpuMemoryOfNobody",
            "the driver counts 5 GiB that no process has",
            ill("GPU-{one}-0", "used_mib=5120"),
            {"index": "0"},
        ),
        Fault(
            "VcEgpuCardUntold",
            "the driver does not say who runs on a card",
            ill("GPU-{one}-1", "list_error=999"),
            {"index": "1"},
        ),
        Fault("VcEgpuNodeTakesNothing", "the label of a node names a card mode that is none", unknown_mode),
    ),
    "writing": (
        Fault(
            "VcEgpuNodeNotWritten",
            "agents lose the right to write Nodes, then a card falls ill",
            agents_may_not_write,
        ),
    ),
    "processes": (
        Fault(
            "VcEgpuRuntimeBypass",
            "the vendor's runtime becomes the default one of a node",
            runtime_hands_out_all,
        ),
        Fault("VcEgpuProcessDown", "the agent of a node hangs (SIGSTOP)", frozen_agent),
        Fault("VcEgpuNobodyRunsJobs", "the Job controllers are scaled to 0", none_of("vc-egpu-jobs")),
        Fault("VcEgpuNobodyReviews", "the webhooks are scaled to 0", none_of("vc-egpu-webhook")),
        Fault("VcEgpuNobodyLeads", "the admission controllers are scaled to 0", none_of("vc-egpu-admission")),
    ),
    "certificate": (
        Fault("VcEgpuCertificateEnds", "the webhook makes certificates for three days", short_certificate),
    ),
    "eviction": (
        Fault(
            "VcEgpuGangsWaitForEviction",
            "low pods that are to make room ignore SIGTERM",
            deaf_victims,
            {"queue": TEAM},
        ),
    ),
    "work": (
        Fault(
            "VcEgpuIdleJobsHoldTheCap", "a pod holds its queue's cap and does nothing", idle, {"queue": FULL}
        ),
        Fault(
            "VcEgpuGangBeyondPromise",
            "nine shares of which two never fit on a card, on eight free cards",
            scattered_room,
            {"queue": TEAM},
        ),
        Fault("VcEgpuContainersRefused", "16 pods are bound without a plan", bound_past_us),
    ),
    "rogue": (
        Fault("VcEgpuSecondWall", "a program goes past the library", rogue),
        Fault(
            "VcEgpuContainerBeyondGrant",
            "the same program takes 9,000 MiB of 4,000",
            contextlib.nullcontext,
            {"namespace": TEAM, "pod": "rogue"},
        ),
    ),
    "suspending": (
        Fault("VcEgpuSuspensionsFail", "the driver refuses to take a program off its card", not_suspended),
    ),
    "resuming": (
        Fault(
            "VcEgpuNotResumed",
            "the driver refuses to bring a program back, and no controller evicts it",
            not_resumed,
            {"namespace": TEAM, "pod": "away"},
        ),
    ),
    "agents": (Fault("VcEgpuAgentMissing", "a node with a pod on a card loses its agent", no_agent),),
}
"""By name; in the order of the story."""
NOT_MADE: Final[Mapping[str, str]] = {
    "VcEgpuSharersWait": "programs on the fake driver wait for the processor, and not for the card",
    "VcEgpuWatchStandsStill": "a watch of what never changes is silent for minutes, too",
    "VcEgpuSlowDecisions": "decisions of a cluster of two nodes take milliseconds",
    "VcEgpuWebhookFaults": "it tells of a fault in our own code that is not known",
}
"""Alerts that no fault here makes, and why: stories of promtool alone show them."""
