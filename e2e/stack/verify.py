"""The invariants of the design, judged from the API objects alone; and plan = CDI file = container."""

import json
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from localcluster import LocalCluster
from vc_egpu.admission.state.mirror import LOAD_ORDER, Mirror
from vc_egpu.core.check import invariants
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.core.model.reasons import Reason
from vc_egpu.kube import resources
from vc_egpu.kube.resources import POD_GROUPS, PODS, Resource
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.words.annotations import Cards
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import CARDS, CDI_KIND, CONDITION_ADMITTED, DOMAIN, ENV_CARDS

from stack.kit import Json, Kit, StoryError, condition, is_gated

SHOW_CARDS = f'printf %s "${ENV_CARDS}"'
_READ: tuple[Resource, ...] = (
    resources.PERSISTENT_VOLUMES,
    resources.PERSISTENT_VOLUME_CLAIMS,
    resources.DISRUPTION_BUDGETS,
    resources.NODES,
    resources.QUEUES,
    resources.PODS,
    resources.POD_GROUPS,
)


def look(kit: Kit, table: ModelTable) -> tuple[Snapshot, dict[str, Reason]]:
    """What the API server holds now, as the decision's values; and by gang the reason on its PodGroup.

    All of one version: of two lists one after the other the second may have a plan for the room of a pod that
    is still in the first.
    """
    mirror, reasons = Mirror(table), {}
    for resource, document in _at_once(kit, sorted(_READ, key=lambda found: LOAD_ORDER.index(found.plural))):
        mirror.apply(resource.plural, Change(ChangeKind.ADDED, document))
        admitted = condition(document, CONDITION_ADMITTED) if resource is POD_GROUPS else None
        if admitted:
            key = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
            reasons[key] = Reason(admitted["reason"])
    return mirror.snapshot(), reasons


def _at_once(kit: Kit, read: Sequence[Resource]) -> Iterator[tuple[Resource, Json]]:
    first = kit.api.list(read[0])
    yield from ((read[0], document) for document in first.items)
    same = {"resourceVersion": first.resource_version, "resourceVersionMatch": "Exact"}
    for resource in read[1:]:
        for document in kit.api.request("GET", resource.path(), query=same)["items"]:
            yield resource, document


def check_invariants(kit: Kit, table: ModelTable, lowered: Collection[str] = ()) -> None:
    """Raises :class:`StoryError` with every broken invariant; ``lowered`` queues may be above their cap."""
    snapshot, reasons = look(kit, table)
    found = [str(violation) for violation in invariants.check(snapshot, lowered=lowered, reasons=reasons)]
    if found:
        raise StoryError("invariants are broken:\n  " + "\n  ".join(found))


def gated_without_reason(kit: Kit) -> list[str]:
    """Pods behind our gate that do not say why."""
    return [
        pod["metadata"]["name"]
        for pod in kit.api.list(PODS).items
        if is_gated(pod) and not condition(pod, CONDITION_ADMITTED)
    ]


def check_containers(cluster: LocalCluster, kit: Kit, namespace: str) -> int:
    """Plan = CDI file = what each running container reports; returns how many containers were compared."""
    compared = 0
    for node in cluster.nodes:
        specs = dict(_specs(node.cdi_dir))
        for pod in _running(kit, namespace, node.name):
            cards = Cards.decode(pod["metadata"]["annotations"][CARDS])
            for container, shares in cards.containers.items():
                planned = [share.model_dump(by_alias=True, exclude_none=True) for share in shares]
                key = (pod["metadata"]["uid"], container)
                written = specs.get(key)
                name = pod["metadata"]["name"]
                words = ("exec", "-n", namespace, name, "-c", container, "--", "sh", "-c", SHOW_CARDS)
                done = cluster.kubectl(*words, check=False)
                if done.returncode != 0:
                    # Right only for a pod that was on its way out, whose status may be a moment behind.
                    kit.pods_until(
                        f"{name}/{container} ends, where {done.stderr.strip()}",
                        namespace,
                        partial(_is_over, pod),
                        timeout_s=30,
                    )
                    break
                seen = done.stdout
                if not planned == written == json.loads(seen):
                    raise StoryError(
                        f"{name}/{container}: planned {planned}, CDI file {written}, container says {seen}"
                    )
                compared += 1
    return compared


def _running(kit: Kit, namespace: str, node: str) -> Iterator[Json]:
    for pod in kit.api.list(PODS, namespace, field_selector=f"spec.nodeName={node}").items:
        if _is_up(pod) and CARDS in (pod["metadata"].get("annotations") or {}):
            yield pod


def _is_up(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _is_over(was: Json, pods: dict[str, Json]) -> bool:
    now = pods.get(was["metadata"]["name"])
    return now is None or now["metadata"]["uid"] != was["metadata"]["uid"] or not _is_up(now)


def _specs(folder: Path) -> Iterator[tuple[tuple[str, str], list[Json]]]:
    """((pod UID, container), shares) of every CDI file of ours."""
    for file in folder.glob(CDI_KIND.replace("/", "-") + "-*.json"):
        device = json.loads(file.read_text())["devices"][0]
        grant = json.loads(device["annotations"][f"{DOMAIN}/grant"])
        environment = dict(entry.split("=", 1) for entry in device["containerEdits"]["env"])
        yield (grant["pod_uid"], grant["container"]), json.loads(environment["EGPU_CARDS"])
