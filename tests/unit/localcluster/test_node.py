"""Real nodes, as far as they need no machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from localcluster import ClusterSpec, LocalClusterError, RealNode
from localcluster.context import Context
from localcluster.state import ClusterRecord, StateDir


def test_a_kube_proxy_that_has_ended_is_named_with_its_own_log(tmp_path: Path) -> None:
    """As it does on a kernel without nftables: the kubelet's log, which was shown, tells nothing of it."""
    record = ClusterRecord(ClusterSpec(name="t1"), 249, {}, "starting", None)
    node = RealNode(Context(StateDir(tmp_path), record), 0)
    script = "echo no nftables here; exec sleep 99"
    node.kube_proxy.launch(["sh", "-c", script], {"PATH": os.environ["PATH"]})
    while "nftables" not in node.kube_proxy.log_tail():
        os.sched_yield()
    node.kube_proxy.signal(signal.SIGKILL)
    with pytest.raises(LocalClusterError, match=r"kube-proxy@t1-node-0 has ended(.|\n)*no nftables here"):
        node.wait_kube_proxy(60)
