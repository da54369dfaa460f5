"""A real node: kubelet, containerd and kube-proxy on a simulated machine."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster import cgroups, net, toolchain
from localcluster.api import Api, ApiError, wait_until
from localcluster.context import Context
from localcluster.controlplane import SWITCH
from localcluster.ctr import import_archive
from localcluster.errors import LocalClusterError
from localcluster.machine import Machine
from localcluster.packages import CNI_FOLDERS, find
from localcluster.patience import stretched
from localcluster.procs import Entered, ManagedProcess, answers
from localcluster.render import cni_config, containerd_config, kube_proxy_config, kubelet_config, to_yaml


@dataclass(frozen=True, slots=True)
class RealNode:
    """One real node. Paths are those of this machine; inside they are the usual ones."""

    context: Context
    index: int

    @property
    def name(self) -> str:
        """Name of the Node object."""
        return self.context.spec.real_node_names[self.index]

    @property
    def ip(self) -> str:
        """Its address, reachable from this machine and from pods."""
        return self.context.real_addresses.node(self.index)

    @property
    def folder(self) -> Path:
        """Its files."""
        return self.context.state.node_dir(self.name)

    @property
    def machine(self) -> Machine:
        """The machine below it."""
        return Machine(self.name, self.folder, self.context.process(f"machine@{self.name}"))

    @property
    def cdi_dir(self) -> Path:
        """/var/run/cdi of the node: empty after a reboot."""
        return self.machine.run_dir / "cdi"

    @property
    def static_cdi_dir(self) -> Path:
        """/etc/cdi of the node."""
        return self.folder / "cdi"

    @property
    def device_plugins_dir(self) -> Path:
        """/var/lib/kubelet/device-plugins of the node."""
        return self.machine.kubelet_dir / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        """Socket of kubelet's PodResources API."""
        return self.machine.kubelet_dir / "pod-resources" / "kubelet.sock"

    @property
    def containerd_socket(self) -> Path:
        """Socket of containerd."""
        return self.machine.run_dir / "containerd" / "containerd.sock"

    @property
    def kubelet(self) -> ManagedProcess:
        """kubelet's pid file and log."""
        return self.context.process(f"kubelet@{self.name}")

    @property
    def containerd(self) -> ManagedProcess:
        """containerd's pid file and log."""
        return self.context.process(f"containerd@{self.name}")

    @property
    def kube_proxy(self) -> ManagedProcess:
        """kube-proxy's pid file and log."""
        return self.context.process(f"kube-proxy@{self.name}")

    @property
    def group(self) -> str:
        """Its control group below ``/vc-egpu``."""
        return f"{self.context.state.unique_id}/{self.name}"

    def write_configs(self) -> None:
        """Configuration files of its processes."""
        context, addresses = self.context, self.context.real_addresses
        self.folder.mkdir(parents=True, exist_ok=True)
        runc = toolchain.program("runc") if context.spec.user_namespaces else find("runc")
        cni = next((folder for folder in CNI_FOLDERS if (folder / "ptp").is_file()), None)
        if runc is None or cni is None:
            raise LocalClusterError(
                "runc or the CNI plugins not found: install runc containernetworking-plugins"
            )
        resolv = self.folder / "resolv.conf"
        resolv.write_text("# this node has no way out of the cluster\nnameserver 127.0.0.1\n")
        group = f"/{cgroups.PARENT}/{self.group}"
        ca, serving = context.authority.pair.certificate, context.pair(self.name)
        kubelet = kubelet_config(
            context.spec, addresses, self.index, group=group, ca=ca, serving=serving, resolv_conf=resolv
        )
        (self.folder / "kubelet.yaml").write_text(to_yaml(kubelet))
        text = containerd_config(runc, cni, scratch=self.folder / "scratch", version=context.spec.containerd)
        (self.folder / "containerd.toml").write_text(text)
        (self.folder / "cni").mkdir(exist_ok=True)
        (self.folder / "cni" / "10-vc-egpu.conflist").write_text(cni_config(addresses, self.index))
        proxy = kube_proxy_config(context.spec, addresses, self.index, context.kubeconfig_of("kube-proxy"))
        (self.folder / "kube-proxy.yaml").write_text(to_yaml(proxy))

    def switch_on(self) -> None:
        """Boot the machine, plug it in and start containerd; returns when containerd answers."""
        context = self.context
        switch = context.process(SWITCH).pid
        if switch is None:
            raise LocalClusterError("the cluster's network is gone: the cluster has to be started anew")
        cgroups.create(self.group)
        self.machine.boot(context.environment())
        net.connect_node(
            context.real_addresses, self.index, context.spec.real_nodes, switch, self._inside().pid
        )
        self.start_containerd()

    def _inside(self) -> Entered:
        identity = self.machine.identity()
        if identity is None:
            raise LocalClusterError(f"{self.name} is switched off")
        return Entered(identity.pid)

    def _launch(self, process: ManagedProcess, argv: Sequence[str]) -> None:
        tools = self._tool("containerd").parent
        process.launch(argv, self.context.environment(path_first=tools), self._inside())

    def _tool(self, name: str) -> Path:
        """containerd, or what comes with it."""
        return toolchain.program(name, runtime=self.context.spec.containerd)

    def start_containerd(self, timeout_s: float = 30) -> None:
        """Start containerd and wait until it answers."""
        config = self.folder / "containerd.toml"
        self._launch(self.containerd, [str(self._tool("containerd")), "--config", str(config)])
        what = f"containerd of {self.name} answering"
        self._wait(what, lambda: answers(self.containerd_socket), timeout_s, self.containerd)

    def _wait(self, what: str, check: Callable[[], bool], timeout_s: float, process: ManagedProcess) -> None:
        """Wait for what a process of the node is to do. If it does not, its log tells why."""

        def alive() -> None:
            if not process.alive():
                raise LocalClusterError(f"{process.name} has ended")

        try:
            wait_until(what, check, timeout_s, alive)
        except LocalClusterError as error:
            text = f"{error}; the end of {process.log_file}:\n{process.log_tail()}"
            raise LocalClusterError(text) from None

    def kill_containerd(self) -> None:
        """SIGKILL containerd; containers keep running."""
        self.containerd.kill()

    def start_kubelet(self) -> None:
        """Start kubelet; see ``wait_ready``."""
        spec = self.context.spec
        argv = [
            str(toolchain.program("kubelet", spec.kubelet)),
            f"--config={self.folder}/kubelet.yaml",
            f"--kubeconfig={self.context.kubeconfig_of(self.name)}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.ip}",
            "--v=2",
        ]
        if spec.node_labels:
            argv.append(
                "--node-labels=" + ",".join(f"{key}={value}" for key, value in spec.node_labels.items())
            )
        self._launch(self.kubelet, [*argv, *spec.args_for("kubelet")])

    def kill_kubelet(self) -> None:
        """SIGKILL kubelet; containers keep running."""
        self.kubelet.kill()

    def pause_kubelet(self) -> None:
        """SIGSTOP kubelet."""
        self.kubelet.signal(signal.SIGSTOP)

    def resume_kubelet(self) -> None:
        """SIGCONT kubelet."""
        self.kubelet.signal(signal.SIGCONT)

    def start_kube_proxy(self) -> None:
        """Start kube-proxy where the cluster has Services."""
        if self.context.spec.services:
            program = toolchain.program("kube-proxy", self.context.spec.kubelet)
            self._launch(self.kube_proxy, [str(program), f"--config={self.folder}/kube-proxy.yaml"])

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Wait until the node is Ready, this kubelet serves its sockets, and kube-proxy has its rules."""
        api = self.context.api()
        try:
            self._wait(f"{self.name} Ready", lambda: self._says_ready(api), timeout_s, self.kubelet)
        finally:
            api.close()
        if self.context.spec.services:
            self.wait_kube_proxy(timeout_s)

    def wait_kube_proxy(self, timeout_s: float = 60) -> None:
        """Wait until kube-proxy has its rules."""
        self._wait(f"kube-proxy of {self.name} healthy", self._proxy_healthy, timeout_s, self.kube_proxy)

    def _says_ready(self, api: Api) -> bool:
        """Ready under the present boot, and this kubelet's sockets answer.

        The word alone may be its predecessor's; a dead kubelet's sockets refuse.
        """
        try:
            status = api.get(f"/api/v1/nodes/{self.name}")["status"]
        except ApiError:
            return False
        return (
            status.get("nodeInfo", {}).get("bootID") == self.machine.boot_id
            and any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
            and answers(self.pod_resources_socket)
            and answers(self.device_plugins_dir / "kubelet.sock")
        )

    def _proxy_healthy(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{self.ip}:10256/healthz", timeout=stretched(2)) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def switch_off(self) -> None:
        """Cut the power: every process of the node is killed at once. Files stay, /run does not."""
        self.machine.switch_off()
        for process in (self.kubelet, self.containerd, self.kube_proxy):
            process.kill()
        cgroups.remove(self.group)

    def reboot(self, timeout_s: float = 90) -> None:
        """Cut the power, switch on again and wait until the node is Ready."""
        self.switch_off()
        self.switch_on()
        self.start_kube_proxy()
        self.start_kubelet()
        self.wait_ready(timeout_s)

    def run(
        self, argv: Sequence[str], *, text_in: str | None = None, timeout_s: float = 60, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside the node and return what it said."""
        whole = self._inside().argv(argv)
        result = subprocess.run(
            whole,
            input=text_in,
            capture_output=True,
            text=True,
            timeout=stretched(timeout_s),
            check=False,
            env=self.context.environment(path_first=self._tool("ctr").parent),
        )
        if check and result.returncode != 0:
            raise LocalClusterError(
                f"`{' '.join(argv)}` on {self.name} failed: {result.stderr.strip()[-1000:]}"
            )
        return result

    def import_image(self, archive: Path) -> None:
        """Import an OCI archive."""
        try:
            import_archive([str(self._tool("ctr"))], archive, self.context.environment(), self._inside())
        except LocalClusterError as error:
            raise LocalClusterError(f"{self.name}: {error}") from None
