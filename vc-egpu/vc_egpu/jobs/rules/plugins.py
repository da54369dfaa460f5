"""The Job plugins env, svc and pytorch: what they add to pods, and the objects they need.

Each is built from its arguments and the completed Job, and refuses arguments that it does not have. They may
be applied in any order: none reads what another wrote.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final, Protocol

from vc_egpu.jobs.rules.flags import PluginError, boolean, port, read_flags, short, whole_number
from vc_egpu.jobs.rules.hosts import HostLists, host_of
from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.api.job import Job, Task
from vc_egpu.volcano.api.meta import Json
from vc_egpu.volcano.words import names

HOSTS_FOLDER: Final = "/etc/volcano"
_PYTORCH_PORT: Final = 23456
MOST_CONFIG_MAP_BYTES: Final = 1_000_000
"""The API server takes 1 MiB of values, and etcd little more of a whole object."""
MOST_VARIABLES: Final = 2048
"""The most variables that svc writes into one pod: two of each task into each container."""
SVC_FLAGS: Final[Mapping[str, Callable[[str], object]]] = {
    "publish-not-ready-addresses": boolean,
    "disable-network-policy": boolean,
    "inject-hosts-env": boolean,
}
PYTORCH_FLAGS: Final[Mapping[str, Callable[[str], object]]] = {
    "master": str,
    "worker": str,
    "port": port,
    "wait-master-enabled": boolean,
    # Volcano reads these two only together with the one before.
    "wait-master-timeout": whole_number,
    "wait-master-image": str,
}


class Plugin(Protocol):
    """What the controller asks of a plugin."""

    def adorn(self, pod: Json, task: Task, index: int) -> None:
        """Add to a pod that is about to be made."""
        ...

    def objects(self) -> list[Json]:
        """Objects that the Job's pods need, without owner; made before the pods."""
        ...

    def warning(self) -> str:
        """A sentence on what pods do not get; empty if they get all."""
        ...


def pod_name(job: str, task: str, index: int) -> str:
    """``<job>-<task>-<index>``."""
    return f"{job}-{task}-{index}"


class Env:
    """``VC_TASK_INDEX`` (and its older name): which pod of its task this one is."""

    def __init__(self, arguments: list[str], job: Job) -> None:  # noqa: ARG002 - all plugins are built alike
        read_flags("env", arguments, {})

    def adorn(self, pod: Json, task: Task, index: int) -> None:  # noqa: ARG002 - as all plugins
        _add_env(pod, [{"name": name, "value": str(index)} for name in ("VK_TASK_INDEX", "VC_TASK_INDEX")])

    def objects(self) -> list[Json]:
        return []

    def warning(self) -> str:
        return ""


class Svc:
    """A name for each pod: headless Service, host lists as files and variables, and a NetworkPolicy."""

    def __init__(self, arguments: list[str], job: Job) -> None:
        said = read_flags("svc", arguments, SVC_FLAGS)
        self._publish_not_ready: bool = said.get("publish-not-ready-addresses", False)
        self._network_policy: bool = not said.get("disable-network-policy", False)
        if "." in job.metadata.name:
            raise PluginError(f"the Job's name {job.metadata.name!r} is its pods' domain, it may have no dot")
        self._job = job
        self._config_map = f"{job.metadata.name}-svc"
        self._reference = {"name": self._config_map}
        self.lists = HostLists(job, in_variables=said.get("inject-hosts-env", True))
        if self.lists.size > MOST_CONFIG_MAP_BYTES:
            raise PluginError(
                f"its host lists have {self.lists.size} bytes, a ConfigMap takes {MOST_CONFIG_MAP_BYTES}: "
                "use shorter names or fewer replicas"
            )
        most = max((self._variables_of(task) for task in job.spec.tasks), default=0)
        if most > MOST_VARIABLES:
            raise PluginError(
                f"a pod would get {most} variables with host lists, at most {MOST_VARIABLES}: "
                f"add --inject-hosts-env=false, the lists are in {HOSTS_FOLDER} as well"
            )

    @cached_property
    def _variables(self) -> list[Json]:
        """The same for all pods: they are written, and never changed."""
        return [
            {"name": name, "valueFrom": {"configMapKeyRef": {**self._reference, "key": name}}}
            for name in self.lists.variables
        ]

    def _variables_of(self, task: Task) -> int:
        return len(self.lists.variables) * len(containers_of(task.template.spec))

    def adorn(self, pod: Json, task: Task, index: int) -> None:  # noqa: ARG002 - as all plugins
        spec = pod["spec"]
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or self._job.metadata.name
        _add_env(pod, self._variables)
        spec.setdefault("volumes", []).append({"name": self._config_map, "configMap": self._reference})
        for container in containers_of(spec):
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
                "data": self.lists.data(),
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

    def warning(self) -> str:
        return self.lists.left_out()


class Pytorch:
    """The variables that torch.distributed reads: master's address and port, world size, rank."""

    def __init__(self, arguments: list[str], job: Job) -> None:
        said = read_flags("pytorch", arguments, PYTORCH_FLAGS)
        if said.get("wait-master-enabled"):
            raise PluginError("--wait-master-enabled needs Volcano's own controllers")
        name = said.get("master", "master")
        master = next((task for task in job.spec.tasks if task.name == name), None)
        if master is None:
            raise PluginError(f"there is no task {short(name)}, name the master's with --master")
        self._roles = {said.get("worker", "worker"): master.replicas, name: 0}  # first rank
        self._port: int = said.get("port", _PYTORCH_PORT)
        self._address = host_of(job, master, 0)
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
        ports = [port for container in containers_of(pod["spec"]) for port in container.get("ports") or ()]
        if containers and all(port.get("containerPort") != self._port for port in ports):
            # One says it for the pod: in the host's network the API server takes no port twice.
            opened = {"name": "pytorchjob-port", "containerPort": self._port, "protocol": "TCP"}
            containers[0]["ports"] = [*(containers[0].get("ports") or ()), opened]

    def objects(self) -> list[Json]:
        return []

    def warning(self) -> str:
        return ""


PLUGINS: Final[Mapping[str, Callable[[list[str], Job], Plugin]]] = {
    "env": Env,
    "svc": Svc,
    "pytorch": Pytorch,
}


def plugins_of(job: Job) -> list[Plugin]:
    """The Job's plugins, in the order of their names; raises :class:`PluginError`."""
    return [PLUGINS[name](arguments, job) for name, arguments in sorted(job.spec.plugins.items())]


def _add_env(pod: Json, variables: list[Json], *, init_containers: bool = True) -> None:
    for container in containers_of(pod["spec"]) if init_containers else pod["spec"].get("containers") or ():
        container.setdefault("env", []).extend(dict(variable) for variable in variables)
