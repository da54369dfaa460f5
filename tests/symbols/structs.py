"""Structs that the driver is given, and what arguments are."""

import ctypes
from collections.abc import Callable
from ctypes import c_uint, c_uint64

from symbols.scene import BYTES, ArrayFlat, Blob64, Location, Scene

Value = int | Blob64 | Location | float
Maker = Callable[[Scene], list[Value]]


def array(width: int) -> Maker:
    return lambda s: [s.scratch(), s.keep(ArrayFlat(width, 64, 0x20, 1))]


def box(s: Scene) -> int:
    """CUDA_MEMCPY3D_BATCH_OP of 4 KiB between two places on the card."""
    words = (c_uint64 * 16)()
    words[0], words[1], words[5], words[6] = 1, s.make_deviceptr(), 1, s.make_deviceptr()
    words[10], words[11], words[12] = BYTES, 1, 1
    return s.keep(words)


def copy_2d(s: Scene) -> int:
    """CUDA_MEMCPY2D within the card."""
    words = (c_uint64 * 16)()
    words[2], words[4], words[6] = 2, s.make_deviceptr(), BYTES
    words[9], words[11], words[13], words[14], words[15] = 2, s.make_deviceptr(), BYTES, BYTES, 1
    return s.keep(words)


def copy_3d(s: Scene) -> int:
    """CUDA_MEMCPY3D within the card; its twin between contexts is laid out alike."""
    words = (c_uint64 * 25)()
    words[4], words[6], words[9], words[10] = 2, s.make_deviceptr(), BYTES, 1
    words[15], words[17], words[20], words[21] = 2, s.make_deviceptr(), BYTES, 1
    words[22], words[23], words[24] = BYTES, 1, 1
    return s.keep(words)


def one(s: Scene, value: int) -> int:
    return s.keep((c_uint64 * 1)(value))


def memset_node(s: Scene) -> int:
    """CUDA_MEMSET_NODE_PARAMS: 4 KiB of zeros."""
    words = (c_uint * 10)()
    ctypes.memmove(words, ctypes.addressof(c_uint64(s.make_deviceptr())), 8)
    words[5], words[6], words[8] = 1, BYTES, 1
    return s.keep(words)


def host_node(s: Scene) -> int:
    return s.keep((c_uint64 * 2)(s.function_of_host(), 0))


def in_graph(content: Callable[[Scene], list[Value]]) -> Maker:
    """Adds a node that depends on nothing."""
    return lambda s: [s.scratch(), s.make_graph(), 0, 0, *content(s)]


def words(s: Scene, at: dict[int, int]) -> int:
    """A struct of 32-bit words, by their offsets in bytes."""
    words = (c_uint * 64)()
    for offset, value in at.items():
        words[offset // 4] = value
    return s.keep(words)


def old_2d(s: Scene) -> int:
    """CUDA_MEMCPY2D_v1 within the card."""
    return words(s, {8: 2, 52: 2, 84: BYTES, 88: 1})


def old_3d(s: Scene) -> int:
    """CUDA_MEMCPY3D_v1 within the card."""
    return words(s, {16: 2, 80: 2, 128: BYTES, 132: 1, 136: 1})
