"""``vc-egpu node-images``: rows of the table of needs, for the images that are on this node.

It asks the container runtime, whose socket root alone may use, and no registry. The rows are for the
operator's table: ``environments check`` reads them.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from vc_egpu.volcano.needs.archive import Image, row_of

from vc_egpu_node.kubelet.images import ImagesError, images_on

SOCKET: Final = Path("/run/containerd/containerd.sock")
_HUB: Final = ("docker.io/library/", "docker.io/")
"""What runtimes write before names for which people write nothing."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 where the runtime does not answer or no image says anything."""
    parser = argparse.ArgumentParser(prog="vc-egpu node-images", description=__doc__)
    parser.add_argument("--socket", type=Path, default=SOCKET, help=f"of the runtime; default: {SOCKET}")
    options = parser.parse_args(argv)
    try:
        rows, warnings = rows_of(images_on(options.socket))
    except ImagesError as error:
        return _failed(str(error))
    for text in warnings:
        _failed(text)
    if not rows:
        return _failed("no image here says what it needs (NVIDIA_REQUIRE_*, CUDA_VERSION)")
    print(yaml.safe_dump({"images": rows}, sort_keys=False).rstrip())  # noqa: T201 - a command's answer
    return 0


def rows_of(images: Sequence[Image]) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows, warnings). A row matches the name as pods write it, so a name of the hub has several."""
    rows: list[dict[str, Any]] = []
    warnings: list[str] = []
    for image in images:
        row, ignored = row_of(image)
        warnings += [f"{image.name}: {text}" for text in ignored]
        if row is not None:
            rows += [{**row, "image": name} for name in _written(image.name)]
    return rows, warnings


def _written(name: str) -> list[str]:
    """The ways to write a name; those that the table cannot hold are left out."""
    found = dict.fromkeys([name, *(name.removeprefix(hub) for hub in _HUB if name.startswith(hub))])
    return [each for each in found if not set("*?[") & set(each)]


def _failed(text: str) -> int:
    print(f"vc-egpu node-images: {text}", file=sys.stderr)  # noqa: T201 - a command's answer
    return 1
