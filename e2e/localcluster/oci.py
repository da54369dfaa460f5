"""OCI image archives without any image tool: deterministic, and cached by what went in.

``build_image`` puts one layer of files on a base archive (or on nothing). The same input gives the same
bytes: owners are 0, times are 0, names are sorted.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster.errors import LocalClusterError
from localcluster.state import cache_root

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_FORMAT = 2  # raise it when the same input shall give other bytes
_CHUNK = 1 << 20
_KEY_LENGTH = 16
_KEPT = 4
Keep = Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link in an image."""

    target: str


@dataclass(frozen=True, slots=True)
class Text:
    """A small file made on the spot."""

    content: str | bytes
    mode: int = 0o644


FileSource = Path | Text | Symlink | None
"""What stands at a path of the image: a file of this machine, a text, a link, or (None) a folder."""


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How the image's containers start."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    user: str = ""
    working_dir: str = ""
    labels: Mapping[str, str] | None = None
    architecture: str = ""
    """In the words of OCI; empty: the base's, or this machine's."""

    def to_json(self) -> dict[str, Any]:
        """The ``config`` object of the image configuration."""
        values: dict[str, Any] = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "Env": [f"{key}={value}" for key, value in sorted((self.env or {}).items())],
            "User": self.user,
            "WorkingDir": self.working_dir,
            "Labels": dict(sorted((self.labels or {}).items())),
        }
        return {key: value for key, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class _Blob:
    digest: str  # hexadecimal SHA-256
    size: int
    media_type: str
    path: Path

    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": f"sha256:{self.digest}", "size": self.size}


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    source: FileSource

    def fingerprint(self) -> bytes:
        match self.source:
            case Path() as path:
                return f"f {self.name} {_mode(path):o} {_digest(path)}".encode()
            case Text() as text:
                return f"t {self.name} {text.mode:o} {hashlib.sha256(_bytes(text)).hexdigest()}".encode()
            case Symlink() as link:
                return f"l {self.name} {link.target}".encode()
            case None:
                return f"d {self.name}".encode()


def build_image(
    base: Path | None,
    name: str,
    *,
    files: Mapping[str, FileSource] | None = None,
    dirs: Mapping[str, Path] | None = None,
    config: ImageConfig | None = None,
    keep: Keep | None = None,
    output: Path | None = None,
) -> Path:
    """One layer on ``base``; returns the archive.

    ``files`` and ``dirs`` map absolute paths of the image to their source; folders are copied whole, except
    what ``keep`` (given each path of this machine) refuses. Fields of ``config`` that are empty are the
    base's, and ``env`` is added to the base's. The archive lies in the cache; ``output`` gets a copy.
    """
    members = _members(files or {}, dirs or {}, keep or (lambda _path: True))
    config = config or ImageConfig()
    digest = hashlib.sha256(f"{_FORMAT} {name} {json.dumps(config.to_json(), sort_keys=True)}".encode())
    digest.update(_digest(base).encode() if base else b"scratch")
    for member in members:
        digest.update(b"\0" + member.fingerprint())

    def make(work: Path) -> list[Path]:
        layer = work / "layer.tar"
        _write_layer(layer, members)
        return [layer]

    return _cached(name, digest.hexdigest(), base=base, config=config, layers=make, output=output)


def image_of_rootfs(
    name: str, recipe: str, make: Callable[[Path], None], config: ImageConfig, output: Path | None = None
) -> Path:
    """An image whose only layer is the tar file that ``make`` writes; cached by ``recipe``."""

    def write(work: Path) -> list[Path]:
        layer = work / "layer.tar"
        make(layer)
        return [layer]

    key = hashlib.sha256(f"{_FORMAT} {name} {recipe} {json.dumps(config.to_json(), sort_keys=True)}".encode())
    return _cached(name, key.hexdigest(), base=None, config=config, layers=write, output=output)


def image_name(archive: Path) -> str:
    """Name under which containerd imports the archive."""
    with tarfile.open(archive) as tar:
        index = json.loads(_read(tar, "index.json"))
    return str(index["manifests"][0]["annotations"]["io.containerd.image.name"])


def _cached(
    name: str,
    key: str,
    *,
    base: Path | None,
    config: ImageConfig,
    layers: Callable[[Path], Sequence[Path]],
    output: Path | None,
) -> Path:
    folder = cache_root() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    slug = name.rsplit("/", 1)[-1].replace(":", "-")
    slug += f"-{config.architecture}" if config.architecture else ""
    final = folder / f"{slug}-{key[:_KEY_LENGTH]}.tar"
    if not final.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{slug}-") as work:
            fresh = Path(work) / "image.tar"
            _write_archive(fresh, name, Path(work), base=base, config=config, layers=layers(Path(work)))
            fresh.rename(final)
        _prune(folder, slug)
    os.utime(final)  # says that it is in use
    if output is None:
        return final
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f".{output.name}.{os.getpid()}")
    shutil.copyfile(final, part)
    part.rename(output)
    return output


def _prune(folder: Path, slug: str) -> None:
    """Drop all but the last few archives of one image: each edit of its sources makes a new one."""

    def last_use(path: Path) -> float:
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime
        return 0.0

    alike = [path for path in folder.glob(f"{slug}-*.tar") if len(path.stem) == len(slug) + 1 + _KEY_LENGTH]
    for path in sorted(alike, key=last_use)[:-_KEPT]:
        path.unlink(missing_ok=True)


def _members(files: Mapping[str, FileSource], dirs: Mapping[str, Path], keep: Keep) -> list[_Member]:
    found: dict[str, FileSource] = {}
    for target, folder in dirs.items():
        if not folder.is_dir():
            raise LocalClusterError(f"{folder} is no folder")
        found[_relative(target)] = None
        for path in _walk(folder, keep):
            found[f"{_relative(target)}/{path.relative_to(folder)}".lstrip("/")] = _source(path)
    for target, source in files.items():
        found[_relative(target)] = source
    # Folders that lead to a file need an entry only where no base has them; one too many does no harm.
    for target in list(found):
        for parent in Path(target).parents:
            if str(parent) != ".":
                found.setdefault(str(parent), None)
    found.pop("", None)
    return [_Member(target, found[target]) for target in sorted(found)]


def _relative(target: str) -> str:
    if not target.startswith("/") or ".." in Path(target).parts:
        raise LocalClusterError(f"path {target!r} in an image: must be absolute and without '..'")
    return str(Path(target)).strip("/")


def _walk(folder: Path, keep: Keep) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if not keep(path):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, keep)


def _source(path: Path) -> FileSource:
    if path.is_symlink():
        return Symlink(str(path.readlink()))
    return None if path.is_dir() else path


def _write_layer(layer: Path, members: Sequence[_Member]) -> None:
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(member.name)
            match member.source:
                case Path() as path:
                    info.mode, info.size = _mode(path), path.stat().st_size
                    with path.open("rb") as file:
                        tar.addfile(info, file)
                case Text() as text:
                    content = _bytes(text)
                    info.mode, info.size = text.mode, len(content)
                    tar.addfile(info, io.BytesIO(content))
                case Symlink() as link:
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, link.target, 0o777
                    tar.addfile(info)
                case None:
                    info.type, info.mode = tarfile.DIRTYPE, 0o1777 if member.name == "tmp" else 0o755
                    tar.addfile(info)


def _write_archive(
    archive: Path, name: str, work: Path, *, base: Path | None, config: ImageConfig, layers: Sequence[Path]
) -> None:
    blobs: list[_Blob] = []
    diff_ids: list[str] = []
    inherited: dict[str, Any] = {}
    machine = architecture()
    if base:
        blobs, diff_ids, document = _read_base(base, work)
        machine, inherited = str(document["architecture"]), dict(document.get("config", {}))
    for layer in layers:
        digest = _digest(layer)
        blobs.append(_Blob(digest, layer.stat().st_size, _LAYER, layer))
        diff_ids.append(f"sha256:{digest}")
    own = {
        "created": "1970-01-01T00:00:00Z",
        "architecture": config.architecture or machine,
        "os": "linux",
        "config": _merged(inherited, config.to_json()),
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    config_blob = _json_blob(work / "config.json", own, _CONFIG)
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": config_blob.descriptor(),
        "layers": [blob.descriptor() for blob in blobs],
    }
    manifest_blob = _json_blob(work / "manifest.json", manifest, _MANIFEST)
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        _add_head(tar, name, manifest_blob.descriptor())
        for blob in {blob.digest: blob for blob in (config_blob, manifest_blob, *blobs)}.values():
            info = tarfile.TarInfo(f"blobs/sha256/{blob.digest}")
            info.size = blob.size
            with blob.path.open("rb") as file:
                tar.addfile(info, file)


def join(archives: Sequence[Path], name: str, output: Path) -> str:
    """One archive that holds the same image for several machines; returns the digest of its OCI index.

    A runtime takes the one for its own machine. A blob that two images share is there once.
    """
    manifests = []
    for archive in archives:
        with tarfile.open(archive) as tar:
            found = json.loads(_read(tar, "index.json"))["manifests"][0]
            manifest = json.loads(_read(tar, _blob_name(found["digest"])))
            document = json.loads(_read(tar, _blob_name(manifest["config"]["digest"])))
        platform = {"architecture": document["architecture"], "os": document["os"]}
        manifests.append(
            {key: found[key] for key in ("mediaType", "digest", "size")} | {"platform": platform}
        )
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    content = json.dumps(index, sort_keys=True).encode()
    described = _described(_INDEX, content)
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f".{output.name}.{os.getpid()}")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        _add_head(tar, name, described)
        _add(tar, _blob_name(described["digest"]), content)
        seen: set[str] = set()
        for archive in archives:
            with tarfile.open(archive) as source:
                for member in source:
                    if member.name.startswith("blobs/") and member.name not in seen:
                        seen.add(member.name)
                        tar.addfile(member, source.extractfile(member))
    part.rename(output)
    return str(described["digest"])


@dataclass(frozen=True, slots=True)
class Part:
    """A layer that is no part of a file system: what other tools keep in registries."""

    media_type: str
    content: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)


def write_parts(name: str, parts: Sequence[Part], output: Path) -> str:
    """An archive of such layers; returns the digest of its manifest."""
    contents = [part.content for part in parts]
    layers = [
        {**_described(part.media_type, part.content), "annotations": dict(part.annotations)} for part in parts
    ]
    digests = [layer["digest"] for layer in layers]
    config = {"architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers", "diff_ids": digests}}
    contents.append(json.dumps(config, sort_keys=True).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _described(_CONFIG, contents[-1]),
        "layers": layers,
    }
    contents.append(json.dumps(manifest, sort_keys=True).encode())
    described = _described(_MANIFEST, contents[-1])
    output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as tar:
        _add_head(tar, name, described)
        for content in dict.fromkeys(contents):
            _add(tar, _blob_name(f"sha256:{hashlib.sha256(content).hexdigest()}"), content)
    return str(described["digest"])


def read_parts(archive: Path) -> list[Part]:
    """The layers of an archive, each as a whole in memory."""
    with tarfile.open(archive) as tar:
        head = json.loads(_read(tar, "index.json"))["manifests"][0]["digest"]
        manifest = json.loads(_read(tar, _blob_name(head)))
        return [
            Part(layer["mediaType"], _read(tar, _blob_name(layer["digest"])), layer.get("annotations") or {})
            for layer in manifest["layers"]
        ]


def _described(media_type: str, content: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def digest_of(archive: Path) -> str:
    """Digest of the image in an archive, or of its index: ``sha256:`` and 64 digits."""
    with tarfile.open(archive) as tar:
        return str(json.loads(_read(tar, "index.json"))["manifests"][0]["digest"])


def _add_head(tar: tarfile.TarFile, name: str, described: Mapping[str, Any]) -> None:
    """What tells readers of an archive where to begin."""
    named = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1]}
    index = {"schemaVersion": 2, "manifests": [{**described, "annotations": named}]}
    _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    _add(tar, "index.json", json.dumps(index, sort_keys=True).encode())


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**base, **own}
    env = dict(pair.split("=", 1) for pair in [*base.get("Env", []), *own.get("Env", [])])
    if env:
        merged["Env"] = [f"{key}={value}" for key, value in env.items()]
    if "Entrypoint" in own and "Cmd" not in own:
        merged.pop("Cmd", None)  # the base's arguments were for the base's entry point
    return merged


def _read_base(base: Path, work: Path) -> tuple[list[_Blob], list[str], dict[str, Any]]:
    blobs: list[_Blob] = []
    with tarfile.open(base) as tar:
        index = json.loads(_read(tar, "index.json"))
        manifest = json.loads(_read(tar, _blob_name(index["manifests"][0]["digest"])))
        document = json.loads(_read(tar, _blob_name(manifest["config"]["digest"])))
        for layer in manifest["layers"]:
            source = tar.extractfile(_blob_name(layer["digest"]))
            if source is None:
                raise LocalClusterError(f"{base} lacks layer {layer['digest']}")
            digest = layer["digest"].removeprefix("sha256:")
            copy = work / digest
            with source, copy.open("wb") as file:
                shutil.copyfileobj(source, file, _CHUNK)
            blobs.append(_Blob(digest, layer["size"], layer["mediaType"], copy))
    return blobs, list(document["rootfs"]["diff_ids"]), document


def architecture() -> str:
    """This machine in the words of OCI."""
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _json_blob(path: Path, document: Any, media_type: str) -> _Blob:
    content = json.dumps(document, sort_keys=True).encode()
    path.write_bytes(content)
    return _Blob(hashlib.sha256(content).hexdigest(), len(content), media_type, path)


def _blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise LocalClusterError(f"{tar.name!s} is no OCI archive: {name} is missing")
    with file:
        return file.read()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mode(path: Path) -> int:
    return 0o755 if path.stat().st_mode & 0o111 else 0o644


def _bytes(text: Text) -> bytes:
    return text.content if isinstance(text.content, bytes) else text.content.encode()
