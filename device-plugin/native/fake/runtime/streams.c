/* Streams, events, captures and graphs. */
#include "runtime.h"

PASS(cudaDeviceSynchronize, (void), CU(cuCtxSynchronize, "cuCtxSynchronize", 2000)())
PASS(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     CU(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", 5050)(least, greatest))
PASS(cudaDeviceGetGraphMemAttribute, (int card, CUgraphMem_attribute which, void *value),
     CU(cuDeviceGetGraphMemAttribute, "cuDeviceGetGraphMemAttribute", 11040)(card, which, value))
PASS(cudaDeviceSetGraphMemAttribute, (int card, CUgraphMem_attribute which, void *value),
     CU(cuDeviceSetGraphMemAttribute, "cuDeviceSetGraphMemAttribute", 11040)(card, which, value))
PASS(cudaProfilerStart, (void), CUDA_SUCCESS)
PASS(cudaProfilerStop, (void), CUDA_SUCCESS)

PASS(cudaStreamCreate, (CUstream *to), CU(cuStreamCreate, "cuStreamCreate", 2000)(to, 0))
PASS(cudaStreamCreateWithFlags, (CUstream *to, unsigned flags), CU(cuStreamCreate, "cuStreamCreate", 2000)(to, flags))
PASS(cudaStreamCreateWithPriority, (CUstream *to, unsigned flags, int priority),
     CU(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050)(to, flags, priority))
PASS(cudaStreamDestroy, (CUstream stream), CU(cuStreamDestroy_v2, "cuStreamDestroy", 4000)(stream))
PASS(cudaStreamQuery, (CUstream stream), CU(cuStreamQuery, "cuStreamQuery", 2000)(stream))
PASS(cudaStreamSynchronize, (CUstream stream), CU(cuStreamSynchronize, "cuStreamSynchronize", 2000)(stream))
PASS(cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
     CU(cuStreamWaitEvent, "cuStreamWaitEvent", 3020)(stream, event, flags))
PASS(cudaStreamGetPriority, (CUstream stream, int *priority),
     CU(cuStreamGetPriority, "cuStreamGetPriority", 5050)(stream, priority))
PASS(cudaStreamAddCallback, (CUstream stream, CUstreamCallback call, void *data, unsigned flags),
     CU(cuStreamAddCallback, "cuStreamAddCallback", 5000)(stream, call, data, flags))
PASS(cudaLaunchHostFunc, (CUstream stream, CUhostFn call, void *data),
     CU(cuLaunchHostFunc, "cuLaunchHostFunc", 10000)(stream, call, data))

PASS(cudaEventCreate, (CUevent *to), CU(cuEventCreate, "cuEventCreate", 2000)(to, 0))
PASS(cudaEventCreateWithFlags, (CUevent *to, unsigned flags), CU(cuEventCreate, "cuEventCreate", 2000)(to, flags))
PASS(cudaEventDestroy, (CUevent event), CU(cuEventDestroy_v2, "cuEventDestroy", 4000)(event))
PASS(cudaEventQuery, (CUevent event), CU(cuEventQuery, "cuEventQuery", 2000)(event))
PASS(cudaEventSynchronize, (CUevent event), CU(cuEventSynchronize, "cuEventSynchronize", 2000)(event))
PASS(cudaEventRecord, (CUevent event, CUstream stream), CU(cuEventRecord, "cuEventRecord", 2000)(event, stream))
PASS(cudaEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
     CU(cuEventRecordWithFlags, "cuEventRecordWithFlags", 11010)(event, stream, flags))
PASS(cudaEventElapsedTime, (float *to, CUevent begin, CUevent end),
     CU(cuEventElapsedTime_v2, "cuEventElapsedTime", 12080)(to, begin, end))

PASS(cudaThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode),
     CU(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010)(mode))
PASS(cudaStreamBeginCapture, (CUstream stream, CUstreamCaptureMode mode),
     CU(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010)(stream, mode))
PASS(cudaStreamBeginCaptureToGraph, (CUstream stream, CUgraph graph, const CUgraphNode *needs,
                                     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
     CU(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030)(stream, graph, needs, edges, count, mode))
PASS(cudaStreamEndCapture, (CUstream stream, CUgraph *to),
     CU(cuStreamEndCapture, "cuStreamEndCapture", 10000)(stream, to))
PASS(cudaStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *to),
     CU(cuStreamIsCapturing, "cuStreamIsCapturing", 10000)(stream, to))
PASS(cudaStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
                                const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count),
     CU(cuStreamGetCaptureInfo_v3, "cuStreamGetCaptureInfo", 12030)(stream, status, id, graph, needs, edges, count))
PASS(cudaStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *needs, const CUgraphEdgeData *edges,
                                           size_t count, unsigned flags),
     CU(cuStreamUpdateCaptureDependencies_v2, "cuStreamUpdateCaptureDependencies", 12030)(stream, needs, edges, count,
                                                                                          flags))

PASS(cudaGraphInstantiate, (CUgraphExec *to, CUgraph graph, unsigned long long flags),
     CU(cuGraphInstantiateWithFlags, "cuGraphInstantiate", 12000)(to, graph, flags))
PASS(cudaGraphInstantiateWithFlags, (CUgraphExec *to, CUgraph graph, unsigned long long flags),
     CU(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040)(to, graph, flags))
PASS(cudaGraphLaunch, (CUgraphExec exec, CUstream stream), CU(cuGraphLaunch, "cuGraphLaunch", 10000)(exec, stream))
PASS(cudaGraphDestroy, (CUgraph graph), CU(cuGraphDestroy, "cuGraphDestroy", 10000)(graph))
PASS(cudaGraphExecDestroy, (CUgraphExec exec), CU(cuGraphExecDestroy, "cuGraphExecDestroy", 10000)(exec))
PASS(cudaGraphGetNodes, (CUgraph graph, CUgraphNode *to, size_t *count),
     CU(cuGraphGetNodes, "cuGraphGetNodes", 10000)(graph, to, count))
PASS(cudaGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count),
     CU(cuGraphNodeGetDependencies_v2, "cuGraphNodeGetDependencies", 12030)(node, to, edges, count))
PASS(cudaGraphAddNode, (CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges,
                        size_t count, CUgraphNodeParams *parameters),
     CU(cuGraphAddNode_v2, "cuGraphAddNode", 12030)(to, graph, needs, edges, count, parameters))
PASS(cudaGraphConditionalHandleCreate, (CUgraphConditionalHandle *to, CUgraph graph, unsigned value, unsigned flags),
     CU(cuGraphConditionalHandleCreate, "cuGraphConditionalHandleCreate", 12030)(to, graph, NULL, value, flags))
PASS(cudaUserObjectCreate, (CUuserObject *to, void *value, CUhostFn destroy, unsigned count, unsigned flags),
     CU(cuUserObjectCreate, "cuUserObjectCreate", 11030)(to, value, destroy, count, flags))
PASS(cudaUserObjectRelease, (CUuserObject object, unsigned count),
     CU(cuUserObjectRelease, "cuUserObjectRelease", 11030)(object, count))
PASS(cudaGraphRetainUserObject, (CUgraph graph, CUuserObject object, unsigned count, unsigned flags),
     CU(cuGraphRetainUserObject, "cuGraphRetainUserObject", 11030)(graph, object, count, flags))
