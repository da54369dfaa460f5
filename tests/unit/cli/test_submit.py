"""A Job is sent where it starts first, exactly once, whatever answers go missing."""

import json
import math
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.cli import documents as docs
from unit.cli.test_what_if import job
from unit.core import make
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.submit.ranking import Chance, Offer, ranked
from vc_egpu.cli.submit.sending import SUBMIT_ID, Sent, send
from vc_egpu.kube.wire.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    NotFound,
    RequestTimeout,
    TooManyRequests,
    Unavailable,
)
from vc_egpu.volcano.words import names

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"


# --- which cluster ----------------------------------------------------------------------------------


def offer(name: str, chance: Chance, place: int = 0, **more: Any) -> Offer:
    return Offer(name, "", place, chance, **more)


def order(*offers: Offer) -> list[str]:
    return [one.cluster for one in ranked(offers)]


def test_what_starts_first_comes_first() -> None:
    assert order(
        offer("refuses", "refused"),
        offer("late", "waits", starts_in_s=3600),
        offer("never", "waits"),
        offer("soon", "waits", starts_in_s=60),
        offer("evicts", "makes room"),
        offer("now", "starts"),
        offer("silent", "cannot tell"),
    ) == ["now", "evicts", "soon", "late", "never", "refuses", "silent"]


def test_among_equals_the_data_counts_then_room_then_the_list() -> None:
    assert order(
        offer("a", "starts", 0, more=9),
        offer("b", "starts", 1, mbit_per_s=100, more=1),
        offer("c", "starts", 2, mbit_per_s=math.inf),
        offer("d", "starts", 3, more=9),
    ) == ["c", "b", "a", "d"]


def test_those_that_do_not_take_it_are_marked() -> None:
    assert not offer("a", "refused").takes_it
    assert not offer("a", "cannot tell").takes_it
    assert offer("a", "waits").takes_it


# --- exactly once -----------------------------------------------------------------------------------


class Cluster:
    """Takes a create or not, and answers or not."""

    def __init__(self, answer: KubeError | None, *, accepts: bool, after: int = 0, silent: int = 0) -> None:
        self.answer = answer
        self.accepts = accepts
        self.after = after
        """The write is seen by reads from this one on."""
        self.silent = silent
        """So many reads get no answer."""
        self.creates = 0
        self.reads = 0
        self.job: dict[str, Any] | None = None

    def create(self, _resource: Any, body: dict[str, Any], _namespace: str | None = None) -> dict[str, Any]:
        self.creates += 1
        if self.accepts:
            self.job = body
        if self.answer is not None:
            raise self.answer
        return body

    def get(self, _resource: Any, name: str, _namespace: str | None = None) -> dict[str, Any]:
        self.reads += 1
        if self.reads <= self.silent:
            raise Unavailable("away")
        if self.job is None or self.reads <= self.after:
            raise NotFound(name)
        return self.job


def marked(mark: str = "1") -> dict[str, Any]:
    made = job()
    made["metadata"]["annotations"] = {SUBMIT_ID: mark}
    return made


def sent(cluster: Cluster) -> Sent:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    return send(cluster, marked(), 10.0, monotonic=lambda: now[0], pause=pause)


@pytest.mark.parametrize(
    ("answer", "accepts", "state"),
    [
        (None, True, "there"),
        (Forbidden("no"), False, "none"),
        (TooManyRequests("later"), False, "none"),
        (RequestTimeout("no answer"), True, "there"),
        (Unavailable("broken"), True, "there"),
        (RequestTimeout("no answer"), False, "unclear"),
        (Unavailable("broken"), False, "unclear"),
        (AlreadyExists("it is there"), True, "there"),
    ],
)
def test_one_create_whatever_comes_back(answer: KubeError | None, accepts: bool, state: str) -> None:
    cluster = Cluster(answer, accepts=accepts)
    assert sent(cluster).state == state
    assert cluster.creates == 1


def test_an_unclear_answer_is_cleared_up_once_the_cluster_is_back() -> None:
    cluster = Cluster(RequestTimeout("no answer"), accepts=True, after=3, silent=5)
    assert sent(cluster).state == "there"
    assert (cluster.creates, cluster.reads) == (1, 6)


def test_a_job_of_another_origin_is_not_ours() -> None:
    cluster = Cluster(AlreadyExists("it is there"), accepts=False)
    cluster.job = marked("another")
    assert sent(cluster).state == "another"


def test_random_clusters_never_make_two() -> None:
    """Several clusters in order, each with any answer: at most one ends up with the Job."""
    rng = random.Random(7)
    errors = [None, Forbidden("no"), RequestTimeout("?"), Unavailable("?"), TooManyRequests("later")]
    for _ in range(500):
        clusters = []
        for _ in range(3):
            answer = rng.choice(errors)
            is_unclear = isinstance(answer, (RequestTimeout, Unavailable))
            accepts = answer is None or (is_unclear and rng.random() < 0.5)
            clusters.append(Cluster(answer, accepts=accepts, silent=rng.choice([0, 0, 3, 99])))
        for cluster in clusters:
            if sent(cluster).state != "none":
                break
        assert sum(cluster.job is not None for cluster in clusters) <= 1


# --- the command ------------------------------------------------------------------------------------


class Clusters:
    """Three cities: one is full, one has two cards, one has four."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.servers = {name: stack.enter_context(tiny_api()) for name in ("full", "two", "four")}
        sites = []
        for (name, server), cards in zip(self.servers.items(), (0, 2, 4), strict=True):
            (folder / name).mkdir()
            server.kubeconfig(folder / name)
            sites.append({"name": name, "kubeconfig": f"{name}/kubeconfig"})
            stand(server, cards)
        self.file = folder / "clusters.yaml"
        self.file.write_text(yaml.safe_dump({"clusters": sites}))
        self.manifest = folder / "job.yaml"
        self.manifest.write_text(yaml.safe_dump(job()))

    def run(self, *words: str) -> int:
        return self.send("-f", str(self.manifest), *words)

    def send(self, *words: str) -> int:
        return kubectl.main(["submit", "--first-start", "--clusters", str(self.file), *words])

    def jobs(self, job_name: str = "train") -> dict[str, dict[str, Any]]:
        found = {name: server.objects.get(f"{JOBS}/{job_name}") for name, server in self.servers.items()}
        return {name: one for name, one in found.items() if one is not None}


def stand(server: TinyApi, cards: int) -> None:
    table = {"models": [{"name": "h20", "memoryMiB": make.H20_MIB}]}
    server.put(
        f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.MODELS_CONFIG_MAP}",
        {"metadata": {"name": names.MODELS_CONFIG_MAP}, "data": {"models.yaml": json.dumps(table)}},
    )
    node = docs.node("n1", *(docs.card(f"GPU-{i}", i) for i in range(cards)))
    node["status"]["allocatable"] |= {"cpu": "64", "memory": "256Gi", "pods": "110"}
    server.put("/api/v1/nodes/n1", node)
    queue = {"spec": {"capability": {"volcano.sh/vgpu-h20": 10}}, "status": {"state": "Open"}}
    server.put("/apis/scheduling.volcano.sh/v1beta1/queues/all", {"metadata": {"name": "all"}, **queue})


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(tmp_path, stack)


def test_the_job_goes_where_it_starts_and_most_room_is_left(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clusters.run() == exit_status.EXIT_OK
    assert list(clusters.jobs()) == ["four"]
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["four", "two", "full"]
    assert "ns/train: sent to four" in out


def test_a_dry_run_sends_nothing(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    assert clusters.run("--dry-run") == exit_status.EXIT_OK
    assert clusters.jobs() == {}
    assert "not sent" in capsys.readouterr().out


def test_a_cluster_that_refuses_it_is_left_out(clusters: Clusters) -> None:
    clusters.servers["four"].refuses = lambda method, *_: (
        (403, status(403, "Forbidden", "no such queue")) if method == "POST" else None
    )
    assert clusters.run() == exit_status.EXIT_OK
    assert list(clusters.jobs()) == ["two"]


def test_a_cluster_that_does_not_know_the_user_cannot_tell(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has not refused the Job: with good credentials it may take it."""
    clusters.servers["four"].refuses = lambda *_: (401, status(401, "Unauthorized"))
    assert clusters.run("--dry-run", "-o", "json") == exit_status.EXIT_OK
    offers = {one["cluster"]: one for one in json.loads(capsys.readouterr().out)["offers"]}
    assert offers["four"]["chance"] == "cannot tell"
    assert "does not accept who you are" in offers["four"]["why"]
    assert offers["two"]["chance"] == "starts"


def test_the_same_try_again_finds_it(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    assert clusters.run("--submit-id", "one", "-o", "json") == exit_status.EXIT_OK
    assert json.loads(capsys.readouterr().out)["submit_id"] == "one"
    assert clusters.run("--submit-id", "one") == exit_status.EXIT_OK
    assert "is in four already" in capsys.readouterr().out
    assert list(clusters.jobs()) == ["four"]


def test_another_job_of_that_name_is_refused(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    assert clusters.run() == exit_status.EXIT_OK
    assert clusters.run() == exit_status.EXIT_FOUND
    assert "a Job ns/train of another origin is there" in capsys.readouterr().err


def test_an_earlier_try_in_a_silent_cluster_is_unclear(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.servers["two"].refuses = lambda *_: (503, status(503, "ServiceUnavailable"))
    assert clusters.run("--submit-id", "one") == exit_status.EXIT_NO_CLUSTER
    assert "unclear in two" in capsys.readouterr().out
    assert clusters.jobs() == {}


def test_an_unclear_try_goes_on_where_it_was_and_nowhere_else(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    """A create may still be on its way there. A name can be there once, so only that cluster is safe."""
    clusters.servers["four"].refuses = lambda method, path, _body: (
        (503, status(503, "ServiceUnavailable")) if method == "POST" and "dryRun" not in path else None
    )
    assert clusters.run("--unclear-timeout", "0") == exit_status.EXIT_NO_CLUSTER
    out = " ".join(capsys.readouterr().out.split())
    assert "unclear in four" in out
    (mark,) = re.findall(r"--submit-id (four/[-0-9a-f]+)", out)
    assert clusters.jobs() == {}
    # Meanwhile another cluster would be the first choice.
    stand(clusters.servers["two"], 8)
    clusters.servers["four"].refuses = lambda *_: (503, status(503, "ServiceUnavailable"))
    assert clusters.run("--submit-id", mark) == exit_status.EXIT_NO_CLUSTER
    assert "unclear in four" in capsys.readouterr().out
    clusters.servers["four"].refuses = None
    assert clusters.run("--submit-id", mark) == exit_status.EXIT_OK
    assert list(clusters.jobs()) == ["four"]
    assert clusters.run("--submit-id", mark) == exit_status.EXIT_OK
    assert "is in four already" in capsys.readouterr().out
    assert clusters.run("--submit-id", "moon/1") == exit_status.EXIT_FOUND
    assert "'moon', which is not among the clusters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a"}}, "only a Volcano Job"),
        ({**job(), "metadata": {"generateName": "a-"}}, "a name of its own"),
    ],
)
def test_what_cannot_be_sent_is_a_sentence(
    document: dict[str, Any], says: str, clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.manifest.write_text(yaml.safe_dump(document))
    assert clusters.run() == exit_status.EXIT_FOUND
    assert says in capsys.readouterr().err


def test_data_must_be_at_a_cluster_of_the_file(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    made = job()
    made["metadata"]["annotations"] = {"egpu.volcano.sh/data-at": "moon"}
    clusters.manifest.write_text(yaml.safe_dump(made))
    assert clusters.run() == exit_status.EXIT_FOUND
    assert "'moon', which is not among the clusters" in capsys.readouterr().err


CATALOGUE = """
models:
  - name: bert-1.0
    members: 2
    alternatives:
      - {name: small, model: h20, memory: 4096, cores: 10, image: "reg/bert:small"}
      - {name: large, model: h20, memory: 8192, cores: 30, image: "reg/bert:large"}
"""


def test_an_entry_of_the_catalogue_is_sent_as_a_job(
    clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "catalogue.yaml"
    file.write_text(CATALOGUE)
    words = ("--model", "bert-1.0", "--queue", "all", "--catalogue", str(file), "-n", "ns")
    assert clusters.send(*words, "--members", "3") == exit_status.EXIT_OK
    first = capsys.readouterr().out.splitlines()[1].split()
    assert first[:3] == ["two", "starts", "now"], "the first alternative can start there"
    (cluster,) = clusters.jobs("bert-1-0")
    assert cluster == "two"
    made = clusters.jobs("bert-1-0")[cluster]
    assert (made["spec"]["queue"], made["spec"]["minAvailable"]) == ("all", 3)
    ways = json.loads(made["metadata"]["annotations"][names.ALTERNATIVES])
    assert [way["name"] for way in ways] == ["small", "large"]
    assert clusters.send(*words, "--name", "again") == exit_status.EXIT_OK
    assert clusters.jobs("again")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "llama-3.1-8b"), "--model needs --queue"),
        (("--model", "llama", "--queue", "all"), "catalogue: has no entry llama (one of qwen2.5-7b, "),
        (("--model", "llama-3.1-8b", "--queue", "all", "--members", "0"), "(a whole number from 1 to 2048)"),
        (("--model", "a", "--queue", "all", "--catalogue", "/no/such"), "/no/such: "),
        (("-f", "job.yaml", "--queue", "all"), "--queue belongs to --model"),
    ],
)
def test_an_entry_that_cannot_be_sent_is_a_sentence(
    words: tuple[str, ...],
    says: str,
    clusters: Clusters,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(clusters.folder)
    assert clusters.send(*words) == exit_status.EXIT_FOUND
    assert says in capsys.readouterr().err
