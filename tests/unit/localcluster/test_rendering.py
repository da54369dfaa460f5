"""Configuration files say what nodes that share one machine need."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from localcluster import kwok, machine, render, toolchain
from localcluster.errors import LocalClusterError
from localcluster.net import Addresses
from localcluster.pki import Authority, KeyPair, write_kubeconfig
from localcluster.spec import ClusterSpec

_ADDRESSES = Addresses(180)
_PAIR = KeyPair(Path("/pki/n.crt"), Path("/pki/n.key"))


def _kubelet(index: int, **spec: bool | str) -> dict[str, object]:
    return render.kubelet_config(
        ClusterSpec(**spec),  # type: ignore[arg-type]
        _ADDRESSES,
        index,
        group=f"/vc-egpu/x/n{index}",
        ca=Path("/pki/ca.crt"),
        serving=_PAIR,
        resolv_conf=Path("/r"),
    )


def test_kubelets_on_one_machine_have_groups_and_addresses_of_their_own() -> None:
    one, two = _kubelet(0), _kubelet(1)
    assert one["cgroupRoot"] != two["cgroupRoot"]
    assert one["address"] != two["address"]
    assert one["enforceNodeAllocatable"] == []
    assert one["failCgroupV1"] is False
    assert one["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/pki/ca.crt"},
    }


def test_a_kubelet_of_1_30_is_told_only_what_it_knows() -> None:
    assert "failCgroupV1" not in _kubelet(0, kubernetes="1.36", kubelet="1.30")
    assert _kubelet(0, kubernetes="1.30", kubelet="1.36")["failCgroupV1"] is False


def test_kube_proxy_writes_nftables_in_all_versions() -> None:
    def gates(kubelet: str) -> object:
        spec = ClusterSpec(kubelet=kubelet)
        config = render.kube_proxy_config(spec, _ADDRESSES, 0, Path("/proxy.kubeconfig"))
        assert (config["mode"], config["hostnameOverride"]) == ("nftables", "local-node-0")
        return config["featureGates"]

    assert gates("1.30") == {"NFTablesProxyMode": True}
    assert gates("1.36") == {}


def test_pods_ask_the_cluster_for_names_only_where_there_is_dns() -> None:
    assert _kubelet(0)["clusterDNS"] == [_ADDRESSES.dns_service]
    assert _kubelet(0, dns=False)["clusterDNS"] == []


def test_coredns_is_built_with_the_plugins_that_its_corefile_names() -> None:
    main = (toolchain.SOURCES / "coredns" / "main.go").read_text()
    built_in = set(re.findall(r'"github.com/coredns/coredns/plugin/(\w+)"', main))
    text = render.corefile(_ADDRESSES, Path("/dns.kubeconfig"))
    named = set(re.findall(r"^ {4}(\w+)", text, re.MULTILINE))
    assert named == built_in


def test_containerd_reads_cdi_where_device_plugins_write_it() -> None:
    text = render.containerd_config(Path("/usr/sbin/runc"), Path("/usr/lib/cni"), scratch=Path("/s"))
    config = tomllib.loads(text)
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["enable_cdi"] is True
    assert runtime["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/usr/sbin/runc"
    assert config["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == render.PAUSE_IMAGE


def test_containerd_1_7_is_told_the_same_in_its_own_words() -> None:
    folders = (Path("/usr/sbin/runc"), Path("/usr/lib/cni"))
    config = tomllib.loads(render.containerd_config(*folders, scratch=Path("/s"), version="1.7"))
    assert config["version"] == 2
    runtime = config["plugins"].pop("io.containerd.grpc.v1.cri")
    assert config["plugins"] == {}
    assert runtime["enable_cdi"] is True  # which it is not by itself
    assert runtime["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert runtime["sandbox_image"] == render.PAUSE_IMAGE
    assert runtime["cni"]["bin_dir"] == "/usr/lib/cni"
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/usr/sbin/runc"


def test_pods_of_each_node_have_their_own_range() -> None:
    ranges = [json.loads(render.cni_config(_ADDRESSES, i))["plugins"][0]["ipam"]["ranges"] for i in (0, 1)]
    assert ranges[0] != ranges[1]
    assert ranges[1] == [[{"subnet": _ADDRESSES.node_pods(1)}]]


def test_the_audit_policy_leaves_out_reads_and_leases() -> None:
    rules = render.audit_policy("Request")["rules"]
    assert rules[0] == {"level": "None", "verbs": ["get", "list", "watch"]}
    assert rules[-1] == {"level": "Request"}
    assert any(rule.get("resources", [{}])[0].get("resources") == ["leases"] for rule in rules)


def test_a_machine_mounts_nothing_over_the_folder_it_lies_in() -> None:
    script = machine.boot_script("n", Path("/var/lib/state/n"), Path("/init"))
    assert "lowerdir=/var/lib," not in script
    assert "lowerdir=/etc," in script
    assert script.splitlines()[-1] == "exec /init"


def test_clearing_keeps_the_folder_itself(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "f").write_text("1")
    (folder / "link").symlink_to(tmp_path)
    inode = folder.stat().st_ino
    machine.clear(folder)
    assert list(folder.iterdir()) == []
    assert folder.stat().st_ino == inode
    assert tmp_path.is_dir()


def test_certificates_are_signed_for_both_sides_and_keys_are_private(tmp_path: Path) -> None:
    from cryptography import x509

    authority = Authority.create(tmp_path / "pki")
    pair = authority.issue("n", "system:node:n", ("system:nodes",), ("n", "10.1.2.3"))
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    ca = x509.load_pem_x509_certificate(authority.pair.certificate.read_bytes())
    certificate.verify_directly_issued_by(ca)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.1.2.3"]
    assert pair.key.stat().st_mode & 0o077 == 0
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "https://10.1.2.3:6443", authority, pair, "t1")
    assert kubeconfig.stat().st_mode & 0o077 == 0
    document = yaml.safe_load(kubeconfig.read_text())
    assert document["clusters"][0]["cluster"]["server"] == "https://10.1.2.3:6443"


def test_a_simulated_node_is_ready_from_the_start() -> None:
    node = kwok.KwokNode("k", extended={"volcano.sh/vgpu-h20": 8}, labels={"a": "b"}, annotations={"c": "d"})
    body = node.to_object()
    assert body["status"]["allocatable"]["volcano.sh/vgpu-h20"] == "8"
    assert body["metadata"]["labels"]["a"] == "b"
    assert body["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake", "c": "d"}
    assert {c["type"]: c["status"] for c in body["status"]["conditions"]}["Ready"] == "True"


def test_a_simulated_node_without_room_is_refused() -> None:
    with pytest.raises(LocalClusterError, match="pods 0"):
        kwok.KwokNode("k", pods=0)


def test_stages_cover_the_life_of_nodes_and_pods() -> None:
    documents = kwok.configuration()
    stages = {d["metadata"]["name"] for d in documents if d["kind"] == "Stage"}
    assert stages == {
        "node-ready", "node-heartbeat",
        "pod-run", "pod-succeeded", "pod-failed", "pod-delete", "pod-delete-late", "pod-delete-again",
    }  # fmt: skip
    assert list(yaml.safe_load_all("---\n".join(render.to_yaml(d) for d in documents))) == documents


def test_a_node_refuses_pods_when_the_disk_is_full_and_not_at_a_part_of_it() -> None:
    thresholds = _kubelet(0)["evictionHard"]
    assert isinstance(thresholds, dict)
    assert set(thresholds) >= {"nodefs.available", "imagefs.available"}
    assert not [value for value in thresholds.values() if "%" in value]
