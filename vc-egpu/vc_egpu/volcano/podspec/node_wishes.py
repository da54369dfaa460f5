"""How much a pod may say about the node that it wants. Pure.

A tenant may write as much as fits into a request, and a decision holds all of it against every node. A pod
of 15,000 resources, or of 10,000 node affinity terms, kept all others waiting for seconds to minutes. What
people write is some dozen of each.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.podspec import neighbours
from vc_egpu.volcano.words import names

MOST_RESOURCES: Final = 64
"""Different ones of one pod, over all of its containers."""
MOST_REQUIREMENTS: Final = 256
"""In its node affinity, over all terms, and in its node selector, together."""
MOST_VALUES: Final = 4096
"""Values that the requirements name: enough for some thousand nodes."""
MOST_TOLERATIONS: Final = 256
MOST_PORTS: Final = 256
"""Ports of the host: a pod in the host's network takes all of its ports there."""
MOST_NAMED: Final = 64
"""Cards, or models, in one annotation."""
_OF_NODES: Final = frozenset({"affinity", "nodeSelector", "tolerations", "topologySpreadConstraints"})
CARD_LISTS: Final = (
    names.USE_CARDS,
    names.AVOID_CARDS,
    names.VOLCANO_USE_GPU_UUID,
    names.VOLCANO_NO_USE_GPU_UUID,
    names.HAMI_USE_GPU_UUID,
    names.HAMI_NO_USE_GPU_UUID,
)
"""Annotations that name cards: ours, Volcano's and HAMi's."""


def excess(spec: Mapping[str, Any]) -> str:
    """What a pod spec has too much of, with the number and the limit; empty where it has not.

    A Job's template can hold anything: a value of another kind is passed over.
    """
    requirements = list(_requirements(spec))
    counts = (
        (len(_resources(spec)), MOST_RESOURCES, "different resources"),
        (
            len(requirements) + len(_mapping(spec.get("nodeSelector"))),
            MOST_REQUIREMENTS,
            "requirements of node selector and node affinity",
        ),
        (
            sum(len(_list(each.get("values"))) for each in requirements),
            MOST_VALUES,
            "values in node affinity",
        ),
        (len(_list(spec.get("tolerations"))), MOST_TOLERATIONS, "tolerations"),
        (_ports(spec), MOST_PORTS, "host ports"),
    )
    over = (f"{count} {what}, the limit is {limit}" for count, limit, what in counts if count > limit)
    return next(over, "") or neighbours.excess(spec)


def long_list(annotations: Mapping[str, Any]) -> str:
    """The first annotation that names too many cards, the number and the limit; empty where none does."""
    for name in CARD_LISTS:
        if name in annotations and (count := len(entries(annotations[name]))) > MOST_NAMED:
            return f"annotation {name}: {count} entries, the limit is {MOST_NAMED}"
    return ""


def without_wishes(document: Mapping[str, Any]) -> dict[str, Any]:
    """The pod as if it took any node and any card. The wishes of a pod with an excess are not read."""
    metadata, spec = document["metadata"], document["spec"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k not in CARD_LISTS}
    return {
        **document,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {k: v for k, v in spec.items() if k not in _OF_NODES},
    }


def entries(text: object) -> list[str]:
    """The parts of a comma list, as often as they come."""
    return [entry for piece in str(text or "").split(",") if (entry := piece.strip())]


def _resources(spec: Mapping[str, Any]) -> set[str]:
    resources = [_mapping(container.get("resources")) for container in containers_of(spec)]
    return {
        name for each in resources for kind in ("limits", "requests") for name in _mapping(each.get(kind))
    }


def _ports(spec: Mapping[str, Any]) -> int:
    ports = [_mapping(port) for container in containers_of(spec) for port in _list(container.get("ports"))]
    return len(ports) if spec.get("hostNetwork") else sum(1 for port in ports if port.get("hostPort"))


def _requirements(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    affinity = _mapping(_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = _mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in _list(required.get("nodeSelectorTerms")):
        for key in ("matchExpressions", "matchFields"):
            yield from (_mapping(each) for each in _list(_mapping(term).get(key)))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
