"""The stack through Helm, as docs/operator.md says: install, upgrade, go back, remove."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from localcluster import toolchain

from stack.install import MODELS, NAMESPACE, Stack
from stack.kit import Json, StoryError

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CHART: Final = REPOSITORY / "manifests" / "helm" / "vc-egpu"
RELEASE: Final = "vc-egpu"
HOME: Final = "default"
"""The namespace that Helm keeps the release in: the chart makes ours itself."""
_FAKE_GPUS: Final = REPOSITORY / "manifests" / "components" / "fake-gpus" / "node-agent.yaml"
_PLUGIN: Final = """apiVersion: v1
type: postrenderer/v1
name: fake-gpus
version: 0.1.0
runtime: subprocess
runtimeConfig:
  platformCommand:
    - command: ${HELM_PLUGIN_DIR}/render
"""
_RENDER: Final = """#!/bin/sh
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/all.yaml"
cp "$PATCH" "$folder/node-agent.yaml"
cat > "$folder/kustomization.yaml" <<'END'
resources: [all.yaml]
patches: [{target: {kind: DaemonSet, name: vc-egpu-node-agent}, path: node-agent.yaml}]
END
"$KUBECTL_PROGRAM" kustomize "$folder"
"""


@dataclass(frozen=True)
class HelmRelease:
    """The chart on one cluster, whose nodes have fake cards."""

    stack: Stack
    folder: Path
    """Helm's own files: nothing of the user's is read."""

    def run(self, *arguments: str) -> str:
        """``helm ...`` as the administrator; its output. Raises :class:`StoryError` with what it says."""
        command = [str(toolchain.program("helm")), *arguments, "--namespace", HOME]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=400, check=False
        )
        if done.returncode != 0:
            raise StoryError(f"helm {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """For programs that call Helm: its folders, its cluster."""
        plugins = self.folder / "plugins"
        if not plugins.exists():
            plugin = plugins / "fake-gpus"
            plugin.mkdir(parents=True)
            (plugin / "plugin.yaml").write_text(_PLUGIN)
            (plugin / "render").write_text(_RENDER)
            (plugin / "render").chmod(0o755)
        own = {f"HELM_{name}_HOME": str(self.folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        return os.environ | own | {
            "HELM_PLUGINS": str(plugins),
            "KUBECONFIG": str(self.stack.cluster.kubeconfig),
            "KUBECTL_PROGRAM": str(self.stack.cluster.bin("kubectl")),
            "PATCH": str(_FAKE_GPUS),
        }  # fmt: skip

    def install(self, chart: Path, *values: str) -> None:
        """``helm install``; ``values`` are whole flags."""
        self.run("install", RELEASE, str(chart), *_FAKE, *values)

    def upgrade(self, chart: Path, *values: str) -> None:
        """``helm upgrade`` with the values that the release has, and waits for each roll-out."""
        self.run("upgrade", RELEASE, str(chart), *_FAKE, "--reset-then-reuse-values", *values)
        self.rolled_out()

    def rollback(self, revision: int) -> None:
        """``helm rollback``, and waits for each roll-out."""
        self.run("rollback", RELEASE, str(revision))
        self.rolled_out()

    def rolled_out(self) -> None:
        """Until all pods of ours are of the present manifests."""
        for kind in ("deployment", "daemonset"):
            for name in self.stack.kit.kubectl("get", kind, "-n", NAMESPACE, "-o", "name").stdout.split():
                self.stack.kit.kubectl("rollout", "status", name, "-n", NAMESPACE, "--timeout=170s")

    def history(self) -> list[Json]:
        """Its revisions, the oldest first."""
        found: list[Json] = json.loads(self.run("history", RELEASE, "-o", "json"))
        return found

    def objects(self) -> set[str]:
        """``kind/name`` of all that the release says it has."""
        found = yaml.safe_load_all(self.run("get", "manifest", RELEASE))
        return {f"{one['kind']}/{one['metadata']['name']}" for one in found if one}

    def remove(self) -> subprocess.CompletedProcess[str]:
        """``manifests/remove helm`` as the administrator."""
        kubectl = f"{self.stack.cluster.bin('kubectl')} --kubeconfig {self.stack.cluster.kubeconfig}"
        more = {"KUBECTL": kubectl, "HELM": str(toolchain.program("helm"))}
        return subprocess.run(
            [REPOSITORY / "manifests" / "remove", "helm", RELEASE, HOME],
            env=self.environment() | more, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip


_FAKE: Final = ("--post-renderer=fake-gpus", f"--set-file=models={MODELS}", "--set=isolation=false")
"""For nodes with fake cards, whose containers have no driver."""
