"""An API server with a small cluster, and the page of it."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.page import synthetic
from unit.page.cluster_api import Account, ClusterApi, cluster_api
from unit.page.serving import Client, Site, local_site, signed_in

Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    """Two nodes, two tenants on one card, one job that waits; a tenant may see namespace ml alone."""
    with cluster_api() as found:
        found.accounts["tenant-token"] = Account("ann", {"ml"})
        found.accounts["nobody-token"] = Account("bob", set(), set())
        held = ("uid-ml-train-0", "uid-web-chat-0")
        found.put("nodes", synthetic.node_of("n1", (docs.card("GPU-1", held=held), docs.card("GPU-2", 1))))
        ill = docs.card("GPU-3", healthy=False, reason="XID 79")
        found.put("nodes", synthetic.node_of("n2", (ill,)))
        share = ("h20", 24576, 25)
        found.put("pods", synthetic.pod("train-0", ("ml", "research"), ("n1", "GPU-1"), (*share, "low")))
        found.put("pods", synthetic.pod("chat-0", ("web", "serving"), ("n1", "GPU-1"), (*share, "high")))
        found.put("pods", synthetic.pod("big-0", ("ml", "research"), None, ("h20", 98304, 100, "unset")))
        in_ = docs.verdict("Admitted", "all members have their cards")
        found.put("podgroups", synthetic.group("train", "ml", "research", in_))
        found.put("podgroups", synthetic.group("chat", "web", "serving", in_))
        waits = docs.verdict("WaitingForQuota", "asks for 4; queue research uses 3 of 4")
        found.put("podgroups", synthetic.group("big", "ml", "research", waits))
        found.put("queues", docs.queue("research", h20=4))
        found.put("queues", docs.queue("serving", h20=8))
        at = "2026-01-01T00:00:10.000000Z"
        told = synthetic.event("e1", "ml/train", ("Preempted", "it made room for web/chat"), at)
        found.put("events", told)
        yield found


@pytest.fixture
def site(api: ClusterApi, tmp_path: Path) -> Iterator[Site]:
    with local_site(api, tmp_path) as found:
        yield found


@pytest.fixture
def client(site: Site) -> Client:
    return signed_in(site)


@pytest.fixture
def until() -> Until:
    def wait(holds: Callable[[], bool]) -> None:
        end, pause = time.monotonic() + 20, threading.Event()
        while not holds():
            assert time.monotonic() < end, "it did not come about"
            pause.wait(0.02)

    return wait
