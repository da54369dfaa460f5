"""What is asked for is checked at once; what is left behind is told from what is in use."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from localcluster import LocalCluster, teardown
from localcluster.context import Context
from localcluster.errors import LocalClusterError
from localcluster.procs import ProcessIdentity
from localcluster.spec import ClientRate, ClusterSpec
from localcluster.state import (
    KUBELET_SOCKET,
    LONGEST_SOCKET,
    ClusterRecord,
    Phase,
    StateDir,
    all_clusters,
    file_system,
)
from localcluster.status import describe

ROOT = Path(__file__).parents[3]
_NOBODY = ProcessIdentity(2**22 + 1, 1, "another-boot")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    monkeypatch.setenv("VC_EGPU_STATE", str(tmp_path))
    return StateDir.of("t1")


def _myself() -> ProcessIdentity:
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    return identity


def _record(phase: Phase, owner: ProcessIdentity | None = None, **spec: Any) -> ClusterRecord:
    return ClusterRecord(ClusterSpec(name="t1", **spec), 180, {}, phase, owner)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"name": ""}, "cluster name ''"),
        ({"name": "Upper"}, "cluster name"),
        ({"name": "a" * 21}, "1 to 20"),
        ({"name": "ends-"}, "cluster name"),
        ({"name": "../x"}, "cluster name"),
        ({"real_nodes": -1}, "real_nodes -1: must be 0 to 32"),
        ({"real_nodes": 33}, "real_nodes 33"),
        ({"kwok_nodes": 20_001}, "kwok_nodes 20001: must be 0 to 20000"),
        ({"rootless": True}, "real_nodes 2: without root"),
        ({"services": False}, "dns needs services"),
        ({"max_pods": 0}, "max_pods 0"),
        ({"node_monitor_grace_s": 1}, "node_monitor_grace_s 1"),
    ],
)
def test_a_wrong_spec_is_refused_with_field_and_limit(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(LocalClusterError) as refusal:
        ClusterSpec(**fields)
    assert what in str(refusal.value)


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (5, 4), (-1, 1)])
def test_a_wrong_rate_is_refused(qps: int, burst: int) -> None:
    with pytest.raises(LocalClusterError, match=f"{qps}/{burst}"):
        ClientRate(qps, burst)


def test_the_record_comes_back_as_it_was_written(state: StateDir) -> None:
    record = _record(
        "up",
        _myself(),
        kwok_nodes=7,
        scheduler_rate=ClientRate(1, 2),
        extra_args={"kubelet": ("--v=4",)},
        node_labels={"a": "b"},
    )
    state.write(record)
    assert state.read() == record
    assert state.path.stat().st_mode & 0o077 == 0, "keys lie below"


def test_a_record_of_a_newer_version_can_be_read(state: StateDir) -> None:
    state.write(_record("up"))
    raw = json.loads((state.path / "cluster.json").read_text())
    raw["spec"]["some_new_field"] = 1
    (state.path / "cluster.json").write_text(json.dumps(raw))
    read = state.read()
    assert read is not None
    assert read.spec.name == "t1"


def test_a_damaged_record_is_an_error_with_its_path(state: StateDir) -> None:
    state.path.mkdir()
    (state.path / "cluster.json").write_text("{")
    with pytest.raises(LocalClusterError, match=r"cluster\.json"):
        state.read()
    assert teardown.is_leftover(state)


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"version": 2}', '{"spec": {"name": 1}}'])
def test_a_record_of_another_version_is_an_error_with_its_path(state: StateDir, text: str) -> None:
    state.path.mkdir()
    (state.path / "cluster.json").write_text(text)
    with pytest.raises(LocalClusterError, match=r"cluster\.json is of another version"):
        state.read()
    assert teardown.is_leftover(state)


def test_a_cluster_of_versions_that_are_not_pinned_any_more_has_a_status(state: StateDir) -> None:
    state.write(_record("up", kubernetes="1.29", kubelet="1.28", containerd="1.6"))
    assert "versions    kubernetes 1.29, kubelet 1.28, containerd 1.6" in describe(state)


@pytest.mark.parametrize("phase", ["starting", "stopping"])
def test_a_cluster_whose_starter_lives_is_left_alone(state: StateDir, phase: Phase) -> None:
    state.write(_record(phase, _myself()))
    assert not teardown.is_leftover(state)


@pytest.mark.parametrize("phase", ["starting", "stopping"])
@pytest.mark.parametrize("owner", [_NOBODY, None])
def test_a_cluster_whose_starter_died_is_a_leftover(
    state: StateDir, phase: Phase, owner: ProcessIdentity | None
) -> None:
    state.write(_record(phase, owner))
    assert teardown.is_leftover(state)


def test_a_cluster_that_runs_for_one_who_died_is_a_leftover(state: StateDir) -> None:
    """The clusters of killed tests stayed up, and were in the way of the next ones."""
    state.process("etcd").record(os.getpid())
    for owner, leftover in ((None, False), (_myself(), False), (_NOBODY, True)):
        state.write(_record("up", owner))
        assert teardown.is_leftover(state) == leftover


def test_a_cluster_is_its_starters_inside_of_with_and_nobodys_without(state: StateDir) -> None:
    for stays in (True, False):
        state.write(_record("up"))
        cluster = LocalCluster(Context(state, _record("up")), down_on_exit=not stays)
        with cluster:
            record = state.read()
            assert record is not None
            assert record.owner == (None if stays else _myself())
        assert state.path.exists() == stays


def test_after_a_reboot_a_cluster_is_a_leftover_and_nothing_is_signalled(state: StateDir) -> None:
    """The pid of this very test stands in a pid file of the boot before."""
    state.write(_record("up"))
    process = state.process("kube-apiserver")
    process.record(os.getpid())
    assert not teardown.is_leftover(state)
    raw = json.loads(process.pid_file.read_text())
    process.pid_file.write_text(json.dumps(raw | {"boot_id": "the-boot-before"}))
    assert teardown.is_leftover(state)
    teardown.remove(state, lambda _line: None)
    assert not state.path.exists()


def test_collect_removes_leftovers_only(state: StateDir) -> None:
    state.write(_record("starting", _NOBODY))
    busy = StateDir.of("t2")
    busy.write(_record("starting", _myself()))
    assert "t1" in teardown.collect(lambda _line: None)
    assert [found.name for found in all_clusters()] == ["t2"]


def test_paths_that_mounts_or_sockets_cannot_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VC_EGPU_STATE", str(tmp_path / ("x" * 90)))
    with pytest.raises(LocalClusterError, match="a shorter folder"):
        StateDir.of("t1").check_path(ClusterSpec(name="t1"))
    with pytest.raises(LocalClusterError, match=r"etcd\.sock has \d+ characters.*a shorter folder"):
        StateDir.of("t1").check_path(ClusterSpec(name="t1", real_nodes=0, services=False, dns=False))
    monkeypatch.setenv("VC_EGPU_STATE", "/a,b")
    with pytest.raises(LocalClusterError, match="only letters"):
        StateDir.of("t1").check_path(ClusterSpec(name="t1"))
    monkeypatch.setenv("VC_EGPU_STATE", "/run/x")
    with pytest.raises(LocalClusterError, match="below /run"):
        StateDir.of("t1").check_path(ClusterSpec(name="t1"))


def test_the_file_system_of_a_path_is_that_of_its_nearest_mount() -> None:
    mounts = """\
27 1 254:0 / / rw,relatime - overlay overlay rw,lowerdir=/a
28 27 0:24 / /data rw,relatime shared:1 master:2 - ext4 /dev/vdb rw
29 27 0:25 / /data/in rw - overlay overlay rw
30 27 0:26 / /data/in rw - tmpfs tmpfs rw
"""
    assert file_system(Path("/root/x"), mounts) == "overlay"
    assert file_system(Path("/data/x"), mounts) == "ext4"
    assert file_system(Path("/database"), mounts) == "overlay"
    assert file_system(Path("/data/in/x"), mounts) == "tmpfs"


def test_control_groups_of_equal_names_in_other_roots_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VC_EGPU_STATE", "/a")
    one = StateDir.of("t1").unique_id
    monkeypatch.setenv("VC_EGPU_STATE", "/b")
    assert StateDir.of("t1").unique_id != one


def test_clusters_of_the_stories_have_names_that_fit_at_home() -> None:
    """One that is too long fails where it is made, which may be a story that seldom runs."""
    texts = [path.read_text() for path in (ROOT / "e2e").rglob("*.py")]
    calls = re.compile(r"(?:ClusterSpec\(name=|suspending\(|rig\()\"([a-z0-9-]+)\"")
    names = {name for text in texts for name in calls.findall(text)}
    assert len(names) > 10
    for name in sorted(names):
        state = StateDir(Path("/root/.local/state/vc-egpu") / name)
        socket = state.node_dir(ClusterSpec(name=name, real_nodes=2).real_node_names[-1]) / KUBELET_SOCKET
        assert len(str(socket)) <= LONGEST_SOCKET, name
