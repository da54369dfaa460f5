"""The image as it is shipped: what it is made of, the same bytes twice, another machine, a signature."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from image.build import Built, build, build_all
from image.machines import AMD64, ARM64, MACHINES
from localcluster.oci import read_parts
from localcluster.packages import search_path
from localcluster.state import cache_root
from supply import signing
from supply.__main__ import main as bill
from supply.contents import SITE_PACKAGES, Contents
from supply.sign import main as sign

REPOSITORY: Final = Path(__file__).resolve().parents[1]
ELF: Final = b"\x7fELF"
E_MACHINE: Final = {AMD64.oci: 62, ARM64.oci: 183}
IMPORT_ALL: Final = """
import importlib, pkgutil, platform, sys
import vc_egpu, vc_egpu_node
found = [
    one.name
    for package in (vc_egpu, vc_egpu_node)
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not one.name.endswith("__main__")
]
for name in found:
    importlib.import_module(name)
print(platform.machine(), len(found))
"""


def say(line: str) -> None:
    print(line, flush=True)


@pytest.fixture(scope="module")
def image() -> Path:
    """For this machine."""
    return build(say).archive


def document(output: Path) -> Any:
    return json.loads(output.read_text())


def test_its_bill_of_materials_covers_every_file_and_every_package(image: Path, tmp_path: Path) -> None:
    output = tmp_path / "sbom.json"
    assert bill(["--image", str(image), "--output", str(output)]) == 0
    found = document(output)
    debian = {one["name"] for one in found["components"] if one["purl"].startswith("pkg:deb/")}
    assert {"libc6", "libssl3", "python3.11-minimal", "zlib1g"} <= debian
    assert not [one["name"] for one in found["components"] if "expression" not in one["licenses"][0]]
    listed = {
        place["location"]
        for one in (found["metadata"]["component"], *found["components"])
        for place in one.get("evidence", {}).get("occurrences", ())
    }
    contents = Contents.read(image)
    inside = {path for path in contents.files if path.startswith(SITE_PACKAGES)}
    assert len(inside) > 1000
    assert inside <= listed
    copyrights = {path.split("/")[3] for path in contents.files if path.startswith("usr/share/doc/")}
    assert debian <= copyrights, "each package's licence is in the image"


# --- two builds ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """One index for all machines."""
    yield build_all(say, tmp_path_factory.mktemp("both") / "both.tar")


def another_checkout(folder: Path) -> Path:
    """The same sources in another folder, and nothing that was built here."""
    listed = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = REPOSITORY / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_another_folder_and_an_empty_cache_give_the_same_digest(both: Built, tmp_path: Path) -> None:
    """Debian's packages and the locked ones are fetched again; the compiler alone is the same."""
    checkout, cache = another_checkout(tmp_path / "elsewhere" / "deep"), tmp_path / "cache"
    cache.mkdir()
    for compiler in cache_root().glob("zig-*[0-9a-f]"):
        (cache / compiler.name).symlink_to(compiler)
    output = tmp_path / "again.tar"
    command = [sys.executable, "-m", "image.build", "--machine", "all", "--output", str(output)]
    path = os.pathsep.join(str(checkout / part) for part in ("e2e", "vc-egpu", "device-plugin"))
    environment = os.environ | {"VC_EGPU_CACHE": str(cache), "PYTHONPATH": path}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["digest"] == both.digest
    assert told["archive"] == str(output)


# --- another machine -----------------------------------------------------------------------------


def unpacked(archive: Path, root: Path) -> Path:
    """The file system of an image."""
    root.mkdir()
    with tarfile.open(archive) as tar:

        def read(name: str) -> Any:
            data = tar.extractfile(name)
            assert data is not None
            return json.load(data)

        head = read("index.json")["manifests"][0]["digest"]
        for layer in read(f"blobs/{head.replace(':', '/')}")["layers"]:
            data = tar.extractfile(f"blobs/{layer['digest'].replace(':', '/')}")
            assert data is not None
            subprocess.run(["tar", "-x", "-C", str(root)], input=data.read(), check=True)
    return root


def programs(root: Path) -> dict[str, int]:
    """All programs and libraries of a root by path, and the machine in their heads."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                head = file.read(20)
            if head[:4] == ELF:
                found[str(path.relative_to(root))] = int.from_bytes(head[18:20], "little")
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.oci)
def test_everything_in_it_is_for_its_machine(machine: Any, tmp_path: Path) -> None:
    """But for the library for 32-bit programs, which is for their kind."""
    archive = build(say, machine=machine).archive
    assert Contents.read(archive).machine == machine.oci
    found = programs(unpacked(archive, tmp_path / "root"))
    assert len(found) > 50
    wrong = {path for path, number in found.items() if number != E_MACHINE[machine.oci]}
    assert wrong == {"usr/local/lib/vc-egpu/libvgpu-egpu-32.so"}
    assert bill(["--image", str(archive), "--output", str(tmp_path / "sbom.json")]) == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_for_arm64_it_starts_in_an_emulator(tmp_path: Path) -> None:
    """Every module of ours is imported there, and with them all that is compiled for that machine."""
    if os.geteuid() != 0:
        pytest.skip("another root needs root")
    root = unpacked(build(say, machine=ARM64).archive, tmp_path / "root")
    emulator = emulator_of(tmp_path)
    shutil.copy2(emulator, root / "emulator")
    chroot = str(shutil.which("chroot", path=search_path()))

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [chroot, str(root), "/emulator", *arguments],
            capture_output=True, text=True, check=False, timeout=600, env={"LANG": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    machine, count = run("/usr/bin/python3", "-I", "-c", IMPORT_ALL).split()
    assert machine == "aarch64"
    assert int(count) > 300
    assert "usage: vc-egpu" in run("/usr/bin/python3", "-I", "/usr/local/bin/vc-egpu", "--help")


def emulator_of(folder: Path) -> Path:
    """Debian's, unpacked and not installed."""
    into = folder / "qemu"
    into.mkdir()
    fetched = subprocess.run(
        ["apt-get", "download", "-q", "qemu-user-static"],
        cwd=into, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if fetched.returncode != 0:
        pytest.skip(f"qemu-user-static cannot be fetched: {fetched.stderr.strip()}")
    (package,) = into.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", package, into], check=True)
    return into / "usr/bin/qemu-aarch64-static"


# --- signature -----------------------------------------------------------------------------------


def test_it_is_signed_with_a_key_from_a_file_and_openssl_takes_that(
    image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "key").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)
    signature = tmp_path / "signature.tar"
    assert sign([str(image), "--key", str(tmp_path / "key"), "--output", str(signature)]) == 0
    assert sign([str(image), "--key", str(tmp_path / "key.pub"), "--check", str(signature)]) == 0
    assert "was signed with this key as egpu.volcano.sh/vc-egpu" in capsys.readouterr().out
    (layer,) = read_parts(signature)
    (tmp_path / "payload").write_bytes(layer.content)
    (tmp_path / "raw").write_bytes(base64.b64decode(layer.annotations[signing.ANNOTATION]))
    command = ["openssl", "dgst", "-sha256", "-verify", "key.pub", "-signature", "raw", "payload"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Verified OK", done.stderr
