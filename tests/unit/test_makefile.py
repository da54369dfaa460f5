"""What `make help` says: the few targets that matter first, and each text by itself."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from language import findings

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TEXTS = dict(re.findall(r"^([a-z0-9-]+):.*## (.*)$", MAKEFILE, re.MULTILINE))
INTERNAL = {"root"}
needs_make = pytest.mark.skipif(not (shutil.which("make") and shutil.which("awk")), reason="no make here")


def listed(target: str, folder: Path) -> list[str]:
    """The targets that `make <target>` lists. Run on a copy: the Makefile tidies up where it stands."""
    shutil.copy(ROOT / "Makefile", folder / "Makefile")
    done = subprocess.run(
        ["make", "-s", "--no-print-directory", "-C", str(folder), target],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return re.findall(r"^  make ([a-z0-9-]+) +\S", done.stdout, re.MULTILINE)


@needs_make
def test_help_shows_the_targets_that_matter(tmp_path: Path) -> None:
    assert listed("help", tmp_path) == ["demo", "test", "check", "up", "down", "clean", "help-all"]


@needs_make
def test_help_all_shows_every_target(tmp_path: Path) -> None:
    assert sorted(listed("help-all", tmp_path)) == sorted(TEXTS)


def test_every_target_has_a_text() -> None:
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE) for name in line.split()}
    assert phony - INTERNAL - TEXTS.keys() == set()


@pytest.mark.parametrize("target", sorted(TEXTS))
def test_a_text_stands_alone(target: str) -> None:
    assert "the same" not in TEXTS[target]
    assert [str(found) for found in findings(TEXTS[target])] == []


def test_native_says_that_it_builds_the_library() -> None:
    assert "isolation library" in TEXTS["native"]
