"""`vc-egpu idle-events`: owners of low gangs that idle hear of it once a day, and no work is changed."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.cli import exit_status, idle_events
from vc_egpu.cli.idle_events import IdleGang, event
from vc_egpu.kube.resources import EVENTS, POD_GROUPS

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
COMPONENT = Path(__file__).parents[3] / "manifests/usage-report/idle-events"


def text_of(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def row(gang: str = "serve/lazy", hours: int = 30, **more: Any) -> dict[str, Any]:
    since = text_of(NOW - timedelta(hours=hours))
    return {
        "cluster": "c", "namespace": "serve", "gang": gang, "service": "lazy", "idle_hours": hours,
        "idle_card_hours": 2.0 * hours, "idle_since": since, **more,
    }  # fmt: skip


class World:
    """A cluster with one PodGroup that a Job owns, and a report."""

    def __init__(self, server: TinyApi, folder: Path) -> None:
        self.server = server
        self.config = str(server.kubeconfig(folder))
        self.file = folder / "report.json"
        self.tell(row())
        self.group("lazy")

    def tell(self, *rows: dict[str, Any], until: datetime = NOW) -> None:
        self.file.write_text(json.dumps({"until": text_of(until), "tables": {"idle_gangs": list(rows)}}))

    def group(self, name: str, age_h: int = 100) -> None:
        owner = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "name": name,
            "uid": "j",
            "controller": True,
        }
        metadata = {
            "name": name, "namespace": "serve", "uid": "g", "ownerReferences": [owner],
            "creationTimestamp": text_of(NOW - timedelta(hours=age_h)),
        }  # fmt: skip
        self.server.put(POD_GROUPS.path("serve", name), {"metadata": metadata})

    def run(self, *flags: str) -> int:
        return idle_events.main(["--report", str(self.file), "--kubeconfig", self.config, *flags])

    def events(self) -> list[dict[str, Any]]:
        return [one for path, one in self.server.objects.items() if path.startswith(EVENTS.path("serve"))]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with tiny_api() as server:
        yield World(server, tmp_path)


def test_the_owner_hears_of_it_once_a_day(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run() == exit_status.EXIT_OK
    (said,) = world.events()
    assert (said["regarding"]["kind"], said["regarding"]["name"]) == ("Job", "lazy")
    assert "30 hours, 60.0 card-hours" in said["note"]
    assert said["type"] == "Normal"
    assert world.run() == exit_status.EXIT_OK
    assert len(world.events()) == 1
    assert "1 told today already" in capsys.readouterr().out


def test_tomorrow_it_is_said_again() -> None:
    one = IdleGang("serve", "lazy", 30, 60.0, NOW)
    group = {"metadata": {"name": "lazy", "uid": "g"}}
    today, tomorrow = (event(group, one, NOW + timedelta(days=days)) for days in (0, 1))
    assert today["metadata"]["name"] != tomorrow["metadata"]["name"]
    assert today["regarding"]["kind"] == "PodGroup"


def test_nothing_is_changed(world: World) -> None:
    assert world.run() == exit_status.EXIT_OK
    assert {(method, path.partition("?")[0]) for method, path, _ in world.server.requests} == {
        ("GET", POD_GROUPS.path("serve", "lazy")),
        ("POST", EVENTS.path("serve")),
    }


@pytest.mark.parametrize(("hours", "told"), [(23, 0), (24, 1)])
def test_the_bound(hours: int, told: int, world: World) -> None:
    world.tell(row(hours=hours))
    assert world.run("--after-hours", "24") == exit_status.EXIT_OK
    assert len(world.events()) == told


def test_one_that_is_gone_or_was_made_again_gets_none(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.group("lazy", age_h=2)
    world.tell(row(), row("serve/gone"))
    assert world.run() == exit_status.EXIT_OK
    assert world.events() == []
    assert "2 gone or made again" in capsys.readouterr().out


def test_one_that_fails_holds_up_no_other(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.group("other")
    world.tell(row(), row("serve/other"))
    world.server.refuses = lambda _, path, __: (
        (403, status(403, "Forbidden", "no")) if path.endswith("/lazy") else None
    )
    assert world.run() == exit_status.EXIT_FOUND
    (said,) = world.events()
    assert said["regarding"]["name"] == "other"
    assert "serve/lazy: GET " in capsys.readouterr().err


def test_a_dry_run_asks_no_cluster(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run("--dry-run") == exit_status.EXIT_OK
    assert world.server.requests == []
    assert capsys.readouterr().out.startswith("serve/lazy: it holds cards and idles since")


@pytest.mark.parametrize("until", [NOW - timedelta(hours=28), NOW + timedelta(hours=3)])
def test_an_old_report_tells_nothing(
    until: datetime, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.tell(row(), until=until)
    assert world.run() == exit_status.EXIT_FOUND
    assert "does not end within the last day" in capsys.readouterr().err
    assert world.server.requests == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gang": "serve/.."}, "has a value that is none"),
        ({"idle_since": "yesterday"}, "has a value that is none"),
        ({"idle_hours": None}, "is not one of a report"),
    ],
)
def test_a_row_that_is_none(
    wrong: dict[str, Any], says: str, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.tell(row(**wrong))
    assert world.run() == exit_status.EXIT_FOUND
    assert says in capsys.readouterr().err


def test_the_component_gives_these_rights_and_one_container_the_token() -> None:
    role = next(
        one
        for one in yaml.safe_load_all((COMPONENT / "rights.yaml").read_text())
        if one["kind"] == "ClusterRole"
    )
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        ([POD_GROUPS.group], [POD_GROUPS.plural], ["get"]),
        ([EVENTS.group], [EVENTS.plural], ["create"]),
    ]
    pod = yaml.safe_load((COMPONENT / "tell.yaml").read_text())["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]
    mounts = {
        one["name"]: [mount["name"] for mount in one["volumeMounts"]]
        for one in (*pod["initContainers"], *pod["containers"])
    }
    assert mounts == {"numbers": ["data", "tmp"], "tell": ["data", "token"]}
    process, *flags = pod["containers"][0]["args"]
    assert process == "idle-events"
    made = next(flag for flag in pod["initContainers"][0]["args"] if flag.startswith("--output"))
    assert made.partition("=")[2] in flags[0]
