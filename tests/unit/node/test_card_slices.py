"""ResourceSlices of the node, in whichever version the cluster has, and whenever it says so."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.kube import ApiConnection
from vc_egpu_node.offers.other_plugins import UNSEEN_LIMIT_S, CardSlices

GROUP = "/apis/resource.k8s.io"
SLICE = {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [{}]}}
AWAY: tuple[int, dict[str, Any], dict[str, str]] = (503, status(503, "ServiceUnavailable"), {})


class Here:
    """What an agent sees."""

    def __init__(self, server: TinyApi, api: ApiConnection) -> None:
        self.server = server
        self.heard = threading.Semaphore(0)
        self.now_s = 0.0
        self.slices = CardSlices(api, "n1", self.heard.release, clock=lambda: self.now_s, ask_again_s=0.2)

    def serve(self, *versions: str) -> None:
        """The cluster has them in these."""
        self.server.put(GROUP, {"versions": [{"version": version} for version in versions]})
        for version in versions:
            self.server.put(f"{GROUP}/{version}/resourceslices/s", {"metadata": {"name": "s"}, **SLICE})

    def drop(self, version: str) -> None:
        """The cluster has them in this version no longer."""
        self.server.remove(f"{GROUP}/{version}/resourceslices/s", silently=True)

    def drivers(self) -> list[str]:
        """As the agent sees them."""
        return [one["spec"]["driver"] for one in self.slices.documents()]

    def until(self, true: Callable[[], bool]) -> None:
        """Looked at each time that the agent is told to."""
        while not true():
            assert self.heard.acquire(timeout=60)

    def watched(self) -> set[str]:
        """Versions that were asked for."""
        paths = {path.partition("?")[0] for _, path, _ in self.server.requests}
        return {path.split("/")[3] for path in paths if path.endswith("resourceslices")}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        one = Here(server, api)
        yield one
        one.slices.stop()
        api.close()


def test_a_cluster_that_could_not_be_asked_is_asked_again(here: Here) -> None:
    """The version was guessed, and where that was wrong nobody saw the cards of DRA drivers."""
    here.serve("v1beta1")
    here.server.script = [AWAY, AWAY, AWAY]
    here.slices.start()
    assert here.heard.acquire(timeout=60)
    assert [one["spec"]["driver"] for one in here.slices.documents()] == ["gpu.nvidia.com"]
    assert here.watched() == {"v1beta1"}


def test_the_newest_version_is_taken(here: Here) -> None:
    here.serve("v1beta1", "v1")
    here.slices.start()
    assert here.heard.acquire(timeout=60)
    assert here.watched() == {"v1"}


def test_a_cluster_without_them_is_not_waited_for(here: Here) -> None:
    here.server.script = [(404, status(404, "NotFound"), {})]
    here.slices.start()
    assert here.heard.acquire(timeout=60)
    assert here.slices.settled()
    assert (here.slices.documents(), here.watched()) == ([], set())


def test_how_long_is_waited_counts_from_when_somebody_waits(here: Here) -> None:
    """While the API server is away nobody does: what it tells once it is back would come too late."""
    here.server.answers.clear()
    here.slices.start()
    here.now_s = 3600.0
    assert not here.slices.settled()
    here.now_s += UNSEEN_LIMIT_S
    assert not here.slices.settled()
    here.now_s += 0.1
    assert here.slices.settled()


def test_an_upgrade_of_the_control_plane_brings_another_version(here: Here) -> None:
    """Agents run on. They asked for the one of before for good, and told of what it had had."""
    here.serve("v1beta1")
    here.slices.start()
    here.until(lambda: here.drivers() == ["gpu.nvidia.com"])
    with here.server.lock:
        here.drop("v1beta1")
        here.serve("v1")
        other = {"metadata": {"name": "s"}, "spec": {**SLICE["spec"], "driver": "of.v1"}}
        here.server.put(f"{GROUP}/v1/resourceslices/s", other)
        here.server.end_watches()
    here.until(lambda: here.drivers() == ["of.v1"])
    assert here.watched() == {"v1beta1", "v1"}


def test_an_upgrade_brings_them_to_a_cluster_that_had_none(here: Here) -> None:
    here.slices.start()
    here.until(here.slices.settled)
    here.serve("v1")
    here.until(lambda: here.drivers() == ["gpu.nvidia.com"])
