"""NVIDIA cards through NVML (package ``nvidia-ml-py``).

The library is found as every NVML program finds it: ``libnvidia-ml.so.1`` on the loader's path.
"""

import ctypes
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from vc_egpu_node.vendors.base import (
    SHARED,
    Ability,
    CardEvent,
    CardReading,
    CardSample,
    ComputeMode,
    NodeReading,
    ProcessSample,
    UntoldError,
)
from vc_egpu_node.vendors.child import Child
from vc_egpu_node.vendors.nvidia.fabric import fabric_fault
from vc_egpu_node.vendors.nvidia.limits import offered
from vc_egpu_node.vendors.nvidia.lists import running, wide_lists
from vc_egpu_node.vendors.nvidia.mig import instances as mig
from vc_egpu_node.vendors.nvidia.ways import with_ways
from vc_egpu_node.vendors.nvidia.words import (
    APPLICATION_XIDS,
    RESET_XIDS,
    minor_of,
    no_beginning,
    recovery_fault,
    rows_fault,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

MIB: Final = 1024 * 1024
MIG_ABILITIES: Final[frozenset[Ability]] = frozenset({"slice", "processes"})
"""What a card in MIG mode can do. NVML tells no utilisation of its instances."""
DOUBLE_BIT_XID: Final = 48
"""What a double-bit ECC event counts as."""

COMPUTE_MODES: Final[Mapping[int | None, ComputeMode]] = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "others",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "others",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "all",
}
CORES_PER_SM: Final = {2: 32, 3: 192, 5: 128, 6: 64, 7: 64, 8: 128, 9: 128, 10: 128, 11: 128, 12: 128}
"""CUDA cores per multiprocessor by compute capability's major number (NVML only counts cores)."""
CORES_PER_SM_EXCEPTIONS: Final = {(6, 1): 128, (6, 2): 128, (8, 0): 64}


class NvidiaReadings:
    """NVML, used by one thread."""

    def __init__(
        self,
        dev: Path = Path("/dev"),
        mig_minors: Path = mig.MINORS,
        companions: Sequence[Child] = (),
    ) -> None:
        """``companions``: children of the same vendor, which end with this one."""
        self._dev = dev
        self._mig_minors = mig_minors
        self._companions = tuple(companions)
        self._minors: tuple[int, ...] = ()
        self._handles: dict[str, Any] = {}
        self._uuid_of_pointer: dict[int, str] = {}
        self._event_set: Any = None
        self._initialised = False
        self._reached = False
        self._wide_lists = False
        self._ecc_seen: dict[str, int] = {}
        self._wants_reset: dict[str, int] = {}
        """UUID to error. A card that this process has open cannot be reset. So the entry ends with the
        process, or when the driver no longer lists the card."""
        self._early: tuple[CardEvent, ...] = ()
        """Told before the set of events was closed for a new scan."""

    def scan(self) -> NodeReading:
        """See :meth:`Readings.scan`."""
        self._early += self._told(0)
        with _awake(self._minors, self._dev):
            return self._scan()

    def _scan(self) -> NodeReading:
        self._let_go()
        try:
            pynvml.nvmlInit()
            self._initialised = True
            driver = _text(pynvml.nvmlSystemGetDriverVersion())
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            self._let_go()
            outdated = self._reached and error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            return NodeReading(problem=no_beginning(error.value, str(error)), outdated=outdated)
        self._reached = True
        self._wide_lists = wide_lists(driver)
        cuda = _optional(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        problems: list[str] = []
        cards: list[CardReading] = []
        for index in range(count):
            try:
                cards.append(self._read_card(index, driver))
            except (pynvml.NVMLError, UnicodeDecodeError, ValueError) as error:
                problems.append(f"card {index}: {error}")
        self._minors = tuple(minor for card in cards if (minor := minor_of(card)) >= 0)
        if not problems:  # else it may be the one that is listed and could not be read
            self._wants_reset = {
                uuid: xid for uuid, xid in self._wants_reset.items() if uuid in self._handles
            }
        self._listen()
        return NodeReading(
            cards=with_ways(cards, self._handles),
            versions={"driver": driver} | ({"cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"} if cuda else {}),
            problem="; ".join(problems),
        )

    def _read_card(self, index: int, driver: str) -> CardReading:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        capability = _capability(handle)
        cut = bool((_optional(pynvml.nvmlDeviceGetMigMode, handle) or (0,))[0])
        sm_count = _sm_count(_optional(pynvml.nvmlDeviceGetNumGpuCores, handle) or 0, capability)
        pci = _optional(pynvml.nvmlDeviceGetPciInfo, handle)
        minor = _optional(pynvml.nvmlDeviceGetMinorNumber, handle)
        limits: frozenset[Ability] = frozenset({"limit"} if not cut and offered(driver, handle) else ())
        reading = CardReading(
            uuid=uuid,
            index=index,
            product=_text(pynvml.nvmlDeviceGetName(handle)),
            memory_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB,
            clock_mhz=int(_optional(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM) or 0),
            pci_bus_id=_text(pci.busId).upper() if pci else "",
            closed_to=COMPUTE_MODES.get(_optional(pynvml.nvmlDeviceGetComputeMode, handle), ""),
            devices=(f"nvidia{index if minor is None else int(minor)}",),
            numbers=({"sm": sm_count} if sm_count else {})
            | ({"minor": int(minor)} if minor is not None else {}),
            attributes={"compute_capability": f"{capability[0]}.{capability[1]}"} if capability else {},
            abilities=MIG_ABILITIES if cut else SHARED | limits,
            isolation="hardware" if cut else "library",
        )
        if cut:
            known, caps = mig.profiles(handle, reading.memory_mib), mig.capabilities(self._mig_minors)
            found = mig.held(handle, reading.memory_mib, minor_of(reading), caps, known)
            reading = replace(reading, slices=tuple(found), layout=mig.layout(known))
        self._handles[uuid] = handle
        return reading

    def _listen(self) -> None:
        """Ask for error events of all cards; a card that has none is probed only."""
        self._uuid_of_pointer = {}
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        self._event_set = _optional(pynvml.nvmlEventSetCreate)
        if self._event_set is None:
            return
        for uuid, handle in self._handles.items():
            supported = _optional(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, wanted & supported, self._event_set)
                self._uuid_of_pointer[_pointer(handle)] = uuid
            except pynvml.NVMLError as error:
                log.info("card %s tells no events, it is probed only: %s", uuid, error)

    def faults(self) -> Mapping[str, str]:
        """See :meth:`Readings.faults`."""
        found = {uuid: self._fault(uuid, handle) for uuid, handle in self._handles.items()}
        for uuid, xid in self._wants_reset.items():
            found[uuid] = found.get(uuid) or f"XID {xid}: it has to be reset"
        return {uuid: fault for uuid, fault in found.items() if fault}

    def _fault(self, uuid: str, handle: Any) -> str:
        try:
            pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError as error:
            return f"the driver does not reach it: {error}"
        rows = _optional(pynvml.nvmlDeviceGetRemappedRows, handle)
        flagged = rows_fault(
            pending=bool(rows and rows[2]), failed=bool(rows and rows[3]), capability=_capability(handle)
        )
        flagged = flagged or recovery_fault(_recovery_action(handle)) or fabric_fault(handle)
        if flagged:
            return flagged
        ecc = _uncorrected(handle)
        before = self._ecc_seen.get(uuid)
        if ecc is not None:
            self._ecc_seen[uuid] = ecc
        if ecc is not None and before is not None and ecc > before:
            return f"uncorrected ECC errors rose from {before} to {ecc}"
        return ""

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        """See :meth:`Readings.wait_events`. XIDs that speak of programs only are left out."""
        early, self._early = self._early, ()
        if self._event_set is None or not self._uuid_of_pointer:
            time.sleep(timeout_s)
            return early
        return early + self._told(1 if early else max(1, int(timeout_s * 1000)))

    def _told(self, wait_ms: int) -> tuple[CardEvent, ...]:
        """Events of the open set: waits for the first, then takes what is there already."""
        events: list[CardEvent] = []
        while self._event_set is not None:
            try:
                data = pynvml.nvmlEventSetWait_v2(self._event_set, wait_ms)
            except pynvml.NVMLError_Timeout:
                break
            except pynvml.NVMLError as error:
                log.warning("waiting for card events failed, probing only until cards are counted: %s", error)
                _optional(pynvml.nvmlEventSetFree, self._event_set)
                self._event_set = None
                break
            wait_ms = 0
            uuid = self._uuid_of_pointer.get(_pointer(data.device))
            is_xid = data.eventType == pynvml.nvmlEventTypeXidCriticalError
            xid = int(data.eventData) if is_xid else DOUBLE_BIT_XID
            if uuid is not None and xid in RESET_XIDS:
                self._wants_reset[uuid] = xid
            if uuid is not None and xid not in APPLICATION_XIDS:
                events.append(CardEvent(uuid, f"XID {xid}", code=xid))
        return tuple(events)

    def sample(self, uuid: str) -> CardSample:
        """See :meth:`Readings.sample`."""
        handle = self._handles.get(uuid)
        if handle is None:
            return CardSample()
        memory = _optional(_memory, handle)
        reserved = getattr(memory, "reserved", None)
        rates = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power_mw = _optional(pynvml.nvmlDeviceGetPowerUsage, handle)
        encoder = _optional(pynvml.nvmlDeviceGetEncoderUtilization, handle)
        decoder = _optional(pynvml.nvmlDeviceGetDecoderUtilization, handle)
        rows = _optional(pynvml.nvmlDeviceGetRemappedRows, handle)
        return CardSample(
            memory_used_mib=None if memory is None else memory.used // MIB,
            memory_free_mib=None if memory is None else memory.free // MIB,
            memory_reserved_mib=None if reserved is None else reserved // MIB,
            gpu_util_percent=None if rates is None else int(rates.gpu),
            mem_copy_util_percent=None if rates is None else int(rates.memory),
            enc_util_percent=None if encoder is None else int(encoder[0]),
            dec_util_percent=None if decoder is None else int(decoder[0]),
            power_w=None if power_mw is None else power_mw / 1000,
            energy_mj=_optional(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            temperature_c=_optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            memory_temperature_c=_field(handle, pynvml.NVML_FI_DEV_MEMORY_TEMP),
            sm_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            mem_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            pcie_replays=_optional(pynvml.nvmlDeviceGetPcieReplayCounter, handle),
            remapped_rows=None if rows is None else int(rows[1]),
            corrected_remapped_rows=None if rows is None else int(rows[0]),
            row_remap_pending=None if rows is None else int(rows[2]),
            row_remap_failure=None if rows is None else int(rows[3]),
            ecc_uncorrected=_uncorrected(handle),
        )

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:
        """See :meth:`Readings.processes`."""
        handle = self._handles.get(uuid)
        if handle is None:
            raise UntoldError("the driver does not list it")
        alone, together, drawing = (
            running(handle, kind, wide=self._wide_lists) for kind in ("Compute", "MPSCompute", "Graphics")
        )
        used: dict[int, int] = {}  # one that is in several lists has in each what it has in all
        for one in (*drawing, *together, *alone):
            used[one.pid] = max(used.get(one.pid, 0), int(one.usedGpuMemory or 0))
        if not used:
            return ()
        mps = {one.pid for one in together}
        since_us = int((time.time() - 2) * 1_000_000)
        samples = _optional(pynvml.nvmlDeviceGetProcessUtilization, handle, since_us) or []
        # A process that has just ended may have any number there.
        newest = {sample.pid: sample for sample in sorted(samples, key=lambda one: int(one.timeStamp))}
        return tuple(
            ProcessSample(
                pid=int(pid),
                memory_mib=size // MIB,
                sm_percent=min(int(newest[pid].smUtil), 100) if pid in newest else 0,
                through="mps" if pid in mps else "",
            )
            for pid, size in used.items()
        )

    def close(self) -> None:
        """See :meth:`Readings.close`."""
        self._let_go()
        for child in self._companions:
            child.close()

    def _let_go(self) -> None:
        self._handles = {}
        self._uuid_of_pointer = {}
        if self._event_set is not None:
            _optional(pynvml.nvmlEventSetFree, self._event_set)
            self._event_set = None
        if self._initialised:
            _optional(pynvml.nvmlShutdown)
            self._initialised = False


def _optional(call: Callable[..., T], *arguments: Any) -> T | None:
    """The call's result, or None where the card, driver or library does not offer it or fails."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, UnicodeDecodeError):
        return None


@contextmanager
def _awake(minors: Iterable[int], dev: Path) -> Iterator[None]:
    """Hold cards that no program uses: where no persistence daemon does, they lie down when the library is
    closed, and take seconds to answer again."""
    with ExitStack() as held:
        for minor in minors:
            with suppress(OSError):
                held.callback(os.close, os.open(dev / f"nvidia{minor}", os.O_RDWR | os.O_CLOEXEC))
        yield


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _pointer(handle: Any) -> int:
    """The address behind an opaque handle: handles of events are new objects with the same address."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _field(handle: Any, field_id: int) -> int | None:
    values = _optional(pynvml.nvmlDeviceGetFieldValues, handle, [field_id])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def _memory(handle: Any) -> Any:
    """Drivers before 510 have the first version alone, whose sums leave out what they keep for themselves."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _capability(handle: Any) -> tuple[int, int] | None:
    told = _optional(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return None if told is None else (int(told[0]), int(told[1]))


def _recovery_action(handle: Any) -> int | None:
    return _field(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)


def _uncorrected(handle: Any) -> int | None:
    return _optional(
        pynvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )


def _sm_count(cores: int, capability: tuple[int, int] | None) -> int:
    if capability is None or cores <= 0:
        return 0
    per_sm = CORES_PER_SM_EXCEPTIONS.get(capability) or CORES_PER_SM.get(capability[0])
    return cores // per_sm if per_sm else 0
