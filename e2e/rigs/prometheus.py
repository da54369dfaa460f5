"""A real Prometheus beside a cluster, with our rules and scrape job and no more rights than these need."""

import json
import re
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

from rigs.served import serves

MONITORING: Final = REPOSITORY / "manifests" / "monitoring"
ACCOUNT: Final = ("monitoring", "prometheus")
EVERY: Final = "2s"
HASTE: Final = (
    (r"\[(?:5|10|30)m\]", "[1m]"),
    (r"(?<!mirror_behind_seconds\)) > 300\b", " > 30"),
    (r"\* 14400\b", "* 30"),
)
"""What a hasty Prometheus reads instead in expressions of our rules; each ``for`` is :data:`HASTY_FOR`."""
HASTY_FOR: Final = "6s"


class Prometheus:
    """Its HTTP interface."""

    def __init__(self, process: HostProcess, port: int) -> None:
        self._process = process
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str | float) -> Any:
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

    def lately(self, expression: str, seconds: int = 900) -> list[dict[str, Any]]:
        """What an expression was in the last minutes: ``metric`` and ``values`` of each series."""
        (now,) = self.query("vector(time())")
        end = float(now["value"][0])
        asked = self.ask(
            "query_range", query=expression, start=end - seconds, end=end, step=max(1, seconds // 200)
        )
        found: list[dict[str, Any]] = asked["result"]
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
        return serves(self._process, "Prometheus", self._address)


@contextmanager
def prometheus(
    stack: Stack, folder: Path, *, alerts_to: str = "", writes_to: str = ""
) -> Iterator[Prometheus]:
    """It runs until the end of the block. ``folder``: empty, for its data. ``alerts_to``: the address of an
    Alertmanager; then it is in haste. ``writes_to``: the URL of a remote store for the smallest part."""
    namespace, account = ACCOUNT
    kubectl = stack.kit.kubectl
    kubectl("create", "namespace", namespace)
    try:
        kubectl("create", "serviceaccount", account, "-n", namespace)
        kubectl("apply", "-f", str(MONITORING / "access.yaml"))
        kubeconfig = service_account_kubeconfig(stack.cluster, namespace, account)
        (port,) = free_ports(1, set(stack.cluster.context.record.ports.values()))
        configuration = _configuration(folder, kubeconfig)
        if alerts_to:
            configuration["rule_files"] = [
                str(_hasty(Path(name), folder)) for name in configuration["rule_files"]
            ]
            targets = [{"targets": [alerts_to]}]
            configuration["alerting"] = {"alertmanagers": [{"static_configs": targets}]}
        if writes_to:
            itself = {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            configuration["scrape_configs"].append(itself)
            only = [{"source_labels": ["__name__"], "regex": "up", "action": "keep"}]
            configuration["remote_write"] = [{"url": writes_to, "write_relabel_configs": only}]
        path = folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(configuration))
        argv = [
            str(toolchain.program("prometheus")),
            f"--config.file={path}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--rules.alert.resend-delay={EVERY}",
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


def _configuration(folder: Path, kubeconfig: Path) -> dict[str, Any]:
    """The scrape job as it is, from outside of the cluster: kubeconfig and token instead of a pod's own."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])
    configuration: dict[str, Any] = yaml.safe_load((MONITORING / "scrape.yaml").read_text())
    for job in configuration["scrape_configs"]:
        (discovery,) = job["kubernetes_sd_configs"]
        discovery["kubeconfig_file"] = str(kubeconfig)
        job["authorization"]["credentials_file"] = str(token)
        job["scrape_interval"] = EVERY
    configuration["global"] = {"scrape_interval": EVERY, "evaluation_interval": EVERY}
    names = ("rules", "recording", "aliases-hami", "aliases-volcano")
    configuration["rule_files"] = [str(MONITORING / f"{name}.yaml") for name in names]
    return configuration


def _hasty(rules: Path, folder: Path) -> Path:
    """The same rules with shorter times; written into the folder."""
    document = yaml.safe_load(rules.read_text())
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        for pattern, instead in HASTE:
            rule["expr"] = re.sub(pattern, instead, rule["expr"])
        if "for" in rule:
            rule["for"] = HASTY_FOR
    path = folder / rules.name
    path.write_text(yaml.safe_dump(document))
    return path
