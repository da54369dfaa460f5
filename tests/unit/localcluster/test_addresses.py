"""Address blocks and ports do not collide, with other clusters or with the machine's own routes."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from localcluster import net
from localcluster.errors import LocalClusterError
from localcluster.spec import MAX_REAL_NODES

E2E = Path(__file__).parents[3] / "e2e"


def test_the_first_free_block_is_taken() -> None:
    assert net.choose_block(taken=set(), routes=["default"]) == net.BLOCKS[0]


def test_blocks_of_other_clusters_and_of_routes_are_skipped() -> None:
    first = net.BLOCKS[0]
    routes = [f"10.{first + 1}.3.0/24", f"10.{first + 2}.0.7", "0.0.0.0/0", "192.168.0.0/16"]
    assert net.choose_block({first}, routes) == first + 3


def test_a_route_over_all_of_ten_leaves_no_block() -> None:
    with pytest.raises(LocalClusterError, match="no free address block"):
        net.choose_block(set(), ["10.0.0.0/8"])


@pytest.mark.parametrize("block", [net.BLOCKS[0], net.BLOCKS[-1]])
def test_networks_of_one_cluster_are_apart_and_inside_its_block(block: int) -> None:
    addresses = net.Addresses(block)
    whole = ipaddress.IPv4Network(f"10.{block}.0.0/16")
    machines = ipaddress.IPv4Network(f"10.{block}.0.0/24")
    pods = [ipaddress.IPv4Network(addresses.node_pods(i)) for i in range(MAX_REAL_NODES)]
    services = ipaddress.IPv4Network(addresses.services)
    networks = [machines, services, *pods]
    assert all(network.subnet_of(whole) for network in networks)
    assert not any(a.overlaps(b) for i, a in enumerate(networks) for b in networks[:i])
    assert all(network.subnet_of(ipaddress.IPv4Network(addresses.pods)) for network in pods)
    single = [addresses.host, addresses.switch, *(addresses.node(i) for i in range(MAX_REAL_NODES))]
    assert len(set(single)) == len(single)
    assert all(ipaddress.IPv4Address(address) in machines for address in single)
    assert ipaddress.IPv4Address(addresses.kubernetes_service) == services.network_address + 1
    assert len(addresses.interface) <= 15, "the kernel's limit"


def test_ports_are_free_and_different() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        ports = net.free_ports(8, taken=set())
        assert used.getsockname()[1] not in ports
    assert len(set(ports)) == 8


def test_a_server_that_is_started_again_finds_its_port_free_whoever_made_connections_meanwhile() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port < first for port in net.free_ports(8, taken=set()))


def test_ports_of_other_clusters_are_not_given_twice() -> None:
    everything = set(range(1, 65536))
    with pytest.raises(LocalClusterError, match="no free TCP ports"):
        net.free_ports(1, taken=everything)


@pytest.mark.parametrize(("family", "everywhere"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
def test_a_server_at_all_addresses_of_this_machine_has_its_port_at_a_clusters_too(
    family: socket.AddressFamily, everywhere: str
) -> None:
    """Another Kubernetes has 6443: a cluster's API server did not start next to it."""
    if family == socket.AF_INET6 and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    host = net.Addresses(net.BLOCKS[-1]).host
    with socket.socket(family) as other:
        if family == socket.AF_INET6:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        other.bind((everywhere, 0))
        port = other.getsockname()[1]
        other.listen()
        assert not net.may_listen(host, port)
    assert net.may_listen(host, port)


def test_other_clusters_have_the_same_port_at_addresses_of_their_own() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert net.may_listen(net.Addresses(net.BLOCKS[-1]).host, other.getsockname()[1])


_OWN_ADDRESS = """
import subprocess
from localcluster import net

for command in ("link add tunnel type bridge", "addr add 10.180.0.10/32 dev tunnel", "link set tunnel up"):
    subprocess.run(["ip", *command.split()], check=True)
print(net.choose_block(set(), net.host_routes()))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="makes an interface in a namespace of its own")
def test_an_address_of_this_machine_that_has_no_route_is_nobodys_elses() -> None:
    """That of a tunnel, as a rule: it would be a node's too, and the node could not be reached."""
    assert _said(["unshare", "--net", sys.executable, "-c", _OWN_ADDRESS]) == "181\n"


def _said(command: list[str]) -> str:
    env = os.environ | {"PYTHONPATH": str(E2E)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


_FOREIGN = """
import os, subprocess, sys
from pathlib import Path
from localcluster import net
from localcluster.errors import LocalClusterError

addresses, folder, alias = net.Addresses(net.BLOCKS[0]), Path(sys.argv[1]), sys.argv[2]
subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
subprocess.run(["ip", "link", "add", addresses.interface, "type", "bridge"], check=True)
if alias:
    subprocess.run(["ip", "link", "set", addresses.interface, "alias", alias], check=True)
print(net.in_use(addresses, folder))
try:
    net.connect_switch(addresses, os.getpid(), folder)
except LocalClusterError as error:
    print(error)
print(subprocess.run(["ip", "link", "show", addresses.interface], capture_output=True, text=True).stdout)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="makes an interface in a namespace of its own")
@pytest.mark.parametrize("whose", ["nobody's", "of another state folder", "our own", "of one that is gone"])
def test_the_interface_of_a_cluster_of_another_user_is_not_taken_away(tmp_path: Path, whose: str) -> None:
    """Two that come up at the same moment and know nothing of each other choose the same block."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    other.mkdir()
    marks = {
        "nobody's": "",
        "of another state folder": f"vc-egpu:{other}",
        "our own": f"vc-egpu:{ours}",
        "of one that is gone": f"vc-egpu:{tmp_path / 'gone'}",
    }
    said = _said(["unshare", "--net", "--mount", sys.executable, "-c", _FOREIGN, str(ours), marks[whose]])
    foreign = whose in ("nobody's", "of another state folder")
    assert said.startswith(f"{foreign}\n")
    assert ("was made by somebody else" in said) == foreign
    # A device that is ours is made again, as one end of a cable.
    assert ("vce180@" in said) != foreign
