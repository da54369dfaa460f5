"""Three clusters of one user: each has our stack, simulated nodes, and a line that leads to it."""

import datetime
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from localcluster import LocalCluster
from localcluster.api import wait_until
from localcluster.pki import KeyPair, write_kubeconfig
from rigs.foresight import Town, town
from vc_egpu.kube.resources import PODS, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.words import names
from vc_egpu.webhook.serving.authority import CLIENT, issue
from vc_egpu.webhook.serving.authority import KeyPair as CertifiedKey

from cities.line import Line

NODES: Final = {"hangzhou": 2, "shanghai": 3, "xian": 1}
"""Simulated nodes of four H20 cards each, by cluster."""
GONE_S: Final = 60.0


@dataclass
class City:
    """One cluster."""

    name: str
    town: Town
    line: Line

    @property
    def cluster(self) -> LocalCluster:
        """Its processes."""
        return self.town.stack.cluster

    def kill(self) -> None:
        """Its API server is gone at once."""
        self.cluster.component("kube-apiserver").kill()

    def return_from_the_dead(self) -> None:
        """Its API server is there again, and our stack works on."""
        api_server = self.cluster.component("kube-apiserver")
        if api_server.pid is None:
            api_server.start()
        stack = self.town.stack
        for name, process in stack.processes.items():
            if not process.alive:  # as the kubelet would
                process.start()
            stack.wait_ready(name)
        stack.wait_webhook()

    def jobs(self) -> list[str]:
        """Keys of the Jobs that it has."""
        listed = self.town.stack.kit.api.list(VOLCANO_JOBS).items
        return sorted(f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in listed)

    def forget_all(self) -> None:
        """End all Jobs, whoever made them, and their pods: Kubernetes' collector may need a minute to go on
        after its API server was away."""
        api = self.town.stack.kit.api
        for key in self.jobs():
            namespace, name = key.split("/")
            api.delete(VOLCANO_JOBS, name, namespace, propagation="Background")
        self.town.jobs.clear()
        for pod in self.town.pods():
            metadata = pod["metadata"]
            with suppress(NotFound):
                api.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        wait_until(f"nothing is left in {self.name}", lambda: not self.town.pods(), GONE_S)


@dataclass
class Group:
    """All of them, and the user's files."""

    folder: Path
    cities: dict[str, City]

    @property
    def file(self) -> Path:
        """The clusters, each by its own line."""
        return self.file_of({name: city.line.kubeconfig for name, city in self.cities.items()}, "all")

    def file_of(self, kubeconfigs: dict[str, Path], name: str) -> Path:
        """A file of clusters in this order."""
        sites = [
            {"name": one, "city": one.title(), "kubeconfig": str(path)} for one, path in kubeconfigs.items()
        ]
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"clusters": sites}))
        return path

    def expired(self, city: City) -> Path:
        """A kubeconfig of that cluster whose client certificate was good until yesterday."""
        authority = city.cluster.context.authority
        key = CertifiedKey.from_pem(authority.pair.certificate.read_bytes(), authority.pair.key.read_bytes())
        day = datetime.timedelta(days=1)
        end = datetime.datetime.now(datetime.UTC) - day
        made = issue(key, "admin", end - day, end, organizations=("system:masters",), purposes=(CLIENT,))
        pair = KeyPair(self.folder / "expired.crt", self.folder / "expired.key")
        pair.certificate.write_bytes(made.certificate_pem)
        pair.key.write_bytes(made.key_pem)
        path = self.folder / "expired"
        write_kubeconfig(path, city.cluster.server, authority, pair, city.name)
        return path

    def where(self, key: str) -> list[str]:
        """The clusters that have the Job of this key."""
        return [name for name, city in self.cities.items() if key in city.jobs()]

    def settle(self) -> None:
        """Wait until nothing is to be done in any of them."""
        for city in self.cities.values():
            city.town.settle()

    def forget_all(self) -> None:
        """End all Jobs everywhere."""
        for city in self.cities.values():
            city.forget_all()


@contextmanager
def group(folder: Path) -> Iterator[Group]:
    """Bring all of them up, one after the other."""
    with ExitStack() as stack:
        cities = {}
        for name, nodes in NODES.items():
            found = stack.enter_context(town(name, nodes))
            _tell_models(found)
            line = Line(found.stack.cluster.kubeconfig, folder / f"{name}.kubeconfig")
            cities[name] = City(name, found, stack.enter_context(line))
        yield Group(folder, cities)


def _tell_models(found: Town) -> None:
    """The table that users read, as the processes have it from a file."""
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.MODELS_CONFIG_MAP, "namespace": names.SYSTEM_NAMESPACE},
        "data": {"models.yaml": found.stack.options.models.read_text()},
    }
    found.stack.kit.kubectl("apply", "-f", "-", text_in=yaml.safe_dump(document))
