"""Bringing an archive into a containerd."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from localcluster.errors import LocalClusterError
from localcluster.patience import stretched
from localcluster.procs import Entered

_TIMEOUT_S: Final = 300.0


def import_archive(
    ctr: Sequence[str], archive: Path, environment: Mapping[str, str], within: Entered | None = None
) -> None:
    """Have ``ctr`` (the program and which containerd it asks) import an OCI archive for the kubelet's use.

    The archive goes in by standard input: what runs ``within`` a node may not see its folder.
    """
    argv = [*ctr, "-n", "k8s.io", "images", "import", "--digests=false", "-"]
    with archive.open("rb") as file:
        result = subprocess.run(
            within.argv(argv) if within else argv,
            stdin=file,
            capture_output=True,
            timeout=stretched(_TIMEOUT_S),
            check=False,
            env=environment,
        )
    if result.returncode != 0:
        error = result.stderr.decode(errors="replace").strip()[-800:]
        raise LocalClusterError(f"importing {archive.name} failed: {error}")
