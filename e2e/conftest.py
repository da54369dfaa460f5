"""The cluster that e2e tests share: two real nodes with four fake H20 cards each, our stack on it.

``VC_EGPU_E2E_CLUSTER=<name>`` uses a cluster that is up with the stack installed, and leaves it up.
"""

import os
from collections.abc import Iterator

import pytest
from localcluster import ClusterSpec, LocalCluster
from stack.install import Stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The installed stack."""
    running = os.environ.get("VC_EGPU_E2E_CLUSTER")
    if running:
        yield Stack.of(LocalCluster.attach(running))
        return
    with LocalCluster.up(ClusterSpec(name="e2e"), print) as cluster:
        yield Stack.install(cluster, say=print)
