"""The part of the doctor that looks at the installed stack. Pure: facts in, findings out."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from vc_egpu.cli import world
from vc_egpu.cli.doctor.facts import Facts, has_cards
from vc_egpu.cli.doctor.findings import Finding, fail, ok, told_once, warn
from vc_egpu.core.environments import backends
from vc_egpu.core.model.words import few
from vc_egpu.kube import Json
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCards
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError
from vc_egpu.volcano.words.node_policy import check_policy

CRDS: Final = (
    "jobs.batch.volcano.sh",
    "commands.bus.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "queues.scheduling.volcano.sh",
)
CLASSES: Final = (
    names.PRIORITY_CLASS_HIGH,
    names.PRIORITY_CLASS_STANDARD,
    names.PRIORITY_CLASS_LOW,
)
WEBHOOK_PORT: Final = 9443
"""The port of its pods; the Service's is 443."""
LINKS_HINT: Final = (
    "run `nvidia-ctk system create-dev-char-symlinks --create-all` there, and at each boot: "
    "docs/operator.md, 'Runtimes and kubelets'"
)
SILENT_S: Final = 120.0
"""After so long a gated pod without a verdict is taken to have no controller."""


def stack_findings(facts: Facts, now: datetime) -> list[Finding]:
    """CRDs, processes, webhooks, the lease, agents, priority classes, pods without a controller."""
    found: list[Finding] = []
    for check in (_crds, _deployments, _models, _policy, _webhooks, _agents, _classes):
        found += check(facts)
    found += _lease(facts, now)
    if facts.stopped:
        hint = "kubectl egpu stop-admitting --all --undo"
        found.append(warn("admitting", "stopped by the operator: nothing new begins anywhere", hint))
    found += _forgotten(facts, now)
    return found


def _crds(facts: Facts) -> Iterable[Finding]:
    if facts.crds.missing:
        yield warn("CRDs", facts.crds.missing)
        return
    there = {crd["metadata"]["name"]: crd for crd in facts.crds.items}
    missing = [name for name in CRDS if name not in there]
    for name in missing:
        yield fail(
            "CRDs", f"{name} is missing", "kubectl apply --server-side -k manifests/crds, or install Volcano"
        )
    for name in CRDS:
        crd = there.get(name)
        if crd is not None and not world.condition_is_true(crd, "Established"):
            yield fail("CRDs", f"{name} is not established: the API server does not serve it")
    if not missing:
        yield ok("CRDs", "Job, Command, PodGroup and Queue are there")


def _deployments(facts: Facts) -> Iterable[Finding]:
    ours = [d for d in facts.deployments.items if d["metadata"].get("namespace") == names.SYSTEM_NAMESPACE]
    if facts.deployments.missing:
        yield warn("processes", facts.deployments.missing)
    known = {d["metadata"]["name"] for d in ours}
    for name in ("vc-egpu-admission", "vc-egpu-webhook"):
        if name not in known and not facts.deployments.missing:
            yield fail("processes", f"Deployment {name} is missing in {names.SYSTEM_NAMESPACE}")
    for deployment in ours:
        name, wanted = deployment["metadata"]["name"], deployment["spec"].get("replicas", 1)
        ready = (deployment.get("status") or {}).get("readyReplicas", 0)
        hint = f"kubectl -n {names.SYSTEM_NAMESPACE} describe deployment {name}"
        if ready == 0:
            yield fail("processes", f"{name}: 0 of {wanted} replicas are ready", hint)
        elif ready < wanted:
            yield warn("processes", f"{name}: {ready} of {wanted} replicas are ready", hint)
        else:
            yield ok("processes", f"{name}: {ready} of {wanted} replicas are ready")
        if ready >= wanted and (deployment.get("status") or {}).get("unavailableReplicas", 0):
            yield warn("processes", f"{name}: a replica of a new version does not become ready", hint)


def _models(facts: Facts) -> Iterable[Finding]:
    if facts.models is None:
        return
    try:
        table = ModelTable.from_yaml(facts.models)
    except ModelTableError as error:
        hint = "the last good one stays in force; a webhook or admission controller that starts now ends"
        yield fail("models", f"ConfigMap {names.MODELS_CONFIG_MAP}: {error}", hint)
        return
    if not facts.models:
        hint = "a webhook or admission controller that starts now does not come up, or refuses every ask"
        yield fail("models", f"ConfigMap {names.MODELS_CONFIG_MAP} is missing or empty", hint)
    elif not table.models:
        yield warn(
            "models", f"ConfigMap {names.MODELS_CONFIG_MAP} names no model: every ask for cards is refused"
        )


def _policy(facts: Facts) -> Iterable[Finding]:
    try:
        check_policy(facts.policy or "")
    except (ValueError, RecursionError) as error:
        hint = "agents go by the last good one; a node that has never seen one takes nothing"
        yield fail("policy", f"ConfigMap {names.POLICY_CONFIG_MAP}: {error}", hint)


def _webhooks(facts: Facts) -> Iterable[Finding]:
    if facts.webhooks.missing:
        yield warn("webhook", facts.webhooks.missing)
        return
    ours = [
        (configuration, hook)
        for configuration in facts.webhooks.items
        for hook in configuration.get("webhooks") or ()
        if (hook.get("clientConfig", {}).get("service") or {}).get("namespace") == names.SYSTEM_NAMESPACE
    ]
    if not ours:
        yield fail("webhook", "no webhook configuration names the service vc-egpu-webhook")
        return
    bad = False
    for _, hook in ours:
        if not hook["clientConfig"].get("caBundle"):
            bad = True
            yield fail("webhook", f"{hook['name']} has no CA bundle: the API server cannot reach it")
        if hook.get("failurePolicy") == "Ignore" and hook["name"] != names.MEMBERS_WEBHOOK:
            bad = True
            yield warn(
                "webhook", f"{hook['name']} has failurePolicy Ignore: asks pass unseen while it is down"
            )
    if not any("egpu" in binding["metadata"]["name"] for binding in facts.policy_bindings.items):
        yield warn("webhook", facts.policy_bindings.missing or "the admission policies are not bound")
    if facts.unreached:
        bad = True
        hint = f"a firewall between control plane and nodes has to let TCP {WEBHOOK_PORT} through"
        yield fail("webhook", f"the API server does not get through: {facts.unreached}", hint)
    if not bad:
        yield ok("webhook", f"{len(ours)} webhooks are registered with a CA bundle")


def _agents(facts: Facts) -> Iterable[Finding]:
    daemon_set = next(
        (d for d in facts.daemon_sets.items if d["metadata"]["name"] == "vc-egpu-node-agent"), None
    )
    if daemon_set is None:
        yield (
            warn("agents", facts.daemon_sets.missing)
            if facts.daemon_sets.missing
            else fail("agents", f"DaemonSet vc-egpu-node-agent is missing in {names.SYSTEM_NAMESPACE}")
        )
    else:
        status = daemon_set.get("status") or {}
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        level = ok if ready == wanted and wanted else warn
        yield level("agents", f"{ready} of {wanted} node agents are ready")
        yield from _container_use(daemon_set)
    found = [(node, world.inventory_of(node)) for node in facts.nodes.items]
    bare = [world.name(node) for node, inventory in found if inventory is None and has_cards(node)]
    if bare:
        seem = told_once(bare, "seems to have GPUs", "seem to have GPUs")
        yield warn("agents", f"{seem}, but no agent has written its inventory")
    inventories = [(node, inventory) for node, inventory in found if inventory is not None]
    yield from _of_nodes(inventories)
    offered = sum(_usable(inventory) for node, inventory in inventories if world.is_ready(node))
    if facts.nodes.missing:
        yield warn("cards", facts.nodes.missing)
    else:
        yield ok("cards", f"{offered} cards are offered") if offered else fail("cards", "no card is offered")


def _container_use(daemon_set: Json) -> Iterable[Finding]:
    """A driver tells a program of no process outside of its PID namespace."""
    spec = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec")
    if spec is None:
        return
    if spec.get("hostPID"):
        yield ok("metrics", "the agents tell what each container uses of its cards")
    else:
        add = "components/container-use or components/isolation adds that"
        yield ok("metrics", f"the agents do not tell what each container uses of its cards: {add}")


def _usable(inventory: NodeCards) -> int:
    return sum(card.healthy and card.offered for card in inventory.cards)


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _held_by(inventories: Sequence[tuple[Json, NodeCards]]) -> Iterable[Finding]:
    """What keeps containers to their memory, on how many nodes. Where nothing does, an operator has chosen
    so, or the node has no backend."""
    nodes: dict[str, list[str]] = {}
    timed: dict[str, int] = {}
    for node, inventory in inventories:
        if inventory.compute != "library":
            timed[inventory.compute] = timed.get(inventory.compute, 0) + 1
        # Cards that are not shared by size are given out whole or in slices: nobody else is on them.
        words = (
            card.isolation
            for card in inventory.cards
            if card.offered and (card.stack or card.isolation != "none")
        )
        for word in backends.told(words):
            nodes.setdefault(word, []).append(world.name(node))
    bare = nodes.pop("none", [])
    told = [f"{backends.said(word)} ({word}) on {_nodes(len(nodes[word]))}" for word in sorted(nodes)]
    if told:
        yield ok("isolation", f"memory is held by {', '.join(told)}")
    for word, count in sorted(timed.items()):
        yield ok("isolation", f"time is shared by {backends.said_of_time(word)} ({word}) on {_nodes(count)}")
    if bare:
        yield warn(
            "isolation",
            f"nothing keeps containers to their memory on {few(bare)}",
            "limits are off there: see backends in docs/operator-isolation.md",
        )


def _of_nodes(inventories: Sequence[tuple[Json, NodeCards]]) -> Iterable[Finding]:
    """What holds of several nodes once, what is of one card by itself."""
    yield from _held_by(inventories)
    problems: dict[str, list[str]] = {}
    for node, inventory in inventories:
        if inventory.problem:
            problems.setdefault(inventory.problem, []).append(world.name(node))
    for problem, nodes in sorted(problems.items()):
        yield fail("agents", f"{told_once(nodes, 'takes', 'take')} nothing: {problem}")
    warned: dict[str, list[str]] = {}
    for node, inventory in inventories:
        if inventory.warning:
            warned.setdefault(inventory.warning, []).append(world.name(node))
    for warning, nodes in sorted(warned.items()):
        yield warn("devices", f"{few(nodes)}: {warning}", LINKS_HINT)
    away = {
        world.name(node): _usable(inventory) for node, inventory in inventories if not world.is_ready(node)
    }
    idle = [name for name, cards in away.items() if cards]
    if idle:
        those = told_once(
            idle, "is not ready: nothing new goes onto its", "are not ready: nothing new goes onto their"
        )
        yield warn("cards", f"{those} cards ({sum(away.values())})")
    for node, inventory in inventories:
        name = world.name(node)
        if strangers := world.cordoned_strangers(node, inventory):
            yield warn(
                "cards",
                f"{name} cordons {', '.join(strangers)}, which it has not: annotation {names.CORDONED_CARDS}",
                f"its cards are {', '.join(card.uuid for card in inventory.cards) or 'none'}",
            )
        yield from _unused(name, inventory)


def _unused(node: str, inventory: NodeCards) -> Iterable[Finding]:
    for card in inventory.cards:
        if not card.healthy or not card.offered:
            state = "is ill" if not card.healthy else "is not offered"
            yield warn(
                "cards",
                f"{node} card {card.index} ({card.uuid}) {state}: {card.reason or 'no reason given'}",
            )


def _classes(facts: Facts) -> Iterable[Finding]:
    if facts.priority_classes.missing:
        yield warn("priority", facts.priority_classes.missing)
        return
    there = {item["metadata"]["name"]: item for item in facts.priority_classes.items}
    for name in CLASSES:
        if name not in there:
            yield fail("priority", f"PriorityClass {name} is missing")
        elif there[name].get("preemptionPolicy") != "Never":
            yield fail(
                "priority", f"PriorityClass {name} may preempt: the scheduler would evict behind the plan"
            )


def _lease(facts: Facts, now: datetime) -> Iterable[Finding]:
    if facts.leases.missing:
        yield warn("leader", facts.leases.missing)
        return
    for lease in facts.leases.items:
        name, spec = lease["metadata"]["name"], lease.get("spec") or {}
        if name not in {"vc-egpu-admission", "vc-egpu-jobs"}:
            continue
        holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
        age_s = (now - datetime.fromisoformat(renewed)).total_seconds() if renewed else float("inf")
        if not holder:
            yield warn("leader", f"{name} has no leader at the moment")
        elif age_s > 2 * spec.get("leaseDurationSeconds", 15):
            yield fail("leader", f"{holder} holds {name} but has not renewed it for {age_s:.0f} s")
        else:
            yield ok("leader", f"{holder} leads {name}, epoch {spec.get('leaseTransitions', 0)}")
    if not any(lease["metadata"]["name"] == "vc-egpu-admission" for lease in facts.leases.items):
        yield fail("leader", "no admission controller has ever led: there is no lease vc-egpu-admission")


def _forgotten(facts: Facts, now: datetime) -> Iterable[Finding]:
    if facts.pods.missing:
        yield warn("pods", facts.pods.missing)
    silent = []
    for pod in facts.pods.items:
        if not world.waits_for_us(pod) or world.condition(pod) is not None:
            continue
        created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        if (now - created).total_seconds() > SILENT_S:
            silent.append(world.key(pod))
    if silent:
        yield fail("pods", f"waiting for us for over {SILENT_S:.0f} s without a reason: {few(silent)}")


def removal_findings(pods: Iterable[Json]) -> list[Finding]:
    """What stands in the way of removing the stack: pods that wait at our gate, pods that hold cards."""
    gated = [world.key(pod) for pod in pods if world.waits_for_us(pod)]
    holding = [
        world.key(pod)
        for pod in pods
        if names.CARDS in world.annotations(pod) and not world.finished(pod) and not world.waits_for_us(pod)
    ]
    away = [world.key(pod) for pod in pods if world.phase(pod) in world.ON_ITS_WAY]
    found = [fail("removal", f"{key} waits for us and would wait for ever") for key in gated]
    found += [
        fail(
            "removal",
            f"{key} is suspended: without its node's agent nothing could bring it back",
            "`manifests/remove` waits until it runs; it needs room on its cards",
        )
        for key in away
    ]
    found += [
        warn("removal", f"{key} runs on cards; it keeps them, and its containers may not restart")
        for key in holding
        if key not in away
    ]
    return found or [ok("removal", "no pod waits for us, none holds cards")]
