"""What dpkg would know of an unpacked root, which tools for known holes read."""

import subprocess
import tarfile
from pathlib import Path

import pytest
from image.dpkg import controls, status
from supply.debian import read

CONTROL = "Package: {name}\nVersion: 1-{name}\nArchitecture: all\nMaintainer: nobody\nDescription: a text\n"


def package(folder: Path, name: str, source: str = "") -> Path:
    """A Debian package with nothing in it."""
    root = folder / name
    (root / "DEBIAN").mkdir(parents=True)
    more = f"Source: {source}\n" if source else ""
    (root / "DEBIAN" / "control").write_text(CONTROL.format(name=name) + more)
    made = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", str(root), str(made)], check=True, capture_output=True)
    return made


def test_each_package_whose_archive_is_there_is_installed(tmp_path: Path) -> None:
    raw = tmp_path / "raw.tar"
    with tarfile.open(raw, "w") as tar:
        for name in ("b", "a"):
            made = package(tmp_path, name, "b-source (2)" if name == "b" else "")
            tar.add(made, f"./var/cache/apt/archives/{name}_1_all.deb")
        dummy = package(tmp_path, "usr-is-merged", "mmdebstrap-dummy-usr-is-merged")
        tar.add(dummy, "./var/cache/apt/archives/usr-is-merged_1_all.deb")
        tar.add(made, "./var/cache/apt/archives/lock")
        tar.add(made, "./elsewhere/c.deb")
    text = status(controls(raw, tmp_path))
    assert [(one.name, one.version, one.source) for one in read(text)] == [
        ("a", "1-a", "a"),
        ("b", "1-b", "b-source"),
    ]
    assert text.count("\nStatus: install ok installed\n") == 2
    assert status(reversed(controls(raw, tmp_path))) == text


def test_a_stanza_that_begins_otherwise_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with 'Version: 1'"):
        status(["Version: 1\nPackage: a\n"])
