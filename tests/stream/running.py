"""The whole stream at work: samples go in by remote write, our SQL makes the tables, and parts are killed."""

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

from stream.programs import HOME, PIPELINE, SMALL_CLIENT, Part, Ports, flink, kafka, telegraf, topic
from stream.remote_write import Sample, request, send
from unit.usage.scene import FIRST_MINUTE, START, SceneSeries
from vc_egpu.usage.table.columns import USAGE
from vc_egpu.usage.table.database import database, quoted

AT_ONCE: Final = 4
"""Minutes of one request: fewer than messages may be late."""
FROZEN_S: Final = 12.0
_SUBMITTED_S: Final = 300
_WRITTEN_S: Final = 300
_SENT_S: Final = 120
_SETTLED_S: Final = 0.5
BEGIN: Final = START.replace(tzinfo=None)


class Stream:
    """The running parts, and the series that go through them. ``folder`` is empty."""

    def __init__(self, folder: Path, series: Sequence[SceneSeries]) -> None:
        self.folder, self.ports = folder, Ports.free()
        self.kafka, self.telegraf = kafka(folder, self.ports), telegraf(folder, self.ports)
        self.manager, self.worker = flink(folder, self.ports)
        self.series = series
        self.minutes_sent = self.sent = self.resent = 0
        self.job = ""
        self.tables = folder / "out"
        self._frozen_at = 0.0
        self._newest: dict[Path, datetime] = {}

    @property
    def parts(self) -> tuple[Part, ...]:
        """In the order in which they start."""
        return self.kafka, self.telegraf, self.manager, self.worker

    # --- the job ----------------------------------------------------------------------------------

    def submit(self, changes: Mapping[str, str] | None = None, checkpoint: Path | None = None) -> None:
        """Our SQL, with some of its texts changed; it goes on from a checkpoint where one is named."""
        script = (PIPELINE / "flink.sql").read_text()
        for ours, here in {
            "s3://usage/": f"file://{self.tables}/",
            "'kafka:9092'": f"'127.0.0.1:{self.ports.kafka}'",
            "'execution.checkpointing.interval' = '60 s'": "'execution.checkpointing.interval' = '2 s'",
            **(changes or {}),
        }.items():
            assert ours in script, ours
            script = script.replace(ours, here)
        if checkpoint is not None:
            script = f"SET 'execution.state-recovery.path' = 'file://{checkpoint}';\n{script}"
        (self.folder / "run.sql").write_text(script)
        argv = [f"{HOME}/flink/bin/sql-client.sh", "-f", str(self.folder / "run.sql")]
        env = os.environ | dict(self.manager.env) | SMALL_CLIENT
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=_SUBMITTED_S, check=False
        )
        found = re.findall(r"Job ID: (\w+)", done.stdout)
        assert found and "[ERROR]" not in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
        (self.job,) = found

    def cancel(self) -> None:
        """End the job, and wait until it is gone."""
        url = f"http://127.0.0.1:{self.ports.flink_rest}/jobs/{self.job}"
        asked = urllib.request.Request(f"{url}?mode=cancel", method="PATCH")
        with urllib.request.urlopen(asked, timeout=30):
            pass

        def is_gone() -> bool:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return bool(json.load(answer)["state"] == "CANCELED")

        self.manager.until("the job is cancelled", is_gone, 60)

    def last_checkpoint(self) -> Path:
        """The newest that is whole."""
        whole = [path.parent for path in (self.folder / "checkpoints").glob("*/chk-*/_metadata")]
        return max(whole, key=lambda path: path.stat().st_mtime)

    # --- samples ----------------------------------------------------------------------------------

    def send_next(
        self,
        requests: int = 1,
        without: tuple[SceneSeries, int] | None = None,
        more: Sequence[Sample] = (),
    ) -> None:
        """The next minutes of the scene, in their order, without one series' minute since 1970.

        ``more``: samples that go along.
        """
        for _ in range(requests):
            first = FIRST_MINUTE + self.minutes_sent
            samples: list[Sample] = [
                ({"__name__": one.metric, **one.labels}, value, (minute * 60 + 15) * 1000)
                for minute in range(first, first + AT_ONCE)
                for one in self.series
                if (value := one.at(minute)) is not None and without != (one, minute)
            ]
            self.minutes_sent += AT_ONCE
            self.sent += len(samples)
            self.resent += send(self.ports.adapter, request([*samples, *more]), _SENT_S) - 1

    # --- trouble ----------------------------------------------------------------------------------

    def freeze_kafka(self) -> None:
        """It keeps its connections and answers nobody."""
        self.kafka.signal(SIGSTOP)
        self._frozen_at = time.monotonic()

    def thaw_kafka(self) -> None:
        """Not before it stood still for long enough."""
        self.kafka.until("time passes", lambda: time.monotonic() > self._frozen_at + FROZEN_S, 60)
        self.kafka.signal(SIGCONT)

    def kill_telegraf(self) -> None:
        """Once what it has taken lies in its buffer: it answers some milliseconds before."""
        since, size = time.monotonic(), -1

        def is_settled() -> bool:
            nonlocal since, size
            now = sum(path.stat().st_size for path in (self.folder / "buffer").rglob("*") if path.is_file())
            if now != size:
                since, size = time.monotonic(), now
            return time.monotonic() > since + _SETTLED_S

        self.telegraf.until("its buffer is written", is_settled, 60)
        self.telegraf.kill()

    # --- results ----------------------------------------------------------------------------------

    def until_written(self, hour: int) -> None:
        """Wait until rows of that hour are in the table; hours below 0 are not waited for."""
        start = BEGIN + timedelta(hours=hour)
        if hour >= 0:
            self.manager.until(f"{start:%d. %H:00} is written", lambda: self.last_hour() >= start, _WRITTEN_S)

    def last_hour(self) -> datetime:
        """The newest in the table. Each file is read once."""
        for path in (self.tables / USAGE.name).glob("dt=*/part-*"):
            if path not in self._newest:
                with database() as db:
                    hour = db.one(f"SELECT MAX(hour_start) AS hour FROM read_parquet({quoted(str(path))})")
                self._newest[path] = hour["hour"]
        return max(self._newest.values(), default=BEGIN - timedelta(hours=1))

    def metrics(self, part: Part) -> str:
        """What a part of Flink tells Prometheus."""
        port = self.ports.worker_metrics if part is self.worker else self.ports.manager_metrics
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())


@contextmanager
def stream(folder: Path, series: Sequence[SceneSeries]) -> Iterator[Stream]:
    """All parts run until the end of the block."""
    found = Stream(folder, series)
    try:
        for part in found.parts:
            part.start()
            if part is found.kafka:
                topic(found.ports)
        found.submit()
        yield found
    finally:
        for part in found.parts:
            part.signal(SIGCONT)
            part.kill()
