"""The programs of the stream next to a test: Kafka, Telegraf and Flink, each to be killed and started again.

`make stream-parts` fetches Kafka and Flink, `make toolchain-long` builds Telegraf.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import yaml
from localcluster import toolchain
from localcluster.errors import LocalClusterError
from localcluster.net import free_ports
from localcluster.state import cache_root

PIPELINE: Final = Path(__file__).parents[2] / "manifests/usage-pipeline"
HOME: Final = cache_root() / "stream"
SMALL_JVM: Final = ("-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SMALL_CLIENT: Final = {"JVM_ARGS": "-Xmx400m -XX:+UseSerialGC"}
_METRICS: Final = "org.apache.flink.metrics.prometheus"
TOPIC: Final = "egpu-usage"
PARTITIONS: Final = 1
"""A day in a minute: among several the watermark would run ahead of some by more than the five minutes that
messages may be late."""
needs_parts = pytest.mark.skipif(not (HOME / ".done").exists(), reason="no Kafka: `make stream-parts`")
needs_flink = pytest.mark.skipif(not (HOME / ".done").exists(), reason="no Flink: `make stream-parts`")


@dataclass
class Part:
    """One program, which ends with the test."""

    name: str
    argv: Sequence[str]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[], bool] = lambda: True
    peak_kib: int = 0
    """Memory at its most, over all its lives."""
    _running: "subprocess.Popen[bytes] | None" = None

    def start(self, timeout_s: float = 240) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._running = subprocess.Popen(
                self.argv, stdout=log, stderr=log, env=os.environ | dict(self.env), start_new_session=True
            )
        self.until(f"{self.name} answers", self.is_ready, timeout_s)

    def until(self, what: str, check: Callable[[], bool], timeout_s: float) -> None:
        """Poll; raises ``AssertionError`` with the end of the log."""
        ends = time.monotonic() + timeout_s
        while not check():
            alive = self._running is not None and self._running.poll() is None
            if not alive or time.monotonic() > ends:
                raise AssertionError(f"{what}: not so{'' if alive else ', it has ended'}\n{self.log_tail()}")
            time.sleep(0.1)

    def until_time(self, moment_s: float) -> None:
        """Until the monotonic clock says so."""
        ends = moment_s - time.monotonic()
        while ends > 0:
            time.sleep(min(ends, 0.1))
            ends = moment_s - time.monotonic()

    def log_tail(self) -> str:
        """The last lines that it wrote."""
        return "\n".join((self.folder / f"{self.name}.log").read_text(errors="replace").splitlines()[-30:])

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._running is not None:
            self.measure()
            self.signal(signal.SIGKILL)
            self._running.wait(30)
            self._running = None

    def signal(self, number: int) -> None:
        """To it and its children: the JVM may be one."""
        if self._running is not None and self._running.poll() is None:
            os.killpg(self._running.pid, number)

    def measure(self) -> None:
        """Note how much memory it has had at most."""
        if self._running is None or self._running.poll() is not None:
            return
        status = Path(f"/proc/{self._running.pid}/status").read_text().splitlines()
        peaks = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
        self.peak_kib = max([self.peak_kib, *peaks])


def listens(port: int) -> Callable[[], bool]:
    """Whether something takes connections there."""

    def check() -> bool:
        with socket.socket() as tried:
            tried.settimeout(1)
            return tried.connect_ex(("127.0.0.1", port)) == 0

    return check


@dataclass(frozen=True)
class Ports:
    """Where the parts listen, on the loopback."""

    kafka: int
    controller: int
    adapter: int
    flink_rpc: int
    flink_rest: int
    manager_metrics: int
    worker_metrics: int

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody has."""
        return cls(*free_ports(7, set()))


def kafka(folder: Path, ports: Ports) -> Part:
    """A broker of its own, formatted."""
    address = f"PLAINTEXT://127.0.0.1:{ports.kafka}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{address},CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": address,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder / "kafka"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    java = ["java", *SMALL_JVM, "-cp", f"{HOME}/kafka/*"]
    clean = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(path)]
    done = subprocess.run(clean, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return Part("kafka", [*java, "kafka.Kafka", str(path)], folder, is_ready=listens(ports.kafka))


def topic(ports: Ports) -> None:
    """Our topic, as topic.properties has it, on one broker."""
    settings = (PIPELINE / "topic.properties").read_text().splitlines()
    named = [line for line in settings if not line.startswith(("#", "min.insync.replicas"))]
    argv = [
        *("java", *SMALL_JVM, "-cp", f"{HOME}/kafka/*", "org.apache.kafka.tools.TopicCommand", "--create"),
        *("--bootstrap-server", f"127.0.0.1:{ports.kafka}", "--topic", TOPIC),
        *("--partitions", str(PARTITIONS), *(word for line in named for word in ("--config", line))),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout


def by_hand(ports: Ports, lines: Sequence[str]) -> None:
    """Messages that no adapter made, straight into the topic."""
    argv = [
        *("java", *SMALL_JVM, "-cp", f"{HOME}/kafka/*", "org.apache.kafka.tools.ConsoleProducer"),
        *("--bootstrap-server", f"127.0.0.1:{ports.kafka}", "--topic", TOPIC),
    ]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr


def telegraf(folder: Path, ports: Ports) -> Part:
    """The adapter with our configuration, at other addresses. Skips where nobody has built it."""
    try:
        program = toolchain.program("telegraf")
    except LocalClusterError as error:
        pytest.skip(str(error))
    text = (PIPELINE / "telegraf.conf").read_text()
    (folder / "buffer").mkdir()
    for ours, here in (
        ('"kafka:9092"', f'"127.0.0.1:{ports.kafka}"'),
        ('":8080"', f'"127.0.0.1:{ports.adapter}"'),
        ("/var/lib/telegraf/buffer", str(folder / "buffer")),
        ("[agent]\n", '[agent]\n  flush_interval = "1s"\n  metric_batch_size = 400\n'),
    ):
        assert ours in text
        text = text.replace(ours, here)
    path = folder / "telegraf.conf"
    path.write_text(text)
    return Part("telegraf", [str(program), "--config", str(path)], folder, is_ready=listens(ports.adapter))


def flink(folder: Path, ports: Ports) -> tuple[Part, Part]:
    """A job manager and a task manager, which tell their metrics."""
    home, conf = HOME / "flink", folder / "flink-conf"
    shutil.copytree(home / "conf", conf)
    shipped = yaml.safe_load((conf / "config.yaml").read_text())
    settings = {
        "env.java.opts.all": shipped["env"]["java"]["opts"]["all"],
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": ports.flink_rpc,
        "jobmanager.bind-host": "127.0.0.1",
        "jobmanager.memory.process.size": "900m",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.host": "127.0.0.1",
        "taskmanager.memory.process.size": "1200m",
        "taskmanager.memory.managed.fraction": 0.1,
        "taskmanager.numberOfTaskSlots": 2,
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": ports.flink_rest,
        "parallelism.default": 1,
        "classloader.resolve-order": "parent-first",
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 10000,
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.num-retained": 3,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 1000,
        "restart-strategy.fixed-delay.delay": "1 s",
        "metrics.reporter.prom.factory.class": f"{_METRICS}.PrometheusReporterFactory",
        "metrics.reporter.prom.port": f"{ports.manager_metrics}",
    }
    env = {"FLINK_HOME": str(home), "FLINK_LOG_DIR": str(folder), "FLINK_PID_DIR": str(folder)}

    def part(name: str, is_ready: Callable[[], bool], **others: str) -> Part:
        mine = folder / f"conf-{name}"
        shutil.copytree(conf, mine)
        (mine / "config.yaml").write_text(yaml.safe_dump(settings | others))
        argv = [str(home / "bin" / f"{name}.sh"), "start-foreground"]
        return Part(name, argv, folder, env | {"FLINK_CONF_DIR": str(mine)}, is_ready)

    metrics = {"metrics.reporter.prom.port": f"{ports.worker_metrics}"}
    return (
        part("jobmanager", listens(ports.flink_rest)),
        part("taskmanager", listens(ports.worker_metrics), **metrics),
    )
