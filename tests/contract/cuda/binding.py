"""The CUDA driver as Python calls it: every entry point of ``egpu_cuda_api.def`` with its argument types.

The same code runs on the fake driver and on a real one. A call that fails raises :class:`CudaError`.
"""

import ctypes
import re
from collections.abc import Callable
from ctypes import byref, c_char, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
NATIVE = REPOSITORY / "device-plugin" / "native"
KERNELS = (NATIVE / "programs" / "kernels.ptx").read_bytes() + b"\0"

OUT_OF_MEMORY, INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 2, 1, 201, 400, 600
NOT_FOUND, ILLEGAL_STATE, NOT_SUPPORTED, CONTEXT_IS_DESTROYED = 500, 401, 801, 709
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_UNJOINED, CAPTURE_ISOLATION = 900, 901, 904, 905
CAPTURE_IMPLICIT, CAPTURED_EVENT, CAPTURE_MERGE, CAPTURE_UNMATCHED = 906, 907, 902, 903
GRANULE = 2 << 20


class CudaError(Exception):
    """A call of the driver failed."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} returned {code}")
        self.code = code


class Handle64(ctypes.Structure):
    _fields_ = [("reserved", c_char * 64)]


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class AccessDescription(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handle_types", c_int), ("location", Location), ("win32", c_void_p),
                ("flags", c_char * 8)]  # fmt: skip


class PoolProperties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handle_types", c_int), ("location", Location), ("win32", c_void_p),
                ("max_size", c_size_t), ("usage", ctypes.c_ushort), ("reserved", c_char * 54)]  # fmt: skip


class AllocationNode(ctypes.Structure):
    _fields_ = [("pool", PoolProperties), ("access", c_void_p), ("access_count", c_size_t),
                ("bytes", c_size_t), ("pointer", c_uint64)]  # fmt: skip


class ArrayShape(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


class Array3DShape(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int),
                ("channels", c_uint), ("flags", c_uint)]  # fmt: skip


class LaunchConfiguration(ctypes.Structure):
    _fields_ = [("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p),
                ("attributes", c_void_p), ("attribute_count", c_uint)]  # fmt: skip


_BY_VALUE = {"CUipcMemHandle": Handle64, "CUipcEventHandle": Handle64, "CUmemLocation": Location}
_WIDE = {"size_t", "unsigned long long", "uint64_t", "CUdeviceptr", "CUmemGenericAllocationHandle",
         "CUgraphConditionalHandle"}  # fmt: skip
_HANDLE = re.compile(
    r"CU(context|module|function|library|kernel|array|mipmappedArray|event|stream|graph(Node|Exec)?"
    r"|memoryPool|externalMemory|externalSemaphore|userObject|linkState|greenCtx|devResourceDesc|texref|surfref"
    r"|graphicsResource|(async|logs|coredump)CallbackHandle|checkpointOperationHandle)"
)
_ROW = re.compile(r"EGPU_API(_T[SD][ZS])?\((\w+), (\w*) ?, (\d+), \(([^;]*?)\)\)\n", re.DOTALL)


def _ctype(text: str) -> type:
    kind = text.replace("const", "").strip()
    if "*" in kind or kind in {"CUhostFn", "CUstreamCallback", "CUoccupancyB2DSize"}:
        return c_void_p
    if kind in _BY_VALUE:
        return _BY_VALUE[kind]
    if kind in _WIDE:
        return c_uint64
    if _HANDLE.fullmatch(kind):
        return c_void_p
    return c_int if kind.startswith("CU") or kind == "int" else c_uint


def argument_types(arguments: str) -> list[type]:
    """Of a prototype's argument list, with or without names."""
    if arguments.strip() == "void":
        return []
    return [_ctype(re.sub(r"(?<=[\w*] )\w+$", "", part.strip()) or part) for part in arguments.split(",")]


def signatures() -> dict[str, tuple[int, list[type]]]:
    """Symbol → (CUDA version from which it exists, argument types), the per-thread twins included."""
    found: dict[str, tuple[int, list[type]]] = {}
    for name in ("egpu_cuda_api.def", "egpu_cuda_memory.def"):
        for twin, base, suffix, since, arguments in _ROW.findall((NATIVE / "include" / name).read_text()):
            types = [] if arguments == "void" else [_ctype(part) for part in arguments.split(",")]
            symbol = base + suffix
            found[symbol] = (int(since), types)
            if twin:
                found[symbol + twin.lower().replace("_t", "_pt")] = (max(int(since), 7000), types)
    return found


class Driver:
    """A loaded driver. Its calls are attributes: ``driver.cuInit(0)``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.types = signatures()

    def code(self, name: str, *arguments: object) -> int:
        """Calls and gives the code, whatever it is."""
        function = getattr(self.library, name)
        function.argtypes = self.types[name][1]
        function.restype = c_int
        return int(function(*arguments))

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: object) -> None:
            code = self.code(name, *arguments)
            if code:
                raise CudaError(name, code)

        return call

    # --- shorthands: what most tests need ---------------------------------------------------------
    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value

    def total_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.cuMemGetInfo_v2(byref(free), byref(total))
        return total.value

    def allocate(self, size: int) -> int:
        pointer = c_uint64()
        self.cuMemAlloc_v2(byref(pointer), size)
        return pointer.value

    def primary(self, device: int = 0) -> int | None:
        context = c_void_p()
        self.cuDevicePrimaryCtxRetain(byref(context), device)
        return context.value

    def stream(self, flags: int = 1) -> int | None:
        stream = c_void_p()
        self.cuStreamCreate(byref(stream), flags)
        return stream.value

    def event(self, flags: int = 0) -> int | None:
        event = c_void_p()
        self.cuEventCreate(byref(event), flags)
        return event.value

    def elapsed_ms(self, begin: int | None, end: int | None) -> float:
        milliseconds = c_float()
        self.cuEventElapsedTime(byref(milliseconds), begin, end)
        return milliseconds.value

    def kernel(self, name: str) -> int | None:
        module, function = c_void_p(), c_void_p()
        self.cuModuleLoadData(byref(module), KERNELS)
        self.cuModuleGetFunction(byref(function), module, name.encode())
        return function.value

    def launch(
        self, function: int | None, stream: int | None, *values: int, symbol: str = "cuLaunchKernel"
    ) -> None:
        """Arguments are 64 bits wide, which does for 32-bit ones too."""
        words = [c_uint64(value) for value in values]
        pointers = (c_void_p * len(words))(*[ctypes.addressof(word) for word in words])
        shape = (1, 1, 1, 1, 1, 1, 0)
        more = (None,) if "Cooperative" not in symbol else ()
        getattr(self, symbol)(function, *shape, stream, pointers, *more)

    def hold(self, *streams: int | None) -> Callable[[], None]:
        """Nothing that is put into these streams from now on begins before the answer is called."""
        word, other = self.allocate(8), self.stream()
        self.cuMemsetD8_v2(word, 0, 8)
        self.cuCtxSynchronize()
        for stream in streams:
            self.cuStreamWaitValue32_v2(stream, word, 1, 0)
        return lambda: self.cuStreamWriteValue32_v2(other, word, 1, 0)

    def read_word(self, pointer: int) -> int:
        word = c_uint64()
        self.cuMemcpyDtoH_v2(ctypes.addressof(word), pointer, 8)
        return word.value
