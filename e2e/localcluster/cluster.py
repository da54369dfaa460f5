"""Bringing a cluster up and down."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import controlplane, net, packages, room, startup, surroundings, teardown, toolchain
from localcluster.api import Api
from localcluster.context import USUAL_PORTS, Context
from localcluster.controlplane import Component
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeTemplate, create_nodes, default_template
from localcluster.node import RealNode
from localcluster.patience import stretched
from localcluster.procs import ManagedProcess, ProcessIdentity
from localcluster.spec import ClusterSpec
from localcluster.state import ClusterRecord, StateDir, all_clusters, locked, state_root
from localcluster.toolchain import Say


class LocalCluster:
    """A cluster that runs, or was left running. Make one with ``up``, find one with ``attach``."""

    def __init__(self, context: Context, *, down_on_exit: bool) -> None:
        self._context = context
        self._down_on_exit = down_on_exit

    @classmethod
    def up(cls, spec: ClusterSpec, say: Say = lambda _line: None) -> Self:
        """Start a cluster and return when it is ready; tears down what it started when that fails."""
        surroundings.usual_umask()
        stretched(0)  # a word that is no number: said before anything has started
        spec = toolchain.with_versions(spec)
        _require(spec, say)
        state = StateDir.of(spec.name)
        state.check_path(spec)
        with locked(state.lock_file):
            old = teardown.record_of(state)
            if (old is None or old.phase == "up") and _runs(state) and not teardown.is_leftover(state):
                raise LocalClusterError(
                    f"cluster {spec.name} is already up (state {state.path}): "
                    f"`make down NAME={spec.name}` ends it"
                )
            teardown.remove(state, say)
            context = _reserve(state, spec)
            surroundings.ask_directly(context.all_addresses)
            try:
                startup.start(context, say)
                record = dataclasses.replace(context.record, phase="up", owner=None)
                state.write(record)
            except BaseException as error:
                kept = _taken_down(state, error, say)
                if kept and isinstance(error, LocalClusterError):
                    raise LocalClusterError(f"{error}\n(logs kept in {kept})") from None
                raise
        return cls(Context(state, record), down_on_exit=True)

    @classmethod
    def attach(cls, name: str) -> Self:
        """A cluster that was left up. Leaving the ``with`` block leaves it up."""
        surroundings.usual_umask()
        state = StateDir.of(name)
        record = state.read()
        if record is None:
            known = ", ".join(other.name for other in all_clusters()) or "none"
            raise LocalClusterError(f"no cluster {name!r} in {state_root()}; there are: {known}")
        if record.phase != "up":
            raise LocalClusterError(f"cluster {name} is {record.phase}")
        context = Context(state, record)
        surroundings.ask_directly(context.all_addresses)
        return cls(context, down_on_exit=False)

    def claim(self) -> None:
        """From now on it is nobody's once this process has ended, however that ends: ``gc`` takes it away."""
        state = self._context.state
        record = dataclasses.replace(self._context.record, owner=ProcessIdentity.of(os.getpid()))
        state.write(record)
        self._context = Context(state, record)

    def __enter__(self) -> Self:
        if self._down_on_exit:
            self.claim()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._down_on_exit:
            return
        if error is not None:
            with contextlib.suppress(OSError):  # of a disk that is full: no reason to stay
                _keep_logs(self._context.state)
        self.down()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.spec.name

    @property
    def spec(self) -> ClusterSpec:
        """What was asked for."""
        return self._context.spec

    @property
    def context(self) -> Context:
        """What the parts of this package share."""
        return self._context

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._context.state.kubeconfig

    @property
    def state_dir(self) -> Path:
        """All files of the cluster; logs are in ``log/``."""
        return self._context.state.path

    @property
    def audit_log(self) -> Path:
        """JSON lines, one per write; there with ``ClusterSpec(audit=True)``."""
        return self._context.state.audit_log

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._context.server

    @property
    def host_ip(self) -> str:
        """Address under which pods, and the API server, reach programs of this machine."""
        return self._context.host_ip

    @property
    def ca_certificate(self) -> Path:
        """Certificate of the cluster's authority."""
        return self._context.authority.pair.certificate

    @property
    def nodes(self) -> list[RealNode]:
        """The real nodes."""
        return [RealNode(self._context, index) for index in range(self.spec.real_nodes)]

    def node(self, name: str) -> RealNode:
        """One real node by its name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise LocalClusterError(
            f"no real node {name!r}; there are {', '.join(self.spec.real_node_names) or 'none'}"
        )

    def component(self, name: str) -> Component:
        """etcd, kube-apiserver, kube-controller-manager, kube-scheduler, coredns or kwok."""
        return controlplane.component(self._context, name)

    def api(self) -> Api:
        """A small client with the administrator's rights."""
        return self._context.api()

    def bin(self, name: str) -> Path:
        """Path of a built program, say ``kubectl``."""
        return toolchain.program(name, self.spec.kubernetes)

    def kubectl(
        self, *arguments: str, text_in: str | None = None, timeout_s: float = 120, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; with ``check`` a failure raises what kubectl said."""
        command = [str(self.bin("kubectl")), "--kubeconfig", str(self.kubeconfig), *arguments]
        result = subprocess.run(
            command, input=text_in, capture_output=True, text=True, timeout=stretched(timeout_s), check=False
        )
        if check and result.returncode != 0:
            raise LocalClusterError(
                f"`kubectl {' '.join(arguments)}` failed: {result.stderr.strip()[-2000:]}"
            )
        return result

    def import_image(self, archive: Path) -> None:
        """Import an OCI archive into every real node, at once."""
        startup.on_each(self.nodes, lambda node: node.import_image(archive))

    def add_kwok_nodes(
        self, count: int, template: NodeTemplate = default_template, prefix: str = "kwok-", first: int = 0
    ) -> list[str]:
        """Add simulated nodes ``<prefix><first>`` and so on; ``template(index, name)`` says what each has."""
        kwok = self.component("kwok")
        if kwok.pid is None:
            startup.start_kwok(self._context)
        api = self.api()
        names = create_nodes(api, count, template, prefix, first)
        api.close()
        return names

    def run_process(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> ManagedProcess:
        """Start a program of this machine that ends with the cluster; ``log_file`` has its output."""
        process = self._context.process(f"extra-{name}")
        process.launch(argv, self._context.environment(extra=env))
        return process

    def down(self, say: Say = lambda _line: None) -> None:
        """End everything and remove the cluster's files."""
        with locked(self._context.state.lock_file):
            teardown.remove(self._context.state, say)


def _require(spec: ClusterSpec, say: Say) -> None:
    if spec.real_nodes:
        if os.geteuid() != 0:
            raise LocalClusterError(
                "real nodes and Services need root; without it there are simulated nodes only: "
                "--rootless --kwok-nodes N"
            )
        room.ensure(spec.real_nodes, state_root())
        packages.ensure(packages.REAL_NODES + (packages.SERVICES if spec.services else ()), say)
        packages.ensure_watches(say)
    extras: tuple[str, ...] = ()
    if spec.user_namespaces:
        packages.ensure(packages.BUILDING_RUNC, say)
        extras = ("runc",)
    toolchain.build(say, minors=(spec.kubernetes, spec.kubelet), runtime=spec.containerd, extras=extras)


def _runs(state: StateDir) -> bool:
    return any(process.alive() for process in state.processes())


def _reserve(state: StateDir, spec: ClusterSpec) -> Context:
    """Choose addresses and ports that no other cluster has, and write them down before anything starts."""
    with locked(state_root() / ".reserve.lock"):
        records = [teardown.record_of(other) for other in all_clusters() if other.path != state.path]
        others = [record for record in records if record]
        block = None
        if spec.real_nodes:
            # Clusters of other users, and of other state folders, are known by their interfaces alone.
            taken_blocks = {block for block in net.BLOCKS if net.in_use(net.Addresses(block), state.path)}
            taken_blocks |= {record.block for record in others if record.block is not None}
            block = net.choose_block(taken_blocks, net.host_routes())
            host = net.Addresses(block).host
            names = [name for name, port in USUAL_PORTS.items() if not net.may_listen(host, port)]
        else:
            names = list(USUAL_PORTS)
        taken = {port for record in others for port in record.ports.values()}
        ports = dict(zip(names, net.free_ports(len(names), taken), strict=True))
        record = ClusterRecord(spec, block, ports, "starting", ProcessIdentity.of(os.getpid()))
        state.write(record)
        return Context(state, record)


def _taken_down(state: StateDir, error: BaseException, say: Say) -> Path | None:
    """End what was started, whether or not somebody hears of it; returns where its logs are, if anywhere."""
    kept = None
    with contextlib.suppress(OSError):  # nobody reads, or the disk is full: maybe that is what went wrong
        say(f"starting {state.name} failed ({type(error).__name__}), taking it down")
        kept = _keep_logs(state)
    teardown.remove(state, say)
    return kept


def _keep_logs(state: StateDir) -> Path:
    kept = state_root() / ".failed" / state.name
    shutil.rmtree(kept, ignore_errors=True)
    if (state.path / "log").is_dir():
        shutil.copytree(state.path / "log", kept)
    return kept
