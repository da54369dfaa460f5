"""``kubectl egpu what-if``: a manifest and changes against a saved cluster, and against one that answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.cli import documents as docs
from unit.core import make
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.foresight.reading import settings_of
from vc_egpu.core.model.cluster import ShareClass, Snapshot
from vc_egpu.jobsapi.what_if.leader import PATH
from vc_egpu.kube.server import Answer as HttpAnswer
from vc_egpu.kube.server import GetServer, Request
from vc_egpu.report import snapshot_codec
from vc_egpu.volcano.words import names

RULES = "rules: [{name: jobs, when: {owner: VolcanoJob}, nodes: spread}]"
MODELS = {"h20": make.H20_MIB}


def job(
    name: str = "train", *, replicas: int = 2, queue: str = "all", share_class: str = ""
) -> dict[str, Any]:
    annotations = {names.PRIORITY: share_class} if share_class else {}
    limits = {"volcano.sh/vgpu-h20": "1", "volcano.sh/vgpu-memory": str(make.H20_MIB), "cpu": "1"}
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    pod = {"spec": {"containers": [container]}, "metadata": {"annotations": annotations}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queue": queue, "tasks": [{"name": "worker", "replicas": replicas, "template": pod}]},
    }


def cluster(*, free: int = 2, **more: Any) -> Snapshot:
    """A node of two cards, of which ``free`` are so; another work holds the rest."""
    node = make.node("n1", 2)
    gang = make.gang("ns/old", least=1)
    members = make.pods("ns/old", 2 - free, make.shape(make.H20_MIB, 100, **more))
    running = [make.placed(pod, f"n1/{i}", started=100.0) for i, pod in enumerate(members)]
    return make.snapshot([node], [gang] if members else [], running, models=MODELS)


class Desk:
    """The files of a user, and what the command says."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def put(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def ask(self, snapshot: Snapshot, manifest: dict[str, Any] | None, *words: str) -> str:
        saved = self.put("snapshot", json.dumps(snapshot_codec.encode(snapshot)))
        file = ["-f", self.put("job.yaml", yaml.safe_dump(manifest))] if manifest is not None else []
        self.status = kubectl.main(["what-if", *file, "--snapshot", saved, *words])
        told = self.capsys.readouterr()
        return told.out + told.err


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def test_a_job_that_fits_starts_and_says_where(desk: Desk) -> None:
    said = desk.ask(cluster(), job())
    assert desk.status == exit_status.EXIT_OK
    assert said.startswith(
        "ns/train: starts now\n  2 members on n1: n1/0, n1/1\n  0 more of it would start too"
    )


def test_how_many_more_would_start(desk: Desk) -> None:
    assert "  1 more of it would start too" in desk.ask(cluster(), job(replicas=1))
    assert "  5 more of it would start too" in desk.ask(cluster(), job(replicas=1), "--add-nodes", "n1=2")


def test_a_job_that_lacks_cards_waits_and_no_end_is_known(desk: Desk) -> None:
    said = desk.ask(cluster(free=1), job())
    assert said.startswith("ns/train: waits (WaitingForCards)")
    assert "when it starts is not known: 1 running gangs do not say when they end" in said


def test_it_says_when_it_would_start_at_the_earliest(desk: Desk) -> None:
    said = desk.ask(cluster(free=1, runtime_s=3600.0), job())
    assert "it starts at 1970-01-01 01:01:40 UTC at the earliest, when ns/old will have ended" in said


def test_high_work_names_those_that_would_go(desk: Desk) -> None:
    node, low = make.node("n1", 2), make.gang("ns/old", share_class=ShareClass.LOW, least=2)
    members = make.pods("ns/old", 2, make.shape(make.H20_MIB, 100))
    running = [make.placed(pod, f"n1/{i}") for i, pod in enumerate(members)]
    snapshot = make.snapshot([node], [low], running, models=MODELS)
    said = desk.ask(snapshot, job(share_class="high"))
    assert said.startswith("ns/train: starts once others have gone")
    assert "  evicted: ns/old, 2 pods, as a whole (priority)" in said


def test_changes_alone_say_what_they_do_to_those_that_are_there(desk: Desk) -> None:
    waiting = make.gang("ns/more", least=2)
    here = cluster(free=1)
    snapshot = make.snapshot(
        here.nodes.values(),
        [*here.gangs.values(), waiting],
        [*here.pods.values(), *make.pods("ns/more", 2, make.shape(make.H20_MIB, 100))],
        models=MODELS,
    )
    assert "would start: ns/more" in desk.ask(snapshot, None, "--add-nodes", "n1=1")
    assert "would be over: ns/old" in desk.ask(snapshot, None, "--end", "ns/old")
    assert "would start: ns/more" in desk.ask(snapshot, None, "--end", "ns/old")
    assert "would lose their places and wait: ns/old" in desk.ask(snapshot, None, "--drain", "n1")
    assert "would move: ns/old" in desk.ask(snapshot, None, "--add-nodes", "n1=2", "--drain", "n1")
    assert "make no difference" in desk.ask(snapshot, None, "--cap", "all:volcano.sh/vgpu-h20=900")


def test_a_lower_cap_holds_it_back(desk: Desk) -> None:
    said = desk.ask(cluster(), job(), "--cap", "all:volcano.sh/vgpu-h20=1")
    assert said.startswith("ns/train: waits (ExceedsCap)")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a manifest (-f) or a change"),
        (("--add-nodes", "n1"), "is not NODE=COUNT"),
        (("--add-nodes", "n1=0"), "is not NODE=COUNT"),
        (("--add-nodes", "n9=1"), "there is no node 'n9'"),
        (("--drain", "n9"), "there is no node 'n9'"),
        (("--end", "ns/none"), "there is no gang 'ns/none'"),
        (("--cap", "all=1"), "is not QUEUE:RESOURCE=AMOUNT"),
        (("--cap", "none:volcano.sh/vgpu-h20=1"), "there is no queue 'none'"),
        (("--cap", "all:volcano.sh/vgpu-h20=-1"), "is not QUEUE:RESOURCE=AMOUNT"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(words: tuple[str, ...], says: str, desk: Desk) -> None:
    assert says in desk.ask(cluster(), None, *words)
    assert desk.status == exit_status.EXIT_FOUND


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ({"metadata": {"name": "a"}, "kind": "Service"}, "a Service is not known here"),
        ({"metadata": {"name": "a"}, "kind": "Pod", "spec": {"containers": []}}, "asks for no card"),
        ({"metadata": {"name": "a"}, "kind": "Deployment"}, "cannot be read"),
        ({"metadata": 5}, "is no object of Kubernetes"),
        (job("old"), "is there already"),
    ],
)
def test_a_manifest_that_cannot_be_asked_about(manifest: dict[str, Any], says: str, desk: Desk) -> None:
    assert says in desk.ask(cluster(free=1), manifest)
    assert desk.status == exit_status.EXIT_FOUND


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_replicas_are_planned_singly(kind: str, desk: Desk) -> None:
    task = job()["spec"]["tasks"][0]
    web = {
        "kind": kind,
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"replicas": 2, "template": task["template"]},
    }
    web["spec"]["template"]["metadata"]["annotations"] = {names.QUEUE_NAME: "all"}  # type: ignore[index]
    assert desk.ask(cluster(), web).startswith("ns/web: starts now")


def test_a_damaged_snapshot_is_told(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    saved = desk.put("snapshot", "{")
    assert kubectl.main(["what-if", "--snapshot", saved, "--drain", "n1"]) == exit_status.EXIT_FOUND
    assert "damaged" in capsys.readouterr().err


def test_the_rules_are_those_of_the_running_controller() -> None:
    assert settings_of(["--no-preemption", "--binpack", "ours"]).policy.preemption is False
    with pytest.raises(ValueError, match="flags that this command does not know"):
        settings_of(["--of-another-version"])


# --- on a cluster -----------------------------------------------------------------------------------


def test_it_asks_the_door_and_reads_the_whole_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tiny_api() as server:
        _stand(server)
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(job()))
        words = ["what-if", "-f", str(file), "--kubeconfig", str(server.kubeconfig(tmp_path))]
        assert kubectl.main(words) == exit_status.EXIT_OK
        said = capsys.readouterr().out
        assert "ns/train: starts now\n  2 members on n1: GPU-0, GPU-1" in said
        assert "you may not read the admission controller's flags" in said
        writes = [path for method, path, _ in server.requests if method != "GET"]
        assert all("dryRun=All" in path for path in writes)
        assert len(writes) == 1


def test_it_goes_by_the_rules_of_placement_of_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tiny_api() as server:
        _stand(server)
        path = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.PLACEMENT_CONFIG_MAP}"
        rules = {"metadata": {"name": names.PLACEMENT_CONFIG_MAP, "namespace": names.SYSTEM_NAMESPACE}}
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(job()))
        words = ["what-if", "-f", str(file), "--kubeconfig", str(server.kubeconfig(tmp_path))]
        server.put(path, {**rules, "data": {"placement.yaml": RULES}})
        assert kubectl.main(words) == exit_status.EXIT_OK
        assert "by the placement rule jobs" in capsys.readouterr().out
        server.put(path, {**rules, "data": {"placement.yaml": "rules: [{"}})
        assert kubectl.main(words) == exit_status.EXIT_OK
        assert "no rule of placement is known" in capsys.readouterr().out


def test_a_job_that_the_door_refuses_is_refused_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tiny_api() as server:
        _stand(server)
        server.refuses = lambda method, *_: (
            (422, status(422, "Invalid", "queue all is closed")) if method == "POST" else None
        )
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(job()))
        words = ["what-if", "-f", str(file), "--kubeconfig", str(server.kubeconfig(tmp_path))]
        assert kubectl.main(words) == exit_status.EXIT_FOUND
        assert "queue all is closed" in capsys.readouterr().err


def test_a_user_who_may_not_read_the_cluster_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tiny_api() as server:
        _stand(server)
        server.refuses = lambda _, path, *__: (
            (403, status(403, "Forbidden", "nodes is forbidden")) if "/nodes" in path else None
        )
        words = ["what-if", "--drain", "n1", "--kubeconfig", str(server.kubeconfig(tmp_path))]
        assert kubectl.main(words) == exit_status.EXIT_FOUND
        assert "what-if reads the whole cluster, and you may not: " in capsys.readouterr().err


# --- a tenant -------------------------------------------------------------------------------------

SAID = {
    "gang": "ns/train",
    "outcome": "waits",
    "reason": "WaitingForCards",
    "message": "2 of 2 members found no card",
    "places": [],
    "going": [],
    "going_of_others": {"gangs": 0, "pods": 0},
    "more": 0,
    "more_is_least": False,
    "forecast": {"at": 0.0, "ends": ["ns/old"], "ends_of_others": 2, "waiting_before": 1},
    "unknown_ends": 0,
}


class Tenant:
    """A user who may make Jobs and read nothing of the cluster, with a jobs API that answers."""

    def __init__(self, server: TinyApi, folder: Path, said: dict[str, Any]) -> None:
        server.refuses = lambda method, path, *_: (
            (403, status(403, "Forbidden", f"{path} is forbidden")) if method == "GET" else None
        )
        self.config = server.kubeconfig(folder)
        document = yaml.safe_load(self.config.read_text())
        document["users"][0]["user"] = {"token": "ada-token"}
        self.config.write_text(yaml.safe_dump(document))
        self.file = folder / "job.yaml"
        self.file.write_text(yaml.safe_dump(job()))
        self.asked: list[Request] = []

        def answer(request: Request) -> HttpAnswer:
            self.asked.append(request)
            return HttpAnswer(200, json.dumps(said).encode(), "application/json")

        self.jobs_api = GetServer(("127.0.0.1", 0), lambda _: HttpAnswer(404, b""), posts={PATH: answer})

    def ask(self, *words: str) -> int:
        return kubectl.main(["what-if", "-f", str(self.file), "--kubeconfig", str(self.config), *words])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.jobs_api.port}"


@pytest.fixture
def tenant(tmp_path: Path) -> Iterator[Tenant]:
    with tiny_api() as server:
        found = Tenant(server, tmp_path, SAID)
        found.jobs_api.start()
        try:
            yield found
        finally:
            found.jobs_api.stop()


def test_a_tenant_is_answered_by_the_jobs_api(
    tenant: Tenant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VC_EGPU_JOBS_API", tenant.url)
    assert tenant.ask("--end", "ns/old") == exit_status.EXIT_OK
    said = capsys.readouterr().out
    assert said.startswith("ns/train: waits (WaitingForCards)\n  2 of 2 members found no card")
    assert (
        "at 1970-01-01 00:00:00 UTC at the earliest, after the end of ns/old and 2 gangs of others; 1" in said
    )
    (request,) = tenant.asked
    assert request.authorization == "Bearer ada-token"
    sent = json.loads(request.body)
    assert sent["changes"] == [{"end": "ns/old"}]
    assert sent["job"]["metadata"] == {"name": "train", "namespace": "ns"}
    assert tenant.ask("-o", "json", "--jobs-api", tenant.url) == exit_status.EXIT_OK
    assert json.loads(capsys.readouterr().out)["told"]["forecast"]["ends_of_others"] == 2


def test_a_tenant_without_a_jobs_api_is_told_of_it(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tenant.ask() == exit_status.EXIT_FOUND
    assert "--jobs-api, $VC_EGPU_JOBS_API" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://jobs.example:9452", "ftp://127.0.0.1", "jobs.example", "https://"])
def test_a_token_goes_to_no_place_in_plain_text(
    tenant: Tenant, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tenant.ask("--jobs-api", url) == exit_status.EXIT_FOUND
    assert "your token goes there" in capsys.readouterr().err


def _stand(server: TinyApi) -> None:
    table = {"models": [{"name": "h20", "memoryMiB": make.H20_MIB}]}
    server.put(
        f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.MODELS_CONFIG_MAP}",
        {"metadata": {"name": names.MODELS_CONFIG_MAP}, "data": {"models.yaml": json.dumps(table)}},
    )
    node = docs.node("n1", docs.card("GPU-0"), docs.card("GPU-1", 1))
    node["status"]["allocatable"] |= {"cpu": "64", "memory": "256Gi", "pods": "110"}
    server.put("/api/v1/nodes/n1", node)
    server.put(
        "/apis/scheduling.volcano.sh/v1beta1/queues/all",
        {
            "metadata": {"name": "all"},
            "spec": {"capability": {"volcano.sh/vgpu-h20": 10}},
            "status": {"state": "Open"},
        },
    )
