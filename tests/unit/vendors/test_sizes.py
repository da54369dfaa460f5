"""Structures of the vendors' libraries have the size that a C compiler gives them."""

import subprocess

from vc_egpu_node.vendors.ascend import dcmi
from vc_egpu_node.vendors.hygon import driver
from vendor_nodes import BUILD


def test_sizes_are_those_of_c() -> None:
    told = subprocess.run([BUILD / "vendor-sizes"], capture_output=True, text=True, check=True).stdout
    compiled = {name: int(size) for name, size in (line.split() for line in told.splitlines())}
    ours = dcmi.SIZES | driver.SIZES
    assert {name: compiled[name] for name in ours} == ours


def test_sizes_are_those_of_the_study() -> None:
    wanted = {"dcmi_chip_info": 100, "dcmi_hbm_info": 32, "dcmi_memory_info_v3": 112, "dcmi_vdev_query": 264,
              "dcmi_create_vdev_res": 104, "dcmi_create_vdev_out": 52, "dcmi_soc_total_resource": 360,
              "dcmi_pcie_info_all": 64, "dcmi_die_id": 20, "dcmi_proc_mem_info": 16,
              "dcmi_board_info": 16}  # fmt: skip
    assert wanted == dcmi.SIZES
