"""The order in which a cluster comes up."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localcluster import controlplane, images, kwok, net, preload, toolchain
from localcluster.api import ApiError, wait_until
from localcluster.context import Context
from localcluster.controlplane import SWITCH
from localcluster.errors import LocalClusterError
from localcluster.net import Addresses
from localcluster.node import RealNode
from localcluster.packages import util_linux
from localcluster.patience import stretched
from localcluster.procs import first_child, spawn
from localcluster.render import dns_objects, dns_rules, role_for
from localcluster.toolchain import Say


def start(context: Context, say: Say) -> None:
    """Start everything that the spec asks for; returns when pods can be created."""
    began = time.monotonic()

    def step(text: str) -> None:
        say(f"{time.monotonic() - began:5.1f} s  {text}")

    spec = context.spec
    if context.addresses:
        _start_network(context, context.addresses)
    controlplane.write_identities(context)
    controlplane.write_configs(context)
    for name in ("etcd", "kube-apiserver"):
        controlplane.component(context, name).launch()
    nodes = [RealNode(context, index) for index in range(spec.real_nodes)]
    # Machines boot while the API server starts, which takes longest.
    with ThreadPoolExecutor(1) as pool:
        booting = pool.submit(_boot_nodes, nodes, step)
        controlplane.wait_apiserver(context, 120)
        step(f"API server ready at {context.server}")
        _apply_objects(context)
        names = ["kube-controller-manager", *(["kube-scheduler"] if spec.scheduler else [])]
        names += ["coredns"] if spec.dns and context.addresses else []
        for name in names:
            controlplane.component(context, name).launch()
        booting.result()
    for node in nodes:
        node.start_kube_proxy()
        node.start_kubelet()
    on_each(nodes, lambda node: node.wait_ready(90))
    _wait_control_plane(context, names)
    if spec.kwok_nodes:
        start_kwok(context)
        kwok.create_nodes(context.api(), spec.kwok_nodes, kwok.default_template, "kwok-")
    step(f"ready: {len(nodes)} real nodes, {spec.kwok_nodes} simulated ones")


def _start_network(context: Context, addresses: Addresses) -> None:
    process = context.process(SWITCH)
    process.log_file.parent.mkdir(parents=True, exist_ok=True)
    # A pid namespace of its own, so that DNS ends with the switch.
    argv = [
        util_linux("unshare"),
        "--net",
        "--fork",
        "--pid",
        "--kill-child",
        "--",
        str(toolchain.program("nodeinit")),
    ]
    child = first_child(spawn(argv, context.environment(), process.log_file), timeout_s=stretched(10))
    if child is None:
        raise LocalClusterError(f"the cluster's network did not start:\n{process.log_tail()}")
    process.record(child)
    net.connect_switch(addresses, child, context.state.path)
    net.add_routes(addresses, context.spec.real_nodes, child)


def start_kwok(context: Context) -> None:
    """Start kwok, with the rights that it needs."""
    api = context.api()
    for path, body in role_for(controlplane.KWOK_USER, "vc-egpu:kwok", kwok.rules()):
        api.apply(path, body)
    api.close()
    component = controlplane.component(context, "kwok")
    url = f"http://{context.host_ip}:{context.port('kwok')}/healthz"
    component.launch()
    # Not that it would be needed for Ready: a wrong configuration shall show here, not in a test.
    wait_until("kwok healthy", lambda: _healthy(url), 30, lambda: controlplane.check_alive(context, "kwok"))


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=stretched(2)) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _boot_nodes(nodes: Sequence[RealNode], step: Say) -> None:
    if not nodes:
        return
    context = nodes[0].context
    archives = [images.pause(), images.busybox(), *map(Path, context.spec.images)]
    images_of_all = preload.prepared(archives, context.spec.containerd, context.environment(), step)

    def boot(node: RealNode) -> None:
        node.write_configs()
        preload.fill(node.folder / "containerd", images_of_all)
        node.switch_on()

    on_each(nodes, boot)
    step("machines booted")


def _apply_objects(context: Context) -> None:
    api = context.api()
    objects = []
    if context.spec.dns and context.addresses:
        objects += role_for(controlplane.DNS_USER, "vc-egpu:coredns", dns_rules())
        objects += dns_objects(context.addresses)
    for path, body in objects:
        api.apply(path, body)
    api.close()


def _wait_control_plane(context: Context, names: Sequence[str]) -> None:
    api = context.api()

    def account_there() -> bool:
        # Pods are refused until the controllers have made it.
        try:
            api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except ApiError:
            return False
        return True

    wait_until(
        "service account of namespace default",
        account_there,
        60,
        lambda: controlplane.check_alive(context, *names),
    )
    api.close()
    if "coredns" in names:
        url = f"http://{context.real_addresses.switch}:8181/ready"
        wait_until(
            "CoreDNS ready", lambda: _healthy(url), 30, lambda: controlplane.check_alive(context, "coredns")
        )


def on_each(nodes: Sequence[RealNode], work: Callable[[RealNode], None]) -> None:
    """Do the same on every node at once; the first error is raised after all have ended."""
    if not nodes:
        return
    with ThreadPoolExecutor(len(nodes)) as pool:
        for future in [pool.submit(work, node) for node in nodes]:
            future.result()
