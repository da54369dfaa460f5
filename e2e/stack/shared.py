"""A stack that the tests of a session share, or one that is up already."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster import ClusterSpec, LocalCluster

from stack.install import OVERLAY, Stack, stack_images


@contextmanager
def shared_stack(
    name: str, worker_id: str, overlay: Path = OVERLAY, images: tuple[str, ...] = ()
) -> Iterator[Stack]:
    """``VC_EGPU_E2E_CLUSTER`` names a cluster to use and leave; each worker of a parallel run has its own.
    ``images``: archives that nodes have beside those of the stack."""
    running = os.environ.get("VC_EGPU_E2E_CLUSTER")
    if running:
        yield Stack.of(LocalCluster.attach(running))
        return
    own = name if worker_id == "master" else f"{name}-{worker_id}"
    with LocalCluster.up(ClusterSpec(name=own, images=(*stack_images(), *images)), print) as cluster:
        yield Stack.install(cluster, overlay=overlay, say=print)
