"""Our declarations of the CUDA driver's interface against NVIDIA's headers, of the newest CUDA 12 and 13."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from contract.cuda.binding import NATIVE, argument_types, signatures

INCLUDE = NATIVE / "include"
WHEELS = ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime")

FIELDS = {
    "CUuuid": "bytes",
    "CUipcMemHandle": "reserved",
    "CUmemLocation": "type id",
    "CUmemAccessDesc": "location flags",
    "CUmemAllocationProp": "type requestedHandleTypes location win32HandleMetaData allocFlags.usage",
    "CUmemPoolProps": "allocType handleTypes location win32SecurityAttributes maxSize usage",
    "CUmulticastObjectProp": "numDevices size handleTypes flags",
    "CUDA_ARRAY_DESCRIPTOR": "Width Height Format NumChannels",
    "CUDA_ARRAY3D_DESCRIPTOR": "Width Height Depth Format NumChannels Flags",
    "CUDA_ARRAY_MEMORY_REQUIREMENTS": "size alignment",
    "CUDA_EXTERNAL_MEMORY_HANDLE_DESC": "type handle.fd size flags",
    "CUDA_EXTERNAL_MEMORY_BUFFER_DESC": "offset size flags",
    "CUDA_MEMCPY2D": "srcXInBytes srcMemoryType srcHost srcDevice srcArray srcPitch dstMemoryType dstHost"
    " dstDevice dstArray dstPitch WidthInBytes Height",
    "CUDA_MEMCPY3D": "srcXInBytes srcLOD srcMemoryType srcHost srcDevice srcArray reserved0 srcPitch"
    " srcHeight dstXInBytes dstLOD dstMemoryType dstHost dstDevice dstArray reserved1 dstPitch Depth",
    "CUDA_MEMCPY3D_PEER": "srcContext srcPitch dstContext dstPitch Depth",
    "CUmemcpyAttributes": "srcAccessOrder srcLocHint dstLocHint flags",
    "CUmemcpy3DOperand": "type op.ptr.ptr op.ptr.rowLength op.ptr.locHint op.array.array op.array.offset",
    "CUDA_MEMCPY3D_BATCH_OP": "src dst extent srcAccessOrder flags",
    "CUdevprop": "maxThreadsPerBlock maxGridSize sharedMemPerBlock clockRate textureAlign",
    "CUexecAffinityParam": "type param.smCount.val",
    "CUctxCreateParams": "execAffinityParams numExecAffinityParams cigParams",
    "CUlaunchAttribute": "id value value.cooperative value.priority value.programmaticEvent.event",
    "CUlaunchConfig": "gridDimX blockDimX sharedMemBytes hStream attrs numAttrs",
    "CUDA_LAUNCH_PARAMS": "function gridDimX blockDimX sharedMemBytes hStream kernelParams",
    "CUstreamBatchMemOpParams": "operation waitValue.address waitValue.value64 waitValue.flags"
    " waitValue.alias",
    "CUgraphEdgeData": "from_port to_port type",
    "CUDA_KERNEL_NODE_PARAMS": "func gridDimX blockDimX sharedMemBytes kernelParams extra kern ctx",
    "CUDA_MEMSET_NODE_PARAMS": "dst pitch value elementSize width height",
    "CUDA_MEMSET_NODE_PARAMS_v2": "ctx",
    "CUDA_MEMCPY_NODE_PARAMS": "flags copyCtx copyParams",
    "CUDA_HOST_NODE_PARAMS": "fn userData",
    "CUDA_MEM_ALLOC_NODE_PARAMS": "poolProps accessDescs accessDescCount bytesize dptr",
    "CUDA_GRAPH_INSTANTIATE_PARAMS": "flags hUploadStream hErrNode_out result_out",
    "CUgraphExecUpdateResultInfo": "result errorNode errorFromNode",
    "CUgraphNodeParams": "type kernel memcpy memset host graph.graph eventWait eventRecord alloc free"
    " conditional.handle conditional.phGraph_out reserved2",
    "CUcheckpointGpuPair": "oldUuid newUuid",
    "CUcheckpointLockArgs": "timeoutMs",
    "CUcheckpointCheckpointArgs": "",
    "CUcheckpointRestoreArgs": "gpuPairs gpuPairsCount",
    "CUcheckpointUnlockArgs": "",
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=WHEELS)
def headers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with cuda.h and cudaTypedefs.h of the wheel, which pip keeps in its cache."""
    folder = tmp_path_factory.mktemp(request.param)
    fetch = ["download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder), request.param]
    subprocess.run([sys.executable, "-m", "pip", *fetch], check=True, timeout=250)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return next(folder.rglob("cuda.h")).parent


def _compiled(folder: Path, name: str, flags: list[str], source: str) -> list[str]:
    path = folder / f"{name}.c"
    path.write_text(source)
    subprocess.run(["cc", "-std=c17", *flags, "-o", str(folder / name), str(path)], check=True, timeout=60)
    ran = subprocess.run([str(folder / name)], check=True, capture_output=True, text=True, timeout=30)
    return ran.stdout.splitlines()


def _both(headers: Path, tmp_path: Path, body: str) -> tuple[list[str], list[str]]:
    """What the same program prints with our declarations and with NVIDIA's."""
    main = f"#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n{body}return 0;\n}}\n"
    ours = _compiled(tmp_path, "ours", [f"-I{INCLUDE}"], '#include "egpu_cuda_types.h"\n' + main)
    theirs = _compiled(tmp_path, "theirs", [f"-I{headers}"], '#include "cuda.h"\n' + main)
    return ours, theirs


def test_structs_are_laid_out_alike(headers: Path, tmp_path: Path) -> None:
    known = (headers / "cuda.h").read_text()
    lines = []
    for name, fields in FIELDS.items():
        if not re.search(rf"\b{name}(_v\d)?\b", known):
            continue
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));\n')
        there = [f for f in fields.split() if re.search(rf"\b{f.split('.')[-1]}\b", known)]
        lines += [f'printf("{name}.{f} %zu\\n", offsetof({name}, {f}));\n' for f in there]
    ours, theirs = _both(headers, tmp_path, "".join(lines))
    assert len(ours) > 150
    assert ours == theirs


def test_constants_have_the_same_values(headers: Path, tmp_path: Path) -> None:
    known = set(re.findall(r"\bCU\w+\b", (headers / "cuda.h").read_text()))
    codes = (INCLUDE / "egpu_cuda_codes.h").read_text()
    mine = re.findall(r"\b(CU(?:DA)?_[A-Z0-9_]+)\s*(?:=|,|\}|\n)", codes)
    names = [name for name in dict.fromkeys(mine) if name in known]
    assert len(names) > 150
    body = "".join(f'printf("{name} %lld\\n", (long long){name});\n' for name in names)
    ours, theirs = _both(headers, tmp_path, body)
    assert ours == theirs


def test_entry_points_take_the_same_arguments_from_the_same_version_on(headers: Path) -> None:
    flags = ["-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{headers}"]
    text = subprocess.run(
        ["cc", *flags, str(headers / "cuda.h")], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    typedefs = (headers / "cudaTypedefs.h").read_text()
    versions = {name: int(since) for name, since in re.findall(r"\*PFN_(cu\w+?)_v(\d{4,5})\)", typedefs)}
    mine, compared = signatures(), 0
    for symbol, arguments in re.findall(r"CUresult\s+(cu\w+)\s*\(([^;]*)\);", text):
        if symbol not in mine:
            continue
        since, types = mine[symbol]
        wanted = argument_types(re.sub(r"\s+", " ", arguments).replace("cuuint", "uint"))
        assert types == wanted, symbol
        assert since in range(2000, 14000), symbol
        if symbol in versions and not re.search(r"_v\d", symbol):
            assert since <= versions[symbol], symbol
        compared += 1
    assert compared > 450
