"""Traces of starts on a real API server: the process has the rights of its component, and no more."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from localcluster.api import wait_until
from localcluster.net import free_ports
from rigs.collector import Collector
from rigs.one_team import H20, OneTeam, one_team
from stack.hostmode import REPOSITORY, answers
from stack.hostprocess import HostProcess
from stack.identity import service_account_kubeconfig
from vc_egpu.kube.resources import POD_GROUPS, VOLCANO_JOBS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
RIGHTS = REPOSITORY / "manifests" / "components" / "traces" / "rights.yaml"
TIMEOUT_S = 30.0


@dataclass
class Traced:
    """A team, and the process that tells of its starts."""

    team: OneTeam
    collector: Collector
    process: HostProcess
    port: int

    def until_ready(self) -> None:
        """Wait until it has read what is there. What starts before that has no trace."""
        wait_until("traces are ready", lambda: answers(self.port), TIMEOUT_S)

    def trace_of(self, job: str, timeout_s: float = TIMEOUT_S) -> dict[str, tuple[float, dict[str, str]]]:
        """Seconds and attributes of each step of the Job's start; of several alike the longest."""

        def found() -> list[Any]:
            return [
                trace
                for trace in self.collector.traces()
                if any(one.key == "egpu.job" and one.value.string_value == job for one in trace[0].attributes)
            ]

        wait_until(f"the start of {job} is told", lambda: bool(found()), timeout_s)
        (trace,) = found()
        steps: dict[str, tuple[float, dict[str, str]]] = {}
        for span in trace:
            took_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
            about = {one.key: one.value.string_value for one in span.attributes}
            if took_s >= steps.get(span.name, (-1.0, {}))[0]:
                steps[span.name] = (took_s, about)
        return steps

    def end(self, job: str) -> None:
        """Delete a Job."""
        self.team.stack.kit.api.delete(VOLCANO_JOBS, job, "team", propagation="Background")

    def waits(self, job: str) -> None:
        """Wait until it is said that the Job waits for cards."""

        def said(groups: dict[str, Any]) -> bool | None:
            mine = [group for key, group in groups.items() if key.startswith(f"{job}-")]
            conditions = [
                one for group in mine for one in (group.get("status") or {}).get("conditions") or ()
            ]
            kinds = {(one["type"], one["reason"]) for one in conditions}
            return (names.CONDITION_ADMITTED, "WaitingForCards") in kinds or None

        self.team.stack.kit.until(f"{job} waits", POD_GROUPS, said, namespace="team", timeout_s=TIMEOUT_S)


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    collector = Collector()
    try:
        with one_team("traces", nodes=1, cards=2, caps={H20: "100"}) as stack:
            stack.kit.kubectl("apply", "-f", str(RIGHTS))
            kubeconfig = service_account_kubeconfig(stack.cluster, names.SYSTEM_NAMESPACE, "vc-egpu-traces")
            argv = [sys.executable, "-m", "vc_egpu.cli.main", "traces"]
            (port,) = free_ports(1, set(stack.cluster.context.record.ports.values()))
            argv += ["--kubeconfig", str(kubeconfig), "--port", str(port), "--cluster", "north"]
            base = collector.url.removesuffix("/v1/traces")
            process = HostProcess(stack.cluster, "traces", argv, {"OTEL_EXPORTER_OTLP_ENDPOINT": base})
            process.start()
            found = Traced(OneTeam(stack), collector, process, port)
            found.until_ready()
            yield found
            print(process.log_tail(40))  # shown where a test fails
            process.stop()
    finally:
        collector.close()


def test_a_trace_says_where_the_time_of_a_start_went(traced: Traced) -> None:
    """The second Job waits for the cards of the first. Meanwhile the process is killed and starts again."""
    team = traced.team
    team.make("first", {H20: 1}, members=2)
    team.all_run("first", 2)
    started = traced.trace_of("first")
    assert set(started) >= {"start", "made", "waits", "bound", "pod"}
    assert started["start"][1]["egpu.queue"] == "team"

    team.make("second", {H20: 1}, members=2)
    traced.waits("second")
    since = time.monotonic()
    traced.process.restart()
    traced.until_ready()
    wait_until("it waits for 4 s", lambda: time.monotonic() - since > 4, TIMEOUT_S)
    traced.end("first")
    team.all_run("second", 2)
    steps = traced.trace_of("second")
    took_s, about = steps["waits for"]
    assert about["egpu.reason"] == "WaitingForCards"
    assert "h20" in about["egpu.message"]
    assert took_s >= 3
    assert took_s <= steps["waits"][0] + 1 <= steps["start"][0] + 1
    assert steps["pod"][1]["k8s.node.name"]
    assert len(traced.collector.requests) == 2, "a start was told twice"
    team.check_invariants()
