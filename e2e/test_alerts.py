"""Each alert is fired by the fault that it is for, seen in a real Alertmanager, and resolved by the mend.

Rules are those of `manifests/monitoring/`, in haste: each `for` is 6 s, windows are a minute, and bounds of
300 s are 30 s. Stories of promtool (`tests/unit/manifests/alerts.yaml`) hold the times as they are.

``VC_EGPU_ALERTS=<file>`` writes the table of `docs/alerts.md`.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest
from boards.every import BOARDS
from boards.preview import draw
from isolation.image import archive
from localcluster import toolchain
from localcluster.api import wait_until
from localcluster.errors import LocalClusterError
from rigs.alertmanager import WRITE, Alertmanager, Labels, Sink, alertmanager
from rigs.faults import WAVES, Fault, Scene
from rigs.prometheus import Prometheus, prometheus
from stack.install import ISOLATED
from stack.shared import shared_stack

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]
FIRES_S: Final = 150.0
RESOLVES_S: Final = 240.0


class Watch:
    """What Alertmanager shows, and since when."""

    def __init__(self, scene: Scene, alerts: Alertmanager, asked: Prometheus) -> None:
        self.scene = scene
        self.asked = asked
        self._alerts = alerts

    def shown(self, fault: Fault) -> list[Labels]:
        """The alerts of this fault that fire now."""
        return [labels for labels in self._alerts.alerts() if fault.shown_by(labels)]

    def until(self, what: str, faults: Iterable[Fault], *, there: bool, timeout_s: float) -> dict[str, float]:
        """When each fault's alerts are there, or are gone; seconds of the machine's clock."""
        left = {fault.alert: fault for fault in faults}
        found: dict[str, float] = {}

        def all_seen() -> bool:
            for alert, fault in list(left.items()):
                if bool(self.shown(fault)) is there:
                    found[alert] = time.monotonic()
                    del left[alert]
            return not left

        try:
            wait_until(what, all_seen, timeout_s)
        except LocalClusterError as error:
            raise AssertionError(f"{error}: {sorted(left)}; there are {self._alerts.alerts()}") from error
        return found


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, tuple[str, float, float]]]:
    """By alert: fault, seconds until it fired, seconds until it was resolved."""
    found: dict[str, tuple[str, float, float]] = {}
    yield found
    if path := os.environ.get("VC_EGPU_ALERTS"):
        rows = [
            f"| `{alert}` | {what} | {fired:.0f} | {over:.0f} |"
            for alert, (what, fired, over) in found.items()
        ]
        Path(path).write_text(
            "\n".join(
                ["| alert | fault | fires after s | resolved after s |", "|---|---|---|---|", *rows, ""]
            )
        )


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """A cluster of two nodes with the isolation library, Prometheus and Alertmanager beside it."""
    for name in ("prometheus", "alertmanager"):
        try:
            toolchain.program(name)
        except LocalClusterError as error:
            pytest.skip(str(error))
    sink = Sink()
    with contextlib.ExitStack() as stays:
        stays.callback(sink.close)
        images = (str(archive(print)),)
        scene = Scene(stays.enter_context(shared_stack("alerts", "master", ISOLATED, images)), sink)
        scene.prepare()
        alerts = stays.enter_context(alertmanager(scene.stack, tmp_path_factory.mktemp("alertmanager"), sink))
        folder = tmp_path_factory.mktemp("prometheus")
        asked = stays.enter_context(
            prometheus(scene.stack, folder, alerts_to=alerts.address, writes_to=sink.url + WRITE)
        )
        wait_until(
            "every rule was judged",
            lambda: bool(asked.rules()) and all(rule["health"] == "ok" for rule in asked.rules()),
            90,
        )
        yield Watch(scene, alerts, asked)


@pytest.mark.parametrize("wave", WAVES)
def test_alerts_are_fired_by_their_faults_and_resolved_by_the_mend(
    watch: Watch, table: dict[str, tuple[str, float, float]], wave: str
) -> None:
    faults = WAVES[wave]
    watch.until("alerts of before are over", faults, there=False, timeout_s=RESOLVES_S)
    began: dict[str, float] = {}
    mended: dict[str, float] = {}

    def whole(alert: str) -> None:
        mended[alert] = time.monotonic()

    with contextlib.closing(contextlib.ExitStack()) as mends:  # also where one does not fire
        for fault in faults:
            mends.callback(whole, fault.alert)
            mends.enter_context(fault.begin(watch.scene))
            began[fault.alert] = time.monotonic()
        fired = watch.until("they fire", faults, there=True, timeout_s=FIRES_S)
    over = watch.until("they are resolved", faults, there=False, timeout_s=RESOLVES_S)
    for fault in faults:
        fired_s, over_s = fired[fault.alert] - began[fault.alert], over[fault.alert] - mended[fault.alert]
        table[fault.alert] = (fault.what, fired_s, over_s)
    print({fault.alert: [round(seconds, 1) for seconds in table[fault.alert][1:]] for fault in faults})


def test_a_tenant_hears_of_its_pods_and_queues_and_the_operator_of_all(watch: Watch) -> None:
    """As Alertmanager told the receivers, by the routes that we ship. After the waves."""
    told = {(receiver, status, labels["alertname"]) for receiver, status, labels in watch.scene.sink.told}
    for alert in ("VcEgpuContainerBeyondGrant", "VcEgpuGangBeyondPromise"):
        for receiver in ("team-a", "operator"):
            assert {(receiver, "firing", alert), (receiver, "resolved", alert)} <= told
    of_cards = {receiver for receiver, _, alert in told if alert == "VcEgpuCardIll"}
    assert of_cards == {"operator"}
    assert ("operator-now", "firing", "VcEgpuNobodyLeads") in told


def test_no_alert_is_left_and_the_stack_is_sound(watch: Watch) -> None:
    """Whatever was broken is whole."""
    left = watch.asked.query('ALERTS{alertname=~"VcEgpu.+", alertstate="firing"}')
    assert [one["metric"]["alertname"] for one in left] == []
    watch.scene.stack.check_invariants()


def test_boards_can_be_looked_at(watch: Watch, tmp_path: Path) -> None:
    """After all these faults most panels have something to show. ``VC_EGPU_PREVIEWS`` keeps the pictures."""
    folder = Path(os.environ.get("VC_EGPU_PREVIEWS") or tmp_path)
    (share, *_) = watch.asked.query("last_over_time(egpu_share_memory_bytes[1h])")
    labels = share["metric"]
    chosen = {name: labels.get(name, "") for name in ("queue", "node", "uuid", "namespace", "gang")}
    for board in BOARDS:
        empty = draw(board, watch.asked.lately, chosen, folder / f"board-{board.uid}.png")
        assert len(empty) <= len(board.panels) // 2, empty
