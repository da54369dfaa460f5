/* The types of the CUDA driver's binary interface that library, fake driver and test programs need: handles and
 * structs as programs built with CUDA 11 to 13 lay them out on 64-bit Linux. A test compares them with the
 * headers of the newest CUDA 12 and 13. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "egpu_cuda_codes.h"

/* --- handles ------------------------------------------------------------------------------------ */
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* of entry points without a suffix, from before CUDA 3.2 */
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUevent_st *CUevent;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef uint64_t CUgraphConditionalHandle;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef void (*CUhostFn)(void *);
typedef size_t (*CUoccupancyB2DSize)(int);
typedef void (*CUstreamCallback)(CUstream, CUresult, void *);
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { char reserved[64]; } CUipcEventHandle;
typedef struct { unsigned char reserved[64]; } CUmemPoolPtrExportData;

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_LAUNCH_PARAM_END ((void *)0x0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x2)
#define CU_DEVICE_CPU ((CUdevice)-1)

/* Only ever passed on: their layouts do not matter here. */
typedef struct CUarrayMapInfo_st CUarrayMapInfo;
typedef struct CUDA_ARRAY_SPARSE_PROPERTIES_st CUDA_ARRAY_SPARSE_PROPERTIES;
typedef struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_st CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_st CUDA_BATCH_MEM_OP_NODE_PARAMS;
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
typedef struct CUDA_ARRAY_DESCRIPTOR_v1_st CUDA_ARRAY_DESCRIPTOR_v1;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_v1_st CUDA_ARRAY3D_DESCRIPTOR_v1;
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
typedef void (*CUgraphRecaptureCallback)(void);

/* --- memory ------------------------------------------------------------------------------------- */
typedef struct { CUmemLocationType type; int id; } CUmemLocation; /* of a locality domain: bytes, device and domain */
typedef struct { CUmemLocation location; CUmemAccess_flags flags; } CUmemAccessDesc;
typedef struct {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; unsigned char reserved[4]; } allocFlags;
} CUmemAllocationProp;
typedef struct {
    CUmemAllocationType allocType;
    CUmemAllocationHandleType handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;
typedef struct { unsigned numDevices; size_t size; unsigned long long handleTypes, flags; } CUmulticastObjectProp;
typedef struct { size_t Width, Height; CUarray_format Format; unsigned NumChannels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { size_t Width, Height, Depth; CUarray_format Format; unsigned NumChannels, Flags; } CUDA_ARRAY3D_DESCRIPTOR;
typedef struct { size_t size, alignment; unsigned reserved[4]; } CUDA_ARRAY_MEMORY_REQUIREMENTS;
typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } win32; const void *nvSciBufObject; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct { unsigned long long offset, size; unsigned flags, reserved[16]; } CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

/* --- copies ------------------------------------------------------------------------------------- */
typedef struct {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

/* CUDA_MEMCPY3D and, with contexts where that has reserved words, CUDA_MEMCPY3D_PEER. */
#define EGPU_MEMCPY3D(Context, source, target)                                             \
    struct {                                                                               \
        size_t srcXInBytes, srcY, srcZ, srcLOD;                                            \
        CUmemorytype srcMemoryType;                                                        \
        const void *srcHost;                                                               \
        CUdeviceptr srcDevice;                                                             \
        CUarray srcArray;                                                                  \
        Context source;                                                                    \
        size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;                       \
        CUmemorytype dstMemoryType;                                                        \
        void *dstHost;                                                                     \
        CUdeviceptr dstDevice;                                                             \
        CUarray dstArray;                                                                  \
        Context target;                                                                    \
        size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;                           \
    }
typedef EGPU_MEMCPY3D(void *, reserved0, reserved1) CUDA_MEMCPY3D;
typedef EGPU_MEMCPY3D(CUcontext, srcContext, dstContext) CUDA_MEMCPY3D_PEER;

/* Both as before CUDA 3.2, when sizes and addresses had 32 bits. */
typedef struct {
    unsigned srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    unsigned srcPitch, dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    unsigned dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;
typedef struct {
    unsigned srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    void *reserved0;
    unsigned srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    void *reserved1;
    unsigned dstPitch, dstHeight, WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_v1;
typedef struct { int srcAccessOrder; CUmemLocation srcLocHint, dstLocHint; unsigned flags; } CUmemcpyAttributes;

typedef struct { size_t x, y, z; } CUoffset3D;
typedef struct {
    int type; /* 1: ptr, 2: array */
    union {
        struct { CUdeviceptr ptr; size_t rowLength, layerHeight; CUmemLocation locHint; } ptr;
        struct { CUarray array; CUoffset3D offset; } array;
    } op;
} CUmemcpy3DOperand;
typedef struct {
    CUmemcpy3DOperand src, dst;
    struct { size_t width, height, depth; } extent;
    int srcAccessOrder;
    unsigned flags;
} CUDA_MEMCPY3D_BATCH_OP;
/* An end of a copy between machines: an address and a hint, or the number of an endpoint and an offset in it. */
typedef struct { int type; uint64_t where[2]; } CUfabricCpyOperand;
typedef struct { CUfabricCpyOperand src, dst; size_t size; unsigned flags; } CUDA_FABRIC_COPY_BATCH_OP;

/* --- contexts and launches ---------------------------------------------------------------------- */
typedef struct {
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock, totalConstantMemory, SIMDWidth;
    int memPitch, regsPerBlock, clockRate, textureAlign;
} CUdevprop;
typedef struct { int type; union { struct { unsigned val; } smCount; } param; } CUexecAffinityParam;
typedef struct { CUexecAffinityParam *execAffinityParams; int numExecAffinityParams; void *cigParams; } CUctxCreateParams;
typedef union {
    char pad[64];
    int cooperative, priority;
    struct { unsigned x, y, z; } clusterDim;
    struct { CUevent event; int flags, triggerAtBlockStart; } programmaticEvent;
    struct { CUevent event; int flags; } launchCompletionEvent;
} CUlaunchAttributeValue, CUstreamAttrValue, CUkernelNodeAttrValue;
typedef struct { CUlaunchAttributeID id; char pad[4]; CUlaunchAttributeValue value; } CUlaunchAttribute;
typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;
typedef struct {
    CUfunction function;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;
typedef union {
    int operation;
    struct {
        int operation;
        CUdeviceptr address;
        union { uint32_t value; uint64_t value64; };
        unsigned flags;
        CUdeviceptr alias;
    } waitValue, writeValue;
    uint64_t pad[6];
} CUstreamBatchMemOpParams;

/* --- graphs ------------------------------------------------------------------------------------- */
typedef struct { unsigned char from_port, to_port, type, reserved[5]; } CUgraphEdgeData;
typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;
typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;
typedef struct { CUdeviceptr dst; size_t pitch; unsigned value, elementSize; size_t width, height; } CUDA_MEMSET_NODE_PARAMS;
typedef struct { CUDA_MEMSET_NODE_PARAMS plain; CUcontext ctx; } CUDA_MEMSET_NODE_PARAMS_v2;
typedef struct { int flags, reserved; CUcontext copyCtx; CUDA_MEMCPY3D copyParams; } CUDA_MEMCPY_NODE_PARAMS;
typedef struct { CUhostFn fn; void *userData; } CUDA_HOST_NODE_PARAMS;
typedef struct {
    CUmemPoolProps poolProps;
    const CUmemAccessDesc *accessDescs;
    size_t accessDescCount, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;
typedef struct {
    uint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef struct { CUgraphExecUpdateResult result; CUgraphNode errorNode, errorFromNode; } CUgraphExecUpdateResultInfo;
typedef struct {
    CUgraphNodeType type;
    int reserved0[3];
    union {
        long long reserved1[29];
        CUDA_KERNEL_NODE_PARAMS kernel;
        CUDA_MEMCPY_NODE_PARAMS memcpy;
        CUDA_MEMSET_NODE_PARAMS_v2 memset;
        CUDA_HOST_NODE_PARAMS host;
        struct { CUgraph graph; int ownership; } graph;
        struct { CUevent event; } eventWait, eventRecord;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        struct { CUdeviceptr dptr; } free;
        struct { uint64_t handle; int type; unsigned size; CUgraph *phGraph_out; CUcontext ctx; } conditional;
    };
    long long reserved2;
} CUgraphNodeParams;

/* --- checkpoint --------------------------------------------------------------------------------- */
typedef struct { CUuuid oldUuid, newUuid; } CUcheckpointGpuPair;
typedef struct { unsigned timeoutMs, reserved0; uint64_t reserved1[7]; } CUcheckpointLockArgs;
typedef struct { uint64_t reserved[8]; } CUcheckpointCheckpointArgs;
typedef struct { CUcheckpointGpuPair *gpuPairs; unsigned gpuPairsCount; char reserved[52]; } CUcheckpointRestoreArgs;
typedef struct { uint64_t reserved[8]; } CUcheckpointUnlockArgs;

static_assert(sizeof(CUdeviceptr) == 8 && sizeof(void *) == 8, "64-bit programs only");
static_assert(sizeof(CUgraphNodeParams) == 256, "layout of any node");
static_assert(sizeof(CUlaunchAttribute) == 72, "layout of a launch attribute");
