"""A real Prometheus beside a cluster, with our rules and scrape job and no more rights than these need."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from localcluster import toolchain
from localcluster.api import wait_until
from localcluster.net import free_ports
from stack.hostprocess import HostProcess
from stack.identity import service_account_kubeconfig
from stack.install import REPOSITORY, Stack

MONITORING: Final = REPOSITORY / "manifests" / "monitoring"
ACCOUNT: Final = ("monitoring", "prometheus")
EVERY: Final = "2s"


class Prometheus:
    """Its HTTP interface."""

    def __init__(self, process: HostProcess, port: int) -> None:
        self._process = process
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        """The data of one answer of ``/api/v1``; raises AssertionError with Prometheus' own words."""
        url = f"{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {query}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression is now: ``metric`` (labels) and ``value`` of each series."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def targets(self) -> dict[str, str]:
        """Pod to what is wrong with it; empty: it answers."""
        found: dict[str, str] = {}
        for target in self.ask("targets", state="active")["activeTargets"]:
            wrong = "" if target["health"] == "up" else f"{target['health']} {target['lastError']}"
            found[target["labels"]["pod_name"]] = found.get(target["labels"]["pod_name"], "") or wrong
        return found

    def rules(self) -> list[dict[str, Any]]:
        """All of ours, with state and health."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def ready(self) -> bool:
        """Whether it serves; an error where it has ended."""
        if not self._process.alive:
            raise AssertionError(f"Prometheus ended:\n{self._process.log_tail()}")
        try:
            with urllib.request.urlopen(f"{self._address}/-/ready", timeout=5):
                return True
        except OSError:
            return False


@contextmanager
def prometheus(stack: Stack, folder: Path) -> Iterator[Prometheus]:
    """It runs until the end of the block. ``folder``: empty, for its data."""
    namespace, account = ACCOUNT
    kubectl = stack.kit.kubectl
    kubectl("create", "namespace", namespace)
    try:
        kubectl("create", "serviceaccount", account, "-n", namespace)
        kubectl("apply", "-f", str(MONITORING / "access.yaml"))
        kubeconfig = service_account_kubeconfig(stack.cluster, namespace, account)
        (port,) = free_ports(1, set(stack.cluster.context.record.ports.values()))
        argv = [
            str(toolchain.program("prometheus")),
            f"--config.file={_configuration(folder, kubeconfig)}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        process = HostProcess(stack.cluster, "prometheus", argv)
        process.start()
        try:
            found = Prometheus(process, port)
            wait_until("Prometheus is ready", found.ready, 30)
            yield found
        finally:
            process.stop()
    finally:
        kubectl("delete", "-f", str(MONITORING / "access.yaml"), "--ignore-not-found")
        kubectl("delete", "namespace", namespace)


def _configuration(folder: Path, kubeconfig: Path) -> Path:
    """The scrape job as it is, from outside of the cluster: kubeconfig and token instead of a pod's own."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])
    configuration = yaml.safe_load((MONITORING / "scrape.yaml").read_text())
    for job in configuration["scrape_configs"]:
        (discovery,) = job["kubernetes_sd_configs"]
        discovery["kubeconfig_file"] = str(kubeconfig)
        job["authorization"]["credentials_file"] = str(token)
        job["scrape_interval"] = EVERY
    configuration["global"] = {"scrape_interval": EVERY, "evaluation_interval": EVERY}
    names = ("rules", "recording", "aliases-hami", "aliases-volcano")
    configuration["rule_files"] = [str(MONITORING / f"{name}.yaml") for name in names]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(configuration))
    return path
