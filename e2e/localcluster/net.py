"""The network of one cluster: a switch in a network namespace, joined to this machine by one cable.

Each cluster owns 10.<block>.0.0/16. This machine is .0.1, the switch (where DNS listens) .0.2, node i is
.0.<10+i>; pods of node i are 10.<block>.<64+i>.0/24; Services are 10.<block>.240.0/20. On this machine there
is one interface, ``vce<block>``, with routes through it; all else lives in namespaces that vanish with their
last process. The block is free when no route of this machine and no other cluster uses it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import random
import socket
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.packages import find
from localcluster.procs import Entered

BLOCKS = range(180, 250)
_NET_ONLY = ("-n",)
_PORT_ATTEMPTS = 500
_LOWEST_PORT = 12_000
_USUAL_DYNAMIC_PORT = 32_768
_IP_FREEBIND = 15  # of linux/in.h
_DYNAMIC_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the cluster with one block."""

    block: int

    @property
    def interface(self) -> str:
        """Interface on this machine."""
        return f"vce{self.block}"

    @property
    def network(self) -> str:
        """All of them."""
        return f"10.{self.block}.0.0/16"

    @property
    def host(self) -> str:
        """This machine, where the API server listens."""
        return f"10.{self.block}.0.1"

    @property
    def switch(self) -> str:
        """The switch, where DNS listens."""
        return f"10.{self.block}.0.2"

    def node(self, index: int) -> str:
        """One node."""
        return f"10.{self.block}.0.{10 + index}"

    def node_pods(self, index: int) -> str:
        """Pods of one node."""
        return f"10.{self.block}.{64 + index}.0/24"

    @property
    def pods(self) -> str:
        """Pods of all nodes."""
        return f"10.{self.block}.64.0/18"

    @property
    def services(self) -> str:
        """Service addresses."""
        return f"10.{self.block}.240.0/20"

    @property
    def kubernetes_service(self) -> str:
        """Address of the Service ``kubernetes``: always the first of the range."""
        return f"10.{self.block}.240.1"

    @property
    def dns_service(self) -> str:
        """Address of the Service ``kube-dns``."""
        return f"10.{self.block}.240.10"


def choose_block(taken: Collection[int], routes: Iterable[str]) -> int:
    """The first block that neither a cluster nor a route of this machine uses.

    The default route does not count: it leads everywhere.
    """
    used = [
        ipaddress.IPv4Network(route, strict=False)
        for route in routes
        if route not in ("default", "0.0.0.0/0")
    ]
    for block in BLOCKS:
        network = ipaddress.IPv4Network(f"10.{block}.0.0/16")
        if block not in taken and not any(network.overlaps(other) for other in used):
            return block
    raise LocalClusterError(f"no free address block among 10.{BLOCKS[0]}.0.0/16 to 10.{BLOCKS[-1]}.0.0/16")


def host_routes() -> list[str]:
    """Destinations of this machine's IPv4 routes, its own addresses among them."""
    text = _ip(["-j", "-4", "route", "show", "table", "all"])
    kinds = ("broadcast", "multicast")
    return [str(route["dst"]) for route in json.loads(text) if route.get("type") not in kinds]


def free_ports(count: int, taken: Collection[int]) -> list[int]:
    """TCP ports of 127.0.0.1 that nobody listens on and no other cluster was given.

    They lie below those that the kernel gives to whoever asks for any: a server that is killed and started
    again would else find its port in the hands of a connection that somebody made meanwhile.
    """
    first_dynamic = int(_DYNAMIC_PORTS.read_text(encoding="ascii").split()[0])
    end = first_dynamic if first_dynamic >= _LOWEST_PORT + _PORT_ATTEMPTS else _USUAL_DYNAMIC_PORT
    choice = random.sample(range(_LOWEST_PORT, end), k=_PORT_ATTEMPTS)
    found: list[int] = []
    for port in choice:
        if len(found) == count:
            return found
        with socket.socket() as probe:
            if port in taken:
                continue
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    raise LocalClusterError("no free TCP ports on 127.0.0.1")


def may_listen(address: str, port: int) -> bool:
    """Whether that port is free at an address that comes with the cluster: a server of this machine that
    listens at all addresses, as that of another Kubernetes does, has it there too."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def connect_switch(addresses: Addresses, switch_pid: int, owner: Path) -> None:
    """Make the switch and the cable between it and this machine."""
    inside = Entered(switch_pid, _NET_ONLY)
    interface = addresses.interface
    if in_use(addresses, owner):
        raise LocalClusterError(f"interface {interface} was made by somebody else meanwhile: try again")
    remove_interface(addresses)
    _batch(
        [
            f"link add {interface} type veth peer name host netns {switch_pid}",
            # Marks the interface as ours for `down` and for the curious.
            f"link set {interface} alias vc-egpu:{owner}",
            f"addr add {addresses.host}/24 dev {interface}",
            f"link set {interface} up",
        ]
    )
    _batch(
        [
            "link set lo up",
            "link add br0 type bridge",
            "link set host master br0",
            "link set host up",
            f"addr add {addresses.switch}/24 dev br0",
            "link set br0 up",
            f"route add default via {addresses.host}",
        ],
        inside,
    )


def connect_node(addresses: Addresses, index: int, count: int, switch_pid: int, node_pid: int) -> None:
    """Plug one node in; routes lead to the pods of its ``count - 1`` neighbours."""
    cable = f"node{index}"
    # The same hardware address after a reboot: neighbours remember it.
    mac = f"02:ce:{addresses.block:02x}:00:00:{index:02x}"
    switch = Entered(switch_pid, _NET_ONLY)
    # After a reboot the old cable may be there yet: the kernel takes a dead namespace apart in its own time.
    with contextlib.suppress(LocalClusterError):
        _ip(["link", "del", cable], switch)
    _batch(
        [
            f"link add {cable} type veth peer name eth0 address {mac} netns {node_pid}",
            f"link set {cable} master br0",
            f"link set {cable} up",
        ],
        switch,
    )
    neighbours = [i for i in range(count) if i != index]
    _batch(
        [
            "link set lo up",
            f"addr add {addresses.node(index)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {addresses.host}",
            *(f"route add {addresses.node_pods(i)} via {addresses.node(i)}" for i in neighbours),
        ],
        Entered(node_pid, _NET_ONLY),
    )


def add_routes(addresses: Addresses, count: int, switch_pid: int) -> None:
    """Lead this machine and the switch to the pods of ``count`` nodes, and this machine to Services.

    Services are reached through the first node.
    """
    lines = [f"route replace {addresses.node_pods(i)} via {addresses.node(i)}" for i in range(count)]
    _batch([*lines, f"route replace {addresses.services} via {addresses.node(0)}"])
    # This machine forwards nothing, so the switch has to know the way itself.
    _batch(lines, Entered(switch_pid, _NET_ONLY))


def interface_owner(addresses: Addresses) -> str | None:
    """State folder written on the interface; None where there is no interface or it is not ours."""
    alias = Path(f"/sys/class/net/{addresses.interface}/ifalias")
    try:
        text = alias.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return text.removeprefix("vc-egpu:") if text.startswith("vc-egpu:") else None


def in_use(addresses: Addresses, owner: Path) -> bool:
    """Whether the interface is there and is another's than ``owner``'s: of a cluster that has files yet, or
    none of ours at all."""
    if not Path(f"/sys/class/net/{addresses.interface}").exists():
        return False
    marked = interface_owner(addresses)
    return marked is None or (marked != str(owner) and Path(marked).exists())


def remove_interface(addresses: Addresses) -> None:
    """Take the cable away, with its routes; nothing where it is gone already."""
    # It also goes by itself, with the switch's namespace: then this is a race that nobody loses.
    interface = Path(f"/sys/class/net/{addresses.interface}")
    if interface.exists():
        try:
            _ip(["link", "del", addresses.interface])
        except LocalClusterError:
            if interface.exists():
                raise


def _batch(lines: Sequence[str], within: Entered | None = None) -> None:
    _ip(["-batch", "-"], within, "\n".join(lines) + "\n")


def _ip(arguments: Sequence[str], within: Entered | None = None, text: str | None = None) -> str:
    program = find("ip")
    if program is None:
        raise LocalClusterError("ip not found: install iproute2")
    argv = [str(program), *arguments]
    result = subprocess.run(
        within.argv(argv) if within else argv, input=text, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise LocalClusterError(f"`ip {' '.join(arguments)}` failed: {result.stderr.strip()}\n{text or ''}")
    return result.stdout
