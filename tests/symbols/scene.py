"""Things of the driver to call its entry points with: made when an argument of that type is wanted."""

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable
from ctypes import c_char, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any, Final

MIB: Final = 1 << 20
BYTES: Final = 4096
SCRATCH: Final = 1 << 14
ARRAY: Final = b".visible .global .align 8 .b8 egpu_table[8388608];\n"

Call = Callable[..., int]
"""Calls an entry point by name with plain values, past whatever is tried."""


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", c_int), ("id", c_int)]


class Blob64(ctypes.Structure):
    """A handle that is passed by value."""

    _fields_ = [("bytes", c_char * 64)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp, and the head of CUmemPoolProps."""

    _fields_ = [("type", c_int), ("handles", c_int), ("location", Location), ("win32", c_void_p),
                ("more", c_ubyte * 64)]  # fmt: skip


class Array3D(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR; its head is CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int),
                ("channels", c_uint), ("flags", c_uint)]  # fmt: skip


class ArrayFlat(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("flags", c_int)]


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = [("function", c_void_p), ("shape", c_uint * 7), ("parameters", c_void_p), ("extra", c_void_p),
                ("kernel", c_void_p), ("context", c_void_p)]  # fmt: skip


class MemoryNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = [("pool", c_ubyte * 88), ("access", c_void_p), ("count", c_size_t), ("bytes", c_size_t),
                ("pointer", c_uint64)]  # fmt: skip


class External(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC."""

    _fields_ = [("type", c_uint64), ("file", c_uint64), ("name", c_uint64), ("size", c_uint64),
                ("flags", c_uint), ("more", c_ubyte * 64)]  # fmt: skip


def device_memory() -> Properties:
    """Pinned memory on card 0 that may be exported as a file."""
    return Properties(1, 1, Location(1, 0))


def memory_node() -> MemoryNode:
    """4 MiB on card 0."""
    node = MemoryNode(bytes=4 * MIB)
    ctypes.memmove(node.pool, ctypes.addressof(device_memory()), 24)
    return node


def array_shape(width: int) -> Array3D:
    """Two-dimensional, of floats."""
    return Array3D(width, 64, 0, 0x20, 1, 0)


class Scene:
    """What one call is given. ``kernels``: PTX text. Not for several threads."""

    def __init__(self, call: Call, kernels: bytes) -> None:
        self.call = call
        self.kernels = kernels
        self.kept: list[object] = []
        self.files = contextlib.ExitStack()
        self.undo: list[tuple[str, tuple[object, ...]]] = []

    def close(self) -> None:
        """Gives everything back, the last first; what the call itself took away is no error."""
        for name, arguments in reversed(self.undo):
            self.call(name, *arguments)
        self.undo.clear()
        self.kept.clear()
        self.files.close()

    def keep(self, value: Any) -> int:
        """Its address, good until :meth:`close`."""
        self.kept.append(value)
        return ctypes.addressof(value)

    def scratch(self) -> int:
        """Zeros to read or to write over."""
        return self.keep((c_ubyte * SCRATCH)())

    def text(self, value: bytes) -> int:
        """A C string."""
        return self.keep(ctypes.create_string_buffer(value))

    def _made(self, name: str, *arguments: object, undo: str = "") -> int:
        cell = c_uint64()
        code = self.call(name, ctypes.addressof(cell), *arguments)
        assert code == 0, f"{name}: {code}"
        if undo:
            self.undo.append((undo, (cell.value,)))
        return cell.value

    def value(self, kind: str) -> int:
        """A new thing of that C type."""
        make = getattr(self, "make_" + kind.removeprefix("CU"), None)
        return int(make()) if make else 0

    # --- one for each type of handle --------------------------------------------------------------
    def make_context(self) -> int:
        context = self._made("cuCtxCreate_v2", 0, 0, undo="cuCtxDestroy_v2")
        self.call("cuCtxPopCurrent_v2", self.scratch())
        return context

    def make_stream(self) -> int:
        return self._made("cuStreamCreate", 1, undo="cuStreamDestroy_v2")

    def make_event(self) -> int:
        return self._made("cuEventCreate", 0, undo="cuEventDestroy_v2")

    def make_deviceptr(self) -> int:
        return self._made("cuMemAlloc_v2", 4 * MIB, undo="cuMemFree_v2")

    def make_module(self) -> int:
        return self._made("cuModuleLoadData", self.text(ARRAY + self.kernels), undo="cuModuleUnload")

    def make_function(self) -> int:
        return self._made("cuModuleGetFunction", self.make_module(), self.text(b"egpu_spin"))

    def make_library(self) -> int:
        none = (0,) * 6
        image = self.text(ARRAY + self.kernels)
        return self._made("cuLibraryLoadData", image, *none, undo="cuLibraryUnload")

    def make_kernel(self) -> int:
        return self._made("cuLibraryGetKernel", self.make_library(), self.text(b"egpu_spin"))

    def make_array(self) -> int:
        return self._made("cuArray3DCreate_v2", self.keep(array_shape(512)), undo="cuArrayDestroy")

    def make_mipmappedArray(self) -> int:  # noqa: N802 - CUDA's own spelling
        shape = self.keep(array_shape(512))
        return self._made("cuMipmappedArrayCreate", shape, 1, undo="cuMipmappedArrayDestroy")

    def make_memoryPool(self) -> int:  # noqa: N802 - CUDA's own spelling
        return self._made("cuMemPoolCreate", self.keep(device_memory()), undo="cuMemPoolDestroy")

    def make_memGenericAllocationHandle(self) -> int:  # noqa: N802 - CUDA's own spelling
        return self._made("cuMemCreate", 2 * MIB, self.keep(device_memory()), 0, undo="cuMemRelease")

    def make_graph(self) -> int:
        return self._made("cuGraphCreate", 0, undo="cuGraphDestroy")

    def kernel_node(self) -> int:
        """Parameters of a kernel of 1 ns."""
        length = c_uint64(1)
        pointers = (c_void_p * 1)(self.keep(length))
        shape = (c_uint * 7)(1, 1, 1, 1, 1, 1, 0)
        return self.keep(KernelNode(self.make_function(), shape, self.keep(pointers)))

    def make_graphNode(self) -> int:  # noqa: N802 - CUDA's own spelling
        return self._made("cuGraphAddKernelNode_v2", self.make_graph(), 0, 0, self.kernel_node())

    def make_graphExec(self) -> int:  # noqa: N802 - CUDA's own spelling
        return self._made("cuGraphInstantiateWithFlags", self.make_graph(), 0, undo="cuGraphExecDestroy")

    def make_externalMemory(self) -> int:  # noqa: N802 - CUDA's own spelling
        what = self.keep(External(1, os.memfd_create("external"), 0, 4 * MIB))
        return self._made("cuImportExternalMemory", what, undo="cuDestroyExternalMemory")

    def make_devResourceDesc(self) -> int:  # noqa: N802 - CUDA's own spelling
        return self._made("cuDevResourceGenerateDesc", self.scratch(), 1)

    def make_greenCtx(self) -> int:  # noqa: N802 - CUDA's own spelling
        return self._made("cuGreenCtxCreate", self.make_devResourceDesc(), 0, 1, undo="cuGreenCtxDestroy")

    # --- what has no type of its own --------------------------------------------------------------
    def managed(self) -> int:
        """Managed memory."""
        return self._made("cuMemAllocManaged", 4 * MIB, 1, undo="cuMemFree_v2")

    def host(self) -> int:
        """Pinned memory of the host."""
        return self._made("cuMemHostAlloc", MIB, 2, undo="cuMemFreeHost")

    def function_of_host(self) -> int:
        """Address of a function that takes anything and does nothing."""
        return ctypes.cast(ctypes.CDLL(None).getppid, c_void_p).value or 0

    def recorded(self) -> int:
        """An event that was reached."""
        event = self.make_event()
        self.call("cuEventRecord", event, 1)
        self.call("cuEventSynchronize", event)
        return event

    def exec_and_node(self) -> tuple[int, int]:
        """An executable graph of one kernel, and that node of its graph."""
        graph = self.make_graph()
        node = self._made("cuGraphAddKernelNode_v2", graph, 0, 0, self.kernel_node())
        return self._made("cuGraphInstantiateWithFlags", graph, 0, undo="cuGraphExecDestroy"), node

    def node(self, add: str, *content: object) -> tuple[int, int]:
        """A graph, and the node in it that ``add`` makes of that content."""
        graph = self.make_graph()
        return graph, self._made(add, graph, 0, 0, *content)

    def executable(self, graph: int) -> int:
        """Of that graph."""
        return self._made("cuGraphInstantiateWithFlags", graph, 0, undo="cuGraphExecDestroy")

    def clone(self, graph: int) -> int:
        """Of that graph."""
        return self._made("cuGraphClone", graph, undo="cuGraphDestroy")

    def team(self, *, joined: bool) -> int:
        """A multicast object of 2 MiB, which card 0 has joined or not."""
        wanted = self.keep((c_uint64 * 4)(1, 2 * MIB))
        made = self._made("cuMulticastCreate", wanted, undo="cuMemRelease")
        if joined:
            self.call("cuMulticastAddDevice", made, 0)
        return made

    def page(self) -> int:
        """Memory of the process, which is unregistered from the driver afterwards."""
        address = self.scratch() + BYTES & ~(BYTES - 1)
        self.undo.append(("cuMemHostUnregister", (address,)))
        return address

    def context_on_other_card(self) -> int:
        """Not current."""
        context = self._made("cuCtxCreate_v2", 0, 1, undo="cuCtxDestroy_v2")
        self.call("cuCtxPopCurrent_v2", self.scratch())
        return context

    def event_for_others(self) -> int:
        """An event that may be handed to another process."""
        return self._made("cuEventCreate", 6, undo="cuEventDestroy_v2")

    def reserved(self) -> int:
        """Addresses without memory, 2 MiB of them."""
        address = self._made("cuMemAddressReserve", 2 * MIB, 0, 0, 0)
        self.undo.append(("cuMemAddressFree", (address, 2 * MIB)))
        return address

    def mapped(self) -> int:
        """Addresses with memory behind them."""
        address = self.reserved()
        self.call("cuMemMap", address, 2 * MIB, 0, self.make_memGenericAllocationHandle(), 0)
        self.undo.append(("cuMemUnmap", (address, 2 * MIB)))
        return address

    def pooled(self, pool: int) -> int:
        """From that pool."""
        return self._made("cuMemAllocFromPoolAsync", 4 * MIB, pool, 1, undo="cuMemFree_v2")

    def capturing(self) -> int:
        """A stream of which a graph is made."""
        stream = self.make_stream()
        assert self.call("cuStreamBeginCapture_v2", stream, 2) == 0
        self.undo.append(("cuStreamEndCapture", (stream, self.scratch())))
        return stream

    def memory_graph(self) -> int:
        """A graph that takes 4 MiB and gives them back."""
        graph = self.make_graph()
        wanted = memory_node()
        node = self._made("cuGraphAddMemAllocNode", graph, 0, 0, self.keep(wanted))
        first = (c_uint64 * 1)(node)
        self._made("cuGraphAddMemFreeNode", graph, self.keep(first), 1, wanted.pointer)
        return graph

    def ipc(self) -> Blob64:
        """Handle of memory."""
        handle = Blob64()
        self.call("cuIpcGetMemHandle", ctypes.addressof(handle), self.make_deviceptr())
        return handle

    def shared_file(self) -> int:
        """Number of the file of exported memory."""
        number = c_int()
        handle = self.make_memGenericAllocationHandle()
        self.call("cuMemExportToShareableHandle", ctypes.addressof(number), handle, 1, 0)
        return number.value

    def image(self) -> int:
        """Text with kernels and an array of 8 MiB."""
        return self.text(ARRAY + self.kernels)

    def more_than_before(self) -> int:
        """Bytes of heap for kernels, more than there are."""
        now = c_uint64()
        self.call("cuCtxGetLimit", ctypes.addressof(now), 2)
        return now.value + 16 * MIB

    def other_card(self) -> int:
        """A card without a context."""
        self.undo.append(("cuDevicePrimaryCtxReset_v2", (1,)))
        return 1

    def image_file(self) -> int:
        """Path of a file with kernels, as a C string."""
        handle, path = tempfile.mkstemp(suffix=".ptx")
        self.files.callback(os.unlink, path)
        with os.fdopen(handle, "wb") as file:
            file.write(ARRAY + self.kernels)
        return self.text(path.encode())
