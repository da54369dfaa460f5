"""A strict umask and a proxy belong to the user, not to the nodes and clients of the cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from localcluster.context import Context
from localcluster.procs import ProcessIdentity
from localcluster.spec import ClusterSpec
from localcluster.state import ClusterRecord, StateDir
from localcluster.surroundings import without_proxy

E2E = Path(__file__).parents[3] / "e2e"
SCRIPT = """
import os
from localcluster import ClusterSpec, LocalCluster, LocalClusterError
os.umask(0o077)
try:
    {call}
except LocalClusterError as error:
    print(error)
print(oct(os.umask(0)))
"""


def _said(call: str, state: Path) -> list[str]:
    """The error, and the umask that is left."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(call=call)],
        env=os.environ | {"PYTHONPATH": str(E2E), "VC_EGPU_STATE": str(state)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout.splitlines()


def test_the_umask_is_the_usual_one_in_a_cluster_that_is_left_up(tmp_path: Path) -> None:
    error, umask = _said("LocalCluster.attach('nosuch')", tmp_path)
    assert "no cluster 'nosuch'" in error
    assert umask == "0o22"


def test_the_umask_is_the_usual_one_in_a_cluster_that_is_started(tmp_path: Path) -> None:
    """As far as a version that is not there."""
    error, umask = _said("LocalCluster.up(ClusterSpec(kubernetes='1.2'))", tmp_path)
    assert "'1.2'" in error
    assert umask == "0o22"


def _context(*, real_nodes: int) -> Context:
    spec = ClusterSpec(real_nodes=real_nodes, services=False, dns=False)
    record = ClusterRecord(spec, 200 if real_nodes else None, {}, "up", ProcessIdentity.of(os.getpid()))
    return Context(StateDir(Path("/state/x")), record)


@pytest.mark.parametrize("variable", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_a_cluster_is_reached_past_the_users_proxy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    user = {variable: "http://proxy:3128", "no_proxy": "intern.example", "NO_PROXY": "other.example"}
    said = without_proxy(_context(real_nodes=2).all_addresses, user)
    assert set(said) == {"no_proxy", "NO_PROXY"}
    # What Go's programs read as a range; Python compares names.
    assert "10.200.0.0/16" in said["NO_PROXY"].split(",")
    monkeypatch.setenv("no_proxy", said["no_proxy"])
    for host in ("10.200.0.1", "10.200.0.2", "10.200.0.11", "127.0.0.1", "a.intern.example", "other.example"):
        assert urllib.request.proxy_bypass(host), host
    assert not urllib.request.proxy_bypass("example.org")


def test_a_cluster_without_nodes_is_on_this_machine() -> None:
    said = without_proxy(_context(real_nodes=0).all_addresses, {"https_proxy": "http://proxy:3128"})
    assert said["NO_PROXY"] == "localhost,127.0.0.1"


def test_where_there_is_no_proxy_nothing_is_set() -> None:
    assert without_proxy(["10.200.0.1"], {"no_proxy": "x", "PATH": "/bin"}) == {}


def test_what_is_said_twice_stands_once() -> None:
    first = without_proxy(["10.200.0.1"], {"http_proxy": "http://proxy:3128"})
    assert without_proxy(["10.200.0.1"], {"http_proxy": "http://proxy:3128", **first}) == first
