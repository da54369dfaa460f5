"""The chart's values that choose manifests, and the kustomization that each choice stands for."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
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
    Option(
        "isolation", (True, False), "limits inside containers; false: nothing holds programs to their share"
    ),
    Option("suspension", (False, True), "training that leaves its cards and comes back; needs isolation"),
    Option("driver", ("runtime", "root"), "runtime: RuntimeClass nvidia. root: the agent mounts the driver"),
    Option("otherVendors", (False, True), "cards of Ascend and Hygon as well; needs driver root"),
    Option("cudaProbe", (False, True), "the agent tries cards as programs use them"),
    Option("closedRuntimeClass", (False, True), "tenants may not name RuntimeClass nvidia"),
    Option("criticalQuota", (False, True), "for clusters that limit the system's priority classes (GKE)"),
    Option(
        "nodeEmptying", (False, True), "low gangs move so that nodes are empty; an autoscaler removes them"
    ),
    Option("nodeGrowth", (False, True), "nodes are asked for while gangs lack cards; needs nodeGroups"),
    Option("ui", (False, True), "the page for several users"),
    Option("jobsApi", (False, True), "Jobs over plain HTTP"),
)
Choice = Mapping[str, bool | str]
"""Value by path."""


APART: Final = (
    ("closedRuntimeClass",),
    ("criticalQuota",),
    ("nodeEmptying", "nodeGrowth"),
    ("ui",),
    ("jobsApi",),
)
"""Groups of values. What a group changes, no value outside it changes: so each is rendered by itself."""


def choices() -> Iterator[Choice]:
    """All of the values that change the same objects; then those of each group apart, by itself."""
    apart = {path for group in APART for path in group}
    yield from filter(is_allowed, _of([option for option in OPTIONS if option.path not in apart]))
    for group in APART:
        yield from (one for one in _of([o for o in OPTIONS if o.path in group]) if one != default())


def _of(options: Sequence[Option]) -> Iterator[Choice]:
    """All values of these options; the others as they are by default."""
    for values in itertools.product(*(option.choices for option in options)):
        yield {**default(), **dict(zip((option.path for option in options), values, strict=True))}


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
    overlay += "" if choice["isolation"] else "-unlimited"
    wanted = (
        ("suspension", choice["suspension"]),
        ("driver-root", choice["driver"] == "root"),
        ("other-vendors", choice["otherVendors"]),
        ("cuda-probe", choice["cudaProbe"]),
        ("closed-runtime-class", choice["closedRuntimeClass"]),
        ("critical-quota", choice["criticalQuota"]),
        ("node-emptying", choice["nodeEmptying"]),
        ("node-growth", choice["nodeGrowth"]),
        ("ui", choice["ui"]),
        ("jobs-api", choice["jobsApi"]),
    )
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{manifests}/overlays/{overlay}"],
        "components": [f"{manifests}/components/{name}" for name, taken in wanted if taken],
    }
