"""The pages between agent and library, as ``native/abi/*.h`` lays them out.

Structures mirror the headers field by field (a test compares sizes and offsets with a C compiler's); numbers
are little-endian.
"""

import ctypes
from typing import Any, ClassVar, Final

CONTROL_MAGIC: Final = 0x55504745
ABI_MAJOR: Final = 1
ABI_MINOR: Final = 2
MAX_CARDS: Final = 16
MAX_PEERS: Final = 128
MAX_BEYOND: Final = 128
NAME_BYTES: Final = 64
UUID_BYTES: Final = 48
PCI_BYTES: Final = 32

CLASS_UNSET: Final = 0
CLASS_LOW: Final = 1
CLASS_HIGH: Final = 2
CORES_FREE: Final = 0
CORES_HARD: Final = 1
CORES_SOFT: Final = 2
CARD_SPILL: Final = 1 << 0
CARD_HIGH_HERE: Final = 1 << 1

CONTROL_PATH: Final = "/etc/egpu/control"
SEED_PATH: Final = "/run/egpu/seed"
USAGE_PATH: Final = "/run/egpu/usage"
ACTIVITY_PATH: Final = "/run/egpu/activity"
PEERS_FOLDER: Final = "/run/egpu/peers"

_Fields = list[tuple[str, Any]]


class ControlCard(ctypes.LittleEndianStructure):
    """``struct egpu_control_card``."""

    _fields_: ClassVar[_Fields] = [
        ("uuid", ctypes.c_char * UUID_BYTES),
        ("pci_bus_id", ctypes.c_char * PCI_BYTES),
        ("memory_bytes", ctypes.c_uint64),
        ("physical_bytes", ctypes.c_uint64),
        ("context_bytes", ctypes.c_uint64),
        ("cores_percent", ctypes.c_uint32),
        ("core_policy", ctypes.c_uint32),
        ("weight", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    ]


class ControlPeer(ctypes.LittleEndianStructure):
    """``struct egpu_control_peer``."""

    _fields_: ClassVar[_Fields] = [
        ("name", ctypes.c_char * NAME_BYTES),
        ("peer_class", ctypes.c_uint32),
        ("cards", ctypes.c_uint32),
        ("pod_cards", ctypes.c_uint32),
        ("peer_card_of", ctypes.c_uint32 * MAX_CARDS),
        ("reserved", ctypes.c_uint32),
    ]


class ControlBeyond(ctypes.LittleEndianStructure):
    """``struct egpu_control_beyond``."""

    _fields_: ClassVar[_Fields] = [("owner", ctypes.c_uint64), ("bytes_card", ctypes.c_uint64)]


class ControlPage(ctypes.LittleEndianStructure):
    """``struct egpu_control``."""

    _fields_: ClassVar[_Fields] = [
        ("magic", ctypes.c_uint32),
        ("abi_major", ctypes.c_uint32),
        ("abi_minor", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("sequence", ctypes.c_uint64),
        ("generation", ctypes.c_uint64),
        ("name", ctypes.c_char * NAME_BYTES),
        ("own_class", ctypes.c_uint32),
        ("suspended", ctypes.c_uint32),
        ("card_count", ctypes.c_uint32),
        ("peer_count", ctypes.c_uint32),
        ("hysteresis_us", ctypes.c_uint32),
        ("lease_ms", ctypes.c_uint32),
        ("hang_ms", ctypes.c_uint32),
        ("in_flight_us", ctypes.c_uint32),
        ("low_floor_percent", ctypes.c_uint32),
        ("low_floor_after_ms", ctypes.c_uint32),
        ("host_memory_mib", ctypes.c_uint32),
        ("unheld", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 8),
        ("cards", ControlCard * MAX_CARDS),
        ("peers", ControlPeer * MAX_PEERS),
        ("beyond_bytes", ctypes.c_uint64 * MAX_CARDS),
        ("beyond_count", ctypes.c_uint32),
        ("reserved_beyond", ctypes.c_uint32),
        ("beyond", ControlBeyond * MAX_BEYOND),
    ]


CONTROL_BYTES: Final = ctypes.sizeof(ControlPage)
CONTROL_LEAST_BYTES: Final = ControlPage.beyond_bytes.offset
"""Size of a page of minor version 0."""
SEQUENCE_OFFSET: Final = 16
"""Where ``ControlPage.sequence`` lies; ``generation`` follows it."""
BODY_OFFSET: Final = 32
"""Behind the lock: what is compared before a page is written."""


USAGE_MAGIC: Final = 0x53554745
USAGE_SLOTS: Final = 1024
USAGE_SHARED: Final = 1024
ACTIVITY_MAGIC: Final = 0x41504745
ACTIVITY_CARD_BYTES: Final = 1792


class UsageBytes(ctypes.LittleEndianStructure):
    """``struct egpu_usage_bytes``."""

    _fields_: ClassVar[_Fields] = [("device", ctypes.c_uint64), ("managed", ctypes.c_uint64)]


class UsageSlot(ctypes.LittleEndianStructure):
    """``struct egpu_usage_slot``."""

    _fields_: ClassVar[_Fields] = [
        ("owner", ctypes.c_uint64),
        ("pid_namespace", ctypes.c_uint64),
        ("contexts", ctypes.c_uint64),
        ("changes", ctypes.c_uint64),
        ("cards", UsageBytes * MAX_CARDS),
    ]


class UsageShared(ctypes.LittleEndianStructure):
    """``struct egpu_usage_shared``."""

    _fields_: ClassVar[_Fields] = [
        ("key", ctypes.c_uint64),
        ("bytes_card", ctypes.c_uint64),
        ("holders", ctypes.c_uint64 * (USAGE_SLOTS // 64)),
    ]


class UsagePage(ctypes.LittleEndianStructure):
    """``struct egpu_usage``."""

    _fields_: ClassVar[_Fields] = [
        ("magic", ctypes.c_uint32),
        ("abi_major", ctypes.c_uint32),
        ("abi_minor", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("lock", ctypes.c_uint64),
        ("slots_used", ctypes.c_uint32),
        ("shared_used", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 12),
        ("slots", UsageSlot * USAGE_SLOTS),
        ("shared", UsageShared * USAGE_SHARED),
    ]


class ActivityCard(ctypes.LittleEndianStructure):
    """The part of ``struct egpu_activity_card`` that the agent reads."""

    _fields_: ClassVar[_Fields] = [
        ("word", ctypes.c_uint32),
        ("weight", ctypes.c_uint32),
        ("beat_ns", ctypes.c_uint64),
        ("progress_ns", ctypes.c_uint64),
        ("wanted_ns", ctypes.c_uint64),
        ("reserved0", ctypes.c_uint64 * 2),
        ("measured_ns", ctypes.c_uint64),
        ("measured_at_ns", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("units", ctypes.c_uint64),
        ("longest_ns", ctypes.c_uint64),
        ("held_ns", ctypes.c_uint64),
        ("capped_ns", ctypes.c_uint64),
        ("rest", ctypes.c_uint8 * (ACTIVITY_CARD_BYTES - 104)),
    ]


class ActivityPage(ctypes.LittleEndianStructure):
    """The part of ``struct egpu_activity`` that the agent reads; behind it are the library's own books."""

    _fields_: ClassVar[_Fields] = [
        ("magic", ctypes.c_uint32),
        ("abi_major", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint32),
        ("slots_used", ctypes.c_uint64),
        ("reserved1", ctypes.c_uint64 * 5),
        ("cards", ActivityCard * MAX_CARDS),
    ]


def namespace_at(place: int) -> int:
    """Where in a usage page a slot says of which PID namespace it is."""
    return UsagePage.slots.offset + place * ctypes.sizeof(UsageSlot) + UsageSlot.pid_namespace.offset


def measured_at(card: int) -> int:
    """Where in an activity page the driver's count of a card lies, and behind it the time of that count."""
    return ActivityPage.cards.offset + card * ctypes.sizeof(ActivityCard) + ActivityCard.measured_ns.offset


USAGE_BYTES: Final = ctypes.sizeof(UsagePage)
"""Size of the file ``usage``."""
ACTIVITY_BYTES: Final = 40960
"""Size of the file ``activity``: whole pages."""
