"""Reads kustomize's output, so that patches and components count in tests.

It needs kubectl (`make toolchain` builds one, and `make test` does so first); tests are skipped without.
"""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from localcluster import toolchain
from localcluster.errors import LocalClusterError

Json = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[3]
MANIFESTS = REPOSITORY / "manifests"


def _kubectl() -> str | None:
    """The one that the local cluster uses, or else the machine's."""
    try:
        return str(toolchain.program("kubectl"))
    except LocalClusterError:
        return shutil.which("kubectl")


@functools.cache
def rendered(folder: str) -> tuple[Json, ...]:
    """The objects of one kustomization."""
    kubectl = _kubectl()
    if kubectl is None:
        pytest.skip("no kubectl here; `make toolchain` builds one")
    done = subprocess.run(
        [kubectl, "kustomize", str(REPOSITORY / folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def overlay(name: str) -> tuple[Json, ...]:
    return rendered(f"manifests/overlays/{name}")


def composed(*components: str) -> tuple[Json, ...]:
    """The overlay standalone with these components on top, as an operator's own overlay has it."""
    listed = ", ".join(f"../../manifests/components/{one}" for one in components)
    return patched(f"components: [{listed}]\n")


def patched(text: str, overlay: str = "standalone") -> tuple[Json, ...]:
    """An overlay with anything else that an operator's own overlay may hold."""
    (REPOSITORY / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="test-", dir=REPOSITORY / "build") as folder:
        Path(folder, "kustomization.yaml").write_text(
            f"resources: [../../manifests/overlays/{overlay}]\n{text}"
        )
        return rendered(str(Path(folder).relative_to(REPOSITORY)))


def of_kind(objects: tuple[Json, ...], *kinds: str) -> list[Json]:
    return [document for document in objects if document["kind"] in kinds]


def pod_specs(objects: tuple[Json, ...]) -> dict[str, Json]:
    found = of_kind(objects, "Deployment", "DaemonSet")
    return {document["metadata"]["name"]: document["spec"]["template"]["spec"] for document in found}
