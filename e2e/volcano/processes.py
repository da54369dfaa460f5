"""Volcano's scheduler, controllers and webhook as programs of this machine, beside a local cluster."""

import base64
import os
import re
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml
from localcluster.api import ApiError, wait_until
from localcluster.cluster import LocalCluster
from localcluster.net import free_ports
from localcluster.pki import Authority
from stack.hostprocess import HostProcess
from stack.identity import service_account_kubeconfig

from volcano.conf import ConfName, scheduler_conf

QPS: Final = 2000
"""Client rate of each of Volcano's programs (the chart leaves two of them at 50)."""
JOB_WORKERS: Final = 10
NAMESPACE: Final = "volcano-system"
ACCOUNTS: Final = ("volcano-controllers", "volcano-scheduler", "volcano-admission")
_HOOK_RULES: Final = {
    "/jobs/mutate": ("batch.volcano.sh", "v1alpha1", "jobs", ["CREATE"]),
    "/jobs/validate": ("batch.volcano.sh", "v1alpha1", "jobs", ["CREATE", "UPDATE"]),
    "/podgroups/validate": ("scheduling.volcano.sh", "v1beta1", "podgroups", ["CREATE"]),
    "/queues/mutate": ("scheduling.volcano.sh", "v1beta1", "queues", ["CREATE"]),
    "/queues/validate": ("scheduling.volcano.sh", "v1beta1", "queues", ["CREATE", "UPDATE", "DELETE"]),
}
"""Of the chart's default set, those whose kinds take part here."""
WEBHOOK_PATHS: Final = tuple(_HOOK_RULES)


_LOADED: Final = re.compile("Finished loading scheduler config|Successfully loaded Scheduler conf")
"""As vc-scheduler of 1.15 says it, and of 1.16."""


CRDS: Final = (
    "jobs.batch.volcano.sh",
    "commands.bus.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "queues.scheduling.volcano.sh",
    "jobflows.flow.volcano.sh",
    "jobtemplates.flow.volcano.sh",
)
"""Without one of these vc-controller-manager waits for ever, and makes no pod. Those of flows lie in a folder
of their own in Volcano's sources."""


class NoVolcanoError(RuntimeError):
    """The environment names no Volcano."""


class BrokenVolcanoError(RuntimeError):
    """It names one that is not whole, or that ended; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Volcano:
    """Where Volcano's programs and CRDs lie."""

    bin_dir: Path
    crd_dir: Path

    @classmethod
    def from_environment(cls) -> Self:
        """Read VOLCANO_BIN_DIR and VOLCANO_CRD_DIR.

        Raises :class:`NoVolcanoError` where neither is set, and :class:`BrokenVolcanoError` where somebody
        asked for stories that cannot be told: that is no reason to skip them.
        """
        values = {name: os.environ.get(name, "") for name in ("VOLCANO_BIN_DIR", "VOLCANO_CRD_DIR")}
        unset = [name for name, value in values.items() if not value]
        if unset:
            error = NoVolcanoError if len(unset) == len(values) else BrokenVolcanoError
            raise error(f"{' and '.join(unset)} not set")
        found = cls(Path(values["VOLCANO_BIN_DIR"]).resolve(), Path(values["VOLCANO_CRD_DIR"]).resolve())
        for name in ("vc-scheduler", "vc-controller-manager"):
            if not found.program(name).is_file():
                raise BrokenVolcanoError(f"VOLCANO_BIN_DIR {found.bin_dir} has no {name}")
        there = "".join(file.read_text() for file in found.crd_dir.glob("*.yaml"))
        lacking = [name for name in CRDS if f"name: {name}\n" not in there]
        if lacking:
            raise BrokenVolcanoError(f"VOLCANO_CRD_DIR {found.crd_dir} has no {', '.join(lacking)}")
        return found

    def program(self, name: str) -> Path:
        """Path of one program, there or not."""
        return self.bin_dir / name

    def version(self) -> str:
        """Version that vc-scheduler says it has."""
        done = subprocess.run(
            [str(self.program("vc-scheduler")), "--version"], capture_output=True, text=True, check=False
        )
        # "Not provided." stands there where it was built without the flags of a release.
        match = re.search(r"^Version:\s*(v?\d\S*)", done.stdout + done.stderr, re.MULTILINE)
        return match.group(1) if match else "unknown"

    def install_crds(self, cluster: LocalCluster) -> None:
        """Apply all CRDs and wait until they serve."""
        cluster.kubectl("apply", "--server-side", "-f", str(self.crd_dir))
        api = cluster.api()

        def established() -> bool:
            items = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
            return all(
                any(
                    condition["type"] == "Established" and condition["status"] == "True"
                    for condition in (item.get("status") or {}).get("conditions") or ()
                )
                for item in items
            )

        wait_until("Volcano's CRDs", established, 60)
        api.close()


@dataclass(frozen=True, slots=True)
class VolcanoProcesses:
    """Volcano's programs of one cluster, not yet started."""

    scheduler: HostProcess
    controllers: HostProcess
    webhook: HostProcess | None
    _scheduler_health: str
    _webhook_url: str
    _conf_file: Path

    @classmethod
    def of(cls, cluster: LocalCluster, volcano: Volcano, conf: ConfName) -> Self:
        """Lay out files and arguments; ``webhook`` is None where the program is not there."""
        folder = cluster.state_dir / "volcano"
        conf_file = folder / "conf" / "volcano-scheduler.conf"
        conf_file.parent.mkdir(parents=True, exist_ok=True)
        conf_file.write_text(scheduler_conf(conf))
        health_port, hook_port = free_ports(2, set(cluster.context.record.ports.values()))
        # Both make a socket there, by default in one folder for all clusters of the machine.
        env = {"DEBUG_SOCKET_DIR": str(folder / "klog")}
        (folder / "klog").mkdir(exist_ok=True)
        _accounts(cluster)
        health = f"127.0.0.1:{health_port}"
        scheduler = HostProcess(
            cluster,
            "vc-scheduler",
            [
                str(volcano.program("vc-scheduler")),
                *_client(cluster, "volcano-scheduler"),
                "--leader-elect=false",
                f"--scheduler-conf={conf_file}",
                # A configuration that does not load is an error, not a reason to run another.
                "--disable-default-scheduler-config=true",
                "--schedule-period=1s",
                "--cache-dumper=false",
                "--enable-healthz=true",
                f"--healthz-address={health}",
                "--enable-metrics=false",
            ],
            env,
        )
        controllers = HostProcess(
            cluster,
            "vc-controller-manager",
            [
                str(volcano.program("vc-controller-manager")),
                *_client(cluster, "volcano-controllers"),
                "--leader-elect=false",
                f"--worker-threads={JOB_WORKERS}",
                "--enable-healthz=false",
                "--enable-metrics=false",
            ],
            env,
        )
        url = f"https://127.0.0.1:{hook_port}"
        webhook = _webhook(cluster, volcano, url, env)
        return cls(scheduler, controllers, webhook, f"http://{health}/healthz", url, conf_file)

    def start(self, *, scheduler: bool = True, webhook: bool = True) -> None:
        """Start them; returns when the queues are there and the scheduler has read its configuration."""
        # The scheduler makes queues, which its webhook has to let pass.
        if webhook and self.webhook is not None:
            self._configure_webhook(self.webhook.cluster)
            self.webhook.start()
            wait_until("Volcano's webhook", self._webhook_ready, 60, lambda: _check(self.webhook))
        self.controllers.start()
        if scheduler:
            self.start_scheduler()

    def start_scheduler(self) -> None:
        """Start vc-scheduler, which makes the queues ``root`` and ``default``."""
        before = self._configurations_loaded()
        self.scheduler.start()
        wait_until("vc-scheduler healthy", self._healthy, 60, lambda: _check(self.scheduler))
        wait_until("queue default", self._default_queue, 60, lambda: _check(self.scheduler))
        wait_until(
            "vc-scheduler's configuration",
            lambda: self._configurations_loaded() > before,
            30,
            lambda: _check(self.scheduler),
        )

    def _configurations_loaded(self) -> int:
        log = self.scheduler.log_file
        return len(_LOADED.findall(log.read_text(errors="replace"))) if log.is_file() else 0

    def use(self, conf: ConfName) -> None:
        """Start the scheduler anew with this configuration."""
        self.scheduler.stop()
        self._conf_file.write_text(scheduler_conf(conf))
        self.start_scheduler()

    def check_alive(self) -> None:
        """Raise with the log's end when one of them has died."""
        for process in (self.controllers, self.scheduler, self.webhook):
            _check(process)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self._scheduler_health, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _default_queue(self) -> bool:
        api = self.scheduler.cluster.api()
        try:
            api.get("/apis/scheduling.volcano.sh/v1beta1/queues/default")
        except ApiError:
            return False
        finally:
            api.close()
        return True

    def _configure_webhook(self, cluster: LocalCluster) -> None:
        ca = base64.b64encode(cluster.ca_certificate.read_bytes()).decode()
        documents = [webhook_configuration(path, self._webhook_url, ca) for path in WEBHOOK_PATHS]
        cluster.kubectl("apply", "--server-side", "-f", "-", text_in=yaml.safe_dump_all(documents))

    def _webhook_ready(self) -> bool:
        """Volcano's webhook writes its CA into the configurations once it is about to listen."""
        hook = self.webhook
        assert hook is not None, "asked only where there is one"
        probe = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "probe"},
            "spec": {"weight": 1},
        }
        done = hook.cluster.kubectl(
            "create", "--dry-run=server", "-f", "-", text_in=yaml.safe_dump(probe), check=False
        )
        return done.returncode == 0


def _accounts(cluster: LocalCluster) -> None:
    """The service accounts that Volcano's chart makes; what they may do is not ours to test."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
        for name in ACCOUNTS
    ]
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAMESPACE},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE} for name in ACCOUNTS],
    }
    text = yaml.safe_dump_all([namespace, *accounts, binding])
    cluster.kubectl("apply", "--server-side", "-f", "-", text_in=text)


def _client(cluster: LocalCluster, account: str) -> list[str]:
    return [
        f"--kubeconfig={service_account_kubeconfig(cluster, NAMESPACE, account)}",
        f"--kube-api-qps={QPS}",
        f"--kube-api-burst={QPS}",
        "--scheduler-name=volcano",
        "--v=2",
    ]


def _webhook(cluster: LocalCluster, volcano: Volcano, url: str, env: dict[str, str]) -> HostProcess | None:
    program = volcano.program("vc-webhook-manager")
    if not program.is_file():
        return None
    authority: Authority = cluster.context.authority
    pair = authority.issue("vc-webhook", "volcano-webhook", hosts=("127.0.0.1", cluster.host_ip))
    return HostProcess(
        cluster,
        "vc-webhook-manager",
        [
            str(program),
            *_client(cluster, "volcano-admission"),
            f"--webhook-url={url}",
            f"--enabled-admission={','.join(WEBHOOK_PATHS)}",
            "--listen-address=127.0.0.1",
            f"--port={url.rsplit(':', 1)[1]}",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
            f"--ca-cert-file={cluster.ca_certificate}",
            "--enable-healthz=false",
        ],
        env,
    )


def webhook_configuration(path: str, url: str, ca: str) -> dict[str, Any]:
    """The configuration that vc-webhook-manager looks for by its name, with a URL in place of a Service."""
    group, version, plural, operations = _HOOK_RULES[path]
    kind = "Mutating" if path.endswith("/mutate") else "Validating"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "volcano-admission-service" + path.replace("/", "-")},
        "webhooks": [
            {
                "name": f"{path.rsplit('/', 1)[1]}{plural}.volcano.sh",
                "clientConfig": {"url": url + path, "caBundle": ca},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "NoneOnDryRun",
                "failurePolicy": "Fail",
                "timeoutSeconds": 10,
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "resources": [plural],
                        "operations": operations,
                    }
                ],
            }
        ],
    }


def _check(process: HostProcess | None) -> None:
    if process is not None and not process.alive:
        raise BrokenVolcanoError(f"{process.name} ended:\n{process.log_tail()}")
