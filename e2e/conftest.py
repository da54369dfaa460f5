"""The cluster that e2e tests share: two real nodes with four fake H20 cards each, our stack on it.

``VC_EGPU_E2E_CLUSTER=<name>`` uses a cluster that is up with the stack installed, and leaves it up.
"""

import os
from collections.abc import Iterator

import pytest
from localcluster import ClusterSpec, LocalCluster
from stack.install import Stack


@pytest.fixture(scope="session")
def stack(worker_id: str) -> Iterator[Stack]:
    """The installed stack; each worker of a parallel run has its own."""
    running = os.environ.get("VC_EGPU_E2E_CLUSTER")
    if running:
        yield Stack.of(LocalCluster.attach(running))
        return
    name = "e2e" if worker_id == "master" else f"e2e-{worker_id}"
    with LocalCluster.up(ClusterSpec(name=name), print) as cluster:
        yield Stack.install(cluster, say=print)
