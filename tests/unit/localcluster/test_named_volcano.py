"""Which Volcano the stories run on: none is a reason to skip them, one that is not whole is none."""

from pathlib import Path

import pytest
from volcano.processes import CRDS, BrokenVolcanoError, NoVolcanoError, Volcano

PROGRAMS = ("vc-scheduler", "vc-controller-manager")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in PROGRAMS:
        (tmp_path / name).touch()
    (tmp_path / "crds.yaml").write_text("".join(f"metadata:\n  name: {name}\n" for name in CRDS))
    for variable in ("VOLCANO_BIN_DIR", "VOLCANO_CRD_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    return tmp_path


def test_a_whole_one(folder: Path) -> None:
    assert Volcano.from_environment() == Volcano(folder, folder)


def test_none_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOLCANO_BIN_DIR")
    monkeypatch.setenv("VOLCANO_CRD_DIR", "")
    with pytest.raises(NoVolcanoError, match="VOLCANO_BIN_DIR and VOLCANO_CRD_DIR not set"):
        Volcano.from_environment()


def test_half_of_one_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOLCANO_CRD_DIR")
    with pytest.raises(BrokenVolcanoError, match=r"^VOLCANO_CRD_DIR not set"):
        Volcano.from_environment()


@pytest.mark.parametrize(
    ("missing", "said"), [("vc-scheduler", "has no vc-scheduler"), ("crds.yaml", f"has no {CRDS[0]}")]
)
def test_what_is_named_is_not_whole(folder: Path, missing: str, said: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(BrokenVolcanoError, match=said):
        Volcano.from_environment()
