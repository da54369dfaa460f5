"""The child that calls libdcmi: ``python -m vc_egpu_node.vendors.ascend.driver <library>``.

Only numbers and words leave it. Every call may hang when a chip does, so the agent itself loads no library.
"""

import ctypes as c
import sys
import time
from typing import Any, Final, TypeVar

from vc_egpu_node.vendors.ascend import dcmi
from vc_egpu_node.vendors.child import serve
from vc_egpu_node.vendors.slices import SliceError, if_supported

TRIES: Final = 5
PAUSE_S: Final = 0.2
"""Between calls that answer "ask again"."""
MOST_CARDS: Final = 64
MOST_PROCESSES: Final = 32
ANY_ID: Final = 0xFFFFFFFF
_SLICES: Final = 52
_ONE, _TOTAL = 0, 1
_NPU: Final = 0
_AICORE, _HBM_BANDWIDTH = 2, 6
T = TypeVar("T", bound=c.Structure)


class Driver:
    """The library, begun once."""

    def __init__(self, library: str) -> None:
        self._path = library
        self._library: Any = None

    def _ready(self) -> Any:
        if self._library is None:
            try:
                library = c.CDLL(self._path)
            except OSError as error:
                raise SliceError("not-ready", f"{self._path} did not load: {error}") from error
            if not hasattr(library, "dcmi_init"):
                newer = hasattr(library, "dcmiv2_init")
                text = "has calls of the next generation alone" if newer else "has no dcmi_init"
                raise SliceError("not-supported", f"{self._path} {text}")
            _check("dcmi_init", library.dcmi_init())
            self._library = library
        return self._library

    def _call(self, name: str, *arguments: Any) -> None:
        """Raises :class:`SliceError` with the library's answer, unless it is good."""
        function = getattr(self._ready(), name, None)
        if function is None:
            _check(name, dcmi.MISSING)
            return
        answer = 0
        for tried in range(TRIES):
            if tried:
                time.sleep(PAUSE_S)
            answer = int(function(*arguments))
            if answer not in dcmi.AGAIN:
                break
        _check(name, answer)

    def version(self) -> str:
        """The version of the library."""
        text = c.create_string_buffer(64 + dcmi.SPARE_BYTES)
        self._call("dcmi_get_dcmi_version", text, 64)
        return text.value.decode(errors="replace")

    def devices(self) -> list[tuple[int, int]]:
        """(card, device) of each NPU."""
        count, ids = c.c_int(), (c.c_int * MOST_CARDS)()
        self._call("dcmi_get_card_list", c.byref(count), ids, MOST_CARDS)
        found = []
        for card in ids[: count.value]:
            devices, kind = c.c_int(), c.c_int()
            self._call("dcmi_get_device_num_in_card", card, c.byref(devices))
            for device in range(devices.value):
                self._call("dcmi_get_device_type", card, device, c.byref(kind))
                if kind.value == _NPU:
                    found.append((card, device))
        return found

    def describe(self, card: int, device: int) -> dict[str, Any]:
        """What it is."""
        logic, phy = c.c_int(), c.c_uint()
        self._call("dcmi_get_device_logic_id", c.byref(logic), card, device)
        self._call("dcmi_get_device_phyid_from_logicid", c.c_uint(logic.value), c.byref(phy))
        chip = self._filled("dcmi_get_device_chip_info", dcmi.ChipInfo, card, device)
        die = self._filled("dcmi_get_device_die_v2", dcmi.DieId, card, device, 1)
        pci = self._filled("dcmi_get_device_pcie_info_v2", dcmi.PcieInfo, card, device)
        board = self._optional("dcmi_get_device_board_info", dcmi.BoardInfo, card, device)
        size, _ = self._memory(card, device)
        return {
            "type": chip.chip_type.decode(errors="replace"),
            "name": chip.chip_name.decode(errors="replace"),
            "version": chip.chip_ver.decode(errors="replace"),
            "aicore": chip.aicore_cnt,
            "die": "-".join(f"{part:08X}" for part in die.soc_die) if any(die.soc_die) else "",
            "pci": f"{pci.domain & 0xFFFF:04x}:{pci.bus:02x}:{pci.slot:02x}.{pci.function}",
            "board": board.board_id if board is not None else -1,
            "phy": phy.value,
            "logic": logic.value,
            "memory_mib": size,
        }

    def _memory(self, card: int, device: int) -> tuple[int, int]:
        """(size, used) in MiB."""
        hbm = self._optional("dcmi_get_device_hbm_info", dcmi.HbmInfo, card, device)
        if hbm is not None and hbm.memory_size:
            return hbm.memory_size, hbm.memory_usage
        plain = self._filled("dcmi_get_device_memory_info_v3", dcmi.MemoryInfo, card, device)
        return plain.memory_size, plain.memory_size - plain.memory_available

    def health(self, card: int, device: int) -> tuple[int, list[int]]:
        """(0 good to 3 worst, error codes)."""
        health, count, codes = c.c_uint(), c.c_int(), (c.c_uint * 128)()
        self._call("dcmi_get_device_health", card, device, c.byref(health))
        try:
            self._call("dcmi_get_device_errorcode_v2", card, device, c.byref(count), codes, 128)
        except SliceError:
            count.value = 0  # the health itself says enough
        return health.value, list(codes[: count.value])

    def sample(self, card: int, device: int) -> dict[str, int | None]:
        """What it does now; None: it does not tell."""
        size, used = self._memory(card, device)
        return {
            "size_mib": size,
            "used_mib": used,
            "util": self._number(c.c_uint(), "dcmi_get_device_utilization_rate", card, device, _AICORE),
            "bandwidth": self._number(
                c.c_uint(), "dcmi_get_device_utilization_rate", card, device, _HBM_BANDWIDTH
            ),
            "temp_c": self._number(c.c_int(), "dcmi_get_device_temperature", card, device),
            "power_dw": self._number(c.c_int(), "dcmi_get_device_power_info", card, device),
        }

    def processes(self, card: int, device: int) -> list[tuple[int, int]]:
        """(pid, MiB); the library has 32 places."""
        count, found = c.c_int(), (dcmi.ProcessMemory * (MOST_PROCESSES + 16))()
        self._call("dcmi_get_device_resource_info", card, device, found, c.byref(count))
        return [(one.pid, int(one.usage >> 20)) for one in found[: min(count.value, MOST_PROCESSES)]]

    def slices(self, card: int, device: int) -> list[dict[str, Any]]:
        """The vNPUs on it."""
        total = self._info(card, device, _TOTAL, dcmi.TotalResource())
        found = []
        for number in total.vdev_id[: min(total.vdev_num, 32)]:
            one = self._info(card, device, _ONE, dcmi.SliceQuery(vdev_id=number))
            found.append({
                "id": number,
                "template": one.name.decode(errors="replace"),
                "memory_mib": one.computing.memory_size,
                "in_use": bool(one.is_container_used or one.status),
            })  # fmt: skip
        return found

    def make(self, card: int, device: int, template: str) -> int:
        """A vNPU of that template; returns its id."""
        wish = dcmi.CreateWish(vdev_id=ANY_ID, vfg_id=ANY_ID, template=template.encode())
        made = _roomy(dcmi.CreateResult())
        self._call("dcmi_create_vdevice", card, device, c.byref(wish), made)
        return int(dcmi.CreateResult.from_buffer(made).vdev_id)

    def destroy(self, card: int, device: int, number: int) -> None:
        """Remove a vNPU."""
        self._call("dcmi_set_destroy_vdevice", card, device, number)

    def _info(self, card: int, device: int, command: int, value: T) -> T:
        buffer = _roomy(value)
        size = c.c_uint(c.sizeof(buffer))
        self._call("dcmi_get_device_info", card, device, _SLICES, command, buffer, c.byref(size))
        return type(value).from_buffer(buffer)

    def _filled(self, name: str, kind: type[T], *arguments: Any) -> T:
        buffer = _roomy(kind())
        self._call(name, *arguments, buffer)
        return kind.from_buffer(buffer)

    def _optional(self, name: str, kind: type[T], *arguments: Any) -> T | None:
        return if_supported(lambda: self._filled(name, kind, *arguments))

    def _number(self, value: Any, name: str, *arguments: Any) -> int | None:
        return if_supported(lambda: self._counted(value, name, *arguments))

    def _counted(self, value: Any, name: str, *arguments: Any) -> int:
        self._call(name, *arguments, c.byref(value))
        return int(value.value)


def _roomy(value: c.Structure) -> Any:
    """A buffer that begins with this value, and is longer."""
    return c.create_string_buffer(bytes(value), c.sizeof(value) + dcmi.SPARE_BYTES)


def _check(name: str, answer: int) -> None:
    if answer != 0:
        why, text = dcmi.CODES.get(answer, ("failed", "unknown answer"))
        raise SliceError(why, f"{name} answers {answer}: {text}")


if __name__ == "__main__":
    driver = Driver(sys.argv[1])
    serve({
        "version": driver.version, "devices": driver.devices, "describe": driver.describe,
        "health": driver.health, "sample": driver.sample, "processes": driver.processes,
        "slices": driver.slices, "make": driver.make, "destroy": driver.destroy,
    })  # fmt: skip
