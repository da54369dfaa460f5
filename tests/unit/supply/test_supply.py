"""The bill of materials holds every locked package, and a licence that is not on the list fails the check."""

import json
from importlib import metadata
from pathlib import Path

import pytest
from supply import lock, sbom
from supply.__main__ import LOCK, main
from supply.licences import is_allowed, refused
from supply.lock import Locked, LockError, Package

PLANTED = Package(Locked("planted", "1.0", ("0" * 64,)), "AGPL-3.0-only", ())


def packages() -> list[Package]:
    return [lock.installed(one) for one in lock.read(LOCK.read_text())]


def document(found: list[Package]) -> sbom.Json:
    return sbom.document("vc-egpu", "0", [sbom.of_python(one) for one in found])


def test_every_locked_package_is_a_component_with_its_hashes() -> None:
    pinned = [line for line in LOCK.read_text().splitlines() if "==" in line and line[0] not in " #"]
    lines = [line.split("==")[0] for line in pinned]
    components = document(packages())["components"]
    assert sorted(one["name"] for one in components) == sorted(lines)
    for one in components:
        (source,) = one["externalReferences"]
        assert source["hashes"], one["name"]
        assert one["licenses"] != [{"license": {"name": "none named"}}], one["name"]


def test_every_file_of_these_packages_belongs_to_one_of_them() -> None:
    """Found by the records that pip writes: a package without files would be one that we know nothing of."""
    owners: dict[str, str] = {}
    for package in packages():
        assert package.files, package.locked.name
        for path in package.files:
            if not path.startswith("../"):  # commands; the image has none of them
                assert owners.setdefault(path, package.locked.name) == package.locked.name, path


def test_the_same_packages_give_the_same_bytes() -> None:
    first, again = (sbom.text(document(found)) for found in (packages(), packages()[::-1]))
    assert first == again
    other = document(packages()[1:])
    assert json.loads(first)["serialNumber"] != other["serialNumber"]


def test_all_that_we_ship_is_on_the_list_and_a_planted_package_is_not() -> None:
    assert list(refused(packages())) == []
    assert list(refused([*packages(), PLANTED])) == [
        "planted 1.0: its licence is 'AGPL-3.0-only', which is not on the list"
    ]


def test_a_planted_licence_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = lock.installed
    monkeypatch.setattr(lock, "installed", lambda one: PLANTED if one.name == "rich" else known(one))
    assert main(["--output", str(tmp_path / "sbom.json")]) == 1
    assert "planted 1.0" in capsys.readouterr().err


def test_the_command_writes_the_document(tmp_path: Path) -> None:
    output = tmp_path / "build" / "sbom.json"
    assert main(["--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    rich = next(one for one in found["components"] if one["name"] == "rich")
    assert rich["purl"] == f"pkg:pypi/rich@{metadata.version('rich')}"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("MIT", True),
        ("MIT License", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND (GPL-2.0-only OR LGPL-3.0)", False),
        ("Proprietary", False),
        ("", False),
        ("MIT AND", False),
        ("(MIT", False),
        ("MIT)", False),
        ("MIT GPL-3.0-only", False),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("MIT WITH anything", False),
    ],
)
def test_expressions(text: str, *, allowed: bool) -> None:
    assert is_allowed(text) == allowed


def test_a_lock_file_without_hashes_and_another_version_are_refused() -> None:
    with pytest.raises(LockError, match="rich: the lock file has no hash"):
        lock.read("rich==1.0\n")
    with pytest.raises(LockError, match=r"rich: .* is installed, 0\.1 is locked"):
        lock.installed(Locked("rich", "0.1", ("0" * 64,)))
    with pytest.raises(LockError, match="is not installed"):
        lock.installed(Locked("no-such-package-here", "0.1", ("0" * 64,)))
