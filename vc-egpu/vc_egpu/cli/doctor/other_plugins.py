"""The doctor's part on who else offers cards: other device plugins, and DRA drivers. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from vc_egpu.cli import world
from vc_egpu.cli.doctor.facts import Facts
from vc_egpu.cli.doctor.findings import Finding, fail, ok, told_once, warn
from vc_egpu.core.model.words import few
from vc_egpu.kube import Json
from vc_egpu.volcano.words.other_plugins import (
    FOREIGN_DRIVERS,
    FOREIGN_RESOURCES,
    devices_of_others,
    matches,
    resources_of_others,
)

TOPIC: Final = "other plugins"
DAEMON_SETS: Final = (
    "nvidia-device-plugin",
    "hami-device-plugin",
    "volcano-device-plugin",
    "gpushare",
    "dra-driver-nvidia-gpu",
    "nvidia-dra-driver-gpu",
)
"""Parts of their names."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
KEEP_OFF: Final = (
    "one owner per node: keep that plugin off it (nvidia.com/gpu.deploy.device-plugin=false with the GPU "
    'operator), or ours; see "From another plugin" in docs/operator-with-other-plugins.md'
)


def other_findings(facts: Facts) -> Iterable[Finding]:
    """Nodes whose cards another plugin offers or holds, worst first: cards that have two owners now."""
    ours, theirs = _holders(facts)
    devices = devices_of_others(facts.slices.items, FOREIGN_DRIVERS)
    alike: dict[tuple[str, bool], list[str]] = defaultdict(list)
    found = False
    for node in facts.nodes.items:
        name = str(node["metadata"]["name"])
        offered = _offered(node) | devices.get(name, {})
        said = ", ".join(f"{count} {resource}" for resource, count in offered.items())
        if offered and ours[name]:
            found = True
            here = f"our pods {few(sorted(ours[name]))} run there: a card may have two owners"
            yield fail(TOPIC, f"{_offers([name], said, theirs[name])}, and {here}", KEEP_OFF)
        elif offered:
            alike[said, bool(theirs[name])].append(name)
        elif theirs[name] and world.inventory_of(node) is not None:
            found = True
            text = f"{few(sorted(theirs[name]))} on {name} hold cards of a plugin that is gone"
            yield warn(TOPIC, text, "its cards are ours when these pods have ended: drain the node")
    for (said, _), nodes in sorted(alike.items()):
        found = True
        yield fail(TOPIC, _offers(nodes, said, set().union(*(theirs[name] for name in nodes))), KEEP_OFF)
    for daemon_set in facts.daemon_sets.items:
        wanted = (daemon_set.get("status") or {}).get("desiredNumberScheduled", 0)
        if wanted and any(word in str(daemon_set["metadata"]["name"]) for word in DAEMON_SETS):
            found = True
            yield warn(TOPIC, f"DaemonSet {world.key(daemon_set)} runs on {wanted} nodes")
    missing = (facts.nodes.missing or facts.daemon_sets.missing, facts.slices.missing, facts.claims.missing)
    unseen = [why for why in missing if why]
    for why in unseen:
        yield warn(TOPIC, why)
    if not unseen and not found:
        yield ok(TOPIC, "none offers GPUs here")


def _offers(nodes: Sequence[str], said: str, holders: set[str]) -> str:
    whose = f", whose cards {few(sorted(holders))} hold" if holders else ""
    return f"{told_once(nodes, 'offers', 'offer')} {said} by another plugin{whose}"


def _offered(node: Json) -> dict[str, int]:
    """By resource. A plugin that restarts has nothing allocatable for a moment, but still a capacity."""
    status = node.get("status") or {}
    keys = ("capacity", "allocatable")
    capacity, allocatable = (resources_of_others(status.get(key) or {}, FOREIGN_RESOURCES) for key in keys)
    return capacity | allocatable


def _holders(facts: Facts) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    """Node to the pods that hold cards by us, and to those that hold cards by others."""
    ours: dict[str, set[str]] = defaultdict(set)
    theirs: dict[str, set[str]] = defaultdict(set)
    by_claim = _claimed(facts.claims.items)
    for pod in facts.pods.items:
        spec = pod.get("spec") or {}
        node = str(spec.get("nodeName") or "")
        if not node or (pod.get("status") or {}).get("phase") in ENDED:
            continue
        if world.cards_of(pod) is not None:
            ours[node].add(world.key(pod))
        asks = any(matches(resource, FOREIGN_RESOURCES) for resource in spec.get("asks") or ())
        if asks or pod["metadata"].get("uid") in by_claim:
            theirs[node].add(world.key(pod))
    return ours, theirs


def _claimed(claims: Iterable[Json]) -> set[str]:
    """UIDs of the pods that hold devices of others through ResourceClaims; who only looks on holds none."""
    found: set[str] = set()
    for claim in claims:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        held = (str(one.get("driver")) for one in results if not one.get("adminAccess"))
        if any(matches(driver, FOREIGN_DRIVERS) for driver in held):
            users = status.get("reservedFor") or ()
            found |= {str(one.get("uid")) for one in users if one.get("resource") == "pods"}
    return found
