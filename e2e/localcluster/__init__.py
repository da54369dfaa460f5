"""A real Kubernetes cluster on one machine, for the demo, the end-to-end tests and the benchmarks.

::

    spec = ClusterSpec(name="t1", real_nodes=2, kwok_nodes=100, audit=True)
    with LocalCluster.up(spec) as c:               # LocalCluster.attach("t1") finds one that was left up
        c.kubectl("get", "nodes").stdout            # raises LocalClusterError with kubectl's own words
        c.kubeconfig, c.server, c.host_ip           # host_ip: this machine, as pods and API server reach it
        c.bin("kubectl"), c.audit_log, c.state_dir
        c.import_image(oci.build_image(images.python_base(print), "my/app:1", dirs={"/app": Path("src")}))
        c.add_kwok_nodes(50, lambda index, name: KwokNode(name, extended={"volcano.sh/vgpu-h20": 8}))
        c.run_process("my-controller", ["my-controller", "--kubeconfig", str(c.kubeconfig)])

        node = c.node("t1-node-0")
        node.cdi_dir, node.device_plugins_dir, node.pod_resources_socket   # paths of this machine
        node.run(["ls", "/var/run/cdi"])                                   # the same, from inside
        node.kill_kubelet(); node.start_kubelet(); node.wait_ready()
        node.reboot()

        c.component("kube-apiserver").pause()       # SIGSTOP; resume(), stop(), kill(), start(), pid

A cluster outlives the Python that started it unless that used ``with`` (or ``claim``, by which it is at least
nobody's any more: ``gc`` ends it). Everything it starts carries a
mark in its environment and a pid file with its start time, so ``down`` and ``gc`` end exactly that.

``up`` needs root for real nodes (simulated machines, see ``machine``); ``ClusterSpec(rootless=True,
real_nodes=0, services=False, dns=False)`` runs control plane and simulated nodes as any user.
"""

from localcluster.cluster import LocalCluster
from localcluster.errors import LocalClusterError
from localcluster.kwok import KwokNode
from localcluster.node import RealNode
from localcluster.spec import ClientRate, ClusterSpec

__all__ = ["ClientRate", "ClusterSpec", "KwokNode", "LocalCluster", "LocalClusterError", "RealNode"]
