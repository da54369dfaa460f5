"""Ascend's management interface, as ctypes has it: structures, codes. The public header is their source."""

import ctypes as c
from typing import ClassVar, Final

from vc_egpu_node.vendors.slices import Refusal

SPARE_BYTES: Final = 256
"""Behind every structure that the library fills: newer drivers may write more."""


class ChipInfo(c.Structure):
    """``dcmi_chip_info``."""

    _fields_: ClassVar = [
        ("chip_type", c.c_char * 32),
        ("chip_name", c.c_char * 32),
        ("chip_ver", c.c_char * 32),
        ("aicore_cnt", c.c_uint),
    ]


class PcieInfo(c.Structure):
    """``dcmi_pcie_info_all``."""

    _fields_: ClassVar = [
        *((name, c.c_uint) for name in ("vendor", "subvendor", "device", "subdevice")),
        ("domain", c.c_int),
        *((name, c.c_uint) for name in ("bus", "slot", "function")),
        ("reserve", c.c_ubyte * 32),
    ]


class DieId(c.Structure):
    """``dcmi_die_id``."""

    _fields_: ClassVar = [("soc_die", c.c_uint * 5)]


class BoardInfo(c.Structure):
    """``dcmi_board_info``."""

    _fields_: ClassVar = [(name, c.c_uint) for name in ("board_id", "pcb_id", "bom_id", "slot_id")]


class HbmInfo(c.Structure):
    """``dcmi_hbm_info``, sizes in MB."""

    _fields_: ClassVar = [
        ("memory_size", c.c_ulonglong),
        ("freq", c.c_uint),
        ("memory_usage", c.c_ulonglong),
        ("temp", c.c_int),
        ("bandwidth", c.c_uint),
    ]


class MemoryInfo(c.Structure):
    """``dcmi_memory_info_v3``, sizes in MB."""

    _fields_: ClassVar = [
        ("memory_size", c.c_ulonglong),
        ("memory_available", c.c_ulonglong),
        ("freq", c.c_uint),
        ("hugepagesize", c.c_ulong),
        ("hugepages_total", c.c_ulong),
        ("hugepages_free", c.c_ulong),
        ("utiliza", c.c_uint),
        ("reserve", c.c_ubyte * 60),
    ]


class ProcessMemory(c.Structure):
    """``dcmi_proc_mem_info``, bytes."""

    _fields_: ClassVar = [("pid", c.c_int), ("usage", c.c_ulong)]


class CreateWish(c.Structure):
    """``dcmi_create_vdev_res``."""

    _fields_: ClassVar = [
        ("vdev_id", c.c_uint),
        ("vfg_id", c.c_uint),
        ("template", c.c_char * 32),
        ("reserved", c.c_ubyte * 64),
    ]


class CreateResult(c.Structure):
    """``dcmi_create_vdev_out``."""

    _fields_: ClassVar = [
        *((name, c.c_uint) for name in ("vdev_id", "bus", "slot", "function", "vfg_id")),
        ("reserved", c.c_ubyte * 32),
    ]


class _Base(c.Structure):
    _fields_: ClassVar = [
        *((name, c.c_ulonglong) for name in ("token", "token_max", "task_timeout")),
        ("vfg_id", c.c_uint),
        ("vip_mode", c.c_ubyte),
        ("reserved", c.c_ubyte * 31),
    ]


class _Computing(c.Structure):
    _fields_: ClassVar = [
        ("aic", c.c_float),
        ("aiv", c.c_float),
        ("units", c.c_ushort * 8),
        ("memory_size", c.c_ulonglong),
        ("ids", c.c_uint * 4),
        ("processors", c.c_ushort * 5),
        ("reserved", c.c_ubyte * 32),
    ]


class _Media(c.Structure):
    _fields_: ClassVar = [("units", c.c_float * 6), ("reserved", c.c_ubyte * 32)]


class SliceQuery(c.Structure):
    """``dcmi_vdev_query`` with all that is in it."""

    _fields_: ClassVar = [
        ("vdev_id", c.c_uint),
        ("_pad", c.c_uint),
        ("name", c.c_char * 16),
        *((name, c.c_uint) for name in ("status", "is_container_used", "vfid", "vfg_id")),
        ("container_id", c.c_ulong),
        ("base", _Base),
        ("computing", _Computing),
        ("media", _Media),
    ]


class TotalResource(c.Structure):
    """``dcmi_soc_total_resource``."""

    _fields_: ClassVar = [
        ("vdev_num", c.c_uint),
        ("vdev_id", c.c_uint * 32),
        ("vfg_num", c.c_uint),
        ("vfg_bitmap", c.c_uint),
        ("base", _Base),
        ("computing", _Computing),
        ("media", _Media),
    ]


SIZES: Final = {
    "dcmi_chip_info": c.sizeof(ChipInfo),
    "dcmi_pcie_info_all": c.sizeof(PcieInfo),
    "dcmi_die_id": c.sizeof(DieId),
    "dcmi_board_info": c.sizeof(BoardInfo),
    "dcmi_hbm_info": c.sizeof(HbmInfo),
    "dcmi_memory_info_v3": c.sizeof(MemoryInfo),
    "dcmi_proc_mem_info": c.sizeof(ProcessMemory),
    "dcmi_create_vdev_res": c.sizeof(CreateWish),
    "dcmi_create_vdev_out": c.sizeof(CreateResult),
    "dcmi_vdev_query": c.sizeof(SliceQuery),
    "dcmi_soc_total_resource": c.sizeof(TotalResource),
}
"""By the header's name. A test compares them with what a C compiler says."""

AGAIN: Final = frozenset({-8006, -8012, -8017})
"""Timeout, not ready, being upgraded: the same call may be answered later."""
MISSING: Final = -99998
"""The driver is too old for the call."""
NO_LIBRARY: Final = -99999
CODES: Final[dict[int, tuple[Refusal, str]]] = {
    -8001: ("failed", "an argument is wrong"),
    -8002: ("not-permitted", "it is not permitted"),
    -8005: ("failed", "internal error"),
    -8006: ("not-ready", "timeout"),
    -8007: ("absent", "there is no such device"),
    -8008: ("absent", "there is no such device"),
    -8012: ("not-ready", "not ready"),
    -8013: ("not-permitted", "not in a container"),
    -8015: ("failed", "the reset failed"),
    -8017: ("not-ready", "the device is being upgraded"),
    -8020: ("busy", "the resource is occupied"),
    -8255: ("not-supported", "it is not supported"),
    MISSING: ("not-supported", "the driver is too old for it"),
    NO_LIBRARY: ("not-ready", "the library did not load"),
}
"""What each answer means. Any other is a failure."""
