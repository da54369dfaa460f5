"""Arguments for what is done to nodes of graphs, and for what needs more than one thing."""

import ctypes
from ctypes import c_uint64
from typing import Final

from symbols.scene import BYTES, MIB, Scene, memory_node
from symbols.structs import Maker, Value, copy_3d, host_node, in_graph, memset_node, one


def _copied(s: Scene) -> tuple[int, int]:
    return s.node("cuGraphAddMemcpyNode", copy_3d(s), 0)


def _set(s: Scene) -> tuple[int, int]:
    return s.node("cuGraphAddMemsetNode", memset_node(s), 0)


def _hosted(s: Scene) -> tuple[int, int]:
    return s.node("cuGraphAddHostNode", host_node(s))


def _freed(s: Scene) -> list[Value]:
    """Memory that a node takes, for a node that gives it back."""
    wanted = memory_node()
    graph, node = s.node("cuGraphAddMemAllocNode", s.keep(wanted))
    return [s.scratch(), graph, one(s, node), 1, wanted.pointer]


def _in_exec(made: tuple[int, int], s: Scene, *content: Value) -> list[Value]:
    return [s.executable(made[0]), made[1], *content]


def _any_node(s: Scene) -> int:
    """CUgraphNodeParams of a kernel."""
    words = (c_uint64 * 32)()
    ctypes.memmove(ctypes.addressof(words) + 16, s.kernel_node(), 72)
    return s.keep(words)


def _cloned(s: Scene) -> list[Value]:
    graph, node = _hosted(s)
    return [s.scratch(), node, s.clone(graph)]


NODES: Final[dict[str, Maker]] = {
    "cuMulticastCreate": lambda s: [s.scratch(), s.keep((c_uint64 * 4)(1, 2 * MIB))],
    "cuMulticastGetGranularity": lambda s: [s.scratch(), s.keep((c_uint64 * 4)(1, 2 * MIB)), 0],
    "cuMulticastAddDevice": lambda s: [s.team(joined=False), 0],
    "cuMulticastBindMem": lambda s: [
        *(s.team(joined=True), 0, s.make_memGenericAllocationHandle(), 0, 2 * MIB, 0),
    ],
    "cuMulticastBindMem_v2": lambda s: [
        *(s.team(joined=True), 0, 0, s.make_memGenericAllocationHandle(), 0, 2 * MIB, 0),
    ],
    "cuMulticastBindAddr": lambda s: [s.team(joined=True), 0, s.mapped(), 2 * MIB, 0],
    "cuMulticastBindAddr_v2": lambda s: [s.team(joined=True), 0, 0, s.mapped(), 2 * MIB, 0],
    "cuMulticastUnbind": lambda s: [s.team(joined=True), 0, 0, 2 * MIB],
    "cuGraphMemcpyNodeGetParams": lambda s: [_copied(s)[1], s.scratch()],
    "cuGraphMemcpyNodeSetParams": lambda s: [_copied(s)[1], copy_3d(s)],
    "cuGraphMemsetNodeGetParams": lambda s: [_set(s)[1], s.scratch()],
    "cuGraphMemsetNodeSetParams": lambda s: [_set(s)[1], memset_node(s)],
    "cuGraphHostNodeGetParams": lambda s: [_hosted(s)[1], s.scratch()],
    "cuGraphHostNodeSetParams": lambda s: [_hosted(s)[1], host_node(s)],
    "cuGraphChildGraphNodeGetGraph": lambda s: [
        s.node("cuGraphAddChildGraphNode", s.make_graph())[1],
        s.scratch(),
    ],
    "cuGraphEventRecordNodeGetEvent": lambda s: [
        s.node("cuGraphAddEventRecordNode", s.make_event())[1],
        s.scratch(),
    ],
    "cuGraphEventWaitNodeGetEvent": lambda s: [
        s.node("cuGraphAddEventWaitNode", s.make_event())[1],
        s.scratch(),
    ],
    "cuGraphMemAllocNodeGetParams": lambda s: [
        s.node("cuGraphAddMemAllocNode", s.keep(memory_node()))[1],
        s.scratch(),
    ],
    "cuGraphAddMemFreeNode": _freed,
    "cuGraphExecMemcpyNodeSetParams": lambda s: _in_exec(_copied(s), s, copy_3d(s), 0),
    "cuGraphExecMemsetNodeSetParams": lambda s: _in_exec(_set(s), s, memset_node(s), 0),
    "cuGraphExecHostNodeSetParams": lambda s: _in_exec(_hosted(s), s, host_node(s)),
    "cuGraphNodeFindInClone": _cloned,
    "cuGraphAddNode": in_graph(lambda s: [_any_node(s)]),
    "cuGraphAddNode_v2": lambda s: [s.scratch(), s.make_graph(), 0, 0, 0, _any_node(s)],
    "cuFuncGetParamInfo": lambda s: [s.make_function(), 0, s.scratch(), s.scratch()],
    "cuKernelGetParamInfo": lambda s: [s.make_kernel(), 0, s.scratch(), s.scratch()],
    "cuIpcGetEventHandle": lambda s: [s.scratch(), s.event_for_others()],
    "cuStreamUpdateCaptureDependencies": lambda s: [s.capturing(), 0, 0, 0],
    "cuStreamUpdateCaptureDependencies_v2": lambda s: [s.capturing(), 0, 0, 0, 0],
    "cuCtxEnablePeerAccess": lambda s: [s.context_on_other_card(), 0],
    "cuMemHostRegister_v2": lambda s: [s.page(), BYTES, 0],
}
"""The same for nodes of graphs, and for what needs more than one thing."""
