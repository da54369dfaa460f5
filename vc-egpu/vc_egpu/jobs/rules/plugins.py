"""The Job plugins env, svc and pytorch: what they add to pods, and the objects they need.

Each is built from its arguments and the completed Job, and refuses arguments that it does not have. They may
be applied in any order: none reads what another wrote.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, Protocol

from vc_egpu.volcano.api.job import Job, Task
from vc_egpu.volcano.api.meta import Json
from vc_egpu.volcano.words import names

HOSTS_FOLDER: Final = "/etc/volcano"
_PYTORCH_PORT: Final = 23456


class PluginError(ValueError):
    """The plugin cannot be used like this; the text names the argument."""


class Plugin(Protocol):
    """What the controller asks of a plugin."""

    def adorn(self, pod: Json, task: Task, index: int) -> None:
        """Add to a pod that is about to be made."""
        ...

    def objects(self) -> list[Json]:
        """Objects that the Job's pods need, without owner; made before the pods."""
        ...


def pod_name(job: str, task: str, index: int) -> str:
    """``<job>-<task>-<index>``."""
    return f"{job}-{task}-{index}"


class Env:
    """``VC_TASK_INDEX`` (and its older name): which pod of its task this one is."""

    def __init__(self, arguments: list[str], job: Job) -> None:  # noqa: ARG002 - all plugins are built alike
        _parse("env", _Parser(prog="env"), arguments)

    def adorn(self, pod: Json, task: Task, index: int) -> None:  # noqa: ARG002 - as all plugins
        _add_env(pod, [{"name": name, "value": str(index)} for name in ("VK_TASK_INDEX", "VC_TASK_INDEX")])

    def objects(self) -> list[Json]:
        return []


class Svc:
    """A name for each pod: headless Service, host lists as files and variables, and a NetworkPolicy."""

    def __init__(self, arguments: list[str], job: Job) -> None:
        parser = _Parser(prog="svc")
        parser.add_argument("--publish-not-ready-addresses", type=_flag, nargs="?", const=True, default=False)
        parser.add_argument("--disable-network-policy", type=_flag, nargs="?", const=True, default=False)
        options = _parse("svc", parser, arguments)
        self._publish_not_ready: bool = options.publish_not_ready_addresses
        self._network_policy: bool = not options.disable_network_policy
        if "." in job.metadata.name:
            raise PluginError(f"the Job's name {job.metadata.name!r} is its pods' domain, it may have no dot")
        self._job = job
        self._config_map = f"{job.metadata.name}-svc"

    def adorn(self, pod: Json, task: Task, index: int) -> None:  # noqa: ARG002 - as all plugins
        spec = pod["spec"]
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or self._job.metadata.name
        reference = {"name": self._config_map}
        variables = [
            {"name": name, "valueFrom": {"configMapKeyRef": {**reference, "key": name}}}
            for other in self._job.spec.tasks
            for name in (f"VC_{_upper(other)}_HOSTS", f"VC_{_upper(other)}_NUM")
        ]
        _add_env(pod, variables)
        spec.setdefault("volumes", []).append({"name": self._config_map, "configMap": reference})
        for container in _containers(pod):
            container.setdefault("volumeMounts", []).append(
                {"name": self._config_map, "mountPath": HOSTS_FOLDER}
            )

    def objects(self) -> list[Json]:
        job, namespace = self._job.metadata.name, self._job.metadata.namespace
        selector = {names.JOB_NAME: job, names.JOB_NAMESPACE: namespace}
        made: list[Json] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self._config_map, "namespace": namespace},
                "data": self._hosts(),
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": job, "namespace": namespace},
                "spec": {
                    "clusterIP": "None",
                    "selector": selector,
                    "publishNotReadyAddresses": self._publish_not_ready,
                },
            },
        ]
        if self._network_policy:
            peers = {"podSelector": {"matchLabels": selector}}
            made.append(
                {
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "NetworkPolicy",
                    "metadata": {"name": job, "namespace": namespace},
                    "spec": {**peers, "ingress": [{"from": [peers]}], "policyTypes": ["Ingress"]},
                }
            )
        return made

    def _hosts(self) -> dict[str, str]:
        data: dict[str, str] = {}
        for task in self._job.spec.tasks:
            hosts = [_host(self._job, task, index) for index in range(task.replicas)]
            if task.template.spec.get("hostname"):
                hosts = hosts[:1]  # all pods of the task have the same name then
            data[f"{task.name.replace('-', '_')}.host"] = "\n".join(hosts)
            data[f"VC_{_upper(task)}_HOSTS"] = ",".join(hosts)
            data[f"VC_{_upper(task)}_NUM"] = str(len(hosts))
        return data


class Pytorch:
    """The variables that torch.distributed reads: master's address and port, world size, rank."""

    def __init__(self, arguments: list[str], job: Job) -> None:
        parser = _Parser(prog="pytorch")
        parser.add_argument("--master", default="master")
        parser.add_argument("--worker", default="worker")
        parser.add_argument("--port", type=_port, default=_PYTORCH_PORT)
        parser.add_argument("--wait-master-enabled", type=_flag, nargs="?", const=True, default=False)
        options = _parse("pytorch", parser, arguments)
        if options.wait_master_enabled:
            raise PluginError("--wait-master-enabled needs Volcano's own controllers")
        master = next((task for task in job.spec.tasks if task.name == options.master), None)
        if master is None:
            raise PluginError(f"there is no task {options.master!r}, name the master's with --master")
        self._roles = {options.worker: master.replicas, options.master: 0}  # first rank
        self._port: int = options.port
        self._address = _host(job, master, 0)
        self._world_size = sum(task.replicas for task in job.spec.tasks if task.name in self._roles)

    def adorn(self, pod: Json, task: Task, index: int) -> None:
        variables = [
            {"name": "MASTER_ADDR", "value": self._address},
            {"name": "MASTER_PORT", "value": str(self._port)},
            {"name": "WORLD_SIZE", "value": str(self._world_size)},
        ]
        first_rank = self._roles.get(task.name)
        if first_rank is not None:
            variables.append({"name": "RANK", "value": str(first_rank + index)})
        _add_env(pod, variables, init_containers=False)
        containers = pod["spec"].get("containers") or []
        ports = [port for container in _containers(pod) for port in container.get("ports") or ()]
        if containers and all(port.get("containerPort") != self._port for port in ports):
            # One says it for the pod: in the host's network the API server takes no port twice.
            opened = {"name": "pytorchjob-port", "containerPort": self._port, "protocol": "TCP"}
            containers[0]["ports"] = [*(containers[0].get("ports") or ()), opened]

    def objects(self) -> list[Json]:
        return []


PLUGINS: Final[Mapping[str, Callable[[list[str], Job], Plugin]]] = {
    "env": Env,
    "svc": Svc,
    "pytorch": Pytorch,
}


def plugins_of(job: Job) -> list[Plugin]:
    """The Job's plugins, in the order of their names; raises :class:`PluginError`."""
    return [PLUGINS[name](arguments, job) for name, arguments in sorted(job.spec.plugins.items())]


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process; no abbreviations, no help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog=prog, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise PluginError(message)


def _parse(name: str, parser: _Parser, arguments: list[str]) -> Any:
    # Go's flags may have one dash.
    spelled = [
        f"-{text}" if text.startswith("-") and not text.startswith("--") else text for text in arguments
    ]
    options, unknown = parser.parse_known_args(spelled)
    if unknown:
        raise PluginError(f"{name} has no argument {unknown[0]!r}")
    return options


def _flag(text: str) -> bool:
    if text.lower() in {"1", "t", "true"}:
        return True
    if text.lower() in {"0", "f", "false"}:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _port(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, 1 to 65535")
    return int(text)


def _host(job: Job, task: Task, index: int) -> str:
    spec = task.template.spec
    host = spec.get("hostname") or pod_name(job.metadata.name, task.name, index)
    return f"{host}.{spec.get('subdomain') or job.metadata.name}"


def _upper(task: Task) -> str:
    return task.name.replace("-", "_").upper()


def _containers(pod: Json) -> list[Json]:
    spec = pod["spec"]
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _add_env(pod: Json, variables: list[Json], *, init_containers: bool = True) -> None:
    for container in _containers(pod) if init_containers else pod["spec"].get("containers") or ():
        container.setdefault("env", []).extend(dict(variable) for variable in variables)
