"""`kubectl egpu suspend` and `resume`: what is asked for, what is waited for, why it cannot be."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, tiny_api
from unit.kube.tiny_api import status as tiny_status
from vc_egpu.admission.telling.suspension_words import Said, condition
from vc_egpu.cli import exit_status, kubectl, pause
from vc_egpu.cli.views import cards, render, why
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import Forbidden
from vc_egpu.volcano.words import names

PODS = "/api/v1/namespaces/ml/pods"
GANG = ("train-0", "train-1")


class Cluster:
    """An API server with a gang of two; what the admission controller would do is played by the test."""

    def __init__(self, server: TinyApi, api: ApiConnection) -> None:
        self.server, self.api = server, api
        self.told: list[str] = []
        self.reacts: Callable[[], None] = lambda: None

    def heard(self, line: str) -> None:
        self.told.append(line)
        self.reacts()

    def put(self, name: str, share_class: str = "low", **more: object) -> None:
        raw = docs.pod(name, cards={"GPU-a": (4096, 10)}, share_class=share_class, group="train", **more)  # type: ignore[arg-type]
        raw["metadata"]["labels"] = {names.MANAGED_LABEL: "true"}
        self.server.put(f"{PODS}/{name}", raw)

    def says(self, name: str, said: Said, *, ordered: bool = False) -> None:
        raw = self.server.objects[f"{PODS}/{name}"]
        if ordered:
            raw["metadata"]["annotations"][names.SUSPEND] = "{}"
        else:
            raw["metadata"]["annotations"].pop(names.SUSPEND, None)
        others = [
            c for c in raw["status"].get("conditions") or () if c.get("type") != names.CONDITION_SUSPENDED
        ]
        raw["status"]["conditions"] = [*others, condition(said, 0.0)]
        self.server.put(f"{PODS}/{name}", raw)

    def paused(self) -> list[str]:
        return [
            n for n in GANG if names.PAUSE in self.server.objects[f"{PODS}/{n}"]["metadata"]["annotations"]
        ]

    def suspend(
        self, name: str = "train-0", timeout_s: float = 30.0, stands_s: float = 20.0
    ) -> pause.PauseOutcome:
        return pause.suspend(
            self.api, "ml", name, timeout_s=timeout_s, progress=self.heard, stands_s=stands_s
        )

    def resume(self, name: str = "train-1", timeout_s: float = 30.0) -> pause.PauseOutcome:
        return pause.resume(self.api, "ml", name, timeout_s=timeout_s, progress=self.heard)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        found = Cluster(server, api)
        for name in GANG:
            found.put(name)
        yield found
        api.close()


def test_what_is_asked_again_and_again_costs_the_cluster_little(cluster: Cluster) -> None:
    """A namespace may hold 16,000 pods, of which few ask for cards: reading them takes seconds."""
    cluster.suspend(timeout_s=0)
    lists = [path for method, path, _ in cluster.server.requests if path.startswith(f"{PODS}?")]
    assert lists
    assert all(f"labelSelector={quote(names.MANAGED_LABEL + '=true', safe='')}" in path for path in lists)
    assert pause.pause_s(took_s=0.01, left_s=100) == pause.POLL_S
    assert pause.pause_s(took_s=2.0, left_s=100) == 8.0
    assert pause.pause_s(took_s=2.0, left_s=3.0) == 3.0
    assert pause.pause_s(took_s=2.0, left_s=-1.0) == 0.0


AWAY = Said("True", "Suspended", "4096 MiB of GPU memory are on the host of n1: a user asked for it")


def all_leave(cluster: Cluster) -> None:
    for name in GANG:
        cluster.says(name, AWAY, ordered=True)


def test_the_wish_is_written_on_one_pod_and_the_gang_is_waited_for(cluster: Cluster) -> None:
    cluster.reacts = lambda: all_leave(cluster)
    outcome = cluster.suspend()
    assert cluster.paused() == ["train-0"]
    assert (outcome.reached, outcome.gang) == (True, "ml/train")
    assert [member.state for member in outcome.members] == ["Suspended", "Suspended"]
    assert "a gang goes as a whole" in cluster.told[0]


def test_half_a_gang_is_not_there_yet(cluster: Cluster) -> None:
    cluster.reacts = lambda: cluster.says("train-0", AWAY, ordered=True)
    outcome = cluster.suspend(timeout_s=1.0)
    assert not outcome.reached
    assert "pod train-1 is Running" in outcome.why
    assert "`kubectl egpu resume` takes that back" in outcome.why
    assert cluster.paused() == ["train-0"], "still asked for"


def test_a_wish_that_cannot_be_met_is_taken_back_with_the_reason(cluster: Cluster) -> None:
    text = "it is asked to pause and runs on: driver 550.54 has no process checkpoint"
    cluster.reacts = lambda: cluster.says("train-0", Said("False", "NotSuspendable", text))
    for stands_s, timeout_s in ((0.0, 30.0), (20.0, 1.0)):
        outcome = cluster.suspend(stands_s=stands_s, timeout_s=timeout_s)
        assert not outcome.reached
        assert outcome.why == f"pod train-0: {text}"
        assert cluster.paused() == []


def test_what_is_not_known_yet_of_a_pod_that_has_just_begun_is_no_refusal(cluster: Cluster) -> None:
    text = "it is asked to pause and runs on: what its processes hold cannot be read"

    def react() -> None:
        if any(text in line for line in cluster.told):
            all_leave(cluster)
        else:
            cluster.says("train-0", Said("False", "NotSuspendable", text))

    cluster.reacts = react
    assert cluster.suspend().reached
    assert cluster.paused() == ["train-0"]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("train-0", {"share_class": "unset"}, "only pods of egpu.volcano.sh/priority"),
        ("train-0", {"phase": "Succeeded"}, "is Succeeded"),
        ("nobody", None, "there is no pod nobody"),
    ],
)
def test_what_can_never_be_suspended_is_said_at_once(
    cluster: Cluster, name: str, changes: dict[str, str] | None, words: str
) -> None:
    if changes is not None:
        cluster.put(name, **changes)
    with pytest.raises(pause.CannotPauseError, match=words):
        cluster.suspend(name)
    assert cluster.paused() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": {names.MANAGED_LABEL: "false"}}, "asks for no managed cards"),
        ({"phase": "Succeeded"}, "is Succeeded: there is nothing to resume"),
        ({"cards": None, "gated": True}, "has no cards yet: there is nothing to resume"),
    ],
)
def test_what_cannot_be_resumed_is_there_all_the_same(
    cluster: Cluster, changes: dict[str, Any], words: str
) -> None:
    """It was told that "its pods are gone"."""
    labels = {names.MANAGED_LABEL: "true"}
    cluster.server.put(
        f"{PODS}/other-0", docs.pod("other-0", **{"labels": labels, "group": "other"} | changes)
    )
    with pytest.raises(pause.CannotPauseError, match=words):
        cluster.resume("other-0", timeout_s=0)


def test_who_resumes_by_a_member_that_is_over_means_the_others(cluster: Cluster) -> None:
    all_leave(cluster)
    cluster.put("train-1", phase="Succeeded")
    cluster.reacts = lambda: cluster.says("train-0", Said("False", "Resumed", "it runs where it was"))
    assert cluster.resume("train-1").reached


def test_an_api_server_that_is_away_for_a_moment_ends_no_waiting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wish is written by then, and stands whatever becomes of whoever waits."""
    away = tiny_status(503, "ServiceUnavailable", "restarting")
    cluster.server.skip, cluster.server.script = 2, [(503, away, {})] * 2
    monkeypatch.setattr(pause, "POLL_S", 0.01)

    def react() -> None:
        if any("restarting" in line for line in cluster.told):
            all_leave(cluster)

    cluster.reacts = react
    assert cluster.suspend().reached
    assert len([line for line in cluster.told if "restarting" in line]) == 1


def test_who_waited_in_vain_for_an_api_server_is_told_that_the_wish_stands(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["suspend", "train-0", "-n", "ml", "--timeout=0", "--kubeconfig", str(tmp_path / "kubeconfig")]
    for skip, asked in ((0, []), (2, ["train-0"])):
        cluster.server.skip = skip
        cluster.server.script = [(503, tiny_status(503, "ServiceUnavailable", "restarting"), {})]
        assert kubectl.main(argv) == exit_status.EXIT_NO_CLUSTER
        assert ("`kubectl egpu resume` takes that back" in capsys.readouterr().err) is bool(asked)
        assert cluster.paused() == asked


@pytest.mark.parametrize("name", ["train", "trian-0"])
def test_who_names_the_job_or_misspells_a_pod_is_told_which_pods_there_are(
    cluster: Cluster, name: str
) -> None:
    with pytest.raises(pause.CannotPauseError, match="did you mean train-0"):
        cluster.suspend(name)


def test_who_has_no_leave_is_told_which_role_gives_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> None:
        raise Forbidden("pods is forbidden", status=403)

    monkeypatch.setattr(cluster.api, "patch", no)
    with pytest.raises(pause.CannotPauseError, match=r"pods is forbidden.*vc-egpu-suspend"):
        cluster.suspend("train-0")


def test_resuming_takes_back_every_wish_and_waits_until_all_run(cluster: Cluster) -> None:
    all_leave(cluster)
    for name in GANG:
        raw = cluster.server.objects[f"{PODS}/{name}"]
        raw["metadata"]["annotations"][names.PAUSE] = "true"
        cluster.server.put(f"{PODS}/{name}", raw)

    def come_back() -> None:
        for name in GANG:
            cluster.says(name, Said("False", "Resumed", "it runs where it was"))

    cluster.reacts = come_back
    outcome = cluster.resume()
    assert outcome.reached
    assert cluster.paused() == []


def test_who_was_suspended_for_others_cannot_be_called_back(cluster: Cluster) -> None:
    all_leave(cluster)
    outcome = cluster.resume(timeout_s=1.0)
    assert not outcome.reached
    assert "no user suspended it" in cluster.told[0]
    assert "4096 MiB of GPU memory are on the host of n1" in outcome.why


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "Conflict")])
def test_a_member_that_went_meanwhile_keeps_nobody_suspended(
    code: int, reason: str, cluster: Cluster
) -> None:
    """The wishes of the others were left, and it asked whether the stack is installed."""
    all_leave(cluster)
    for name in GANG:
        cluster.server.objects[f"{PODS}/{name}"]["metadata"]["annotations"][names.PAUSE] = "true"
    cluster.server.script_for = '"annotations"'
    answer = tiny_status(code, reason, "Precondition failed: UID in precondition: a, UID in object meta: b")
    cluster.server.script = [(code, answer, {})]
    cluster.resume(timeout_s=0)
    assert len(cluster.paused()) == 1, "of the one that could not be asked; it is gone"
    cluster.server.script = [(code, answer, {})]
    with pytest.raises(pause.CannotPauseError, match="train-0 has gone meanwhile"):
        cluster.suspend("train-0")


def test_who_runs_already_needs_no_resuming(cluster: Cluster) -> None:
    assert cluster.resume().reached
    assert cluster.told == []


def test_the_command_says_it_in_words_and_in_json(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    all_leave(cluster)
    flags = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--timeout", "20"]
    assert kubectl.main(["suspend", "ml/train-0", *flags]) == 0
    assert "ml/train: Suspended" in capsys.readouterr().out
    assert kubectl.main(["suspend", "train-0", "-n", "ml", "-o", "json", *flags]) == 0
    assert '"wanted": "Suspended"' in capsys.readouterr().out
    assert kubectl.main(["suspend", "ml/nobody", *flags]) == 1


def test_that_nobody_reads_how_far_it_is_stops_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """As with `kubectl egpu suspend POD 2>&1 | head -1`."""
    all_leave(cluster)
    reading, writing = os.pipe()
    os.close(reading)
    argv = ["suspend", "train-0", "-n", "ml", "--kubeconfig", str(tmp_path / "kubeconfig")]
    done = subprocess.run(
        [sys.executable, "-m", "vc_egpu.cli.kubectl", *argv],
        stdout=subprocess.PIPE, stderr=writing, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, "ml/train: Suspended" in done.stdout) == (0, True)


def test_cards_and_why_show_who_is_away() -> None:
    pod = docs.pod("train-0", cards={"GPU-a": (61440, 100)}, share_class="low", group="train")
    pod["metadata"]["annotations"][names.SUSPEND] = "{}"
    pod["status"]["conditions"] = [condition(AWAY, 0.0)]
    report = cards.report([docs.node("n1", docs.card("GPU-a"))], [pod])
    (row,) = report.cards
    assert (row.used_mib, row.suspended_mib, row.cores_low_percent) == (0, 61440, 0)
    assert row.sharers[0].phase == "Suspended"
    console = render.console()
    with console.capture() as captured:
        console.print(render.cards(report))
    assert "0 of 98304 +61440 away" in captured.get()
    group = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "uid-train", "resourceVersion": "1"},
        "status": {"conditions": [condition(AWAY, 0.0)]},
    }
    (story,) = why.stories("train", "ml", groups=[group], pods=[pod], queues={})
    assert any("on the host of n1" in note for note in story.notes)
    assert story.members[0].phase == "Suspended"


@pytest.mark.parametrize("named", ["train-0", "pod/train-0", "pods/train-0", "po/train-0", "ml/train-0"])
def test_a_pod_by_any_name_that_kubectl_gives_it(
    named: str, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "suspend",
        named,
        "--timeout=0",
        "-n",
        "ml",
        "--kubeconfig",
        str(cluster.server.kubeconfig(tmp_path)),
    ]
    assert kubectl.main(argv) == exit_status.EXIT_FOUND
    assert "not suspended within 0 s" in capsys.readouterr().out
    assert cluster.paused() == ["train-0"]
