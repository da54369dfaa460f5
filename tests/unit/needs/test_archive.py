"""Rows of the operator's table from what an image says of itself: archives of several tools, good and bad."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from vc_egpu.volcano.needs import main, nvidia
from vc_egpu.volcano.needs.archive import ArchiveError, Image, images_in, row_of
from vc_egpu.volcano.needs.compile import compiled
from vc_egpu.volcano.needs.table import EnvironmentTable

REQUIRE = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "
    "brand=tesla,driver>=535,driver<536"
)
NAME = {"io.containerd.image.name": "reg/cuda:12.4"}


def tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


class Oci:
    """An archive in the making."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, document: Any) -> dict[str, Any]:
        content = json.dumps(document).encode()
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def image(self, *env: str) -> dict[str, Any]:
        return self.add({"config": self.add({"config": {"Env": list(env)}}), "layers": []})

    def write(self, path: Path, *manifests: Mapping[str, Any]) -> Path:
        self.files["index.json"] = json.dumps({"manifests": list(manifests)}).encode()
        return tar(path, self.files)


def test_an_oci_archive_tells_names_and_variables(tmp_path: Path) -> None:
    oci = Oci()
    file = oci.write(
        tmp_path / "a.tar", {**oci.image("PATH=/bin", "CUDA_VERSION=12.4.1"), "annotations": NAME}
    )
    assert images_in(file) == (Image("reg/cuda:12.4", {"PATH": "/bin", "CUDA_VERSION": "12.4.1"}),)


def test_each_platform_is_an_image_and_what_is_no_program_is_none(tmp_path: Path) -> None:
    """An index in the index; one platform's blobs were not saved, and an attestation says nothing."""
    oci = Oci()
    attestation = oci.add({"config": oci.add({"architecture": "unknown"})})
    absent = {"digest": "sha256:" + "0" * 64}
    inner = oci.add({"manifests": [oci.image("CUDA_VERSION=12.4"), absent, attestation]})
    file = oci.write(tmp_path / "a.tar", {**inner, "annotations": NAME})
    assert images_in(file) == (Image("reg/cuda:12.4", {"CUDA_VERSION": "12.4"}),)


def test_the_older_form_of_docker_is_read(tmp_path: Path) -> None:
    files = {
        "./manifest.json": json.dumps([{"Config": "c.json", "RepoTags": ["cuda:12.4"]}]).encode(),
        "./c.json": json.dumps({"config": {"Env": [f"NVIDIA_REQUIRE_CUDA={REQUIRE}"]}}).encode(),
    }
    assert images_in(tar(tmp_path / "a.tar", files)) == (
        Image("cuda:12.4", {"NVIDIA_REQUIRE_CUDA": REQUIRE}),
    )


def test_the_row_asks_for_what_the_image_asks_for() -> None:
    row, warnings = row_of(Image("reg/cuda:12.4", {"NVIDIA_REQUIRE_CUDA": REQUIRE}))
    assert row == {
        "image": "reg/cuda:12.4",
        "needs": ["cuda>=12.4", "driver>=470,driver<471", "driver>=535,driver<536"],
    }
    assert not warnings
    table = EnvironmentTable.from_yaml(yaml.safe_dump({"images": [row]}))
    ways = {way for text in table.needs_of_image("reg/cuda:12.4") for way in compiled(text, table)}
    without_brands = {tuple(atom for atom in way if atom.fact != "brand") for way in nvidia.terms(REQUIRE)[0]}
    assert ways == without_brands


@pytest.mark.parametrize(
    "environment",
    [{}, {"PATH": "/bin"}, {"NVIDIA_REQUIRE_CUDA": "brand=tesla"}, {"CUDA_VERSION": "twelve"}],
)
def test_an_image_that_asks_for_nothing_that_nodes_tell_has_no_row(environment: dict[str, str]) -> None:
    assert row_of(Image("a", environment))[0] is None


def test_more_ways_than_a_row_has_are_told() -> None:
    row, warnings = row_of(Image("a", {"NVIDIA_REQUIRE_CUDA": " ".join(f"cuda=12.{n}" for n in range(17))}))
    assert row is None
    assert warnings == ("NVIDIA_REQUIRE_CUDA: asks for any of 17 things, and a row has 16 at most",)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has neither index.json nor manifest.json"),
        ({"index.json": b"{"}, "index.json is no JSON"),
        ({"index.json": b"[]"}, "has no image"),
        ({"index.json": b'{"manifests": [{"digest": 7}, "x"]}'}, "has no image"),
        ({"index.json": b" " * (4 << 20) + b"{}"}, "index.json has 4194306 bytes, the limit is 4194304"),
        ({"manifest.json": b'[{"RepoTags": 1, "Config": "x"}]'}, "has no image"),
    ],
)
def test_what_is_no_archive_is_told(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        images_in(tar(tmp_path / "a.tar", files))


def test_an_index_that_names_itself_ends(tmp_path: Path) -> None:
    loop = {"manifests": [{"digest": "sha256:loop"}] * 2}
    files = {"index.json": json.dumps(loop).encode(), "blobs/sha256/loop": json.dumps(loop).encode()}
    with pytest.raises(ArchiveError, match="has no image"):
        images_in(tar(tmp_path / "a.tar", files))


def test_the_command_prints_a_table_that_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    oci = Oci()
    file = oci.write(tmp_path / "a.tar", {**oci.image(f"NVIDIA_REQUIRE_CUDA={REQUIRE}"), "annotations": NAME})
    assert main.main(["image", str(file), "--as", "*/cuda:12.4*"]) == 0
    table = EnvironmentTable.from_yaml("shipped: true\n" + capsys.readouterr().out)
    assert table.needs_of_image("other/cuda:12.4-devel")[0] == "cuda>=12.4"


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.tar"
    assert main.main(["image", str(file)]) == 1
    file.write_bytes(b"no tar")
    assert main.main(["image", str(file)]) == 1
    oci = Oci()
    assert main.main(["image", str(oci.write(file, oci.image("PATH=/bin")))]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "No such file" in said[0]
    assert "is no tar file" in said[1]
    assert "says nothing of what it needs" in said[2]
