"""The one table of metrics, against what the processes show: nothing undocumented, nothing missing."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from unit.admission.build import TABLE, added, group, node, pod, queue
from unit.node.granted import grant
from vc_egpu.admission.serving.metrics import Level1
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.view import View as AdmissionView
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.core.model.policy import Policy
from vc_egpu.jobs.health import Metrics as JobMetrics
from vc_egpu.jobsapi.server import Metrics as JobsApiMetrics
from vc_egpu.metrics.family import Component, Family
from vc_egpu.metrics.page import page
from vc_egpu.metrics.text import text_of
from vc_egpu.metrics.vocabulary import ALL, traces
from vc_egpu.metrics.vocabulary.build import tell_build
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.webhook.serving.metrics import Metrics as WebhookMetrics
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.isolation.accounts import Activity
from vc_egpu_node.metrics import Metrics as NodeMetrics
from vc_egpu_node.metrics import View
from vc_egpu_node.suspension.suspender import SuspendedPod
from vc_egpu_node.swapping.totals import Totals
from vc_egpu_node.vendors.base import CardReading, CardSample, NodeReading, ProcessSample
from vc_egpu_node.wall.wall import Account

UNITS = {
    "_bytes": "bytes",
    "_ratio": "ratio",
    "_seconds": "seconds",
    "_seconds_total": "seconds",
    "_bytes_total": "bytes",
}


def admission() -> str:
    """All pages of a leader with a gang that runs and one that waits."""
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue(cap=1 << 62)))
    mirror.apply("nodes", added(node(cards=2)))
    mirror.apply("podgroups", added(group("waits", members=1)))
    mirror.apply("pods", added(pod("waits-0", gang="waits")))
    snapshot = mirror.snapshot()
    view = AdmissionView(snapshot, decide(snapshot, Policy(), 1000.0).verdicts, {}, 5, admitting=True)
    level1 = Level1(lambda: view)
    return "".join(level1.answer(path).decode() for path in level1.paths)


def agent() -> str:
    """A node where everything is shown that can be."""
    sample = CardSample(
        *(1 for _ in CardSample.__dataclass_fields__)  # a value for each field
    )
    seen = Observation(
        NodeReading((CardReading("GPU-0", 0, "NVIDIA H20", 97871),), versions={"driver": "570"}),
        samples={"GPU-0": sample},
        processes={"GPU-0": (ProcessSample(1, 100, 10),)},
    )
    card = NodeCard(uuid="GPU-0", index=0, model="h20", product="NVIDIA H20", memory_mib=97871)
    held = replace(grant("g", ("GPU-0", 1000, 10)), namespace="ns", pod="p", container="main")
    view = View(
        "n1",
        seen,
        NodeCards(cards=(card,)),
        grants=[held],
        isolated=True,
        accounts=[Account("ns", "p", "main", "GPU-0", 1, 1, Activity())],
        swaps=Totals(1, 1.0, 1),
        suspensions=[SuspendedPod("ns", "p", SuspensionState.SUSPENDED, 1.0, 1)],
        full=True,
    )
    return text_of(NodeMetrics(lambda: view).registry.collect()).decode()


def shown(text: str) -> dict[str, tuple[str, set[str]]]:
    """Type and labels by name of each family, as a reader finds them in the text."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {name: set() for name in types}
    for name, told in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        ends = (name.removesuffix(end) for end in ("", "_bucket", "_sum", "_count"))
        base = next(stem for stem in ends if stem in types)
        labels[base] |= set(re.findall(r'(\w+)="', told)) - {"le"}
    return {name: (kind, labels[name]) for name, kind in types.items()}


def compare(component: Component, text: str) -> None:
    table = {one.name: one for one in ALL if one.component in {"all", component}}
    found = shown(text)
    assert sorted(found.keys() - table.keys()) == [], "not in the table"
    assert sorted(table.keys() - found.keys()) == [], "in the table, and not shown"
    for name, (kind, labels) in found.items():
        assert kind == table[name].kind, name
        assert labels <= set(table[name].labels), name
        assert not labels or labels == set(table[name].labels), name


def test_admission_shows_what_the_table_says() -> None:
    compare("admission", admission())


def test_the_webhook_shows_what_the_table_says() -> None:
    compare("webhook", WebhookMetrics.create().text().decode())


def test_the_job_controller_shows_what_the_table_says() -> None:
    compare("jobs", text_of(JobMetrics().registry.collect()).decode())


def test_traces_show_what_the_table_says() -> None:
    registry = CollectorRegistry()
    traces.TRACES.counter(registry).labels("sent").inc()
    traces.GANGS.gauge(registry).set(1)
    tell_build(registry, "traces", "1")
    compare("traces", text_of(registry.collect()).decode())


def test_jobs_over_http_show_what_the_table_says() -> None:
    metrics = JobsApiMetrics()
    metrics.requests.labels("create", "done").inc()
    metrics.seconds.labels("create").observe(0.1)
    compare("jobs-api", text_of(metrics.registry.collect()).decode())


def test_the_agent_shows_what_the_table_says() -> None:
    compare("node-agent", agent())


def test_names_say_their_units_and_types() -> None:
    for one in ALL:
        assert (one.kind == "counter") == one.name.endswith("_total") or one.name.startswith("DCGM_"), (
            one.name
        )
        if one.name.startswith("DCGM_"):
            continue
        assert one.name.startswith("egpu_")
        ends = [unit for end, unit in UNITS.items() if one.name.endswith(end)]
        assert ends == ([one.unit] if one.unit and one.unit != "the resource's" else []), one.name
        assert not re.search(r"_(mib|percent|ms)(_|$)", one.name)
        assert bool(one.buckets) == (one.kind == "histogram")


def test_labels_are_one_vocabulary() -> None:
    """A level joins another by these words, so no family has a word of its own for the same thing."""
    ours: Iterable[Family] = [one for one in ALL if not one.name.startswith("DCGM_")]
    used = {label for one in ours for label in one.labels}
    assert not used & {"card", "UUID", "gpu", "podgroup", "job", "instance", "priority", "device"}
    for one in ours:
        if "uuid" in one.labels:
            assert {"node", "index", "model"} <= set(one.labels) or {"namespace", "pod", "container"} <= set(
                one.labels
            ), one.name


def test_no_name_stands_twice() -> None:
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names)


def test_the_page_is_that_of_the_table() -> None:
    path = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
    assert path.read_text() == page(), "make metrics-page"


def test_a_counter_of_dcgm_has_its_very_name() -> None:
    text = agent()
    assert "# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter" in text
    assert "DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total" not in text
    assert "_created" not in text


def test_a_label_may_hold_any_text() -> None:
    hostile = 'a"b\\c\nd'
    family = Metric("egpu_x", "Help with \\ and\nline.", "gauge")
    family.add_sample("egpu_x", {"pod": hostile}, 1.5)
    (read,) = text_string_to_metric_families(text_of([family]).decode())
    assert read.samples[0].labels == {"pod": hostile}
    assert read.samples[0].value == 1.5
