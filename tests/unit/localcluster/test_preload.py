"""What nodes share of a prepared folder of containerd, and what each has of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from localcluster import preload

SNAPSHOT = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs"
BLOB = "io.containerd.content.v1.content/blobs/sha256/ab"
DATABASES = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
    "io.containerd.content.v1.content/ingest/none",
)
NO_LINKS = """#!/bin/bash
case " $* " in
*" --link "*)
  from=${{@: -2:1}} into=${{@: -1}}
  mkdir "$into/$(basename "$from")"
  echo "Invalid cross-device link" >&2
  exit 1 ;;
esac
exec {cp} "$@"
"""
"""A ``cp`` for a file system without links."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """As containerd leaves it, much smaller."""
    root = tmp_path / "prepared"
    for name in (BLOB, *DATABASES, f"{SNAPSHOT}/bin/tool"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / SNAPSHOT / "bin" / "tool").chmod(0o4755)
    (root / SNAPSHOT / "bin" / "link").symlink_to("tool")
    (root / SNAPSHOT).chmod(0o555)
    (root / "io.containerd.snapshotter.v1.overlayfs").chmod(0o700)
    return root


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """By path: its mode and its content."""
    found = {}
    for path in sorted(root.rglob("*")):
        said = str(path.readlink()) if path.is_symlink() else "" if path.is_dir() else path.read_text()
        found[str(path.relative_to(root))] = (path.lstat().st_mode, said)
    return found


def test_a_node_has_all_of_it_and_links_to_what_is_never_written(source: Path, tmp_path: Path) -> None:
    nodes = [tmp_path / "a", tmp_path / "b"]
    for node in nodes:
        preload.fill(node, source)
        assert tree(node) == tree(source)
    for name in (BLOB, f"{SNAPSHOT}/bin/tool"):
        assert all((node / name).samefile(source / name) for node in nodes)
    for name in DATABASES:
        assert not any((node / name).samefile(source / name) for node in nodes)


def test_a_node_keeps_what_it_has_when_the_prepared_folder_goes(source: Path, tmp_path: Path) -> None:
    before = tree(source)
    preload.fill(tmp_path / "a", source)
    subprocess.run(["rm", "-rf", source], check=True)
    assert tree(tmp_path / "a") == before


def test_where_there_are_no_links_it_is_copied(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without them; ``cp`` may have begun."""
    programs = tmp_path / "programs"
    programs.mkdir()
    copy = programs / "cp"
    copy.write_text(NO_LINKS.format(cp=shutil.which("cp")))
    copy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    preload.fill(tmp_path / "a", source)
    assert tree(tmp_path / "a") == tree(source)
    assert not (tmp_path / "a" / BLOB).samefile(source / BLOB)
