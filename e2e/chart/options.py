"""The chart's values that choose manifests, and the kustomization that each choice stands for."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One value of the chart."""

    path: str
    """As ``values.yaml`` nests it, with dots."""
    choices: tuple[bool | str, ...]
    """The first is the default."""
    about: str


OPTIONS: Final = (
    Option("volcano", (False, True), "Volcano 1.15 or later is there, with its CRDs and controllers"),
    Option("isolation", (False, True), "limits inside containers"),
    Option("suspension", (False, True), "training that leaves its cards and comes back; needs isolation"),
    Option("driver", ("runtime", "root"), "runtime: RuntimeClass nvidia. root: the agent mounts the driver"),
    Option("otherVendors", (False, True), "cards of Ascend and Hygon as well; needs driver root"),
    Option("cudaProbe", (False, True), "the agent tries cards as programs use them"),
    Option("closedRuntimeClass", (False, True), "tenants may not name RuntimeClass nvidia"),
    Option("criticalQuota", (False, True), "for clusters that limit the system's priority classes (GKE)"),
)
Choice = Mapping[str, bool | str]
"""Value by path."""


_ADDED: Final = frozenset({"closedRuntimeClass", "criticalQuota"})
"""These only add objects, and change none."""


def choices() -> Iterator[Choice]:
    """All that differ in more than added objects; then each value that adds objects, by itself."""
    named = [option for option in OPTIONS if option.path not in _ADDED]
    for values in itertools.product(*(option.choices for option in named)):
        choice = {**default(), **dict(zip((option.path for option in named), values, strict=True))}
        if is_allowed(choice):
            yield choice
    for path in sorted(_ADDED):
        yield {**default(), path: True}


def is_allowed(choice: Choice) -> bool:
    """Suspension without isolation has nothing to hold what comes back. RuntimeClass nvidia is not on nodes
    of other vendors."""
    suspended, others = choice["suspension"], choice["otherVendors"]
    return bool(choice["isolation"] or not suspended) and (choice["driver"] == "root" or not others)


def default() -> dict[str, bool | str]:
    """What ``helm install`` takes."""
    return {option.path: option.choices[0] for option in OPTIONS}


def kustomization(choice: Choice, manifests: str) -> Json:
    """What an operator's own overlay says for this choice; ``manifests`` is the way there."""
    overlay = "volcano" if choice["volcano"] else "standalone"
    wanted = (
        ("isolation", choice["isolation"]),
        ("suspension", choice["suspension"]),
        ("driver-root", choice["driver"] == "root"),
        ("other-vendors", choice["otherVendors"]),
        ("cuda-probe", choice["cudaProbe"]),
        ("closed-runtime-class", choice["closedRuntimeClass"]),
        ("critical-quota", choice["criticalQuota"]),
    )
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{manifests}/overlays/{overlay}"],
        "components": [f"{manifests}/components/{name}" for name, taken in wanted if taken],
    }
