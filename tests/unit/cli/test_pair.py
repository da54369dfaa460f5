"""`kubectl egpu pair`: two services of a report on one card, with the rights of each owner, and back."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.pairing.change import blind_patch, change, undo
from vc_egpu.cli.pairing.pairs import Pair, pairs

MIB = 1 << 20
CARD_MIB = 98304
PAIRED = "egpu.volcano.sh/paired"
SOFT = {"egpu.volcano.sh/core-policy": "soft"}
CHAT = "/apis/apps/v1/namespaces/serve/deployments/chat"
BATCH = "/apis/apps/v1/namespaces/night/deployments/batch"


def row(**more: Any) -> dict[str, Any]:
    """``chat`` by day and ``batch`` by night, on a card each."""
    told: dict[str, Any] = {"cluster": "c", "model": "h20", "method": "share", "spill_bytes": 0.0}
    for which, namespace, service, used in (
        ("one", "serve", "chat", 30000.5),
        ("other", "night", "batch", 40000),
    ):
        told |= {
            f"tenant_{which}": namespace,
            f"namespace_{which}": namespace,
            f"service_{which}": service,
            f"container_{which}": "main",
            f"kind_{which}": "Deployment",
            f"class_{which}": "",
            f"memory_granted_bytes_{which}": CARD_MIB * MIB,
            f"memory_used_max_bytes_{which}": used * MIB,
        }
    return told | {"card_memory_bytes": CARD_MIB * MIB, "saved_card_hours_per_week": 168.0} | more


def report(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"tables": {"pairs": list(rows)}}


def one(**more: Any) -> Pair:
    (found,) = pairs(report(row(**more)))
    return found


def container(**limits: Any) -> dict[str, Any]:
    asked = {f"volcano.sh/{key.replace('_', '-')}": str(value) for key, value in limits.items()}
    return {"name": "main", "image": "i", "resources": {"limits": {"cpu": "4", **asked}}}


def owner(name: str = "chat", *containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    namespace = "serve" if name == "chat" else "night"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "7", **metadata},
        "spec": {
            "template": {
                "metadata": {"annotations": {"team": "a"}},
                "spec": {"containers": [{"name": "proxy"}, *(containers or [container(vgpu_h20=1)])]},
            }
        },
    }


def merged(live: Any, patch: Any) -> Any:
    """A strategic merge: lists of containers by their names."""
    if isinstance(patch, list):
        by_name = {one["name"]: one for one in live or []}
        return [
            *(merged(by_name[name], next((p for p in patch if p["name"] == name), {})) for name in by_name)
        ]
    if not isinstance(patch, dict):
        return patch
    new = {**(live or {})}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def limits_of(live: dict[str, Any]) -> dict[str, str]:
    limits: dict[str, str] = live["spec"]["template"]["spec"]["containers"][1]["resources"]["limits"]
    return {key.removeprefix("volcano.sh/"): value for key, value in limits.items()}


def said_by(live: dict[str, Any]) -> dict[str, str]:
    said: dict[str, str] = live["spec"]["template"]["metadata"]["annotations"]
    return said


# --- what a half becomes ----------------------------------------------------------------------------


def test_two_that_fit_side_by_side_get_their_sizes_and_half_the_cores_each() -> None:
    live = owner()
    made = change(live, one().one)
    assert made.patch is not None
    assert made.patch["metadata"]["resourceVersion"] == "7"
    after = merged(live, made.patch)
    assert limits_of(after) == {"cpu": "4", "vgpu-h20": "1", "vgpu-memory": "34816", "vgpu-cores": "50"}
    assert said_by(after) == {"team": "a", **SOFT}
    assert after["spec"]["template"]["spec"]["containers"][0] == {"name": "proxy"}


def test_headroom_shrinks_where_the_card_is_full_and_never_below_what_was_used() -> None:
    for used in range(CARD_MIB // 2 - 3000, CARD_MIB // 2 + 1, 97):
        pair = one(memory_used_max_bytes_one=used * MIB, memory_used_max_bytes_other=used * MIB)
        both = [half.memory_mib or 0 for half in (pair.one, pair.other)]
        assert min(both) >= used
        assert sum(both) <= CARD_MIB


def test_memory_spills_where_both_are_more_than_the_card() -> None:
    pair = one(method="spill", memory_used_max_bytes_one=80000 * MIB)
    assert (pair.one.memory_mib, pair.other.memory_mib, pair.needed_ratio) == (92160, 46080, 1.5)
    for half in (pair.one, pair.other):
        made = change(owner(half.partner.service), half)
        assert made.patch is not None
        assert said_by(merged(owner(), made.patch))["egpu.volcano.sh/oversubscribe"] == "true"


@pytest.mark.parametrize("which", ["one", "other"])
def test_the_partner_of_one_that_is_suspended_is_high(which: str) -> None:
    pair = one(method="suspension", **{f"class_{which}": "low"})
    low, high = (pair.one, pair.other) if which == "one" else (pair.other, pair.one)
    assert change(owner(low.partner.service), low).why == "it has all that the pair needs"
    made = change(owner(high.partner.service), high)
    assert made.patch is not None
    after = merged(owner(), made.patch)
    assert said_by(after) == {"team": "a", "egpu.volcano.sh/priority": "high"}
    assert limits_of(after) == {"cpu": "4", "vgpu-h20": "1"}


def test_high_and_low_keep_their_cores() -> None:
    pair = one(class_one="high", class_other="low")
    made = change(owner(), pair.one)
    assert made.patch is not None
    assert limits_of(merged(owner(), made.patch)) == {"cpu": "4", "vgpu-h20": "1", "vgpu-memory": "34816"}


@pytest.mark.parametrize(
    ("asked", "cores"),
    [
        ({"vgpu_memory": CARD_MIB, "vgpu_cores": 80}, "50"),
        ({"vgpu_memory": CARD_MIB, "vgpu_cores": 30}, "30"),
        ({"vgpu_memory": CARD_MIB}, None),
        ({"vgpu_memory_percentage": 100}, None),
        ({}, "50"),
    ],
)
def test_cores_are_split_where_they_are_named_or_the_card_is_whole(
    asked: dict[str, int], cores: str | None
) -> None:
    live = owner("chat", container(vgpu_h20=1, **asked))
    made = change(live, one().one)
    assert made.patch is not None
    after = merged(live, made.patch)
    assert limits_of(after).get("vgpu-cores") == cores
    assert ("egpu.volcano.sh/core-policy" in said_by(after)) == (cores is not None)
    assert "vgpu-memory-percentage" not in limits_of(after)


@pytest.mark.parametrize(
    ("live", "says"),
    [
        (owner("chat", {"name": "other"}), "it has no container main any more"),
        (owner("chat", container(gpu_h20=1)), "it has whole cards"),
        (owner("chat", container(vgpu_l20=1)), "does not ask for volcano.sh/vgpu-h20 any more"),
        (owner("chat", container(vgpu_h20=1, vgpu_memory=4096)), "asks for 4096 MiB now, and had 98304"),
        (owner(annotations={PAIRED: "{"}), "it is a half of a pair with another: --remove that first"),
    ],
)
def test_what_is_not_as_it_was_measured_hinders_the_pair(live: dict[str, Any], says: str) -> None:
    made = change(live, one().one)
    assert made.patch is None
    assert made.hinders
    assert says in made.why


# --- the way back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["share", "spill"])
@pytest.mark.parametrize(
    "asked",
    [
        {"vgpu_h20": 1},
        {"vgpu_h20": 1, "vgpu_memory_percentage": 100, "vgpu_cores": 90},
        {"vgpu_h20": 1, "vgpu_memory": CARD_MIB, "vgpu_cores": 100},
    ],
)
def test_all_goes_back(method: str, asked: dict[str, int]) -> None:
    before = owner("chat", container(**asked))
    half = one(method=method).one
    made = change(before, half)
    assert made.patch is not None
    paired = merged(copy.deepcopy(before), made.patch)
    assert change(paired, half).is_paired
    back, why = undo(paired)
    after = merged(paired, back)
    after["metadata"].pop("annotations")
    assert (after, why) == (before, "")


def test_what_its_owner_changed_since_stays() -> None:
    before = owner()
    made = change(before, one().one)
    assert made.patch is not None
    paired = merged(before, made.patch)
    paired["spec"]["template"]["spec"]["containers"][1]["resources"]["limits"]["volcano.sh/vgpu-memory"] = (
        "50000"
    )
    assert "you changed since: volcano.sh/vgpu-memory" in change(paired, one().one).why
    back, why = undo(paired)
    assert why == "you changed since, and it stays: volcano.sh/vgpu-memory"
    after = merged(paired, back)
    assert limits_of(after) == {"cpu": "4", "vgpu-h20": "1", "vgpu-memory": "50000"}
    assert PAIRED not in after["metadata"]["annotations"]


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '{"with":1}', '{"with":"x","container":"m","limits":{"a":1}}']
)
def test_a_record_that_cannot_be_read_changes_nothing(text: str) -> None:
    back, why = undo(owner(annotations={PAIRED: text}))
    assert back is None
    assert "cannot be read" in why


def test_a_patch_for_an_object_that_cannot_be_read_has_what_the_pair_needs() -> None:
    patch = blind_patch(one().other)
    assert said_by(patch) == SOFT
    (only,) = patch["spec"]["template"]["spec"]["containers"]
    assert only["resources"]["limits"] == {"volcano.sh/vgpu-memory": "46080", "volcano.sh/vgpu-cores": "50"}


# --- the command ------------------------------------------------------------------------------------


class World:
    """A cluster with both services, and a report that pairs them."""

    def __init__(self, server: TinyApi, folder: Path) -> None:
        self.server = server
        self.config = str(server.kubeconfig(folder))
        self.file = folder / "report.json"
        self.tell(row())
        server.put(CHAT, owner("chat"))
        server.put(BATCH, owner("batch"))

    def tell(self, *rows: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(report(*rows)))

    def run(self, *flags: str, namespace: str = "serve") -> int:
        return kubectl.main(["pair", "--kubeconfig", self.config, "-n", namespace, *flags])

    def pair(self, *flags: str, namespace: str = "serve") -> int:
        return self.run("--report", str(self.file), *flags, namespace=namespace)

    def written(self) -> list[tuple[str, Any]]:
        return [
            (path.partition("?")[0], body) for method, path, body in self.server.requests if method == "PATCH"
        ]

    def play_patches(self) -> None:
        """Objects as a real server would leave them."""
        for path, body in self.written():
            live = owner(path.rpartition("/")[2])
            self.server.put(
                path, merged(live, {**body, "metadata": {"annotations": body["metadata"]["annotations"]}})
            )
        self.server.requests.clear()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with tiny_api() as server:
        yield World(server, tmp_path)


def states(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    halves = json.loads(capsys.readouterr().out)["halves"]
    return {one["name"]: (one["state"], one["why"]) for one in halves}


def test_without_apply_nothing_is_written(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.pair() == exit_status.EXIT_OK
    assert world.written() == []
    header, chat, batch, hint = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "OBJECT",
        "CONTAINER",
        "WITH",
        "HOW",
        "MiB",
        "USED",
        "NEW",
        "MiB",
        "CORES",
        "%",
        "STATE",
        "WHY",
    ]
    assert " ".join(chat.split()) == (
        "Deployment serve/chat main Deployment night/batch share 98304 30001 34816 50 proposed"
    )
    assert batch.split()[-5:] == ["98304", "40000", "46080", "50", "proposed"]
    assert hint == "nothing was written: --apply does it, and the pods are made again"


def test_apply_writes_both_halves_and_a_second_run_has_nothing_to_do(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.pair("--apply", "-o", "json") == exit_status.EXIT_OK
    assert states(capsys) == {"chat": ("applied", ""), "batch": ("applied", "")}
    assert [path for path, _ in world.written()] == [CHAT, BATCH]
    world.play_patches()
    assert world.pair("--apply", "-o", "json") == exit_status.EXIT_OK
    assert states(capsys) == {"chat": ("paired", ""), "batch": ("paired", "")}
    assert world.written() == []


def test_each_owner_writes_one_half_and_hands_the_other_on(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.server.refuses = lambda method, path, _: (
        (403, status(403, "Forbidden", "no")) if method == "PATCH" and "/night/" in path else None
    )
    assert world.pair("--apply") == exit_status.EXIT_OK
    assert world.written()[0][0] == CHAT
    out = capsys.readouterr().out
    assert "the pair saves nothing until Deployment night/batch has its half, too" in out
    assert "kubectl patch deployment batch -n night --patch-file FILE" in out
    assert "volcano.sh/vgpu-memory: '46080'" in out
    assert f"{PAIRED}:" in out  # so that the half can be taken back


def test_one_that_may_not_read_the_partner_gets_a_patch_for_its_owner(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.server.refuses = lambda _, path, __: (
        (403, status(403, "Forbidden", "no")) if "/night/" in path else None
    )
    assert world.pair("chat", "--apply") == exit_status.EXIT_OK
    assert [path for path, _ in world.written()] == [CHAT]
    assert "kubectl patch deployment batch -n night" in capsys.readouterr().out


def test_a_partner_that_is_gone_or_changed_leaves_both_as_they_are(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    del world.server.objects[BATCH]
    assert world.pair("--apply", "-o", "json") == exit_status.EXIT_OK
    told = states(capsys)
    assert "there is no such Deployment now" in told["batch"][1]
    assert told["chat"][1].startswith("Deployment night/batch: there is no such Deployment now")
    world.server.put(BATCH, owner("batch", container(vgpu_h20=1, vgpu_memory=1024)))
    assert world.pair("--apply", "-o", "json") == exit_status.EXIT_OK
    assert "it asks for 1024 MiB now" in states(capsys)["chat"][1]
    assert world.written() == []


def test_what_changed_meanwhile_is_read_again(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.server.script = [(409, status(409, "Conflict"), {})]
    world.server.script_for = "vgpu-memory"
    assert world.pair("--apply", "-o", "json") == exit_status.EXIT_OK
    assert states(capsys)["chat"] == ("applied", "")
    assert [path for path, _ in world.written()] == [CHAT, CHAT, BATCH]


def test_remove_takes_both_back(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.pair("--apply") == exit_status.EXIT_OK
    world.play_patches()
    capsys.readouterr()
    assert world.run("chat", "--remove") == exit_status.EXIT_OK
    assert world.written() == []
    assert "nothing was written: --apply does it" in capsys.readouterr().out
    assert world.run("chat", "--remove", "--apply", "-o", "json") == exit_status.EXIT_OK
    assert states(capsys) == {"chat": ("removed", ""), "batch": ("removed", "")}
    assert [path for path, _ in world.written()] == [CHAT, BATCH]
    assert all(body["metadata"]["annotations"] == {PAIRED: None} for _, body in world.written())


def test_remove_where_nothing_is_paired(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run("--remove", "--apply") == exit_status.EXIT_OK
    assert "nothing is paired here" in capsys.readouterr().out
    assert world.run("chat", "--remove") == exit_status.EXIT_FOUND
    assert "no pair has chat there; these are paired: none" in capsys.readouterr().err


def test_a_job_gets_a_manifest(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.tell(row(kind_other="Job"))
    tasks = [{"name": "w", "template": {"spec": {"containers": [container(vgpu_h20=1)]}}}]
    world.server.put(
        "/apis/batch.volcano.sh/v1alpha1/namespaces/night/jobs/batch",
        {"metadata": {"name": "batch", "namespace": "night"}, "spec": {"tasks": tasks}},
    )
    assert world.pair("--apply") == exit_status.EXIT_OK
    out = capsys.readouterr().out
    assert "replace it" in out
    assert "volcano.sh/vgpu-memory: 46080" in out
    assert "egpu.volcano.sh/core-policy: soft" in out


def test_only_pairs_with_this_namespace(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.pair(namespace="other") == exit_status.EXIT_OK
    assert "the report has no pair here" in capsys.readouterr().out
    assert world.pair("-A", namespace="other") == exit_status.EXIT_OK
    assert "serve/chat" in capsys.readouterr().out
    assert world.pair("chta") == exit_status.EXIT_FOUND
    assert "the report pairs no chta there; it pairs batch, chat" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ('{"tables": {}}', "has no table pairs"),
        (json.dumps(report({"model": "h20"})), "row 0 of pairs is not one of a report of this version"),
        (json.dumps(report(row(service_one="../x"))), "has a value that is none"),
        (json.dumps(report(row(method="magic"))), "has a value that is none"),
        (json.dumps(report(row(memory_used_max_bytes_one=-1.0 * MIB))), "has a value that is none"),
        (json.dumps(report(row(memory_used_max_bytes_one=90000 * MIB))), "gives less memory than was used"),
        (json.dumps(report(row(), row(cluster="d"))), "make one of this cluster alone"),
        (json.dumps(report(row()) | {"asked": 2}), "the report is of 2 clusters: make one of this"),
    ],
)
def test_a_file_that_is_no_report_is_a_sentence(
    text: str, says: str, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.file.write_text(text)
    assert world.pair("--apply") == exit_status.EXIT_FOUND
    assert says in capsys.readouterr().err
    assert world.written() == []
