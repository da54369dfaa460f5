"""NVIDIA's facts and words: labels and variables, what a card's flags mean, what NVML's codes mean. Pure.

Flags and codes are read after NVIDIA's guides.
"""

from typing import Final

from vc_egpu.volcano.words import names

from vc_egpu_node.vendors.base import CardReading, NodeLabels, UntoldError, VendorFacts

FACTS: Final = VendorFacts(
    name="nvidia",
    library="NVML",
    partitioned="MIG mode is on",
    open_command="nvidia-smi -i {uuid} -c DEFAULT",
    labels=NodeLabels(
        present=names.NVIDIA_PRESENT_LABEL,
        count=names.NVIDIA_COUNT_LABEL,
        product=names.NVIDIA_PRODUCT_LABEL,
    ),
    hide={"NVIDIA_VISIBLE_DEVICES": "void"},
    runtime="nvidia",
    all_cards="NVIDIA_VISIBLE_DEVICES=all",
    shared_devices=("nvidiactl", "nvidia-uvm"),
)


def minor_of(card: CardReading) -> int:
    """Number of the card's device node (``/dev/nvidia<minor>``), -1 where unknown."""
    return card.numbers.get("minor", -1)


APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the program that ran, not of the card: illegal access, page fault, stopped processing,
preemptive clean-up, video decoder exception, context switch time-out."""

RESET_XIDS: Final = frozenset({62, 64, 95, 119, 120, 140})
"""Errors after which NVIDIA wants the card to be reset, though it may still answer. They are a halted
microcontroller, rows that cannot be remapped, uncontained and unrecovered memory errors, and firmware that
does not answer."""

SETS_PAGES_ASIDE: Final = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
"""Compute capabilities of chips such as GA100, GH100 and GB100. They contain a memory error in the programs
that met it, and their driver takes the page out of use at once."""

RECOVERY: Final = {
    1: "for a reset of the card",
    2: "for a reboot of the node",
    3: "that programs which use it with other cards end",
    4: "that its programs end and it is reset: it does less",
    5: "that its IMEX domain is recovered",
    6: "for a reset of its bus",
    7: "for a reboot of the system",
}
"""By NVML's recovery action; 0: none."""

_REACH: Final = "it needs RuntimeClass nvidia or components/driver-root"
BEGINNINGS: Final = {
    9: f"the node has no NVIDIA driver loaded, or the agent's container has none of its devices: {_REACH}",
    12: f"libnvidia-ml.so.1 is not in the agent's container: {_REACH}",
    18: "the driver's files were changed under it: reload its module, or reboot the node",
}
"""By NVML's code when it is initialised: driver not loaded, library not found, versions that do not match."""


def no_beginning(code: int, text: str) -> str:
    """Why NVML cannot be used, for people."""
    return f"NVML: {text} ({BEGINNINGS[code]})" if code in BEGINNINGS else f"NVML: {text}"


def rows_fault(*, pending: bool, failed: bool, capability: tuple[int, int] | None) -> str:
    """What remapped rows say against the card; empty: nothing.

    Where pages are set aside, rows that wait for the next reset are out of use until then. Work goes on, and
    new work may begin. Elsewhere they are still given to programs.
    """
    if failed:
        return "a memory row could not be remapped"
    if pending and capability not in SETS_PAGES_ASIDE:
        return "memory rows wait for a reset to be remapped"
    return ""


BROKEN: Final = {
    3: "CUDA_ERROR_NOT_INITIALIZED",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
}
"""By the driver's code: what a program gets on a card whose driver, fabric or firmware is broken. Other codes
may speak of the program that asks, such as 2 (out of memory)."""


def trial_fault(code: int, call: str) -> str:
    """What the answer to making a context says against the card; empty: nothing. Raises
    :class:`UntoldError`."""
    if code in BROKEN:
        return f"programs cannot use it: {call} answers {BROKEN[code]} ({code})"
    if code < 0:
        raise UntoldError(f"the agent's container has no CUDA driver: {call}")
    if code > 0:
        raise UntoldError(f"{call} answers {code}")
    return ""


def recovery_fault(action: int | None) -> str:
    """What the driver asks for, as a fault; empty: nothing, or it is one that does not say."""
    return f"the driver asks {RECOVERY.get(action, f'for recovery action {action}')}" if action else ""
