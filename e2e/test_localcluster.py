"""The local cluster itself, on this machine: what it promises to those who test on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from localcluster import ClusterSpec, LocalCluster, LocalClusterError, RealNode, cgroups, net, teardown
from localcluster.api import wait_until
from localcluster.images import BUSYBOX_IMAGE
from localcluster.procs import marked
from localcluster.state import StateDir

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="real nodes need root"),
    pytest.mark.timeout(300),
]
_HOST_PATHS = {
    "device-plugins": "/var/lib/kubelet/device-plugins",
    "pod-resources": "/var/lib/kubelet/pod-resources",
    "cdi": "/var/run/cdi",
    "data": "/var/lib/vc-egpu-test",
}


def _quiet(_line: str) -> None:
    pass


def _agent() -> dict[str, Any]:
    """A DaemonSet on the host network that looks at the folders a device plugin needs."""
    mounts = [{"name": name, "mountPath": f"/host/{name}"} for name in _HOST_PATHS]
    volumes = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in _HOST_PATHS.items()
    ]
    script = "hostname > /host/data/$(hostname); mkdir /w; cd /w; hostname > index.html; httpd -f -p 8000"
    container = {
        "name": "c",
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", script],
        "volumeMounts": mounts,
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
    }
    pod: dict[str, Any] = {"hostNetwork": True, "terminationGracePeriodSeconds": 0}
    pod |= {"containers": [container], "volumes": volumes}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": pod},
        },
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.up(ClusterSpec(name="life", audit=True)) as up:
        up.kubectl("apply", "-f", "-", text_in=json.dumps(_agent()))
        up.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s")
        up.kubectl("create", "service", "clusterip", "agent", "--tcp=80:8000")
        yield up


def _pod_of(cluster: LocalCluster, node: RealNode) -> dict[str, Any]:
    text = cluster.kubectl(
        "get", "pods", "-l", "app=agent", "-o", "json", f"--field-selector=spec.nodeName={node.name}"
    ).stdout
    (pod,) = json.loads(text)["items"]
    return dict(pod)


def _run(cluster: LocalCluster, name: str, script: str) -> str:
    """What a pod on the pod network of the first node said; it ends by itself."""
    pinned = json.dumps({"spec": {"nodeName": cluster.nodes[0].name}})
    cluster.kubectl(
        *("run", name, f"--image={BUSYBOX_IMAGE}", "--restart=Never", f"--overrides={pinned}"),
        *("--", "sh", "-c", script),
    )
    cluster.kubectl("wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    return cluster.kubectl("logs", name).stdout


def test_each_pod_sees_the_folders_of_its_own_node_only(cluster: LocalCluster) -> None:
    for node in cluster.nodes:
        (node.cdi_dir / "probe.json").write_text(node.name)
        pod = _pod_of(cluster, node)["metadata"]["name"]
        seen = cluster.kubectl(
            "exec",
            pod,
            "--",
            "sh",
            "-c",
            "ls /host/data /host/device-plugins /host/pod-resources; cat /host/cdi/*",
        ).stdout
        assert seen.count("kubelet.sock") == 2
        assert seen.endswith(node.name)
        others = [other.name for other in cluster.nodes if other.name != node.name]
        assert not any(other in seen for other in others)
    assert not Path("/var/lib/vc-egpu-test").exists(), "nothing is written on this machine itself"


def test_names_and_services_work_from_pods_and_from_this_machine(cluster: LocalCluster) -> None:
    names = {node.name for node in cluster.nodes}
    ask = "for i in $(seq 20); do wget -qO- http://agent.default.svc; done"
    said = _run(cluster, "asker", f"{ask}; nslookup kubernetes.default.svc.cluster.local")
    assert {line for line in said.splitlines() if line in names} == names, said
    assert cluster.context.kubernetes_service in said
    address = cluster.kubectl("get", "service", "agent", "-o", "jsonpath={.spec.clusterIP}").stdout
    answers = set()
    for _ in range(30):
        with urllib.request.urlopen(f"http://{address}", timeout=5) as answer:
            answers.add(answer.read().decode().strip())
    assert answers == names


def test_what_a_pod_writes_to_its_image_stays_its_own(cluster: LocalCluster) -> None:
    """Nodes share the files of images with each other and with the cache."""
    ours, other = (
        _pod_of(cluster, node)["metadata"]["name"] for node in (cluster.nodes[0], cluster.nodes[1])
    )
    write = "echo mine > /etc/passwd; chmod 777 /etc/group; rm /bin/wget; touch /etc/more"
    cluster.kubectl("exec", ours, "--", "sh", "-c", write)
    look = "cat /etc/passwd; stat -c %a /etc/group; ls /bin/wget /etc"
    for seen in (cluster.kubectl("exec", other, "--", "sh", "-c", look).stdout, _run(cluster, "fresh", look)):
        assert "root:x:0:0" in seen
        assert "644" in seen
        assert "/bin/wget" in seen
        assert "more" not in seen


def test_a_kubelet_that_was_killed_comes_back_and_its_pods_did_not_notice(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    before = _pod_of(cluster, node)["status"]["containerStatuses"][0]["containerID"]
    node.kill_kubelet()
    assert node.kubelet.pid is None
    node.start_kubelet()
    node.wait_ready()
    name = _pod_of(cluster, node)["metadata"]["name"]

    def exec_works() -> bool:
        # Ready comes before kubelet has read its list of pods.
        return cluster.kubectl("exec", name, "--", "true", check=False).returncode == 0

    # A kubelet that loses its runtime while it starts gives up, and nobody starts it again here.
    wait_until("exec after the kubelet's restart", exec_works, 30)
    node.kill_containerd()
    node.start_containerd()
    wait_until("exec after containerd's restart", exec_works, 30)
    assert _pod_of(cluster, node)["status"]["containerStatuses"][0]["containerID"] == before


def test_a_reboot_ends_all_containers_of_one_node_and_clears_run(cluster: LocalCluster) -> None:
    node, other = cluster.nodes
    (node.cdi_dir / "volatile.json").write_text("{}")
    (node.static_cdi_dir / "kept.json").write_text("{}")
    restarts = {n.name: _restarts(cluster, n) for n in cluster.nodes}
    node.reboot()
    assert not list(node.cdi_dir.iterdir())
    assert (node.static_cdi_dir / "kept.json").exists()
    wait_until(
        "container of the node started anew", lambda: _restarts(cluster, node) > restarts[node.name], 60
    )
    cluster.kubectl("wait", "pod", "-l", "app=agent", "--for=condition=Ready", "--timeout=60s")
    assert _restarts(cluster, other) == restarts[other.name]
    assert other.name in _run(cluster, "after-reboot", "for i in $(seq 20); do wget -qO- http://agent; done")
    (node.static_cdi_dir / "kept.json").unlink()


def _restarts(cluster: LocalCluster, node: RealNode) -> int:
    statuses = _pod_of(cluster, node)["status"].get("containerStatuses", [])
    return sum(int(status["restartCount"]) for status in statuses)


def test_an_api_server_can_be_frozen_and_replaced(cluster: LocalCluster) -> None:
    server = cluster.component("kube-apiserver")
    server.pause()
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.kubectl("get", "nodes", timeout_s=1)
    server.resume()
    cluster.kubectl("get", "nodes")
    before = server.pid
    server.kill()
    server.start()
    assert server.pid != before
    cluster.kubectl("get", "nodes")


def test_the_audit_log_names_each_write(cluster: LocalCluster) -> None:
    cluster.kubectl("create", "configmap", "written", "--from-literal=a=b")
    events = [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]
    writes = [e for e in events if e.get("objectRef", {}).get("name") == "written"]
    assert [(e["verb"], e["responseStatus"]["code"]) for e in writes] == [("create", 201)]
    assert not any(e["verb"] in ("get", "list", "watch") for e in events)


def test_two_clusters_side_by_side_do_not_touch_each_other(cluster: LocalCluster) -> None:
    with LocalCluster.up(ClusterSpec(name="beside", real_nodes=1, kwok_nodes=3)) as other:
        assert other.host_ip != cluster.host_ip
        names = other.kubectl("get", "nodes", "-o", "name").stdout.split()
        assert sorted(names) == [f"node/{n}" for n in ("beside-node-0", "kwok-0", "kwok-1", "kwok-2")]
        process = other.run_process("extra", ["sleep", "1000"])
        assert _run(other, "hello", "echo hello") == "hello\n"
        state = other.context.state
    assert not process.alive()
    _assert_gone(state, other.context.record.block)
    assert cluster.kubectl("get", "nodes", "-o", "name").stdout.split() == [
        f"node/{n.name}" for n in cluster.nodes
    ]


def test_a_component_that_fails_is_named_with_its_log_and_nothing_stays() -> None:
    spec = ClusterSpec(name="broken", real_nodes=1, extra_args={"kube-apiserver": ("--no-such-flag",)})
    with pytest.raises(LocalClusterError, match="unknown flag: --no-such-flag"):
        LocalCluster.up(spec)
    _assert_gone(StateDir.of("broken"), None)


def test_a_second_up_of_the_same_name_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(LocalClusterError, match="already up"):
        LocalCluster.up(cluster.spec)
    assert LocalCluster.attach("life").kubectl("get", "nodes").returncode == 0


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("line", ["machines booted", "API server ready"])
def test_a_start_that_is_cut_off_leaves_nothing(signum: signal.Signals, line: str) -> None:
    """Killed, ``gc`` has to clean up; interrupted, it cleans up itself."""
    argv = [sys.executable, "-m", "localcluster", "up", "--name", "cut"]
    state = StateDir.of("cut")
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env
    ) as starter:
        assert starter.stderr is not None
        assert any(line in said for said in starter.stderr), "it never came that far"
        record = state.read()
        assert record is not None
        starter.send_signal(signum)
        starter.stderr.read()
    if signum == signal.SIGKILL:
        assert teardown.is_leftover(state)
        assert "cut" in teardown.collect(_quiet)
    _assert_gone(state, record.block)


def _assert_gone(state: StateDir, block: int | None) -> None:
    assert not state.path.exists()
    assert [identity.pid for identity, path in marked() if path == state.path] == []
    assert state.unique_id not in cgroups.leftovers()
    if block is not None:
        assert net.interface_owner(net.Addresses(block)) != str(state.path)
    assert str(state.path) not in Path("/proc/mounts").read_text()
