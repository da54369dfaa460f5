"""Cards under the names, types and units of dcgm-exporter's default list (4.8.2).

They carry no pod: a card belongs to several. A card that does not tell a value has no series of it.
"""

from typing import Final, Literal

from vc_egpu.metrics.family import Family

LABELS: Final = (
    "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION",
)  # fmt: skip


def _dcgm(name: str, text: str, unit: str = "", kind: Literal["gauge", "counter"] = "gauge") -> Family:
    return Family(f"DCGM_FI_DEV_{name}", kind, LABELS, text, unit, component="node-agent", optional=True)


BY_FIELD: Final[dict[str, Family]] = {
    "sm_clock_mhz": _dcgm("SM_CLOCK", "Clock of the processors.", "MHz"),
    "mem_clock_mhz": _dcgm("MEM_CLOCK", "Clock of the memory.", "MHz"),
    "temperature_c": _dcgm("GPU_TEMP", "Temperature of the chip.", "°C"),
    "memory_temperature_c": _dcgm("MEMORY_TEMP", "Temperature of the memory.", "°C"),
    "power_w": _dcgm("POWER_USAGE", "Power that the card draws.", "W"),
    "energy_mj": _dcgm("TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded.", "mJ", "counter"),
    "pcie_replays": _dcgm("PCIE_REPLAY_COUNTER", "Packets that PCIe sent again.", "", "counter"),
    "gpu_util_percent": _dcgm("GPU_UTIL", "Part of the time in which a kernel ran.", "%"),
    "mem_copy_util_percent": _dcgm("MEM_COPY_UTIL", "Part of the time in which memory was moved.", "%"),
    "enc_util_percent": _dcgm("ENC_UTIL", "Use of the encoders.", "%"),
    "dec_util_percent": _dcgm("DEC_UTIL", "Use of the decoders.", "%"),
    "memory_free_mib": _dcgm("FB_FREE", "Memory that is free.", "MiB"),
    "memory_used_mib": _dcgm("FB_USED", "Memory that is used, without what the driver reserves.", "MiB"),
    "memory_reserved_mib": _dcgm("FB_RESERVED", "Memory that the driver reserves.", "MiB"),
    "remapped_rows": _dcgm(
        "UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped after errors that were not corrected.", "", "counter"
    ),
    "corrected_remapped_rows": _dcgm(
        "CORRECTABLE_REMAPPED_ROWS", "Rows remapped after errors that were corrected.", "", "counter"
    ),
    "row_remap_pending": _dcgm("ROW_REMAP_PENDING", "1: rows wait for a reset."),
    "row_remap_failure": _dcgm("ROW_REMAP_FAILURE", "1: remapping of rows has failed."),
    "ecc_uncorrected": _dcgm("ECC_DBE_VOL_TOTAL", "Double-bit errors since the last reset.", "", "counter"),
}
"""By field of a card's sample."""

XID: Final = Family(
    "DCGM_FI_DEV_XID_ERRORS", "gauge", (*LABELS, "err_code", "err_msg"),
    "The last error number that the driver reported; 0: none.", component="node-agent", optional=True,
)  # fmt: skip

FAMILIES: Final = (*BY_FIELD.values(), XID)
