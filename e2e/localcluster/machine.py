"""A simulated machine: namespaces of its own for mounts, processes, network and host name.

Its first process waits (``nodeinit``); when that one is killed, the kernel ends every process of the
machine, containers included, and mounts and network devices vanish with the last of them. So a machine
can be switched off at any moment and leaves nothing but its files and its control group.

Inside, the usual paths hold: /etc, /opt, /usr/local, /var/lib and /var/log are private copies on write of
this machine's, /run is empty at each start, and /var/lib/kubelet and /var/lib/containerd are folders of the
state folder, which other programs may look into.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from localcluster import toolchain
from localcluster.errors import LocalClusterError
from localcluster.packages import util_linux
from localcluster.patience import stretched
from localcluster.procs import ManagedProcess, ProcessIdentity, first_child, spawn

_PRIVATE = ("/etc", "/opt", "/usr/local", "/srv", "/var/lib", "/var/log")
_BOOT_TIMEOUT_S = 20.0
# kubelet sets these for the whole machine, panic on oops among them; here it writes to files.
_SHADOWED_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine; its files lie in ``folder``."""

    name: str
    folder: Path
    process: ManagedProcess

    @property
    def run_dir(self) -> Path:
        """/run of the machine, from outside."""
        return self.folder / "run"

    @property
    def kubelet_dir(self) -> Path:
        """/var/lib/kubelet of the machine, from outside."""
        return self.folder / "kubelet"

    def boot(self, environment: dict[str, str]) -> None:
        """Start its first process; returns when the mounts stand."""
        self._prepare()
        script = boot_script(self.name, self.folder, toolchain.program("nodeinit"))
        flags = ["--mount", "--pid", "--uts", "--net", "--fork", "--propagation", "private"]
        self.process.log_file.parent.mkdir(parents=True, exist_ok=True)
        reader, writer = os.pipe()
        try:
            argv = [util_linux("unshare"), *flags, "--", "/bin/sh", "-c", script]
            parent = spawn(argv, environment, self.process.log_file, keep_fds=[writer])
            os.close(writer)
            writer = -1
            child = first_child(parent, timeout_s=stretched(_BOOT_TIMEOUT_S))
            if child is not None:
                self.process.record(child)
            booted = select.poll()
            booted.register(reader, select.POLLIN)
            ready = booted.poll(stretched(_BOOT_TIMEOUT_S) * 1000) and os.read(reader, 8)
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if ready != b"ready\n":
            raise LocalClusterError(f"{self.name} did not boot:\n{self.process.log_tail()}")

    def _prepare(self) -> None:
        clear(self.run_dir)
        for name in ("cdi", "containerd", "lock", "netns"):
            (self.run_dir / name).mkdir(parents=True, exist_ok=True)
        for name in ("kubelet", "containerd", "vc-egpu", "cdi", "scratch", "cni", "proc"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for index, path in enumerate(_PRIVATE):
            for part in ("upper", "work"):
                (self.folder / "overlay" / _overlay_name(index, path) / part).mkdir(
                    parents=True, exist_ok=True
                )
        sysctls = self.folder / "sysctl"
        for key, value in _SHADOWED_SYSCTLS.items():
            file = sysctls / key.replace("/", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        (sysctls / "boot_id").write_text(f"{uuid.uuid4()}\n")
        machine_id = self.folder / "machine-id"
        if not machine_id.exists():
            machine_id.write_text(f"{uuid.uuid4().hex}\n")

    @property
    def boot_id(self) -> str:
        """What the kubelet reports as the identity of this start."""
        return (self.folder / "sysctl" / "boot_id").read_text().strip()

    def identity(self) -> ProcessIdentity | None:
        """Its first process, where it runs."""
        identity = self.process.identity()
        return identity if identity and identity.alive() else None

    def switch_off(self) -> None:
        """Kill all that runs on it, at once."""
        self.process.kill()


def boot_script(name: str, folder: Path, init: Path) -> str:
    """Shell script that is run as the machine's first process. Descriptor 3 hears that it is done."""
    quote = shlex.quote
    lines = ["set -eu", "mount --make-rprivate /", "mount -t proc proc /proc"]
    for index, path in enumerate(_PRIVATE):
        # A layer may not lie below itself, nor replace a folder that is not there.
        if not Path(path).is_dir() or folder.is_relative_to(path):
            continue
        layer = folder / "overlay" / _overlay_name(index, path)
        options = f"lowerdir={path},upperdir={layer}/upper,workdir={layer}/work"
        lines.append(f"mount -t overlay overlay -o {quote(options)} {path}")
    binds = {
        "kubelet": "/var/lib/kubelet",
        "containerd": "/var/lib/containerd",
        # On the disk itself: owners of what is mounted from here can be mapped, those of an overlay cannot.
        "vc-egpu": "/var/lib/vc-egpu",
        "cdi": "/etc/cdi",
        "cni": "/etc/cni/net.d",
        "run": "/run",
    }
    for source, target in binds.items():
        lines.append(f"mkdir -p {target}")
        lines.append(f"mount --bind {quote(str(folder / source))} {target}")
    for key in _SHADOWED_SYSCTLS:
        shadow = folder / "sysctl" / key.replace("/", ".")
        lines.append(f"[ ! -e /proc/sys/{key} ] || mount --bind {quote(str(shadow))} /proc/sys/{key}")
    lines += [
        # The kernel lets a user namespace mount a /proc only beside one that is seen whole.
        f"mount -t proc proc {quote(str(folder / 'proc'))}",
        f"mount --bind {quote(str(folder / 'sysctl' / 'boot_id'))} /proc/sys/kernel/random/boot_id",
        f"[ ! -e /etc/machine-id ] || mount --bind {quote(str(folder / 'machine-id'))} /etc/machine-id",
        # Pods may ask for mounts that spread both ways.
        "mount --make-rshared /",
        f"echo {quote(name)} > /proc/sys/kernel/hostname",
        "echo ready >&3",
        "exec 3>&-",
        f"exec {quote(str(init))}",
    ]
    return "\n".join(lines)


def clear(folder: Path) -> None:
    """Empty a folder. It stays itself, since it may be somebody's mount."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _overlay_name(index: int, path: str) -> str:
    return f"{index}{path.replace('/', '-')}"
