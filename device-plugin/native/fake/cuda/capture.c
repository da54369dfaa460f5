#include "graph.h"

CUresult capture_forbids(void) { return CUDA_SUCCESS; }
CUresult capture_add(CUstream stream, const struct node_content *content) { (void)stream, (void)content; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult capture_event_record(CUstream stream, CUevent event) { (void)stream, (void)event; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult capture_event_wait(CUstream stream, CUevent event) { (void)stream, (void)event; return CUDA_ERROR_NOT_SUPPORTED; }
