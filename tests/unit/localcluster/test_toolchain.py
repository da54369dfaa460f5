"""What is built is pinned, and anything that would change it gives another folder."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from localcluster import toolchain
from localcluster.errors import LocalClusterError

_KUBERNETES = next(u for u in toolchain.UPSTREAMS if u.name == "kubernetes")


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that says its version and "builds" a file; its second line of arguments is written down."""
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = env ]; then echo go1.26.9; exit; fi\n'
        f"echo x >> {tmp_path}/builds\n"
        '[ -z "$FAIL" ] || { echo "no such module" >&2; exit 1; }\n'
        'while [ "$1" != -o ]; do shift; done; echo program > "$2"\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return go


def _builds(go: Path) -> int:
    file = go.with_name("builds")
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.mark.parametrize("upstream", (*toolchain.UPSTREAMS[1:], *toolchain.EXTRAS), ids=lambda u: u.name)
def test_versions_are_pinned_with_their_sums(upstream: toolchain.Upstream) -> None:
    assert upstream.version() != "v0"
    sums = (upstream.folder / "go.sum").read_text()
    assert f"{upstream.module} {upstream.version()} " in sums


def test_staging_modules_match_the_kubernetes_version() -> None:
    minor = _KUBERNETES.version().removeprefix("v1.")
    replaces = [
        line.split() for line in (_KUBERNETES.folder / "go.mod").read_text().splitlines() if "=>" in line
    ]
    assert len(replaces) == 33
    assert {words[-1] for words in replaces} == {f"v0.{minor}"}


def test_everything_is_built_once(fake_go: Path) -> None:
    lines: list[str] = []
    toolchain.build(lines.append)
    total = len(toolchain.PROGRAMS)
    assert _builds(fake_go) == total
    assert f"[{total}/{total}]" in lines[-1]
    toolchain.build(lines.append)
    assert _builds(fake_go) == total
    assert toolchain.program("kubectl").read_text() == "program\n"


def test_a_build_that_fails_says_why_and_leaves_no_half(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(LocalClusterError, match="no such module"):
        toolchain.build(lambda _line: None)
    monkeypatch.delenv("FAIL")
    toolchain.build(lambda _line: None)
    assert len(toolchain.missing(fake_go)) == 0


def test_another_pin_is_another_folder(
    fake_go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = toolchain.folder_of(_KUBERNETES, fake_go)
    copy = tmp_path / "toolchain"
    shutil.copytree(toolchain.SOURCES, copy)
    monkeypatch.setattr(toolchain, "SOURCES", copy)
    assert toolchain.folder_of(_KUBERNETES, fake_go) == before
    with (copy / "kubernetes" / "go.sum").open("a") as file:
        file.write("\n")
    assert toolchain.folder_of(_KUBERNETES, fake_go) != before
    assert toolchain.folder_of(replace(_KUBERNETES, version_variables=()), fake_go) != before


def test_what_is_not_built_is_said_with_the_command(fake_go: Path) -> None:
    with pytest.raises(LocalClusterError, match="localcluster build"):
        toolchain.program("kubectl")
    with pytest.raises(LocalClusterError, match="no program 'docker'"):
        toolchain.program("docker")


def test_two_builds_at_once_build_each_program_once(fake_go: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        for seconds in pool.map(lambda _i: toolchain.build(lambda _line: None), range(2)):
            assert seconds >= 0
    assert _builds(fake_go) == len(toolchain.PROGRAMS)
    assert not list((fake_go.parent / "cache" / "bin").glob(".*"))
