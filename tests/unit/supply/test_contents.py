"""The bill of materials of an image: its Debian packages, its Python packages, and no file of nobody."""

import json
from pathlib import Path

import pytest
from localcluster.oci import Text, build_image, join
from supply.__main__ import main
from supply.contents import SITE_PACKAGES, Contents
from supply.debian import read
from supply.licences import OF_DEBIAN, is_allowed, refused
from supply.lock import LockError
from supply.lock import read as read_lock

STATUS = """Package: gcc-12-base
Status: install ok installed
Source: gcc-12
Architecture: amd64
Version: 12.2.0-14+deb12u1
Description: a text
 Package: not this one

Package: libuuid1
Status: install ok installed
Source: util-linux (2.38.1-5+deb12u3)
Architecture: amd64
Version: 1:2.38.1-5+deb12u3

"""
LOCK = f"spam-eggs==1.2 --hash=sha256:{'0' * 64}\n"
METADATA = (
    "Metadata-Version: 2.4\nName: Spam_Eggs\nVersion: 1.2\nLicense-Expression: MIT\n\nText: no header\n"
)
RECORD = "spam/__init__.py,sha256=x,1\n../../bin/spam,,\nspam_eggs-1.2.dist-info/METADATA,,\n"
RECORD += "spam_eggs-1.2.dist-info/RECORD,,\n"
FILES = {
    "var/lib/dpkg/status": STATUS,
    f"{SITE_PACKAGES}spam/__init__.py": "",
    f"{SITE_PACKAGES}spam/__pycache__/__init__.cpython-311.pyc": "",
    f"{SITE_PACKAGES}spam_eggs-1.2.dist-info/METADATA": METADATA,
    f"{SITE_PACKAGES}spam_eggs-1.2.dist-info/RECORD": RECORD,
    f"{SITE_PACKAGES}vc_egpu/__init__.py": "",
    "usr/local/bin/vc-egpu": "",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))


def archive(**changed: str) -> Path:
    """An image in two layers: Debian's files, and what is put on it."""
    files = {f"/{path}": Text(text) for path, text in {**FILES, **changed}.items()}
    debian = {path: text for path, text in files.items() if path.startswith("/var/")}
    below = build_image(None, "x/base:1", files=debian)
    return build_image(below, "x/image:1", files={k: v for k, v in files.items() if k not in debian})


def bill(tmp_path: Path, image: Path) -> tuple[int, dict[str, dict[str, object]]]:
    """Exit status, and the components by name."""
    lock, output = tmp_path / "lock", tmp_path / "sbom.json"
    lock.write_text(LOCK)
    status = main(["--image", str(image), "--lock", str(lock), "--output", str(output)])
    document = json.loads(output.read_text()) if output.exists() else {"components": []}
    return status, {one["name"]: one for one in document["components"]}


def test_each_package_of_the_image_is_a_component(tmp_path: Path) -> None:
    status, components = bill(tmp_path, archive())
    assert status == 0
    assert sorted(components) == ["gcc-12-base", "libuuid1", "spam-eggs"]
    assert components["libuuid1"]["purl"] == (
        "pkg:deb/debian/libuuid1@1%3A2.38.1-5%2Bdeb12u3?arch=amd64&distro=debian-12"
    )
    assert components["gcc-12-base"]["licenses"] == [
        {"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}
    ]
    assert components["spam-eggs"]["evidence"] == {
        "occurrences": [{"location": path} for path in sorted(FILES) if "/spam" in path]
    }


def test_our_own_files_are_the_product_s(tmp_path: Path) -> None:
    contents = Contents.read(archive())
    assert contents.ours() == ("usr/local/bin/vc-egpu", f"{SITE_PACKAGES}vc_egpu/__init__.py")
    assert contents.of_nobody(contents.python(read_lock(LOCK))) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({f"{SITE_PACKAGES}spam/left_over.so": ""}, "no package has these files: usr/local/lib"),
        ({"usr/local/share/extra": ""}, "no package has these files: usr/local/share/extra"),
        ({"var/lib/dpkg/status": STATUS.replace("util-linux", "stranger")}, "one that nobody has read"),
        ({f"{SITE_PACKAGES}spam_eggs-1.2.dist-info/METADATA": METADATA.replace("MIT", "AGPL-3.0-only")},
         "spam-eggs 1.2: its licence is 'AGPL-3.0-only'"),
        ({f"{SITE_PACKAGES}spam_eggs-1.2.dist-info/METADATA": METADATA.replace("1.2", "1.3")},
         "1.3 is in the image, 1.2 is locked"),
        ({f"{SITE_PACKAGES}ham-1.dist-info/METADATA": "Name: ham\nVersion: 1\n"},
         "ham: is in the image and not in the lock file"),
        ({"var/lib/dpkg/status": ""}, "names no package"),
    ],
)  # fmt: skip
def test_what_does_not_belong_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, str], said: str
) -> None:
    status, _ = bill(tmp_path, archive(**changed))
    assert status == 1
    assert said in capsys.readouterr().err


def test_an_index_is_not_one_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    join([archive()], "x/image:1", tmp_path / "both.tar")
    assert bill(tmp_path, tmp_path / "both.tar")[0] == 1
    assert "several images" in capsys.readouterr().err


def test_a_stanza_is_read_by_its_own_fields() -> None:
    first, second = read(STATUS)
    assert (first.name, first.source, second.source) == ("gcc-12-base", "gcc-12", "util-linux")
    assert list(read("")) == []


def test_copyleft_is_allowed_in_debian_s_own_packages_alone() -> None:
    (gcc, _) = read(STATUS)
    assert is_allowed(gcc.licence, OF_DEBIAN)
    assert not is_allowed(gcc.licence)
    assert list(refused([], [gcc])) == []


def test_a_lock_that_is_not_the_image_s(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="ham: None is in the image, 1 is locked"):
        Contents.read(archive()).python(read_lock(f"{LOCK}ham==1 --hash=sha256:{'0' * 64}\n"))
