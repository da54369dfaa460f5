"""Makers of pods choose the names of resources: each costs the same, however many others there are."""

from typing import Any, ClassVar

import pytest
from unit.admission.build import TABLE, added, group, let_go, node, pod, queue, version
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.jobs.objects import requests
from vc_egpu.volcano.podspec.sums import pod_requests

FEW_LOOKUPS = 24
"""For one name that is written once, through the whole sum."""


class Name(str):
    """Counts how often names are looked up."""

    __slots__ = ()
    lookups: ClassVar = 0

    def __hash__(self) -> int:
        Name.lookups += 1
        return str.__hash__(self)


def crowd(containers: int, each: int, **more: Any) -> list[dict[str, Any]]:
    """Containers, each with names of its own."""
    return [
        {
            "name": f"c{number}",
            "resources": {
                "requests": {
                    "cpu": "100m",
                    "memory": "1Mi",
                    **{Name(f"x.example.com/{number}-{name}"): "2" for name in range(each)},
                }
            },
            **more,
        }
        for number in range(containers)
    ]


SPECS = {
    "containers": {"containers": crowd(400, 30)},
    "one container": {"containers": crowd(1, 24_000)},
    "sidecars": {"containers": crowd(1, 0), "initContainers": crowd(400, 30, restartPolicy="Always")},
    "steps": {"containers": crowd(1, 0), "initContainers": crowd(400, 30)},
}


@pytest.mark.parametrize("kind", SPECS)
def test_a_sum_costs_the_same_for_each_name(kind: str) -> None:
    spec = SPECS[kind]
    written = sum(
        len(container["resources"]["requests"]) for containers in spec.values() for container in containers
    )
    Name.lookups = 0
    takes = pod_requests(spec)
    assert Name.lookups <= FEW_LOOKUPS * written
    Name.lookups = 0
    counted = requests.of_pod(spec)
    assert Name.lookups <= FEW_LOOKUPS * written
    together = kind != "steps"
    containers = [one for name in ("containers", "initContainers") for one in spec.get(name, ())]
    assert takes.cpu_milli == (100 * len(containers) if together else 100)
    assert takes.memory_bytes == (len(containers) << 20 if together else 1 << 20)
    assert counted["cpu"] * 1000 == takes.cpu_milli
    assert len(takes.scalars) in {12_000, 24_000}
    assert set(takes.scalars.values()) == {2}


def running(containers: list[dict[str, Any]], *, managed: bool) -> dict[str, Any]:
    document = let_go(pod(), "5-1", bound=True)
    document["spec"]["containers"] = [{"name": "main"}, *containers]
    if not managed:
        document["metadata"] |= {"annotations": {}, "labels": {}}
    return document


@pytest.mark.parametrize("managed", [True, False])
def test_of_very_many_names_those_count_that_nodes_offer(managed: bool) -> None:
    """Cards, cpu and memory count in any case. What no node offers takes no room in our books."""
    mirror = Mirror(TABLE)
    for kind, document in (("nodes", node()), ("queues", queue()), ("podgroups", group())):
        mirror.apply(kind, added(document))
    there = running(crowd(400, 30), managed=managed)
    mirror.apply("pods", added(there))
    uid = PodUid(there["metadata"]["uid"])

    def taken() -> tuple[int, int, dict[str, int]]:
        requests = mirror.snapshot().pods[uid].shape.requests
        return requests.cpu_milli, requests.memory_bytes, dict(requests.scalars)

    assert taken() == (40_000, 400 << 20, {})
    assert len(mirror.snapshot().pods[uid].shares) == managed
    offers = {"cpu": "64", "memory": "256Gi", "pods": "110", "x.example.com/7-7": "5"}
    mirror.apply("nodes", added(node(allocatable=offers)))
    assert taken() == (40_000, 400 << 20, {"x.example.com/7-7": 2}), "offered since"
    again = {**there, "metadata": {**there["metadata"], "resourceVersion": version()}}
    mirror.apply("pods", added(again))
    assert taken()[2] == {"x.example.com/7-7": 2}


def test_of_a_dozen_names_all_count() -> None:
    """A device plugin may come after its pods."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    there = running(crowd(2, 30), managed=False)
    mirror.apply("pods", added(there))
    assert len(mirror.snapshot().pods[PodUid(there["metadata"]["uid"])].shape.requests.scalars) == 60
