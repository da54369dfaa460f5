"""The cluster's data saved and brought back, as an operator does with snapshots of etcd."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.install import Stack


def save(stack: Stack, name: str = "saved") -> Path:
    """A copy of the data as they are now; the API server is away for a moment."""
    folder = stack.cluster.state_dir / name
    with _standing_still(stack) as data:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(data, folder)
    return folder


def restore(stack: Stack, saved: Path) -> None:
    """Set the cluster back.

    As Kubernetes' documents want, its own parts are started anew afterwards: scheduler, controllers,
    kubelets and what else watches (kube-proxy sent nobody to the API server any more). Ours are not.
    """
    with _standing_still(stack) as data:
        shutil.rmtree(data)
        saved.rename(data)
    for name in ("kube-controller-manager", "kube-scheduler", "coredns"):
        component = stack.cluster.component(name)
        component.kill()
        component.start()
    for node in stack.cluster.nodes:
        node.kill_kubelet()
        node.start_kubelet()
        node.kube_proxy.kill()
        node.start_kube_proxy()


@contextmanager
def _standing_still(stack: Stack) -> Iterator[Path]:
    server, etcd = stack.cluster.component("kube-apiserver"), stack.cluster.component("etcd")
    server.stop()
    etcd.stop()
    try:
        yield stack.cluster.state_dir / "etcd"
    finally:
        etcd.start()
        server.start()
