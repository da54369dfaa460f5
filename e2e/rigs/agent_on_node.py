"""The node agent as a program inside a real node, for tests that kill and restart it."""

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fakes.nvml_state import FakeNode
from localcluster import LocalCluster, RealNode
from localcluster.api import wait_until
from localcluster.procs import Entered, ManagedProcess

REPOSITORY = Path(__file__).resolve().parents[2]
FAKE_LIBRARIES = REPOSITORY / "device-plugin" / "native" / "build"
METRICS_PORT = 9445
STATE = Path("/var/lib/vc-egpu/extra")
MODELS = """\
models:
  - {name: h20, products: ["NVIDIA H20"], memoryMiB: 98304, cardsPerNode: 8}
  - {name: a100-80g, products: ["NVIDIA A100-SXM4-80GB"], memoryMiB: 81920, cardsPerNode: 8}
"""
POLICY = "defaults: {recoveryS: 2}\n"


@dataclass
class AgentOnNode:
    """One node's agent with fake cards; its files lie in the node's folder and end with the cluster."""

    cluster: LocalCluster
    node: RealNode
    fake: FakeNode
    process: ManagedProcess = field(init=False)
    flags: tuple[str, ...] = ()
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    kubeconfig: Path | None = None
    """Whose rights it has; None: the administrator's."""

    def __post_init__(self) -> None:
        self.process = self.node.context.process(f"extra-agent@{self.node.name}")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "models.yaml").write_text(MODELS)
        (self.folder / "policy.yaml").write_text(POLICY)

    @classmethod
    def with_h20(
        cls, cluster: LocalCluster, node: RealNode, cards: int, flags: tuple[str, ...] = ()
    ) -> "AgentOnNode":
        """An agent (not started) that will see ``cards`` H20."""
        folder = node.folder / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        fake = FakeNode.of_h20(folder / "nvml.state", cards, node.index + 1)
        fake.write()
        return cls(cluster, node, fake, flags=flags)

    @property
    def folder(self) -> Path:
        """Settings and state, at the same path inside the node."""
        return self.node.folder / "agent"

    @property
    def state_dir(self) -> Path:
        """The agent's state, where this machine finds it."""
        return self.node.folder / STATE.relative_to("/var/lib")

    def start(self) -> None:
        """Start it; see :meth:`wait_ready`."""
        machine = self.node.machine.identity()
        assert machine is not None, f"{self.node.name} is switched off"
        self.process.launch(self._argv(), self._environment(), Entered(machine.pid))

    def run_once(self, *flags: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end with other flags."""
        machine = self.node.machine.identity()
        assert machine is not None, f"{self.node.name} is switched off"
        return subprocess.run(
            Entered(machine.pid).argv([*self._argv(), *flags]),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _argv(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "vc_egpu_node",
            f"--node-name={self.node.name}",
            f"--kubeconfig={self.kubeconfig or self.cluster.kubeconfig}",
            f"--models={self.folder}/models.yaml",
            f"--policy={self.folder}/policy.yaml",
            f"--state-dir={STATE}",
            f"--listen=0.0.0.0:{METRICS_PORT}",
            f"--driver-device={self.folder}/nvidiactl",  # not the one of a driver that this machine may have
            *self.flags,
        ]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(FAKE_LIBRARIES),
            "FAKE_NVML_STATE": str(self.fake.path),
            "PYTHONPATH": f"{REPOSITORY}/vc-egpu:{REPOSITORY}/device-plugin",
            **self.extra_environment,
        }

    def wait_ready(self, timeout_s: float = 30) -> None:
        """Wait until containers can start."""
        wait_until(
            f"agent of {self.node.name} ready", lambda: self.get("/readyz")[0] == 200, timeout_s, self._alive
        )

    def _alive(self) -> None:
        assert self.process.alive(), f"the agent has ended:\n{self.process.log_tail()}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of the agent's pages; status 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.node.ip}:{METRICS_PORT}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def stop(self) -> None:
        """SIGTERM."""
        self.process.stop()

    def forget_state(self) -> None:
        """Remove the state folder, as a reinstalled disk would."""
        shutil.rmtree(self.state_dir, ignore_errors=True)
