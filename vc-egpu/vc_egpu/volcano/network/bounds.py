"""How near members have to be: ``networkTopology`` and ``subGroupPolicy`` of a PodGroup. Pure.

What is written there may be anything where Volcano's own CRD is older or newer: nothing here raises.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.core.topology.network import Bound
from vc_egpu.volcano.podspec.selectors import Selector
from vc_egpu.volcano.words import names

Document = Mapping[str, Any]
_SOFT: Final = "soft"
PARTITION: Final = "volcano.sh/partition-id"
"""The label with which Volcano's controllers tell the partitions of a task apart."""


def bound_of(topology: object) -> Bound | None:
    """The bound that a ``networkTopology`` sets; None where it sets none.

    ``hard`` is Volcano's default. Without a tier Volcano holds such a gang to nothing, and so do we.
    """
    said: Document = topology if isinstance(topology, Mapping) else {}
    number, level = said.get("highestTierAllowed"), said.get("highestTierName")
    if said.get("mode") == _SOFT:
        return None
    if isinstance(number, int) and not isinstance(number, bool):
        return Bound(tier=number)
    return Bound(level=level) if isinstance(level, str) and level else None


@dataclass(frozen=True, slots=True)
class SubgroupPolicy:
    """Which pods of a gang are in subgroups that have to be near each other."""

    name: str
    bound: Bound | None
    selector: Selector | None
    """None: all pods of the gang."""
    keys: tuple[str, ...] = ()
    """Pods with equal values of these labels are in one subgroup."""
    size: int = 0
    """Members of each partition of a task; 0: it does not say."""

    def subgroup(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The subgroup of a pod with these labels; empty where it is in none."""
        values = tuple(labels.get(key, "") for key in self.keys)
        if not all(values) or (self.selector is not None and not self.selector.matches(labels)):
            return ()
        return (self.name, *values)


def policies_of(written: object) -> tuple[SubgroupPolicy, ...]:
    """The policies of a PodGroup in their order; of several with one name the first.

    A pod is in the first subgroup that takes it, as with Volcano: also in one that says nothing of it.
    """
    found: dict[str, SubgroupPolicy] = {}
    for number, entry in enumerate(written if isinstance(written, Sequence) else ()):
        policy = _policy(number, entry)
        if policy is not None:
            found.setdefault(policy.name, policy)
    return tuple(found.values())


def _policy(number: int, entry: object) -> SubgroupPolicy | None:
    if not isinstance(entry, Mapping):
        return None
    said: Document = entry
    try:
        selector = Selector.of(said.get("labelSelector"))
        keys = tuple(str(key) for key in said.get("matchLabelKeys") or ())
        size = int(said.get("subGroupSize") or 0)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    name = f"{said.get('name') or number}"
    return SubgroupPolicy(name, bound_of(said.get("networkTopology")), selector, keys, size)


def policies_of_tasks(tasks: Sequence[Document]) -> tuple[SubgroupPolicy, ...]:
    """The policies that Volcano's controllers write for the tasks of a Job."""
    return policies_of(
        [
            {
                "name": task.get("name"),
                "labelSelector": {"matchLabels": {names.TASK_SPEC: str(task.get("name"))}},
                "matchLabelKeys": [PARTITION],
                "subGroupSize": policy.get("partitionSize"),
                "networkTopology": policy.get("networkTopology"),
            }
            for task in tasks
            if (policy := task.get("partitionPolicy"))
        ]
    )


def subgroup_of(policies: Sequence[SubgroupPolicy], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The subgroup of a pod with these labels, by the first policy that takes it; empty: none."""
    return next((found for policy in policies if (found := policy.subgroup(labels))), ())


def partitions_of(policies: Sequence[SubgroupPolicy], tasks: Sequence[str]) -> dict[str, tuple[str, int]]:
    """By task whose pods are not made yet: its policy and the size of its partitions; 0: they are one.

    Read are policies as Volcano's controllers write them: they select by task, and tell partitions apart.
    """
    found: dict[str, tuple[str, int]] = {}
    for task in tasks:
        for policy in policies:
            labels = {names.TASK_SPEC: task, PARTITION: "0"}
            if policy.subgroup(labels):
                found[task] = (policy.name, policy.size if PARTITION in policy.keys else 0)
                break
    return found
