"""The objects of each choice, as kustomize makes them."""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from localcluster import toolchain

from chart.options import Choice, kustomization

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace, name."""
REPOSITORY: Final = Path(__file__).resolve().parents[2]


class CannotRenderError(RuntimeError):
    """A program failed; the text is what it said."""


def key_of(document: Json) -> Key:
    """Which object it is."""
    metadata = document["metadata"]
    return document["kind"], str(metadata.get("namespace") or ""), str(metadata["name"])


def of_kustomize(choice: Choice) -> dict[Key, Json]:
    """The overlay and the components of this choice."""
    (REPOSITORY / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="chart-", dir=REPOSITORY / "build") as folder:
        wanted = kustomization(choice, "../../manifests")
        Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(wanted))
        return _objects([str(toolchain.program("kubectl")), "kustomize", folder])


def of_helm(chart: Path, choice: Choice, *flags: str) -> dict[Key, Json]:
    """The same as Helm renders it, with these values."""
    values = [f"--set={path}={_text(value)}" for path, value in choice.items()]
    return _objects([str(toolchain.program("helm")), "template", "vc-egpu", str(chart), *values, *flags])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _objects(command: list[str]) -> dict[Key, Json]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRenderError(done.stderr.strip())
    return {key_of(one): one for one in yaml.load_all(done.stdout, _LOADER) if one}


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def by_choice(choices: list[Choice]) -> Mapping[Key, list[tuple[Choice, Json]]]:
    """By object, what it is for each choice that has it."""
    found: dict[Key, list[tuple[Choice, Json]]] = {}
    for choice in choices:
        for key, document in of_kustomize(choice).items():
            found.setdefault(key, []).append((choice, document))
    return found
