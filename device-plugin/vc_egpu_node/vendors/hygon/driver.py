"""The child that calls librocm_smi64 and libhydmi: ``python -m … <librocm_smi64> <libhydmi>``."""

import ctypes as c
import sys
from typing import Any, ClassVar, Final

from vc_egpu_node.vendors.child import serve
from vc_egpu_node.vendors.hygon.words import RSMI
from vc_egpu_node.vendors.slices import Refusal, SliceError, if_supported

_VRAM: Final = 0
_DMI: Final[dict[int, Refusal]] = {
    6: "not-supported",
    11: "no-room",
    14: "absent",
    15: "absent",
    17: "busy",
    19: "not-permitted",
}
_RSMI: Final[dict[int, Refusal]] = {2: "not-supported", 4: "not-permitted"}


class DeviceInfo(c.Structure):
    """``dmiDeviceInfo``, bytes."""

    _fields_: ClassVar = [
        ("name", c.c_char * 256),
        ("compute_units", c.c_int),
        ("memory", c.c_size_t),
        ("used", c.c_size_t),
        ("container_id", c.c_uint64),
        ("device_id", c.c_int),
    ]


class ProcessInfo(c.Structure):
    """``rsmi_process_info_t``."""

    _fields_: ClassVar = [
        ("process_id", c.c_uint32),
        ("pasid", c.c_uint32),
        ("vram_usage", c.c_uint64),
        ("sdma_usage", c.c_uint64),
        ("cu_occupancy", c.c_uint32),
    ]


SIZES: Final = {"dmiDeviceInfo": c.sizeof(DeviceInfo), "rsmi_process_info_t": c.sizeof(ProcessInfo)}
"""By the header's name. A test compares them with what a C compiler says."""


class Driver:
    """Both libraries. The second one may be missing: then slices of others are not seen."""

    def __init__(self, smi: str, dmi: str) -> None:
        self._paths = (smi, dmi)
        self._smi: Any = None
        self._dmi: Any = None

    def _call(self, name: str, *arguments: Any) -> None:
        if self._smi is None:
            try:
                self._smi = c.CDLL(self._paths[0])
            except OSError as error:
                raise SliceError("not-ready", f"{self._paths[0]} did not load: {error}") from error
            self._smi_checked("rsmi_init", c.c_uint64(0))
        self._smi_checked(name, *arguments)

    def _smi_checked(self, name: str, *arguments: Any) -> None:
        function = getattr(self._smi, name, None)
        if function is None:
            raise SliceError("not-supported", f"{self._paths[0]} has no {name}")
        answer = int(function(*arguments))
        if answer != 0:
            if name == "rsmi_init":
                self._smi = None
            text = RSMI.get(answer, "it failed")
            raise SliceError(_RSMI.get(answer, "failed"), f"{name} answers {answer}: {text}")

    def _of_dmi(self, name: str, *arguments: Any) -> None:
        if self._dmi is None:
            try:
                self._dmi = c.CDLL(self._paths[1])
            except OSError as error:
                raise SliceError("not-supported", f"{self._paths[1]} did not load: {error}") from error
        function = getattr(self._dmi, name, None)
        if function is None:
            raise SliceError("not-supported", f"{self._paths[1]} has no {name}")
        answer = int(function(*arguments))
        if answer != 0:
            raise SliceError(_DMI.get(answer, "failed"), f"{name} answers {answer}")

    def count(self) -> int:
        """How many cards there are."""
        number = c.c_uint32()
        self._call("rsmi_num_monitor_devices", c.byref(number))
        return number.value

    def describe(self, index: int) -> dict[str, Any]:
        """What it is."""
        bdf, memory, device = c.c_uint64(), c.c_uint64(), c.c_uint16()
        self._call("rsmi_dev_pci_id_get", index, c.byref(bdf))
        self._call("rsmi_dev_memory_total_get", index, _VRAM, c.byref(memory))
        self._call("rsmi_dev_id_get", index, c.byref(device))
        place = bdf.value
        told = {
            "name": self._text("rsmi_dev_name_get", index),
            "serial": self._text("rsmi_dev_serial_number_get", index),
            "unique": self._number(c.c_uint64(), "rsmi_dev_unique_id_get", index) or 0,
            "device": device.value,
            "pci": f"{place >> 32 & 0xFFFF:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}",
            "memory_mib": memory.value >> 20,
            "units": 0,
            "units_free": 0,
        }
        return told | self._units(index)

    def _units(self, index: int) -> dict[str, int]:
        """Compute units, and how many no slice of another tool has."""
        info = c.create_string_buffer(c.sizeof(DeviceInfo) + 256)
        units, size = c.c_size_t(), c.c_size_t()
        try:
            self._of_dmi("dmiGetDeviceInfo", index, info)
            self._of_dmi("dmiGetDeviceRemainingInfo", index, c.byref(units), c.byref(size))
        except SliceError as error:
            if error.why == "not-supported":
                return {}
            raise
        return {"units": DeviceInfo.from_buffer(info).compute_units, "units_free": units.value}

    def sample(self, index: int) -> dict[str, int | None]:
        """What it does now; None: it does not tell."""
        used = c.c_uint64()
        self._call("rsmi_dev_memory_usage_get", index, _VRAM, c.byref(used))
        return {
            "used_mib": used.value >> 20,
            "util": self._number(c.c_uint32(), "rsmi_dev_busy_percent_get", index),
            "temp_mc": self._number(c.c_int64(), "rsmi_dev_temp_metric_get", index, 0, 0),
            "power_uw": self._number(c.c_uint64(), "rsmi_dev_power_ave_get", index, 0),
        }

    def _text(self, name: str, index: int) -> str:
        text = c.create_string_buffer(512)
        if_supported(lambda: self._call(name, index, text, 256))
        return text.value.decode(errors="replace").strip()

    def _number(self, value: Any, name: str, *arguments: Any) -> int | None:
        return if_supported(lambda: self._counted(value, name, *arguments))

    def _counted(self, value: Any, name: str, *arguments: Any) -> int:
        self._call(name, *arguments, c.byref(value))
        return int(value.value)


if __name__ == "__main__":
    driver = Driver(sys.argv[1], sys.argv[2])
    serve({"count": driver.count, "describe": driver.describe, "sample": driver.sample})
