"""The plugin is installable by itself: its wheel holds all, with the programs that kubectl looks for."""

import os
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("vc-egpu", "device-plugin/vc_egpu_node", "pyproject.toml", "README.md")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, as `pip install .` builds it, without fetching anything."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copyfile(source, target)
    into = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--no-index", "--wheel-dir", str(into), str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = into.glob("*.whl")
    return found


def test_it_has_the_programs_that_kubectl_looks_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        points = ConfigParser()
        points.read_string(archive.read(name).decode())
    assert {"kubectl-egpu", "kubectl_complete-egpu", "vc-egpu"} <= set(points["console_scripts"])


def test_it_holds_every_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    wanted = {str(path.relative_to(ROOT / "vc-egpu")) for path in (ROOT / "vc-egpu/vc_egpu").rglob("*.py")}
    assert wanted <= held


def test_what_is_installed_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    code = (
        "import vc_egpu, sys; from vc_egpu.cli.kubectl import main; print(vc_egpu.__file__); sys.exit(main())"
    )
    document, models = ROOT / "queues/tenants/research.yaml", ROOT / "manifests/base/config/models.yaml"
    arguments = ["tenant", "render", "-f", str(document), "--models", str(models)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stderr
    where, _, objects = done.stdout.partition("\n")
    assert where.startswith(str(installed))
    assert "kind: Queue" in objects
