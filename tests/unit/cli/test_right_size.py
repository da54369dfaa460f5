"""`kubectl egpu right-size`: what a report proposes reaches the owners of pods, and nothing else does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.sizing.change import changes, manifest_of, patch_of
from vc_egpu.cli.sizing.proposals import Proposal, proposals

MIB = 1 << 20
CHAT = "/apis/apps/v1/namespaces/serve/deployments/chat"
TRAIN = "/apis/batch.volcano.sh/v1alpha1/namespaces/serve/jobs/train"


def row(**more: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment", "namespace": "serve", "service": "chat", "container": "main", "model": "h20",
        "advice": "shrink", "memory_granted_bytes": 40960 * MIB, "memory_used_max_bytes": 9000.5 * MIB,
        "memory_proposed_bytes": 11264 * MIB, "cores_proposed_ratio": 0.25, "hours_seen": 191.0, **more,
    }  # fmt: skip


def report(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"tables": {"right_sizes": list(rows)}}


def one(**more: Any) -> Proposal:
    (found,) = proposals(report(row(**more)))
    return found


def container(**limits: Any) -> dict[str, Any]:
    asked = {key.replace("_", "-"): value for key, value in limits.items()}
    return {
        "name": "main",
        "image": "chat:1",
        "resources": {"limits": {"cpu": "4", **{f"volcano.sh/{key}": value for key, value in asked.items()}}},
    }


def deployment(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "serve", "uid": "u-1", "resourceVersion": "7", **metadata},
        "spec": {"template": {"spec": {"containers": list(containers)}}},
    }


SHARED = container(vgpu_h20=1, vgpu_memory=40960, vgpu_cores=50)
COUNTED = container(vgpu_h20=1, vgpu_memory=40960, vgpu_cores=50, vgpu_h20_memory=40960, vgpu_h20_cores=50)
"""As the webhook leaves it in a Job."""


def test_memory_and_cores_change_and_all_else_stays() -> None:
    live = deployment({"name": "proxy"}, SHARED)
    made = changes(live, [one()])
    assert patch_of(live, made) == {
        "metadata": {"uid": "u-1", "resourceVersion": "7"},
        "spec": {"template": {"spec": {"containers": [
            {"name": "main", "resources": {
                "limits": {"volcano.sh/vgpu-memory": "11264", "volcano.sh/vgpu-cores": "25"}}}
        ]}}},
    }  # fmt: skip


def test_requests_follow_their_limits() -> None:
    asked = container(vgpu_h20=1, vgpu_memory="40960")
    asked["resources"]["requests"] = {"volcano.sh/vgpu-memory": "40960"}
    live = deployment(asked)
    (patched,) = patch_of(live, changes(live, [one(cores_proposed_ratio=None)]))["spec"]["template"]["spec"][
        "containers"
    ]
    assert patched["resources"] == {
        "limits": {"volcano.sh/vgpu-memory": "11264"},
        "requests": {"volcano.sh/vgpu-memory": "11264"},
    }


def test_a_sidecar_changes_where_it_stands() -> None:
    live = deployment({"name": "web"})
    live["spec"]["template"]["spec"]["initContainers"] = [{**SHARED, "restartPolicy": "Always"}]
    spec = patch_of(live, changes(live, [one()]))["spec"]["template"]["spec"]
    assert list(spec) == ["initContainers"]
    assert spec["initContainers"][0]["resources"]["limits"]["volcano.sh/vgpu-memory"] == "11264"


def test_percent_of_a_card_gives_way_to_mib() -> None:
    live = deployment(container(vgpu_h20=1, vgpu_memory_percentage=40))
    (patched,) = patch_of(live, changes(live, [one()]))["spec"]["template"]["spec"]["containers"]
    assert patched["resources"]["limits"]["volcano.sh/vgpu-memory-percentage"] is None


@pytest.mark.parametrize(
    ("live", "more", "says"),
    [
        (deployment({"name": "other"}), {}, "has no container main any more"),
        (deployment(container(gpu_h20=1)), {}, "it has whole cards"),
        (deployment(container(vgpu_l20=1)), {}, "does not ask for volcano.sh/vgpu-h20 any more"),
        (deployment(container(vgpu_h20=1, vgpu_memory=20480)), {}, "asks for 20480 MiB now, and had 40960"),
        (deployment(container(vgpu_h20=1, vgpu_memory="x")), {}, "asks for x MiB now"),
        (deployment(SHARED), {"advice": "keep"}, "the report says: keep"),
        (
            deployment(SHARED),
            {"advice": "too little seen", "memory_proposed_bytes": None},
            "the report says: too little seen",
        ),
    ],
)
def test_why_nothing_changes(live: dict[str, Any], more: dict[str, Any], says: str) -> None:
    (made,) = changes(live, [one(**more)])
    assert made.limits is None
    assert says in made.why_not


def test_a_jobs_manifest_is_its_own_with_new_sizes_and_nothing_of_the_server() -> None:
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "serve", "uid": "u", "resourceVersion": "9",
                     "labels": {"team": "a"}, "creationTimestamp": "2026-11-27T00:00:00Z"},
        "spec": {"queue": "q", "tasks": [{"name": "w", "template": {"spec": {"containers": [COUNTED]}}}]},
        "status": {"state": {"phase": "Running"}},
    }  # fmt: skip
    new = manifest_of(job, changes(job, [one(kind="Job", service="train")]))
    assert new["metadata"] == {"name": "train", "namespace": "serve", "labels": {"team": "a"}}
    assert "status" not in new
    limits = new["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "4", "volcano.sh/vgpu-h20": 1, "volcano.sh/vgpu-memory": 11264,
                      "volcano.sh/vgpu-cores": 25}  # fmt: skip
    assert COUNTED["resources"]["limits"]["volcano.sh/vgpu-memory"] == 40960


def test_a_jobs_manifest_keeps_no_totals_that_the_webhook_counted_into_requests() -> None:
    """A new Job with a total in its requests and not in its limits is refused."""
    counted = container(vgpu_h20=1, vgpu_h20_memory=98304, vgpu_h20_cores=100)
    totals = {"volcano.sh/vgpu-h20-memory": 98304, "volcano.sh/vgpu-h20-cores": 100}
    counted["resources"]["requests"] = {"cpu": "1", **totals}
    task = {"template": {"spec": {"containers": [counted]}}}
    job = {"metadata": {"name": "train"}, "spec": {"tasks": [task]}}
    new = manifest_of(job, changes(job, [one(kind="Job", cores_proposed_ratio=None)]))
    resources = new["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "1"}
    assert resources["limits"] == {"cpu": "4", "volcano.sh/vgpu-h20": 1, "volcano.sh/vgpu-memory": 11264}


# --- the command ------------------------------------------------------------------------------------


class World:
    """A cluster with one Deployment and one Job, and a report of both."""

    def __init__(self, server: TinyApi, folder: Path) -> None:
        self.server = server
        self.config = str(server.kubeconfig(folder))
        self.file = folder / "report.json"
        self.tell(row(), row(kind="Job", service="train"))
        server.put(CHAT, deployment(SHARED))
        tasks = [{"name": "w", "template": {"spec": {"containers": [SHARED]}}}]
        server.put(TRAIN, {"metadata": {"name": "train", "namespace": "serve"}, "spec": {"tasks": tasks}})

    def tell(self, *rows: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(report(*rows)))

    def run(self, *flags: str) -> int:
        source = ("--report", str(self.file))
        return kubectl.main(["right-size", "--kubeconfig", self.config, "-n", "serve", *source, *flags])

    def patches(self) -> list[Any]:
        return [body for method, _, body in self.server.requests if method == "PATCH"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with tiny_api() as server:
        yield World(server, tmp_path)


def test_without_apply_nothing_is_written(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run("chat") == exit_status.EXIT_OK
    assert world.patches() == []
    assert capsys.readouterr().out.splitlines() == [
        "OBJECT                 CONTAINER    MiB  USED  NEW MiB  CORES %  HOURS  STATE     WHY",
        "Deployment serve/chat  main       40960  9001    11264       25    191  proposed",
        "nothing was written: --apply does it, and the pods are made again",
    ]


def test_apply_writes_what_can_change_and_prints_what_cannot(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.run("--apply") == exit_status.EXIT_OK
    (body,) = world.patches()
    assert body["metadata"]["uid"] == "u-1"
    out = capsys.readouterr().out
    assert "applied" in out
    assert "replace it" in out
    assert "volcano.sh/vgpu-memory: 11264" in out


def test_what_changed_meanwhile_is_read_again(world: World) -> None:
    world.server.script = [(409, status(409, "Conflict"), {})]
    world.server.script_for = "vgpu-memory"
    assert world.run("chat", "--apply") == exit_status.EXIT_OK
    assert len(world.patches()) == 2


def test_a_right_that_is_missing_fails_that_one_only(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.tell(row(), row(kind="StatefulSet", service="gone"))
    world.server.refuses = lambda method, *_: (
        (403, status(403, "Forbidden", "no")) if method == "PATCH" else None
    )
    assert world.run("--apply", "-o", "json") == exit_status.EXIT_FOUND
    sizes = json.loads(capsys.readouterr().out)["sizes"]
    assert [(one["name"], one["state"]) for one in sizes] == [("chat", "failed"), ("gone", "failed")]
    assert "there is no such StatefulSet now" in sizes[1]["why"]


def test_a_program_with_a_source_of_its_own_is_named(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    live = deployment(SHARED, annotations={"meta.helm.sh/release-name": "chat"})
    world.server.put(CHAT, live)
    assert world.run("chat") == exit_status.EXIT_OK
    assert "Helm writes Deployment serve/chat from a source of its own" in capsys.readouterr().out


def test_only_this_namespace_unless_all_are_asked(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.tell(row(namespace="other"))
    world.server.put(CHAT.replace("serve", "other"), deployment(SHARED, namespace="other"))
    assert world.run() == exit_status.EXIT_OK
    assert "the report proposes no change here" in capsys.readouterr().out
    assert world.run("-A") == exit_status.EXIT_OK
    assert "other/chat" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ("[]", "has no table right_sizes"),
        ('{"tables": {"right_sizes": [{}]}}', "row 0 of right_sizes is not one of a report"),
        (json.dumps(report(row(service="../x"))), "has a value that is none"),
        (json.dumps(report(row(cores_proposed_ratio=7))), "has a value that is none"),
        (json.dumps(report(row(memory_proposed_bytes=MIB))), "proposes less memory than was used"),
        (json.dumps(report(row(hours_seen="x"))), "is not one of a report"),
    ],
)
def test_a_file_that_is_no_report_is_a_sentence(
    text: str, says: str, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.file.write_text(text)
    assert world.run("--apply") == exit_status.EXIT_FOUND
    assert says in capsys.readouterr().err
    assert world.patches() == []


def test_a_service_that_the_report_does_not_know(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run("chta") == exit_status.EXIT_FOUND
    assert "the report knows no chta there; it knows chat, train" in capsys.readouterr().err
