"""``kubectl egpu doctor``: is this cluster ready for the stack, and is the stack well?

Pure: facts in, findings out.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from vc_egpu.cli import world
from vc_egpu.cli.doctor.facts import CLOCKS_DIFFER_S, Facts, has_cards
from vc_egpu.cli.doctor.findings import Finding, fail, ok, told_once, warn
from vc_egpu.cli.doctor.network import network_findings
from vc_egpu.cli.doctor.other_plugins import other_findings
from vc_egpu.cli.doctor.stack import stack_findings
from vc_egpu.core.model.words import few
from vc_egpu.kube import Json
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

OLDEST: Final = (1, 30)
"""Scheduling gates, admission policies and match conditions are stable in its API server. Its kubelet takes
CDI names from device plugins unless that is switched off; from 1.31 on it cannot be."""
_OLDEST_WORDS: Final = f"{OLDEST[0]}.{OLDEST[1]} is the oldest that is tested and has what is needed"
_KUBELET_GATE: Final = "DevicePluginCDIDevices"
OLDEST_CONTAINERD: Final = (1, 7)
_K0S_ROOT: Final = "/var/lib/k0s/kubelet"
OLDEST_DRIVER: Final = (525, 0)


def examine(facts: Facts, now: datetime | None = None) -> tuple[Finding, ...]:
    """All findings, in the order in which one would look."""
    now = (now or datetime.now(UTC)) - timedelta(seconds=facts.clock_ahead_s)
    checks: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
        _kubernetes,
        _kubelets,
        _runtimes,
        _elsewhere,
        _driver,
        other_findings,
        _volcano,
        network_findings,
        _clock,
    )
    found = [finding for check in checks for finding in check(facts)]
    if facts.installed:
        found += stack_findings(facts, now)
    else:
        found.append(ok("stack", "not installed here; the findings above are what it would meet"))
    return tuple(found)


def verdict(findings: Iterable[Finding]) -> Literal["ok", "warn", "fail"]:
    """The worst of all findings."""
    levels = {finding.level for finding in findings}
    return "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"


def version_of(text: str) -> tuple[int, int]:
    """Major and minor of ``v1.36.3``; (0, 0) of what is none."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _clock(facts: Facts) -> Iterable[Finding]:
    off_s = facts.clock_ahead_s
    if abs(off_s) > CLOCKS_DIFFER_S:
        where = "ahead of" if off_s > 0 else "behind"
        yield warn("clock", f"your own clock is {abs(off_s):.0f} s {where} the cluster's, which counts here")


def _kubernetes(facts: Facts) -> Iterable[Finding]:
    version = version_of(facts.version)
    if version < OLDEST:
        yield fail("kubernetes", f"API server {facts.version}: {_OLDEST_WORDS}")
    else:
        yield ok("kubernetes", f"API server {facts.version}")


def _kubelets(facts: Facts) -> Iterable[Finding]:
    cards = [node for node in facts.nodes.items if has_cards(node)]
    if facts.nodes.missing:
        yield warn("nodes", facts.nodes.missing)
        return
    if not cards:
        yield warn(
            "nodes",
            f"none of {len(facts.nodes.items)} nodes says that it has GPUs",
            "label them nvidia.com/gpu.present=true, as GPU feature discovery does, or "
            "egpu.volcano.sh/card-mode=shared",
        )
        return
    old: dict[str, list[str]] = {}
    for node in cards:
        if version_of(_info(node).get("kubeletVersion", "")) < OLDEST:
            old.setdefault(_info(node).get("kubeletVersion", "?"), []).append(world.name(node))
    for kubelet, names in sorted(old.items()):
        yield fail("kubelet", f"{told_once(names, 'has', 'have')} kubelet {kubelet}: {_OLDEST_WORDS}")
    for name, config in sorted(facts.kubelet_configs.items()):
        if (config.get("featureGates") or {}).get(_KUBELET_GATE) is False:
            yield fail("kubelet", f"{name} has feature gate {_KUBELET_GATE} switched off", "switch it on")
    if not old:
        asked = len(facts.kubelet_configs)
        said = f", {asked} of them asked" if asked else "; none could be asked for its feature gates"
        yield ok("kubelet", f"{len(cards)} nodes with cards: CDI and PodResources are there{said}")


def _runtimes(facts: Facts) -> Iterable[Finding]:
    by_version: dict[str, list[str]] = {}
    for node in facts.nodes.items:
        if has_cards(node):
            by_version.setdefault(_info(node).get("containerRuntimeVersion", ""), []).append(world.name(node))
    for runtime, names in sorted(by_version.items()):
        kind, _, version = runtime.partition("://")
        run = f"{few(names)} run{'s' if len(names) == 1 else ''}"
        if kind == "containerd" and version_of(version) < OLDEST_CONTAINERD:
            yield fail("runtime", f"{run} containerd {version}: CDI needs 1.7 or later")
        elif kind == "containerd" and version_of(version)[0] < 2:
            hint = "set enable_cdi = true in its CRI plugin, and cdi_spec_dirs with /var/run/cdi"
            yield warn("runtime", f"{run} containerd {version}: CDI is off there by default", hint)
        elif kind not in {"containerd", "cri-o"}:
            yield warn("runtime", f"{run} {kind or 'an unknown runtime'} {version}: not tested")


def _elsewhere(facts: Facts) -> Iterable[Finding]:
    """Kubelets whose root is not where the agent's pods look for it."""
    agent = _agent(facts)
    spec = ((agent or {}).get("spec") or {}).get("template", {}).get("spec") or {}
    paths = [(volume.get("hostPath") or {}).get("path", "") for volume in spec.get("volumes") or ()]
    if any(str(path).startswith(_K0S_ROOT) for path in paths):
        return
    names = [
        world.name(node)
        for node in facts.nodes.items
        if has_cards(node) and "+k0s" in _info(node).get("kubeletVersion", "")
    ]
    if names:
        text = f"{few(names)}: k0s keeps the kubelet's PodResources socket below {_K0S_ROOT}"
        yield warn("kubelet", text, "docs/operator.md, 'Runtimes and kubelets', has the patch")


def _driver(facts: Facts) -> Iterable[Finding]:
    classes = {item["metadata"]["name"] for item in facts.runtime_classes.items}
    drivers: dict[str, list[str]] = {}
    for node in facts.nodes.items:
        inventory = world.inventory_of(node)
        labels = world.labels(node)
        version = (
            inventory.driver_version if inventory else labels.get("nvidia.com/cuda.driver-version.full", "")
        )
        if version:
            drivers.setdefault(version, []).append(world.name(node))
    for version, names in sorted(drivers.items()):
        if version_of(version) < OLDEST_DRIVER:
            yield warn("driver", f"{version} on {few(names)}: 525 or later is needed to share cards")
        else:
            yield ok("driver", f"{version} on {len(names)} nodes")
    if not drivers and not facts.installed:
        yield warn("driver", "no node says which NVIDIA driver it has", "the agent will, once it runs")
    agent = _agent(facts)
    wanted = (((agent or {}).get("spec") or {}).get("template", {}).get("spec") or {}).get("runtimeClassName")
    if facts.runtime_classes.missing:
        return  # a user who may not see them is not told that there are none
    if agent is None and "nvidia" not in classes and any(has_cards(node) for node in facts.nodes.items):
        hint = "install NVIDIA's container toolkit or GPU operator, or use manifests/components/driver-root"
        yield warn(
            "driver", "there is no RuntimeClass nvidia, through which the agent reaches the driver", hint
        )
    elif wanted and wanted not in classes:
        yield fail(
            "driver", f"the agent asks for RuntimeClass {wanted}, which does not exist: its pods are refused"
        )


def _volcano(facts: Facts) -> Iterable[Finding]:
    crds = {crd["metadata"]["name"]: crd for crd in facts.crds.items}
    if facts.crds.missing:
        yield warn("volcano", facts.crds.missing)
        return
    ours = any(deployment["metadata"]["name"] == "vc-egpu-jobs" for deployment in facts.deployments.items)
    images = [
        container["image"]
        for deployment in facts.deployments.items
        for container in ((deployment["spec"].get("template") or {}).get("spec") or {}).get("containers")
        or ()
        if "vc-controller-manager" in container.get("image", "")
    ]
    if "jobs.batch.volcano.sh" not in crds:
        yield ok("volcano", "not here: use manifests/overlays/standalone")
        return
    if images and ours:
        hint = "remove Deployment vc-egpu-jobs: two controllers would fight over the same Jobs"
        yield fail("volcano", "Volcano's controllers and vc-egpu-jobs both run", hint)
    elif images:
        yield ok("volcano", f"controllers run ({images[0]}): use manifests/overlays/volcano")
    for text in facts.scheduler_configs:
        yield from _scheduler_config(text)


def _scheduler_config(text: str) -> Iterable[Finding]:
    hint = "manifests/overlays/volcano/scheduler is one that works"
    try:
        config = read_yaml(text)
        actions = {action.strip() for action in str(config["actions"]).split(",")}
        plugins = {plugin["name"] for tier in config["tiers"] for plugin in tier["plugins"]}
    except (NotYamlError, TypeError, KeyError) as error:
        yield warn("volcano", f"the scheduler's configuration cannot be read: {type(error).__name__}")
        return
    if "deviceshare" in plugins:
        yield fail(
            "volcano", "the scheduler has plugin deviceshare, which would count cards a second time", hint
        )
    if "capacity" not in plugins:
        yield warn("volcano", "the scheduler lacks plugin capacity, the second wall for the caps", hint)
    if actions & {"preempt", "reclaim"}:
        yield warn("volcano", "the scheduler preempts or reclaims by itself, behind the admission plan", hint)
    cached = [
        name
        for entry in config.get("configurations") or ()
        if "predicateErrorCacheEnable" in (entry.get("arguments") or {})
        and str(entry["arguments"]["predicateErrorCacheEnable"]).lower() == "false"
        for name in [str(entry.get("name"))]
    ]
    missing = sorted({"allocate", "backfill"} - set(cached))
    if missing:
        text = (
            f"predicateErrorCacheEnable is not false for {' and '.join(missing)}: some pinned gangs bind late"
        )
        yield warn("volcano", text, hint)


def _info(node: Json) -> dict[str, str]:
    return (node.get("status") or {}).get("nodeInfo") or {}


def _agent(facts: Facts) -> Json | None:
    return next((d for d in facts.daemon_sets.items if d["metadata"]["name"] == "vc-egpu-node-agent"), None)
