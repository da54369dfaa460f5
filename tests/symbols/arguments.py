"""What each entry point is called with: by its types, or as said here, so that the driver does it."""

import ctypes
from ctypes import c_size_t, c_uint, c_uint64, c_ulong
from typing import Final

from symbols.nodes import NODES
from symbols.rows import Row
from symbols.scene import (
    BYTES,
    MIB,
    Access,
    Blob64,
    External,
    Location,
    Scene,
    array_shape,
    device_memory,
    memory_node,
)
from symbols.structs import (
    Maker,
    Value,
    array,
    box,
    copy_2d,
    copy_3d,
    host_node,
    in_graph,
    memset_node,
    old_2d,
    old_3d,
    one,
    words,
)

NUMBERS: Final = {"size_t": 1, "int": 0, "unsigned": 0, "CUjitInputType": 1, "CUdeviceptr_v1": 0}


def _by_type(scene: Scene, kind: str) -> Value:
    plain = kind.removeprefix("const ").strip()
    if plain == "char *" and kind.startswith("const"):
        return scene.text(b"egpu_spin")
    if "*" in plain:
        return scene.scratch()
    if plain in ("CUipcMemHandle", "CUipcEventHandle"):
        return Blob64()
    if plain == "CUmemLocation":
        return Location(1, 0)
    if plain == "float":
        return 0.0
    return NUMBERS.get(plain, 0) or scene.value(plain)


def _launch(s: Scene) -> list[Value]:
    pointers = (c_uint64 * 1)(s.keep(c_uint64(1000)))
    return [s.make_function(), 1, 1, 1, 1, 1, 1, 0, s.make_stream(), s.keep(pointers)]


def _launch_ex(s: Scene) -> list[Value]:
    words = (c_uint * 16)(1, 1, 1, 1, 1, 1, 0)
    ctypes.memmove(ctypes.addressof(words) + 32, ctypes.addressof(c_uint64(s.make_stream())), 8)
    pointers = (c_uint64 * 1)(s.keep(c_uint64(1000)))
    return [s.keep(words), s.make_function(), s.keep(pointers), 0]


def _location(s: Scene) -> int:
    return s.keep(Location(1, 0))


def _batch(s: Scene) -> list[Value]:
    to, source, size = one(s, s.make_deviceptr()), one(s, s.make_deviceptr()), one(s, BYTES)
    return [to, source, size, 1, s.scratch(), s.scratch(), 1]


def _prefetch_batch(s: Scene) -> list[Value]:
    places = [_location(s), s.scratch(), 1]
    return [one(s, s.managed()), one(s, MIB), 1, *places, 0, s.make_stream()]


def _ended(s: Scene) -> list[Value]:
    """A capture that is under way; it is ended by the call."""
    stream = s.capturing()
    s.undo.pop()
    return [stream, s.scratch()]


def _started(s: Scene) -> int:
    stream = s.make_stream()
    s.undo.append(("cuStreamEndCapture", (stream, s.scratch())))
    return stream


def _devices(s: Scene) -> list[Value]:
    """CUDA_LAUNCH_PARAMS of one card."""
    words = (c_uint64 * 7)()
    words[0] = s.make_function()
    shape = (c_uint * 7)(1, 1, 1, 1, 1, 1, 0)
    ctypes.memmove(ctypes.addressof(words) + 8, shape, 28)
    words[5] = s.make_stream()
    words[6] = s.keep((c_uint64 * 1)(s.keep(c_uint64(1000))))
    return [s.keep(words), 1, 0]


def _set_2d(*, stream: bool) -> Maker:
    return lambda s: [s.make_deviceptr(), BYTES, 0, 16, 4, *([s.make_stream()] if stream else [])]


GIVEN: Final[dict[str, Maker]] = {
    "cuGetProcAddress": lambda s: [s.text(b"cuMemAlloc"), s.scratch(), 12000, 0],
    "cuGetProcAddress_v2": lambda s: [s.text(b"cuMemAlloc"), s.scratch(), 12000, 0, s.scratch()],
    "cuMemAlloc_v2": lambda s: [s.scratch(), 4 * MIB],
    "cuMemAllocPitch_v2": lambda s: [s.scratch(), s.scratch(), MIB, 4, 4],
    "cuMemAllocManaged": lambda s: [s.scratch(), 4 * MIB, 1],
    "cuMemAllocAsync": lambda s: [s.scratch(), 100 * MIB, s.make_stream()],
    "cuMemAllocFromPoolAsync": lambda s: [s.scratch(), 4 * MIB, s.make_memoryPool(), s.make_stream()],
    "cuMemFreeAsync": lambda s: [s.pooled(s.make_memoryPool()), s.make_stream()],
    "cuMemPoolCreate": lambda s: [s.scratch(), s.keep(device_memory())],
    "cuMemCreate": lambda s: [s.scratch(), 2 * MIB, s.keep(device_memory()), 0],
    "cuMemMap": lambda s: [s.reserved(), 2 * MIB, 0, s.make_memGenericAllocationHandle(), 0],
    "cuMemUnmap": lambda s: [s.mapped(), 2 * MIB],
    "cuMemRetainAllocationHandle": lambda s: [s.scratch(), s.mapped()],
    "cuMemExportToShareableHandle": lambda s: [s.scratch(), s.make_memGenericAllocationHandle(), 1, 0],
    "cuMemImportFromShareableHandle": lambda s: [s.scratch(), s.shared_file(), 1],
    "cuMemSetAccess": lambda s: [s.mapped(), 2 * MIB, s.keep(Access(Location(1, 0), 3)), 1],
    "cuMemGetAccess": lambda s: [s.scratch(), _location(s), s.mapped()],
    "cuMemAddressReserve": lambda s: [s.scratch(), 2 * MIB, 0, 0, 0],
    "cuMemAddressFree": lambda s: [s.reserved(), 2 * MIB],
    "cuMemGetAllocationGranularity": lambda s: [s.scratch(), s.keep(device_memory()), 0],
    "cuMemGetAllocationPropertiesFromHandle": lambda s: [s.scratch(), s.make_memGenericAllocationHandle()],
    "cuMemHostGetDevicePointer_v2": lambda s: [s.scratch(), s.host(), 0],
    "cuMemHostGetFlags": lambda s: [s.scratch(), s.host()],
    "cuMemHostAlloc": lambda s: [s.scratch(), MIB, 0],
    "cuMemAllocHost_v2": lambda s: [s.scratch(), MIB],
    "cuMemFreeHost": lambda s: [s.host()],
    "cuArrayCreate_v2": array(1024),
    "cuArray3DCreate_v2": lambda s: [s.scratch(), s.keep(array_shape(1024))],
    "cuMipmappedArrayCreate": lambda s: [s.scratch(), s.keep(array_shape(1024)), 1],
    "cuIpcOpenMemHandle": lambda s: [s.scratch(), s.ipc(), 1],
    "cuIpcOpenMemHandle_v2": lambda s: [s.scratch(), s.ipc(), 1],
    "cuCtxSetLimit": lambda s: [2, s.more_than_before()],
    "cuCtxAttach": lambda s: [s.scratch(), 0],
    "cuDevicePrimaryCtxRetain": lambda s: [s.scratch(), s.other_card()],
    "cuGreenCtxCreate": lambda s: [s.scratch(), s.make_devResourceDesc(), s.other_card(), 1],
    "cuGreenCtxStreamCreate": lambda s: [s.scratch(), s.make_greenCtx(), 1, 0],
    "cuDevResourceGenerateDesc": lambda s: [s.scratch(), s.scratch(), 1],
    "cuModuleLoad": lambda s: [s.scratch(), s.image_file()],
    "cuModuleLoadData": lambda s: [s.scratch(), s.image()],
    "cuModuleLoadDataEx": lambda s: [s.scratch(), s.image(), 0, 0, 0],
    "cuModuleLoadFatBinary": lambda s: [s.scratch(), s.image()],
    "cuModuleGetGlobal_v2": lambda s: [s.scratch(), s.scratch(), s.make_module(), s.text(b"egpu_table")],
    "cuLibraryLoadData": lambda s: [s.scratch(), s.image(), 0, 0, 0, 0, 0, 0],
    "cuLibraryLoadFromFile": lambda s: [s.scratch(), s.image_file(), 0, 0, 0, 0, 0, 0],
    "cuLibraryGetGlobal": lambda s: [s.scratch(), s.scratch(), s.make_library(), s.text(b"egpu_table")],
    "cuImportExternalMemory": lambda s: [s.scratch(), s.keep(External(1, s.shared_file(), 0, MIB))],
    "cuGraphInstantiate": lambda s: [s.scratch(), s.memory_graph(), 0, 0, 0],
    "cuGraphInstantiate_v2": lambda s: [s.scratch(), s.memory_graph(), 0, 0, 0],
    "cuGraphInstantiateWithFlags": lambda s: [s.scratch(), s.memory_graph(), 0],
    "cuGraphInstantiateWithParams": lambda s: [s.scratch(), s.memory_graph(), s.scratch()],
    "cuLaunchKernel": lambda s: [*_launch(s), 0],
    "cuLaunchCooperativeKernel": _launch,
    "cuLaunchKernelEx": _launch_ex,
    "cuStreamBeginCapture_v2": lambda s: [_started(s), 2],
    "cuStreamBeginCapture": lambda s: [_started(s)],
    "cuStreamBeginCaptureToGraph": lambda s: [_started(s), s.make_graph(), 0, 0, 0, 2],
    "cuStreamEndCapture": _ended,
    "cuMemcpyDtoA_v2": lambda s: [s.make_array(), 0, s.make_deviceptr(), BYTES],
    "cuMemcpyAtoD_v2": lambda s: [s.make_deviceptr(), s.make_array(), 0, BYTES],
    "cuMemcpyAtoA_v2": lambda s: [s.make_array(), 0, s.make_array(), 0, BYTES],
    "cuMemcpyHtoA_v2": lambda s: [s.make_array(), 0, s.scratch(), BYTES],
    "cuMemcpyHtoAAsync_v2": lambda s: [s.make_array(), 0, s.scratch(), BYTES, s.make_stream()],
    "cuMemcpyAtoH_v2": lambda s: [s.scratch(), s.make_array(), 0, BYTES],
    "cuMemcpyAtoHAsync_v2": lambda s: [s.scratch(), s.make_array(), 0, BYTES, s.make_stream()],
    "cuMemcpy2D_v2": lambda s: [copy_2d(s)],
    "cuMemcpy2DUnaligned_v2": lambda s: [copy_2d(s)],
    "cuMemcpy2DAsync_v2": lambda s: [copy_2d(s), s.make_stream()],
    "cuMemcpy3D_v2": lambda s: [copy_3d(s)],
    "cuMemcpy3DAsync_v2": lambda s: [copy_3d(s), s.make_stream()],
    "cuMemcpy3DPeer": lambda s: [copy_3d(s)],
    "cuMemcpy3DPeerAsync": lambda s: [copy_3d(s), s.make_stream()],
    "cuMemcpyBatchAsync": lambda s: [*_batch(s), s.scratch(), s.make_stream()],
    "cuMemcpyBatchAsync_v2": lambda s: [*_batch(s), s.make_stream()],
    "cuMemcpy3DBatchAsync": lambda s: [1, box(s), s.scratch(), 0, s.make_stream()],
    "cuMemcpy3DBatchAsync_v2": lambda s: [1, box(s), 0, s.make_stream()],
    "cuMemcpy3DWithAttributesAsync": lambda s: [box(s), 0, s.make_stream()],
    "cuMemPrefetchAsync": lambda s: [s.managed(), MIB, 0, s.make_stream()],
    "cuMemPrefetchAsync_v2": lambda s: [s.managed(), MIB, Location(1, 0), 0, s.make_stream()],
    "cuMemPrefetchBatchAsync": _prefetch_batch,
    "cuMemDiscardAndPrefetchBatchAsync": _prefetch_batch,
    "cuMemDiscardBatchAsync": lambda s: [one(s, s.managed()), one(s, MIB), 1, 0, s.make_stream()],
    "cuMemAdvise": lambda s: [s.managed(), MIB, 1, 0],
    "cuMemAdvise_v2": lambda s: [s.managed(), MIB, 1, Location(1, 0)],
    "cuMemRangeGetAttribute": lambda s: [s.scratch(), 4, 1, s.managed(), MIB],
    "cuStreamAttachMemAsync": lambda s: [s.make_stream(), s.managed(), 0, 1],
    "cuMemGetHandleForAddressRange": lambda s: [s.scratch(), s.make_deviceptr(), 4 * MIB, 1, 0],
    "cuPointerGetAttribute": lambda s: [s.scratch(), 2, s.make_deviceptr()],
    "cuPointerGetAttributes": lambda s: [0, s.scratch(), s.scratch(), s.make_deviceptr()],
    "cuDeviceGetAttribute": lambda s: [s.scratch(), 16, 0],
    "cuDeviceGetName": lambda s: [s.scratch(), 64, 0],
    "cuDeviceGetPCIBusId": lambda s: [s.scratch(), 64, 0],
    "cuDeviceGetByPCIBusId": lambda s: [s.scratch(), s.text(b"0000:01:00.0")],
    "cuDeviceGetP2PAttribute": lambda s: [s.scratch(), 1, 0, 1],
    "cuDeviceCanAccessPeer": lambda s: [s.scratch(), 0, 1],
    "cuDeviceGetTexture1DLinearMaxWidth": lambda s: [s.scratch(), 0x20, 1, 0],
    "cuCtxGetLimit": lambda s: [s.scratch(), 0],
    "cuDeviceSetMemPool": lambda s: [0, s.make_memoryPool()],
    "cuMemPoolExportToShareableHandle": lambda s: [s.scratch(), s.make_memoryPool(), 1, 0],
    "cuMemPoolGetAttribute": lambda s: [s.make_memoryPool(), 5, s.scratch()],
    "cuMemPoolSetAttribute": lambda s: [s.make_memoryPool(), 4, s.scratch()],
    "cuMemPoolSetAccess": lambda s: [s.make_memoryPool(), s.keep(Access(Location(1, 0), 3)), 1],
    "cuMemPoolGetAccess": lambda s: [s.scratch(), s.make_memoryPool(), _location(s)],
    "cuDeviceGetGraphMemAttribute": lambda s: [0, 0, s.scratch()],
    "cuDeviceSetGraphMemAttribute": lambda s: [0, 1, s.scratch()],
    "cuGraphAddKernelNode_v2": lambda s: [s.scratch(), s.make_graph(), 0, 0, s.kernel_node()],
    "cuGraphAddEmptyNode": lambda s: [s.scratch(), s.make_graph(), 0, 0],
    "cuGraphAddChildGraphNode": lambda s: [s.scratch(), s.make_graph(), 0, 0, s.make_graph()],
    "cuGraphAddEventRecordNode": lambda s: [s.scratch(), s.make_graph(), 0, 0, s.make_event()],
    "cuGraphAddEventWaitNode": lambda s: [s.scratch(), s.make_graph(), 0, 0, s.make_event()],
    "cuGraphGetNodes": lambda s: [s.make_graph(), 0, s.scratch()],
    "cuGraphGetRootNodes": lambda s: [s.make_graph(), 0, s.scratch()],
    "cuGraphNodeGetDependencies": lambda s: [s.make_graphNode(), 0, s.scratch()],
    "cuGraphNodeGetDependentNodes": lambda s: [s.make_graphNode(), 0, s.scratch()],
    "cuGraphKernelNodeSetParams_v2": lambda s: [s.make_graphNode(), s.kernel_node()],
    "cuGraphUpload": lambda s: [s.make_graphExec(), s.make_stream()],
    "cuStreamCreate": lambda s: [s.scratch(), 1],
    "cuStreamCreateWithPriority": lambda s: [s.scratch(), 1, 0],
    "cuStreamWaitEvent": lambda s: [s.make_stream(), s.make_event(), 0],
    "cuStreamWriteValue32": lambda s: [s.make_stream(), s.make_deviceptr(), 1, 0],
    "cuStreamWaitValue32": lambda s: [s.make_stream(), s.make_deviceptr(), 0, 0],
    "cuStreamWriteValue64": lambda s: [s.make_stream(), s.make_deviceptr(), 1, 0],
    "cuStreamWaitValue64": lambda s: [s.make_stream(), s.make_deviceptr(), 0, 0],
    "cuFuncSetAttribute": lambda s: [s.make_function(), 8, 1024],
    "cuKernelSetAttribute": lambda s: [8, 1024, s.make_kernel(), 0],
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda s: [s.scratch(), s.make_function(), 128, 0],
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": lambda s: [
        s.scratch(),
        s.make_function(),
        128,
        0,
        0,
    ],
    "cuLaunchHostFunc": lambda s: [s.make_stream(), s.function_of_host(), 0],
    "cuLaunchHostFunc_v2": lambda s: [s.make_stream(), s.function_of_host(), 0, 0],
    "cuStreamAddCallback": lambda s: [s.make_stream(), s.function_of_host(), 0, 0],
    "cuEventElapsedTime": lambda s: [s.scratch(), s.recorded(), s.recorded()],
    "cuEventElapsedTime_v2": lambda s: [s.scratch(), s.recorded(), s.recorded()],
    "cuGraphAddDependencies": lambda s: [s.make_graph(), 0, 0, 0],
    "cuGraphAddDependencies_v2": lambda s: [s.make_graph(), 0, 0, 0, 0],
    "cuGraphRemoveDependencies": lambda s: [s.make_graph(), 0, 0, 0],
    "cuGraphRemoveDependencies_v2": lambda s: [s.make_graph(), 0, 0, 0, 0],
    "cuGraphAddMemAllocNode": in_graph(lambda s: [s.keep(memory_node())]),
    "cuGraphAddMemcpyNode": in_graph(lambda s: [copy_3d(s), 0]),
    "cuGraphAddMemsetNode": in_graph(lambda s: [memset_node(s), 0]),
    "cuGraphAddHostNode": in_graph(lambda s: [host_node(s)]),
    "cuGraphExecKernelNodeSetParams_v2": lambda s: [*s.exec_and_node(), s.kernel_node()],
    "cuGraphNodeSetEnabled": lambda s: [*s.exec_and_node(), 1],
    "cuGraphNodeGetEnabled": lambda s: [*s.exec_and_node(), s.scratch()],
    "cuMemsetD2D8_v2": _set_2d(stream=False),
    "cuMemsetD2D16_v2": _set_2d(stream=False),
    "cuMemsetD2D32_v2": _set_2d(stream=False),
    "cuMemsetD2D8Async": _set_2d(stream=True),
    "cuMemsetD2D16Async": _set_2d(stream=True),
    "cuMemsetD2D32Async": _set_2d(stream=True),
    "cuMemsetD8": lambda s: [0, 0, 16],
    "cuMemsetD16": lambda s: [0, 0, 16],
    "cuMemsetD32": lambda s: [0, 0, 16],
    "cuMemsetD2D8": lambda s: [0, BYTES, 0, 16, 4],
    "cuMemsetD2D16": lambda s: [0, BYTES, 0, 16, 4],
    "cuMemsetD2D32": lambda s: [0, BYTES, 0, 16, 4],
    "cuMemcpyDtoD": lambda s: [0, 0, BYTES],
    "cuMemcpyDtoDAsync": lambda s: [0, 0, BYTES, s.make_stream()],
    "cuMemcpyDtoA": lambda s: [s.make_array(), 0, 0, BYTES],
    "cuMemcpyAtoD": lambda s: [0, s.make_array(), 0, BYTES],
    "cuMemcpyAtoA": lambda s: [s.make_array(), 0, s.make_array(), 0, BYTES],
    "cuMemcpy2D": lambda s: [old_2d(s)],
    "cuMemcpy2DUnaligned": lambda s: [old_2d(s)],
    "cuMemcpy2DAsync": lambda s: [old_2d(s), s.make_stream()],
    "cuMemcpy3D": lambda s: [old_3d(s)],
    "cuMemcpy3DAsync": lambda s: [old_3d(s), s.make_stream()],
    "cuFabricCpyBatchAsync": lambda s: [1, words(s, {48: BYTES}), 0, s.make_stream()],
    "cuLaunchGrid": lambda s: [s.make_function(), 1, 1],
    "cuLaunchGridAsync": lambda s: [s.make_function(), 1, 1, s.make_stream()],
    "cuLaunchCooperativeKernelMultiDevice": _devices,
    "cuMemAlloc": lambda s: [s.scratch(), 4 * MIB],
    "cuMemAllocPitch": lambda s: [s.scratch(), s.scratch(), MIB, 4, 4],
    "cuArrayCreate": lambda s: [s.scratch(), s.keep((c_uint * 5)(1024, 64, 0x20, 1))],
    "cuArray3DCreate": lambda s: [s.scratch(), s.keep((c_uint * 6)(1024, 64, 0, 0x20, 1, 0))],
    "cuProfilerInitialize": lambda s: [s.text(b""), s.text(b""), 0],
    "cuCheckpointProcessGetState": lambda s: [-1, s.scratch()],
    "cuCheckpointProcessGetRestoreThreadId": lambda s: [-1, s.scratch()],
    "cuCheckpointProcessLock": lambda s: [-1, 0],
    "cuCheckpointProcessCheckpoint": lambda s: [-1, 0],
    "cuCheckpointProcessRestore": lambda s: [-1, 0],
    "cuCheckpointProcessUnlock": lambda s: [-1, 0],
}
"""Symbol, without what stands for default streams of threads → its arguments."""


def arguments(scene: Scene, row: Row) -> list[Value]:
    """What that entry point is called with: things of the scene's that are new."""
    name = row.symbol.removesuffix("_ptsz").removesuffix("_ptds")
    given = NODES.get(name) or GIVEN.get(name)
    if given:
        return given(scene)
    return [_by_type(scene, kind) for kind in row.arguments]


_TYPES: Final[dict[str, type]] = {
    "size_t": c_size_t, "CUdeviceptr": c_uint64, "uint64_t": c_uint64, "unsigned long long": c_uint64,
    "CUmemGenericAllocationHandle": c_uint64, "CUgraphConditionalHandle": c_uint64, "float": ctypes.c_float,
    "CUmemLocation": Location, "CUipcMemHandle": Blob64, "CUipcEventHandle": Blob64,
}  # fmt: skip


def ctype(kind: str) -> type:
    """How a C type is passed: what is not known to be wide is a register's worth."""
    plain = kind.removeprefix("const ").strip()
    return _TYPES.get(plain, ctypes.c_long if plain == "int" else c_ulong)
