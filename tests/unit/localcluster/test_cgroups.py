"""Control groups, on machines that have none, or none to write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from localcluster import ClusterSpec, LocalClusterError, cgroups, teardown
from localcluster.state import ClusterRecord, StateDir


def test_a_cluster_goes_where_there_are_no_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of simulated nodes needs none to run, either."""
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path / "none")
    state = StateDir(tmp_path / "t1")
    state.write(ClusterRecord(ClusterSpec(name="t1"), None, {}, "up", None))
    teardown.remove(state, lambda _line: None)
    assert not state.path.exists()
    assert cgroups.leftovers() == set()


def test_control_groups_that_cannot_be_made_are_named_with_what_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder where nobody may make one stands for a container that is not privileged."""
    monkeypatch.setattr(cgroups, "MOUNT", Path("/proc/sys"))
    with pytest.raises(LocalClusterError, match=r"/vc-egpu cannot be made .*privileged"):
        cgroups.create("t1")
