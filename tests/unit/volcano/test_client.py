"""The typed client over both connections, and the page that describes it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.jobs.rules.defaults import complete, problems
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.api.client import VolcanoClient
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.api.meta import ModelError, ObjectMeta
from vc_egpu.volcano.api.paths import PathNameError

PAGE = Path(__file__).resolve().parents[3] / "docs/volcano-client.md"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs"


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as api:
        yield api


@pytest.fixture(params=["official", "ours"])
def volcano(server: TinyApi, tmp_path: Path, request: pytest.FixtureRequest) -> VolcanoClient:
    path = server.kubeconfig(tmp_path)
    if request.param == "ours":
        return VolcanoClient(ApiConnection.connect(path))
    return VolcanoClient.of(kubernetes.config.new_client_from_config(str(path)))


def job(name: str = "train") -> Job:
    return Job.parse({"metadata": {"name": name, "namespace": "team"}, "spec": {"tasks": [{"replicas": 1}]}})


def test_create_read_replace_delete(volcano: VolcanoClient, server: TinyApi) -> None:
    made = volcano.jobs.create(job())
    assert made.metadata.uid
    read = volcano.jobs.get("train", "team")
    read.spec.min_available = 1
    assert volcano.jobs.replace(read).spec.min_available == 1
    assert [found.key for found in volcano.jobs.list("team")] == ["team/train"]
    volcano.jobs.delete("train", "team", uid=read.metadata.uid)
    assert JOBS + "/train" not in server.objects


def test_a_list_names_the_object_that_does_not_fit_and_can_go_on_without_it(
    volcano: VolcanoClient, server: TinyApi
) -> None:
    """Somebody else's CRDs may let in what ours refuse."""
    for name, replicas in (("a", 1), ("b", -1), ("c", 1)):
        spec = {"tasks": [{"replicas": replicas}]}
        server.put(f"{JOBS}/{name}", {"metadata": {"name": name, "namespace": "team"}, "spec": spec})
    with pytest.raises(ModelError, match=r"^Job team/b: spec\.tasks\[0\]\.replicas: "):
        list(volcano.jobs.list("team"))
    refused: list[tuple[str, str]] = []

    def note(document: dict[str, Any], error: ModelError) -> None:
        refused.append((document["metadata"]["name"], error.problems[0][0]))

    assert [found.key for found in volcano.jobs.list("team", on_refused=note)] == ["team/a", "team/c"]
    assert refused == [("b", "spec.tasks[0].replicas")]


def test_patch_and_commands_send_what_volcano_expects(volcano: VolcanoClient, server: TinyApi) -> None:
    seen = server.put(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/g",
        {"metadata": {"name": "g", "namespace": "team"}},
    )["metadata"]["resourceVersion"]
    volcano.enqueue("g", "team", resource_version=seen)
    method, _, body = server.requests[-1]
    assert (method, body) == (
        "PATCH",
        {"status": {"phase": "Inqueue"}, "metadata": {"resourceVersion": seen}},
    )
    made = volcano.jobs.create(job())
    answer = {"metadata": {"name": "train-abortjob-x", "namespace": "team"}, "action": "AbortJob"}
    server.script.append((201, answer, {}))
    assert volcano.suspend(made).action == "AbortJob"
    _, path, body = server.requests[-1]
    assert path == "/apis/bus.volcano.sh/v1alpha1/namespaces/team/commands"
    assert body["target"]["uid"] == made.metadata.uid


def test_errors_are_the_connections(server: TinyApi, tmp_path: Path) -> None:
    path = server.kubeconfig(tmp_path)
    with pytest.raises(NotFound):
        VolcanoClient(ApiConnection.connect(path)).jobs.get("none", "team")
    official = VolcanoClient.of(kubernetes.config.new_client_from_config(str(path)))
    with pytest.raises(kubernetes.client.ApiException) as caught:
        official.jobs.get("none", "team")
    assert caught.value.status == 404


def test_an_answer_that_is_no_job_is_refused(volcano: VolcanoClient, server: TinyApi) -> None:
    server.script.append((200, {"metadata": {"name": "x"}, "spec": {"tasks": "many"}}, {}))
    with pytest.raises(ModelError, match=r"spec\.tasks"):
        volcano.jobs.get("x", "team")


def test_a_job_without_namespace_is_not_sent(volcano: VolcanoClient, server: TinyApi) -> None:
    with pytest.raises(ValueError, match="namespace"):
        volcano.jobs.create(Job(metadata=ObjectMeta(name="x")))
    assert server.requests == []


def test_an_empty_name_is_not_all_jobs_of_the_namespace(volcano: VolcanoClient, server: TinyApi) -> None:
    """It was the path of the collection: `delete` sent what the API server takes for "delete all"."""
    nameless = job("")
    for call in (
        lambda: volcano.jobs.delete("", "team"),
        lambda: volcano.jobs.get("", "team"),
        lambda: volcano.jobs.patch("", {}, "team"),
        lambda: volcano.jobs.replace(nameless),
        lambda: volcano.jobs.replace_status(nameless),
    ):
        with pytest.raises(ValueError, match="Job: the name is empty"):
            call()
    assert server.requests == []


@pytest.mark.parametrize("name", [".", "..", "a/b", "a%2fb", "%2e"])
def test_a_name_that_leads_elsewhere_is_not_sent(volcano: VolcanoClient, server: TinyApi, name: str) -> None:
    """A client tidies ``…/jobs/.`` up to ``…/jobs``: over the official one a DELETE took the collection."""
    there = volcano.jobs.create(job())
    server.requests.clear()
    named = there.model_copy(update={"metadata": ObjectMeta(name=name, namespace="team")})
    for call in (
        lambda: volcano.jobs.delete(name, "team"),
        lambda: volcano.jobs.delete("train", name),
        lambda: volcano.jobs.get(name, "team"),
        lambda: volcano.jobs.patch(name, {}, "team"),
        lambda: volcano.jobs.patch("train", {}, "team", subresource=name),
        lambda: volcano.jobs.replace(named),
        lambda: volcano.jobs.replace_status(named),
        lambda: volcano.enqueue(name, "team"),
        lambda: volcano.queues.delete(name),
        lambda: list(volcano.jobs.list(name)),
    ):
        with pytest.raises(PathNameError, match=re.escape(name)):
            call()
    assert server.requests == []
    assert JOBS + "/train" in server.objects


def test_a_name_that_is_missing_is_not_all_jobs_of_the_namespace(
    volcano: VolcanoClient, server: TinyApi
) -> None:
    """A program without types, whose ``metadata.get("name")`` found none."""
    nothing: Any = None
    with pytest.raises(PathNameError, match="Job: the name is missing"):
        volcano.jobs.delete(nothing, "team")
    assert server.requests == []


def test_the_page_runs(server: TinyApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its examples, one after the other, against a server."""
    # What the package found in the environment when it was imported.
    location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(location, str(server.kubeconfig(tmp_path)))
    server.put(
        "/apis/scheduling.volcano.sh/v1beta1/queues/team-a",
        {"metadata": {"name": "team-a"}, "spec": {"capability": {"volcano.sh/vgpu-h20": 6}}},
    )
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        # Commands have generated names, which the tiny server does not make.
        if "volcano.suspend" in block:
            command = {"metadata": {"name": "c", "namespace": "team-a"}, "action": "AbortJob"}
            _script_after(server, 2, [(201, command, {})] * 2)
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["job"].spec.min_available == 2
    assert problems(complete(names["job"])) == [], "what the page submits runs"
    assert (
        server.objects["/apis/batch.volcano.sh/v1alpha1/namespaces/team-a/jobs/train"]["spec"]["minAvailable"]
        == 2
    )


def _script_after(
    server: TinyApi, count: int, answers: list[tuple[int, dict[str, Any], dict[str, str]]]
) -> None:
    server.skip, server.script = count, list(answers)


def test_hypernodes_are_read_from_the_whole_cluster(volcano: VolcanoClient, server: TinyApi) -> None:
    spec = {
        "tier": 1,
        "tierName": "rack",
        "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n"}}}],
    }
    path = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
    server.put(f"{path}/r1", {"metadata": {"name": "r1"}, "spec": spec})
    (found,) = volcano.hyper_nodes.list()
    assert (found.metadata.name, found.spec.tier, found.spec.tier_name) == ("r1", 1, "rack")
    (member,) = found.spec.members
    assert member.selector is not None
    assert member.selector.exact_match is not None
    assert member.selector.exact_match.name == "n"
