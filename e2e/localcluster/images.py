"""The images that the cluster itself needs, and bases for those of others.

* ``pause``: the sandbox of each pod, one static binary.
* ``busybox``: Debian's dynamic busybox with its C library, so that name look-ups work (a static glibc
  busybox crashes in them).
* ``python_base``: a Debian root file system with Python and little else, made by ``mmdebstrap``.

Debian's packages come from the machine's own apt sources.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from localcluster import packages, toolchain
from localcluster.errors import LocalClusterError
from localcluster.oci import FileSource, ImageConfig, Symlink, Text, build_image, image_of_rootfs
from localcluster.render import PAUSE_IMAGE
from localcluster.state import cache_root, locked
from localcluster.toolchain import Say

BUSYBOX_IMAGE = "vc-egpu.local/busybox:1"
PYTHON_IMAGE = "vc-egpu.local/python-base:1"
PYTHON_PACKAGES = (
    "base-files",
    "base-passwd",
    "ca-certificates",
    "coreutils",
    "dash",
    "libc-bin",
    "python3",
)
_PASSWD = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def pause() -> Path:
    """Archive of the sandbox image."""
    binary = toolchain.program("nodeinit")
    return build_image(
        None, PAUSE_IMAGE, files={"/pause": binary}, config=ImageConfig(entrypoint=("/pause",))
    )


def busybox() -> Path:
    """Archive of a small image with a shell, cat, env, sleep, nslookup, wget and httpd."""
    folder = _unpacked("busybox", ("busybox", "libc6"))
    binary = next(path for path in (folder / "bin/busybox", folder / "usr/bin/busybox") if path.is_file())
    files: dict[str, FileSource] = {
        "/tmp": None,
        "/root": None,
        "/etc/passwd": Text(_PASSWD),
        "/etc/group": Text(_GROUP),
        "/etc/nsswitch.conf": Text("hosts: files dns\n"),
        "/bin/busybox": binary,
    }
    files |= _libraries(folder)
    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True)
    files |= {f"/bin/{applet}": Symlink("busybox") for applet in listed.stdout.split() if applet != "busybox"}
    config = ImageConfig(command=("/bin/sh",), env={"PATH": _PATH})
    return build_image(None, BUSYBOX_IMAGE, files=files, config=config)


def python_base(say: Say) -> Path:
    """Archive of a Debian root file system with python3; about 85 MB, 15 s when it is not cached."""
    packages.ensure(packages.IMAGES, say)
    sources = _apt_sources()
    recipe = f"{PYTHON_PACKAGES} {[path.read_text() for path in sources]}"
    config = ImageConfig(command=("/usr/bin/python3",), env={"PATH": _PATH, "LANG": "C.UTF-8"})

    def make(layer: Path) -> None:
        say(f"making {PYTHON_IMAGE} with mmdebstrap")
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=extract",
            f"--include={','.join(PYTHON_PACKAGES)}",
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            "--dpkgopt=path-exclude=/usr/share/lintian/*",
            "",
            str(layer),
            *map(str, sources),
        ]
        env = os.environ | {"SOURCE_DATE_EPOCH": "0", "PATH": packages.search_path()}
        result = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if result.returncode != 0:
            raise LocalClusterError(f"mmdebstrap failed: {result.stderr.strip()[-1000:]}")

    with locked(cache_root() / "images.lock"):
        return image_of_rootfs(PYTHON_IMAGE, recipe, make, config)


def _apt_sources() -> list[Path]:
    """The machine's own package sources; mmdebstrap reads both of their formats."""
    folder = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    found = [path for path in files if path.is_file()]
    if not found:
        raise LocalClusterError("no apt sources in /etc/apt: images are made from Debian packages")
    return found


def _unpacked(name: str, names: Sequence[str]) -> Path:
    """Folder of the cache with the unpacked packages, fetched when it is not there. Installs nothing."""
    final = cache_root() / "debian" / name
    with locked(cache_root() / "images.lock"):
        if final.is_dir():
            return final
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".{name}-") as work:
            _download(names, Path(work))
            root = Path(work) / "root"
            for package in sorted(Path(work).glob("*.deb")):
                _run(["dpkg-deb", "-x", str(package), str(root)], Path(work))
            shutil.move(root, final)
    return final


def _download(names: Sequence[str], folder: Path) -> None:
    # apt drops to its own user for downloads, which may not write here.
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *names]
    try:
        _run(command, folder)
    except LocalClusterError:
        # Lists that are older than what the archive has, or none, as in images of containers.
        if os.geteuid() != 0:
            raise
        packages.refresh()
        _run(command, folder)


def _run(command: Sequence[str], folder: Path) -> None:
    env = os.environ | {"PATH": packages.search_path()}
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False)
    except FileNotFoundError as error:
        raise LocalClusterError(
            f"{command[0]} not found: images are made on Debian and its relatives"
        ) from error
    if result.returncode != 0:
        raise LocalClusterError(f"`{' '.join(command)}` failed: {result.stderr.strip()[-800:]}")


def _libraries(folder: Path) -> dict[str, FileSource]:
    """The C library's shared objects and the loader."""
    found: dict[str, FileSource] = {}
    for pattern in ("lib/*/*.so*", "usr/lib/*/*.so.*", "lib64/*"):
        for path in folder.glob(pattern):
            target = "/" + str(path.relative_to(folder))
            found[target] = Symlink(str(path.readlink())) if path.is_symlink() else path
    return found
