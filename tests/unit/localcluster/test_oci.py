"""Archives are the same for the same input, and what is put on a base keeps the base."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from localcluster import oci
from localcluster.errors import LocalClusterError
from localcluster.oci import ImageConfig, Symlink, Text, build_image


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _json(archive: Path, digest: str) -> Any:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert file is not None
        return json.load(file)


def _manifest(archive: Path) -> Any:
    with tarfile.open(archive) as tar:
        file = tar.extractfile("index.json")
        assert file is not None
        return _json(archive, json.load(file)["manifests"][0]["digest"])


def _layer(archive: Path, number: int = -1) -> dict[str, tarfile.TarInfo]:
    digest = _manifest(archive)["layers"][number]["digest"]
    with (
        tarfile.open(archive) as tar,
        tarfile.open(fileobj=tar.extractfile(f"blobs/{digest.replace(':', '/')}")) as layer,
    ):
        return {member.name: member for member in layer.getmembers()}


def test_the_same_input_gives_the_same_bytes(cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "tool"
    source.write_text("#!/bin/sh\n")
    source.chmod(0o700)

    def digest() -> str:
        archive = build_image(None, "x/y:1", files={"/bin/tool": source, "/etc/a": Text("b")})
        return hashlib.sha256(archive.read_bytes()).hexdigest()

    first = digest()
    for path in (cache / "images").glob("*.tar"):
        path.unlink()
    source.touch()
    assert digest() == first


def test_a_changed_file_gives_another_archive(tmp_path: Path) -> None:
    source = tmp_path / "f"
    source.write_text("1")
    one = build_image(None, "x/y:1", files={"/f": source})
    source.write_text("2")
    two = build_image(None, "x/y:1", files={"/f": source})
    assert one != two
    source.chmod(0o755)
    assert build_image(None, "x/y:1", files={"/f": source}) not in (one, two)


def test_every_blob_has_the_digest_and_size_that_is_said(tmp_path: Path) -> None:
    archive = build_image(None, "x/y:1", files={"/a/b": Text("content")})
    manifest = _manifest(archive)
    with tarfile.open(archive) as tar:
        for descriptor in [manifest["config"], *manifest["layers"]]:
            file = tar.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")
            assert file is not None
            content = file.read()
            assert hashlib.sha256(content).hexdigest() == descriptor["digest"].removeprefix("sha256:")
            assert len(content) == descriptor["size"]
    diff_ids = _json(archive, manifest["config"]["digest"])["rootfs"]["diff_ids"]
    assert diff_ids == [layer["digest"] for layer in manifest["layers"]], "layers are not compressed"


def test_folders_links_and_modes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "data").write_text("d")
    (source / "run").write_text("r")
    (source / "run").chmod(0o750)
    (source / "link").symlink_to("run")
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_text("no")
    archive = build_image(
        None,
        "x/y:1",
        dirs={"/opt/app": source},
        files={"/opt/extra": Symlink("app/run"), "/tmp": None},
        keep=lambda path: path.name != "__pycache__",
    )
    members = _layer(archive)
    assert set(members) == {
        "opt", "opt/app", "opt/app/link", "opt/app/run", "opt/app/sub", "opt/app/sub/data", "opt/extra",
        "tmp",
    }  # fmt: skip
    assert members["opt/app/run"].mode == 0o755
    assert members["opt/app/sub/data"].mode == 0o644
    assert members["opt/app/link"].linkname == "run"
    assert members["tmp"].mode == 0o1777
    assert all((m.uid, m.gid, m.mtime) == (0, 0, 0) for m in members.values())


def test_a_layer_on_a_base_keeps_layers_and_configuration(tmp_path: Path) -> None:
    base = build_image(
        None,
        "x/base:1",
        files={"/base": Text("1")},
        config=ImageConfig(entrypoint=("/base",), command=("arg",), env={"A": "1", "B": "2"}, user="7"),
    )
    archive = build_image(
        base, "x/app:1", files={"/app": Text("2")}, config=ImageConfig(entrypoint=("/app",), env={"B": "3"})
    )
    assert set(_layer(archive, 0)) == {"base"}
    assert set(_layer(archive, 1)) == {"app"}
    config = _json(archive, _manifest(archive)["config"]["digest"])["config"]
    assert config["Entrypoint"] == ["/app"]
    assert "Cmd" not in config, "the base's arguments are not the new program's"
    assert config["Env"] == ["A=1", "B=3"]
    assert config["User"] == "7"
    assert oci.image_name(archive) == "x/app:1"


def test_a_hit_makes_nothing_new(cache: Path) -> None:
    one = build_image(None, "x/y:1", files={"/f": Text("1")})
    inode = one.stat().st_ino
    assert build_image(None, "x/y:1", files={"/f": Text("1")}).stat().st_ino == inode
    assert [path.name for path in (cache / "images").iterdir()] == [one.name]


def test_old_archives_of_one_image_are_dropped_and_those_of_others_kept(cache: Path) -> None:
    other = build_image(None, "x/y-more:1", files={"/f": Text("other")})
    made = [build_image(None, "x/y:1", files={"/f": Text(str(i))}) for i in range(8)]
    assert made[-1].exists()
    assert not made[0].exists()
    assert other.exists()
    assert len(list((cache / "images").iterdir())) < 8


def test_the_output_is_a_copy(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "image.tar"
    assert build_image(None, "x/y:1", files={"/f": Text("1")}, output=target) == target
    assert oci.image_name(target) == "x/y:1"
    assert [path.name for path in target.parent.iterdir()] == ["image.tar"]


def test_a_build_that_fails_leaves_nothing(cache: Path) -> None:
    def fail(_layer: Path) -> None:
        raise LocalClusterError("no space")

    with pytest.raises(LocalClusterError, match="no space"):
        oci.image_of_rootfs("x/y:1", "recipe", fail, ImageConfig())
    assert list((cache / "images").iterdir()) == []


@pytest.mark.parametrize("target", ["relative", "/a/../b", ""])
def test_paths_that_leave_the_image_are_refused(target: str) -> None:
    with pytest.raises(LocalClusterError, match="must be absolute"):
        build_image(None, "x/y:1", files={target: Text("1")})


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="nowhere"):
        build_image(None, "x/y:1", dirs={"/opt": tmp_path / "nowhere"})


# --- several machines ----------------------------------------------------------------------------


def test_what_lies_on_a_base_is_for_the_machine_of_the_base() -> None:
    base = build_image(None, "x/base:1", config=ImageConfig(architecture="arm64"))
    above = build_image(base, "x/y:1", files={"/a": Text("a")})
    assert _json(above, _manifest(above)["config"]["digest"])["architecture"] == "arm64"
    own = build_image(None, "x/base:1")
    assert own != base, "the other machine's lies elsewhere in the cache"
    assert _json(own, _manifest(own)["config"]["digest"])["architecture"] == oci.architecture()


def test_an_index_holds_each_machine_s_image_and_what_they_share_once(tmp_path: Path) -> None:
    shared = {"/etc/a": Text("the same")}
    images = [
        build_image(None, "x/y:1", files=shared, config=ImageConfig(architecture=machine))
        for machine in ("amd64", "arm64")
    ]
    digests = [oci.digest_of(image) for image in images]
    both = tmp_path / "new" / "both.tar"
    digest = oci.join(images, "x/y:1", both)
    assert oci.digest_of(both) == digest
    assert oci.image_name(both) == "x/y:1"
    index = _json(both, digest)
    assert [(one["digest"], one["platform"]["architecture"]) for one in index["manifests"]] == list(
        zip(digests, ("amd64", "arm64"), strict=True)
    )
    with tarfile.open(both) as tar:
        names = tar.getnames()
    assert len(names) == len(set(names)) == 2 + 1 + 2 + 2 + 1  # head, index, manifests, configs, one layer
    again = tmp_path / "again.tar"
    oci.join(images, "x/y:1", again)
    assert again.read_bytes() == both.read_bytes()
