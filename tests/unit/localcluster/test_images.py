"""Images of Debian's packages, on machines whose apt knows little."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from localcluster import images
from localcluster.errors import LocalClusterError

APT = """#!/bin/sh
echo "$*" >> {folder}/said
case "$*" in
*update*) : > {folder}/lists ;;
*download*) [ -e {folder}/lists ] || {{ echo "E: Unable to locate package busybox" >&2; exit 100; }}
    cp {folder}/*.deb . ;;
esac
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an apt-get that knows no package before its lists are fetched; ``said``: its calls."""
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: busybox\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n"
    )
    (tree / "bin").mkdir()
    (tree / "bin" / "busybox").write_text("#!/bin/sh\necho sh\n")
    (tree / "bin" / "busybox").chmod(0o755)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-b", tree, tmp_path / "b.deb"], check=True, capture_output=True
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apt-get").write_text(APT.format(folder=tmp_path))
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="apt's lists are root's")
@pytest.mark.parametrize("known", [True, False])
def test_lists_that_are_missing_or_too_old_are_fetched(apt: Path, known: bool) -> None:
    """Images of containers come without any."""
    if known:
        (apt / "lists").touch()
    assert images.busybox().is_file()
    said = (apt / "said").read_text().splitlines()
    assert ["download" in line for line in said] == ([True] if known else [True, False, True])


def test_what_apt_does_not_have_is_said_in_its_words(apt: Path) -> None:
    (apt / "programs" / "apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2; exit 100\n")
    with pytest.raises(LocalClusterError, match="E: no network"):
        images.busybox()
