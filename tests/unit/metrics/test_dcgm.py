"""Names, types and units under which dcgm-exporter 4.8.2 shows its fields by default: ours are the same."""

from vc_egpu.metrics.vocabulary import dcgm

GAUGES = {
    "SM_CLOCK": "MHz", "MEM_CLOCK": "MHz", "MEMORY_TEMP": "°C", "GPU_TEMP": "°C", "POWER_USAGE": "W",
    "GPU_UTIL": "%", "MEM_COPY_UTIL": "%", "ENC_UTIL": "%", "DEC_UTIL": "%", "XID_ERRORS": "",
    "FB_FREE": "MiB", "FB_USED": "MiB", "FB_RESERVED": "MiB", "VGPU_LICENSE_STATUS": "",
    "ROW_REMAP_FAILURE": "",
}  # fmt: skip
COUNTERS = {
    "TOTAL_ENERGY_CONSUMPTION": "mJ", "PCIE_REPLAY_COUNTER": "", "NVLINK_BANDWIDTH_TOTAL": "",
    "UNCORRECTABLE_REMAPPED_ROWS": "", "CORRECTABLE_REMAPPED_ROWS": "",
}  # fmt: skip
BEYOND = {"ROW_REMAP_PENDING": ("gauge", ""), "ECC_DBE_VOL_TOTAL": ("counter", "")}
"""DCGM's own names of fields that its exporter shows on request."""
NOT_OURS = {"VGPU_LICENSE_STATUS", "NVLINK_BANDWIDTH_TOTAL"}
PUBLISHED = {
    **{name: ("gauge", unit) for name, unit in GAUGES.items()},
    **{name: ("counter", unit) for name, unit in COUNTERS.items()},
    **BEYOND,
}


def test_each_of_our_families_has_the_published_type_and_unit() -> None:
    ours = {one.name.removeprefix("DCGM_FI_DEV_"): (one.kind, one.unit) for one in dcgm.FAMILIES}
    assert len(ours) == len(dcgm.FAMILIES)
    assert ours == {name: facts for name, facts in PUBLISHED.items() if name not in NOT_OURS}
