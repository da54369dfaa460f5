"""The guard of a node's shares: its settings, and why it lets no pod in."""

import platform
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.node.built import ELF
from vc_egpu.volcano.words.node_policy import Policy, PolicyError, parse_policy
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.guard import Guard, Protection, protection_of, timings_of
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.limits_door import SOCKET_NAME
from vc_egpu_node.settings.config import Settings, parse_flags
from vc_egpu_node.vendors.nvidia.bundle import bundle

NVIDIA = bundle(Settings("n"))


def test_settings_of_the_node() -> None:
    policy = parse_policy(
        "defaults: {secondWall: kill, hangS: 20, lowFloorAfterS: 0.5, inFlightUs: 250}", "n"
    )
    assert policy.second_wall == "kill"
    timings = timings_of(policy)
    assert (timings.hang_ms, timings.low_floor_after_ms, timings.in_flight_us) == (20_000, 500, 250)
    assert timings_of(Policy()) == Timings()
    for key in ("secondWall", "isolation"):
        with pytest.raises(PolicyError, match=key):
            parse_policy(f"defaults: {{{key}: maybe}}", "n")
    assert parse_flags(["--node-name=n"]).library is None
    assert parse_flags(["--node-name=n", "--library=/x/y.so", "--run-dir=/r"]).run_dir == Path("/r")


@pytest.mark.parametrize("name", [None, "nothing.so"])
def test_a_node_without_a_library_says_so(
    tmp_path: Path, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    library = None if name is None else tmp_path / name
    settings = Settings("n", tmp_path, library=library, state_dir=tmp_path / "s", run_dir=tmp_path / "r")
    observe: Callable[[], Observation] = Observation
    guard = protection_of(settings, NVIDIA, policy=Policy, observation=observe)
    assert guard.isolation is None
    assert not (tmp_path / "r").exists()
    if name is None:
        assert (guard.problem, guard.closed) == ("", "")
        assert "nothing limits them" in caplog.text
    else:
        assert guard.problem == guard.closed
        assert "no pod gets a share: there is no" in guard.closed
        assert not guard.passing


@pytest.mark.parametrize("which", ["s", "r"])
def test_a_disk_that_takes_nothing_lets_nobody_go_unlimited(tmp_path: Path, source: Path, which: str) -> None:
    """Neither what is installed nor the pages: a new process tries again."""
    (tmp_path / which).write_text("in the way")
    settings = Settings("n", tmp_path, library=source, state_dir=tmp_path / "s", run_dir=tmp_path / "r")
    source.write_bytes(ELF[:-2] + {"x86_64": 62, "aarch64": 183}[platform.machine()].to_bytes(2, "little"))
    guard = protection_of(settings, NVIDIA, policy=Policy, observation=Observation)
    assert guard.isolation is None
    assert "no pod gets a share" in guard.closed
    assert guard.passing


def test_a_test_build_is_used_and_named(tmp_path: Path, source: Path) -> None:
    settings = Settings("n", tmp_path, library=source, state_dir=tmp_path / "s", run_dir=tmp_path / "r")
    here = ELF[:-2] + {"x86_64": 62, "aarch64": 183}[platform.machine()].to_bytes(2, "little")
    source.write_bytes(here + b"getenv EGPU_TEST_ROOT")
    guard = protection_of(settings, NVIDIA, policy=Policy, observation=Observation)
    assert guard.isolation is not None
    assert guard.problem == f"{source} is a test build: programs can choose their own limits"
    source.write_bytes(here)
    assert protection_of(settings, NVIDIA, policy=Policy, observation=Observation).problem == ""


def test_the_door_for_the_runtimes_hook_is_open_while_the_agent_works(tmp_path: Path, source: Path) -> None:
    settings = Settings("n", tmp_path, library=source, state_dir=tmp_path / "s", run_dir=tmp_path / "r")
    source.write_bytes(ELF[:-2] + {"x86_64": 62, "aarch64": 183}[platform.machine()].to_bytes(2, "little"))
    protection = protection_of(settings, NVIDIA, policy=Policy, observation=Observation)
    assert "egpu-limits is not next to the library" in protection.no_driver_limits(["GPU-1"])
    (tmp_path / "s" / "containers").mkdir(parents=True, exist_ok=True)
    grants = GrantFolder(tmp_path / "cdi", tmp_path / "s" / "containers", protection.isolation)
    guard = Guard(protection.isolation, grants, None, None)
    door = tmp_path / "r" / SOCKET_NAME
    guard.start()
    assert stat.filemode(door.stat().st_mode) == "srw-------", "only the host's root may ask"
    with socket.socket(socket.AF_UNIX) as hook:
        hook.connect(str(door))
        hook.sendall(b"nobody 1\n")
        assert hook.recv(200) == b"the node agent knows of no such container\n"
    guard.stop()
    assert not door.exists()
    assert Protection().no_driver_limits([]) == "this agent has no means for it"
