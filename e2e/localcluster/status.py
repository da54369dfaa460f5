"""What there is to say about a cluster, in a few lines of text."""

from __future__ import annotations

from localcluster import teardown, toolchain
from localcluster.api import ApiError
from localcluster.context import Context
from localcluster.errors import LocalClusterError
from localcluster.spec import ClusterSpec
from localcluster.state import StateDir


def describe(state: StateDir) -> str:
    """Phase, processes, nodes, versions and settings of one cluster."""
    if not state.holds_cluster:
        return f"{state.name}: no such cluster"
    context = teardown.context_of(state)
    if context is None:
        return f"{state.name}: its record is damaged; `down --name {state.name}` removes it"
    phase = "a leftover, `gc` removes it" if teardown.is_leftover(state) else context.record.phase
    lines = [f"{state.name}: {phase}"]
    lines += [f"  kubeconfig  {state.kubeconfig}", f"  server      {context.server}", *_nodes(context)]
    spec = context.spec
    lines.append(
        f"  rates       controllers {spec.controller_manager_rate.qps}/{spec.controller_manager_rate.burst}, "
        f"scheduler {spec.scheduler_rate.qps}/{spec.scheduler_rate.burst} requests per second/burst; "
        f"priority and fairness {'on' if spec.priority_and_fairness else 'off'}"
    )
    lines.append(f"  versions    {_versions(spec)}")
    for process in state.processes():
        pid = process.pid
        lines.append(f"  {'runs ' + str(pid) if pid else 'ENDED':<11} {process.name}  {process.log_file}")
    return "\n".join(lines)


def _versions(spec: ClusterSpec) -> str:
    try:
        made_of = toolchain.made_of(spec.kubernetes, spec.kubelet, runtime=spec.containerd)
    except LocalClusterError:  # an earlier checkout's
        return f"kubernetes {spec.kubernetes}, kubelet {spec.kubelet}, containerd {spec.containerd}"
    return ", ".join(f"{upstream.name} {upstream.version()}" for upstream in made_of[1:])


def _nodes(context: Context) -> list[str]:
    try:
        api = context.api()
        items = api.get("/api/v1/nodes")["items"]
    except (ApiError, LocalClusterError, OSError):
        return ["  nodes       the API server does not answer"]
    ready = sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", []))
        for item in items
    )
    return [f"  nodes       {ready} of {len(items)} Ready ({context.spec.real_nodes} of them real)"]
