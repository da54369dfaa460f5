"""The plugin for krew: an archive that runs by itself, and a manifest that krew would take."""

import copy
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from image.machines import MACHINES
from localcluster.oci import ImageConfig, Text, build_image
from supply import krew
from supply.contents import SITE_PACKAGES
from vc_egpu import __version__

PROGRAM = "import sys\n\ndef main() -> int:\n    print('called with', *sys.argv[1:])\n    return 3\n"
FILES = {
    f"/{SITE_PACKAGES}vc_egpu/__init__.py": Text(""),
    f"/{SITE_PACKAGES}vc_egpu/cli/__init__.py": Text(""),
    f"/{SITE_PACKAGES}vc_egpu/cli/kubectl.py": Text(PROGRAM),
    "/etc/passwd": Text("root"),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))


def image(machine: str) -> Path:
    return build_image(None, "x/vc-egpu:1", files=FILES, config=ImageConfig(architecture=machine))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folder that the command wrote."""
    images = [f"--image={image(machine.oci)}" for machine in MACHINES]
    uri = "--uri=https://files.example/0.1.0/"
    assert krew.main(["--output", str(tmp_path / "krew"), uri, *images]) == 0
    return tmp_path / "krew"


def manifest(folder: Path) -> Any:
    return yaml.safe_load((folder / "egpu.yaml").read_text())


def test_each_machine_has_an_archive_with_its_checksum(made: Path) -> None:
    platforms = manifest(made)["spec"]["platforms"]
    assert [one["selector"]["matchLabels"]["arch"] for one in platforms] == [one.oci for one in MACHINES]
    for one in platforms:
        assert one["uri"].startswith("https://files.example/0.1.0/kubectl-egpu-")
        packed = (made / one["uri"].rpartition("/")[2]).read_bytes()
        assert hashlib.sha256(packed).hexdigest() == one["sha256"]


def test_what_is_unpacked_runs_by_a_link_as_krew_makes_it(made: Path, tmp_path: Path) -> None:
    if shutil.which("python3.11") is None:
        pytest.skip("no Python 3.11 on the PATH")
    store = tmp_path / "store"
    with tarfile.open(made / krew.file_of("amd64")) as tar:
        assert {"kubectl-egpu", "run.py", "LICENSE", "lib/vc_egpu/cli/kubectl.py"} <= set(tar.getnames())
        assert not [name for name in tar.getnames() if "passwd" in name]
    store.mkdir()
    subprocess.run(["tar", "-xzf", made / krew.file_of("amd64"), "-C", store], check=True)
    link = tmp_path / "bin" / "kubectl-egpu"
    link.parent.mkdir()
    link.symlink_to(store / "kubectl-egpu")
    done = subprocess.run([link, "cards", "-o", "json"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "called with cards -o json\n"), done.stderr


def test_another_python_is_named(made: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xzf", made / krew.file_of("amd64"), "-C", tmp_path], check=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "dirname", "readlink"):
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3").chmod(0o755)
    done = subprocess.run(
        [tmp_path / "kubectl-egpu"], capture_output=True, text=True, check=False, env={"PATH": str(programs)}
    )
    assert done.returncode == 1
    assert "needs Python 3.11" in done.stderr


def test_the_same_image_gives_the_same_bytes() -> None:
    assert krew.archive(image("amd64")) == krew.archive(image("amd64"))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("kind",), "Plug", "is no Plugin"),
        (("metadata", "name"), "e gpu", "the file of plugin"),
        (("metadata", "name"), "other", "the file of plugin"),
        (("spec", "version"), __version__, "no semantic version"),
        (("spec", "shortDescription"), "two\nlines", "not one line"),
        (("spec", "platforms"), [], "platforms is empty"),
        (("spec", "platforms", 0, "sha256"), "abc", "64 digits"),
        (("spec", "platforms", 0, "uri"), "http://files.example", "not https"),
        (("spec", "platforms", 0, "bin"), "../x", "no path inside"),
        (("spec", "platforms", 1, "selector", "matchLabels", "arch"), "amd64", "is there twice"),
        (("spec", "platforms", 1, "selector", "matchLabels", "arch"), "mips", "knows no machine"),
    ],
)
def test_what_krew_would_refuse_is_named(
    made: Path, path: tuple[str | int, ...], value: Any, said: str
) -> None:
    document = manifest(made)
    assert list(krew.problems(document, "egpu.yaml")) == []
    changed = copy.deepcopy(document)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert any(said in sentence for sentence in krew.problems(changed, "egpu.yaml"))
