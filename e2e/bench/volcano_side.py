"""Volcano alone: vc-controllers and vc-scheduler with deviceshare, which chooses the cards itself."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from localcluster.cluster import LocalCluster
from localcluster.kwok import KwokNode
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NODES
from volcano.processes import Volcano, VolcanoProcesses

from bench.sides import CARDS_PER_NODE, Running, Side, kwok_node
from bench.watching import BenchError
from bench.workload import CORES_PERCENT, MEMORY_MIB, Json, job

_CARD_MEMORY_MIB: Final = 98304
_SPLITS: Final = 10
_REGISTER: Final = "volcano.sh/node-vgpu-register"
_CARDS_WRITTEN: Final = "volcano.sh/vgpu-ids-new"
_NUMBER, _MEMORY, _CORES = (f"volcano.sh/vgpu-{what}" for what in ("number", "memory", "cores"))
_PERIOD_S: Final = 1.0


def volcano_side(volcano: Volcano) -> Side:
    """Volcano's side of the comparison."""
    return Side("volcano", node, lambda cluster, api: _start(cluster, api, volcano), scheduler=False)


def node(_index: int, name: str) -> KwokNode:
    """A node as Volcano's device plugin registers it."""
    cards = "".join(
        f"GPU-{name}-{card},{_SPLITS},{_CARD_MEMORY_MIB},NVIDIA-NVIDIA H20,true,hami-core:"
        for card in range(CARDS_PER_NODE)
    )
    offered = {
        _NUMBER: CARDS_PER_NODE * _SPLITS,
        _MEMORY: CARDS_PER_NODE * _CARD_MEMORY_MIB,
        _CORES: CARDS_PER_NODE * 100,
    }
    return kwok_node(name, offered, {_REGISTER: cards})


def _start(cluster: LocalCluster, api: ApiConnection, volcano: Volcano) -> Running:
    volcano.install_crds(cluster)
    processes = VolcanoProcesses.of(cluster, volcano, "bench-vgpu")
    processes.start(webhook=False)
    _touch_nodes(api)
    return Running(cluster, api, (processes.controllers, processes.scheduler), make_job, verify)


def make_job(name: str) -> Json:
    """One gang that asks in Volcano's own terms."""
    limits = {_NUMBER: "1", _MEMORY: str(MEMORY_MIB), _CORES: str(CORES_PERCENT)}
    return job(name, limits, "default")


def verify(pods: list[Json]) -> None:
    """Every pod has a card: without it Volcano would have bound by the scalars alone, which is less work."""
    without = [
        pod["metadata"]["name"]
        for pod in pods
        if not (pod["metadata"].get("annotations") or {}).get(_CARDS_WRITTEN)
    ]
    if without:
        raise BenchError(f"{len(without)} of {len(pods)} pods got no card of Volcano, first {without[0]}")


def _touch_nodes(api: ApiConnection) -> None:
    """vc-scheduler knows the cards of a node only after an update that follows its first session."""
    # A session says nothing to the outside, so two periods are waited for.
    threading.Event().wait(2 * _PERIOD_S)
    names = [item["metadata"]["name"] for item in api.list(NODES).items]
    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(
            lambda name: api.patch(NODES, name, {"metadata": {"labels": {"bench": "seen"}}}), names
        ):
            pass
    threading.Event().wait(2 * _PERIOD_S)
