"""Jobs of one team in queue ``team``: simulated nodes, and our processes next to the cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from localcluster import ClusterSpec, LocalCluster
from outcomes.workload import container, pod_spec
from stack.hostmode import MODELS, HostOptions, HostStack
from stack.kit import Kit, is_running
from stack.verify import check_invariants
from vc_egpu.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

from rigs.admission import gpu_node, wait_ready
from rigs.volcano_job import ONE_TRY, volcano_job

Json = dict[str, Any]
H20: Final = names.shared_resource("h20")
NAMESPACE: Final = "team"
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class OneTeam:
    """The stack, and what the team does."""

    stack: HostStack

    def apply(self, document: Json) -> None:
        self.stack.kit.kubectl("apply", "-n", NAMESPACE, "-f", "-", text_in=yaml.safe_dump(document))

    def make(self, name: str, limits: Mapping[str, int], *, members: int = 1, priority: str = "") -> None:
        """Make a Job of such pods. It would try again once, if an eviction counted."""
        annotations = {names.PRIORITY: priority} if priority else {}
        pods = pod_spec(container(limits=dict(limits))) | {"restartPolicy": "Never"}
        template = {"metadata": {"annotations": annotations}, "spec": pods}
        self.apply(volcano_job(name, "team", members, template, **ONE_TRY))

    def all_run(self, name: str, members: int = 1, but: frozenset[str] = frozenset()) -> dict[str, Json]:
        """Wait until so many pods of the Job run, none of them of these UIDs; they, by name."""

        def there(pods: dict[str, Json]) -> dict[str, Json] | None:
            mine = {key: pod for key, pod in pods.items() if key.startswith(f"{name}-w-") and is_running(pod)}
            found = {key: pod for key, pod in mine.items() if pod["metadata"]["uid"] not in but}
            return found if len(found) == members else None

        return self.stack.kit.until(f"{name} runs", PODS, there, namespace=NAMESPACE, timeout_s=TIMEOUT_S)

    def tries(self, name: str) -> int:
        """How many the Job's controller has counted."""
        found = self.stack.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
        return int((found.get("status") or {}).get("retryCount") or 0)

    def check_invariants(self) -> None:
        """Those of the whole cluster."""
        check_invariants(self.stack.kit, ModelTable.from_yaml(MODELS.read_text()))


@contextmanager
def one_team(
    name: str,
    *,
    nodes: int,
    cards: int,
    caps: Mapping[str, str],
    flags: Sequence[str] = (),
    more: Sequence[Path] = (),
) -> Iterator[HostStack]:
    """The cluster ``name``; gone afterwards.

    ``flags``: of the admission controller. ``more``: documents that are applied before it starts. The model
    table stands in the cluster as well, where commands read it.
    """
    with LocalCluster.up(ClusterSpec(name=name, real_nodes=0, services=False, dns=False)) as local:
        local.add_kwok_nodes(nodes, gpu_node(cards))
        ours = HostStack.install(local, HostOptions(flags={"admission": tuple(flags)} if flags else {}))
        for path in more:
            ours.kit.kubectl("apply", "-f", str(path))
        try:
            ours.start()
            wait_ready(ours.kit, nodes)
            ours.kit.api.create(CONFIG_MAPS, _models())
            open_queues(ours.kit, caps, NAMESPACE)
            yield ours
        finally:
            ours.stop()


def open_queues(kit: Kit, caps: Mapping[str, str], *teams: str) -> None:
    """A namespace and a queue with these caps for each team; returns when the queues are open."""
    for team in teams:
        kit.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        queue = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": team}}
        queue |= {"spec": {"weight": 1, "capability": dict(caps)}}
        kit.kubectl("apply", "-f", "-", text_in=yaml.safe_dump(queue))
    kit.until(
        "the queues are open",
        QUEUES,
        lambda found: all((found[team].get("status") or {}).get("state") for team in teams),
    )


def _models() -> Json:
    metadata = {"name": names.MODELS_CONFIG_MAP, "namespace": names.SYSTEM_NAMESPACE}
    return {"metadata": metadata, "data": {"models.yaml": MODELS.read_text()}}
