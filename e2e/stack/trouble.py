"""Why pods of a namespace are not ready: what the API server, their events and their own logs tell.

A test that gives up on a machine that is gone by the time somebody reads of it has only its message.
"""

from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.api.containers import statuses_of

from stack.kit import Json, Kit, is_true

_LOG_LINES = 12
_EVENTS = 12


def unready_pods(kit: Kit, namespace: str) -> str:
    """One paragraph a pod that is not ready, then the namespace's last warnings; an API server that does not
    answer is told, not raised."""
    try:
        pods = kit.api.list(PODS, namespace).items
    except KubeError as error:
        return f"pods of {namespace} are unknown: {error}"
    told = [_of_pod(kit, pod) for pod in pods if not is_true(pod, "Ready")]
    return "\n".join([*told, _warnings(kit, namespace)])


def _of_pod(kit: Kit, pod: Json) -> str:
    status = pod.get("status") or {}
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    lines = [f"pod {name} on {pod['spec'].get('nodeName', 'no node')}: {status.get('phase')}"]
    lines += [
        f"  {found['type']}={found['status']} {found.get('reason', '')} {found.get('message', '')}".rstrip()
        for found in status.get("conditions") or ()
        if found["status"] != "True"
    ]
    for container in statuses_of(status):
        lines.append(f"  {container['name']}: {container.get('state')}, {container['restartCount']} restarts")
        logged = [f"--tail={_LOG_LINES}", f"--namespace={namespace}", name, "--container", container["name"]]
        lines += _indented(_kubectl(kit, "logs", *logged))
        if container["restartCount"]:
            lines += ["  before the last restart:", *_indented(_kubectl(kit, "logs", "--previous", *logged))]
    return "\n".join(lines)


def _warnings(kit: Kit, namespace: str) -> str:
    shown = "custom-columns=:lastTimestamp,:involvedObject.name,:reason,:message"
    told = _kubectl(
        kit, "get", "events", "--namespace", namespace, "--field-selector=type=Warning",
        "--sort-by=.metadata.creationTimestamp", "--no-headers", "--output", shown,
    )  # fmt: skip
    return "\n".join(["warnings:", *_indented(told)[-_EVENTS:]])


def _kubectl(kit: Kit, *arguments: str) -> str:
    done = kit.kubectl("--request-timeout=5s", *arguments, check=False)
    return str(done.stdout or done.stderr)


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]
