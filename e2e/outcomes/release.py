"""An earlier version of this project, from its history: its image under a tag of its own, its manifests."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outcomes.workload import Json

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RELEASE: Final = Path("manifests/components/release/kustomization.yaml")
_BUILD: Final = """
import inspect, runpy, tarfile

plain = tarfile.TarFile.extractall
if "filter" not in inspect.signature(plain).parameters:
    tarfile.TarFile.extractall = lambda *given, filter=None, **named: plain(*given, **named)
runpy.run_module("image.build", run_name="__main__", alter_sys=True)
"""
"""Earlier versions unpack with filters, which Debian 12's Python (3.11.2) does not know."""


class NoHistoryError(Exception):
    """The commit is not in this copy of the repository."""


@dataclass(frozen=True, slots=True)
class Release:
    """One version, unpacked and built."""

    folder: Path
    archive: Path
    """Its image."""

    @property
    def overlay(self) -> Path:
        """What an operator applies on the local cluster."""
        return self.folder / "manifests" / "overlays" / "local"

    @classmethod
    def build(cls, commit: str, tag: str, folder: Path) -> "Release":
        """Unpack ``commit`` and build its image by its own recipe. Raises :class:`NoHistoryError`."""
        packed = subprocess.run(
            ["git", "-C", str(REPOSITORY), "archive", commit], capture_output=True, check=False
        )
        if packed.returncode != 0:
            raise NoHistoryError(f"commit {commit} is not here: {packed.stderr.decode().strip()}")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        release = folder / _RELEASE
        lines = [_retagged(line, tag) for line in release.read_text().splitlines()]
        release.write_text("\n".join(lines) + "\n")
        archive = folder.parent / f"{tag}.tar"
        subprocess.run(
            [sys.executable, "-c", _BUILD, "--output", str(archive)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder / "e2e")},
            check=True,
        )
        return cls(folder, archive)


def _retagged(line: str, tag: str) -> str:
    head, found, _ = line.partition("newTag:")
    return f"{head}{found} {tag}" if found else line


def image_of(workload: Json) -> str:
    """The image that a Deployment or DaemonSet names."""
    return str(workload["spec"]["template"]["spec"]["containers"][0]["image"])
