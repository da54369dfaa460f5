"""Programs that come from the distribution, installed where that is possible and named where it is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.state import locked
from localcluster.toolchain import Say

CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
HEADERS = Path("/usr/include")
_WATCH_INSTANCES = 1024
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A program and the Debian package that has it."""

    program: str
    package: str


REAL_NODES = (
    Requirement("runc", "runc"),
    Requirement("ip", "iproute2"),
    Requirement("unshare", "util-linux"),
    Requirement("setpriv", "util-linux"),
    Requirement("nsenter", "util-linux"),
    Requirement("mount", "mount"),
    Requirement("cni:ptp", "containernetworking-plugins"),
    Requirement("dpkg-deb", "dpkg"),
)
SERVICES = (Requirement("nft", "nftables"),)
BUILDING_RUNC = (
    Requirement("cc", "gcc"),
    Requirement("pkg-config", "pkg-config"),
    Requirement("header:seccomp.h", "libseccomp-dev"),
)
READING_LIBRARIES = tuple(Requirement(program, "binutils") for program in ("nm", "objdump", "readelf"))
"""What tests of the shipped library look at it with."""
IMAGES = (Requirement("mmdebstrap", "mmdebstrap"),)


def search_path() -> str:
    """PATH with the folders of system programs, which a user's PATH may lack."""
    return os.environ.get("PATH", "") + ":" + _SYSTEM_PATH


def find(name: str) -> Path | None:
    """Where a program, a CNI plugin (``cni:<name>``) or a C header (``header:<name>``) is."""
    if name.startswith("header:"):
        header = HEADERS / name.removeprefix("header:")
        return header if header.is_file() else None
    if name.startswith("cni:"):
        plugin = name.removeprefix("cni:")
        return next((folder / plugin for folder in CNI_FOLDERS if (folder / plugin).is_file()), None)
    found = shutil.which(name, path=search_path())
    return Path(found) if found else None


def util_linux(name: str) -> str:
    """Path of one of its programs, each of which was there when it was asked for (:func:`ensure`)."""
    path = find(name)
    if path is None:
        raise LocalClusterError(f"{name} not found: install util-linux")
    return str(path)


def ensure(requirements: Iterable[Requirement], say: Say) -> None:
    """Install what is missing with apt-get where we are root; else one sentence names the packages."""
    wanted = [requirement for requirement in requirements if find(requirement.program) is None]
    if not wanted:
        return
    packages = sorted({requirement.package for requirement in wanted})
    programs = ", ".join(requirement.program.rpartition(":")[2] for requirement in wanted)
    if os.geteuid() != 0 or find("apt-get") is None:
        raise LocalClusterError(f"{programs} not found: install {' '.join(packages)}")
    say(f"installing {' '.join(packages)} (for {programs})")
    with locked(_apt_lock()):
        _apt("update")
        _apt("install", "--no-install-recommends", *packages)
    still = [requirement for requirement in wanted if find(requirement.program) is None]
    if still:
        raise LocalClusterError(f"{still[0].program} is still missing after installing {still[0].package}")


def refresh() -> None:
    """Fetch the lists of what the machine's package sources have."""
    with locked(_apt_lock()):
        _apt("update")


def _apt_lock() -> Path:
    folder = Path("/run/lock")
    return (folder if folder.is_dir() else Path("/tmp")) / "vc-egpu-apt.lock"


def ensure_watches(say: Say) -> None:
    """Room for the file watches of several kubelets; the machine's usual 128 is one cluster's."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < _WATCH_INSTANCES:
        say(f"raising fs.inotify.max_user_instances to {_WATCH_INSTANCES}")
        try:
            limit.write_text(str(_WATCH_INSTANCES))
        except OSError as error:
            say(f"it cannot be raised ({error.strerror}): several clusters at once may lack file watches")


def _apt(*arguments: str) -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=120", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if result.returncode != 0:
        raise LocalClusterError(f"`{' '.join(command)}` failed: {result.stderr.strip()[-800:]}")
