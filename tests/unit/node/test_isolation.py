"""The library, the edits that bring it into a container, and pages that follow their neighbours."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from unit.node.built import ELF
from unit.node.granted import grant
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.control import Control, Timings
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.pages import ACTIVITY, KINDS, USAGE, SharedPages
from vc_egpu_node.vendors.base import Edits, LibraryError
from vc_egpu_node.vendors.nvidia.preload import (
    HOOK_NAME,
    LIBRARY_NAME,
    STUB_NAME,
    install,
)

# --- the library -------------------------------------------------------------------------------------


def test_a_version_is_installed_once_and_never_replaced(tmp_path: Path, source: Path) -> None:
    first = install(source, tmp_path / "versions", "x86_64")
    places = {str(path.relative_to(first.folder / "root")) for path in first.folder.rglob(LIBRARY_NAME)}
    assert places == {f"{lib}/{LIBRARY_NAME}" for lib in ("lib/x86_64-linux-gnu", "lib64", "lib")}
    assert (first.folder / "ld.so.preload").read_text() == "/usr/local/vc-egpu/$LIB/libvgpu-egpu.so\n"
    inode = (first.folder / "root/lib64" / LIBRARY_NAME).stat().st_ino
    assert install(source, tmp_path / "versions", "x86_64") == first
    assert (first.folder / "root/lib64" / LIBRARY_NAME).stat().st_ino == inode
    source.write_bytes(ELF + b"two")
    second = install(source, tmp_path / "versions", "x86_64")
    assert second.digest != first.digest
    assert (first.folder / "root/lib64" / LIBRARY_NAME).read_bytes() == ELF + b"one"
    second.drop_others({second.digest})
    assert [path.name for path in (tmp_path / "versions").iterdir()] == [second.digest]


def test_what_lies_beside_the_library_goes_with_it(tmp_path: Path, source: Path) -> None:
    source.with_name(STUB_NAME).write_bytes(b"stub")
    source.with_name(HOOK_NAME).write_bytes(b"hook")
    library = install(source, tmp_path / "versions", "x86_64")
    assert (library.folder / "root/lib/i386-linux-gnu" / LIBRARY_NAME).read_bytes() == b"stub"
    assert library.hook is not None
    assert os.access(library.hook, os.X_OK)
    assert [mount["containerPath"] for mount in library.mounts()] == ["/usr/local/vc-egpu"]
    (hook,) = library.hooks(Path("/x/merged"))
    assert (hook["hookName"], hook["path"]) == ("createContainer", str(library.hook))
    assert hook["args"][1:] == ["/usr/local/vc-egpu/$LIB/libvgpu-egpu.so", "/x/merged"]


DAMAGES = ("gone", "short", "folder gone", "folder closed", "hook not executable")


def damage(version: Path, how: str) -> None:
    """What a repaired file system, or somebody who tidies up, leaves of a version."""
    path = version / "root/lib64" / LIBRARY_NAME
    match how:
        case "gone":
            path.unlink()
        case "short":
            os.truncate(path, 3)
        case "folder gone":
            shutil.rmtree(version)
        case "folder closed":
            path.parent.chmod(0o700)  # others than root could not reach it
        case "hook not executable":
            (version / HOOK_NAME).chmod(0o644)


def whole(version: Path) -> bool:
    path = version / "root/lib64" / LIBRARY_NAME
    reached = path.parent.stat().st_mode & 0o005 == 0o005
    return reached and path.read_bytes() == ELF + b"one" and os.access(version / HOOK_NAME, os.X_OK)


@pytest.mark.parametrize("how", [*DAMAGES, "garbled"])
def test_a_version_is_not_believed_by_its_name(tmp_path: Path, source: Path, how: str) -> None:
    """A library that is named and cannot be loaded is a line on stderr: the program runs unlimited."""
    source.with_name(HOOK_NAME).write_bytes(b"hook")
    first = install(source, tmp_path / "versions", "x86_64")
    damage(first.folder, how)
    if how == "garbled":
        (first.folder / "root/lib64" / LIBRARY_NAME).write_bytes(ELF + b"eno")
    assert install(source, tmp_path / "versions", "x86_64") == first
    assert whole(first.folder)


@pytest.mark.parametrize(
    ("content", "machine", "text"),
    [
        (None, "x86_64", "there is no "),
        (b"", "x86_64", "is no 64-bit library for x86_64"),
        (ELF, "aarch64", "is no 64-bit library for aarch64"),
        (ELF, "riscv64", "there is no library for riscv64"),
    ],
)
def test_what_is_no_library_for_this_machine(
    tmp_path: Path, source: Path, content: bytes | None, machine: str, text: str
) -> None:
    source.unlink()
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(LibraryError, match=text):
        install(source, tmp_path / "versions", machine)
    assert not list(tmp_path.glob("versions/*"))


# --- the container's edits ---------------------------------------------------------------------------


class Node:
    """Grants and pages, without anything around them."""

    def __init__(self, root: Path, source: Path) -> None:
        self.root = root
        self.source = source
        self.timings = Timings()
        self.buses = {"GPU-0": "00000000:1A:00.0"}
        self.restart()

    def restart(self) -> None:
        self.isolation = Isolation(
            install(self.source, self.root / "library", "x86_64"),
            self.root / "containers",
            SharedPages(self.root / "run"),
            pci_bus_ids=lambda: self.buses,
            timings=lambda: self.timings,
        )
        self.grants = GrantFolder(self.root / "cdi", self.root / "containers", self.isolation)

    def let_in(self, one: Grant) -> None:
        self.grants.reserve(one)
        self.grants.write(one, Edits(), {})

    def page(self, name: str) -> Control:
        page = self.isolation.file(name).read()
        assert page is not None
        return page

    def peers(self, name: str) -> list[str]:
        return [peer.name for peer in self.page(name).peers]

    def edits(self, name: str) -> Any:
        return json.loads(self.grants.path(name).read_text())["devices"][0]["containerEdits"]


@pytest.fixture
def node(tmp_path: Path, source: Path) -> Node:
    return Node(tmp_path, source)


def test_everything_is_there_before_the_container_starts(node: Node) -> None:
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    mounts = {mount["containerPath"]: mount for mount in node.edits("a")["mounts"]}
    assert set(mounts) == {
        "/etc/egpu",
        "/usr/local/vc-egpu",
        "/etc/ld.so.preload",
        "/run/egpu/seed",
        "/run/egpu/usage",
        "/run/egpu/activity",
        "/run/egpu/peers",
    }
    assert all(Path(mount["hostPath"]).exists() for mount in mounts.values())
    writable = {path for path, mount in mounts.items() if "ro" not in mount["options"]}
    assert writable == {"/run/egpu/usage", "/run/egpu/activity"}
    assert "noexec" not in mounts["/usr/local/vc-egpu"]["options"]
    assert (Path(mounts["/etc/egpu"]["hostPath"]) / "control").stat().st_size == abi.CONTROL_BYTES
    page = node.page("a")
    assert (page.limits[0].memory_bytes, page.limits[0].pci_bus_id) == (1000 << 20, "00000000:1A:00.0")


def _limits(page: Control | None) -> list[int]:
    assert page is not None
    return [limit.memory_bytes >> 20 for limit in page.limits]


def test_what_binds_a_container_stands_in_a_second_file(node: Node) -> None:
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    seed = node.isolation.seed("a")
    assert seed.read() == node.page("a")
    inode = seed.path.stat().st_ino
    node.let_in(grant("b", ("GPU-0", 500, 20)))
    assert seed.read() != node.page("a")  # a neighbour binds nobody
    lowered = grant("a", ("GPU-0", 700, 20))
    node.isolation.refresh([lowered, grant("b", ("GPU-0", 500, 20))])
    assert _limits(seed.read()) == _limits(node.page("a")) == [700]
    assert seed.path.stat().st_ino == inode  # it is mounted


def test_a_container_from_before_there_were_seeds_goes_on_without(node: Node) -> None:
    one = grant("a", ("GPU-0", 1000, 20))
    node.let_in(one)
    node.isolation.seed("a").path.unlink()
    node.restart()
    node.grants.record(one, Edits(), {})
    assert "/run/egpu/seed" not in {mount["containerPath"] for mount in node.edits("a")["mounts"]}
    node.isolation.refresh([grant("a", ("GPU-0", 700, 20))])
    assert not node.isolation.seed("a").path.exists()


@pytest.mark.parametrize("which", ["control", "seed"])
@pytest.mark.parametrize("damage", [b"", b"short", bytes(abi.CONTROL_BYTES), b"x" * abi.CONTROL_BYTES, None])
def test_limits_that_were_damaged_are_written_again(node: Node, which: str, damage: bytes | None) -> None:
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    path = node.root / "containers" / "a" / which
    said = node.page("a")
    assert node.isolation.mend("a") == ()
    path.unlink() if damage is None else path.write_bytes(damage)
    (fault,) = node.isolation.mend("a")
    assert fault == (which, f"its {which} page did not say what was written: it does again")
    assert node.page("a") == node.isolation.seed("a").read() == said
    assert node.isolation.mend("a") == ()
    node.grants.release("a")
    assert node.isolation.mend("a") == node.isolation.pages.mend("a")


@pytest.mark.parametrize("which", ["control", "seed"])
def test_a_change_that_could_not_be_written_is_written_later(node: Node, which: str) -> None:
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    path = node.root / "containers" / "a" / which
    path.unlink()
    path.mkdir()
    node.isolation.refresh([grant("a", ("GPU-0", 700, 20))])
    fault = node.isolation.mend("a")[0]
    assert fault.page == which
    assert "cannot be put right" in fault.text
    path.rmdir()
    assert [fault.page for fault in node.isolation.mend("a")] == [which]
    for file in (node.isolation.file("a"), node.isolation.seed("a")):
        page = file.read()
        assert page is not None
        assert page.limits[0].memory_bytes == 700 << 20
    assert node.isolation.mend("a") == ()


@pytest.mark.parametrize("how", DAMAGES)
def test_no_container_starts_on_a_library_that_is_not_whole(tmp_path: Path, source: Path, how: str) -> None:
    source.with_name(HOOK_NAME).write_bytes(b"hook")
    node = Node(tmp_path, source)
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    damage(node.isolation.library.folder, how)
    node.let_in(grant("b", ("GPU-0", 1000, 20)))
    assert whole(node.isolation.library.folder)
    damage(node.isolation.library.folder, how)
    source.unlink()
    with pytest.raises(OSError, match="there is no"):
        node.let_in(grant("c", ("GPU-0", 1000, 20)))
    assert "c" not in node.isolation.paged


def test_native_cards_go_without(node: Node) -> None:
    node.let_in(grant("a", ("GPU-0", 98304, 100), native=True))
    assert [mount["containerPath"] for mount in node.edits("a")["mounts"]] == ["/etc/egpu"]
    assert node.isolation.paged == frozenset()


def test_without_a_library_nothing_changes(tmp_path: Path) -> None:
    folder = GrantFolder(tmp_path / "cdi", tmp_path / "containers")
    folder.write(grant("a", ("GPU-0", 1, 1)), Edits(), {})
    edits = json.loads(folder.path("a").read_text())["devices"][0]["containerEdits"]
    assert set(edits) == {"env", "mounts"}
    assert len(edits["mounts"]) == 1


def test_neighbours_hear_of_who_comes_and_goes(node: Node) -> None:
    low = grant("low", ("GPU-0", 1000, 20), share_class="low")
    node.let_in(low)
    node.let_in(grant("far", ("GPU-5", 1000, 20)))
    far = node.isolation.file("far").path.read_bytes()
    assert node.peers("low") == []
    node.let_in(grant("high", ("GPU-0", 1000, 20), share_class="high"))
    assert node.peers("low") == ["high"]
    assert node.page("low").limits[0].flags == abi.CARD_HIGH_HERE
    assert node.peers("high") == ["low"]
    node.grants.release("high")
    assert node.peers("low") == []
    assert node.page("low").limits[0].flags == 0
    assert node.isolation.file("far").path.read_bytes() == far
    assert not (node.root / "containers" / "high").exists()
    assert not any(node.isolation.pages.path(kind, "high").exists() for kind in KINDS)


def test_a_page_that_cannot_be_made_lets_nobody_in(node: Node) -> None:
    node.let_in(grant("a", ("GPU-0", 1, 1)))
    many = grant("many", *((f"GPU-{n}", 1, 1) for n in range(17)))
    node.grants.reserve(many)
    with pytest.raises(ValueError, match="17 cards"):
        node.grants.write(many, Edits(), {})
    node.grants.release("many")
    assert node.peers("a") == []
    assert node.isolation.paged == {"a"}


def test_a_restarted_agent_leaves_pages_as_they_are(node: Node) -> None:
    for name in ("a", "b"):
        node.let_in(grant(name, ("GPU-0", 1000, 20)))
    node.isolation.learnt("a", "GPU-0", 400 << 20)
    node.isolation.refresh(node.grants.all())
    usage = node.isolation.pages.path(USAGE, "a")
    usage.write_bytes(b"u" * USAGE.size)
    before = [node.isolation.file(name).path.read_bytes() for name in ("a", "b")]
    node.buses = {}  # the driver does not answer yet
    node.restart()
    node.isolation.refresh(node.grants.all())
    assert [node.isolation.file(name).path.read_bytes() for name in ("a", "b")] == before
    assert usage.read_bytes() == b"u" * USAGE.size
    node.let_in(grant("c", ("GPU-0", 1000, 20)))
    assert node.peers("a") == ["b", "c"]
    assert node.page("c").limits[0].context_bytes == 400 << 20


def test_limits_follow_also_where_somebody_cleared_the_pages_folder(node: Node) -> None:
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    shutil.rmtree(node.root / "run")
    node.restart()
    node.timings = Timings(lease_ms=55)
    node.isolation.refresh(node.grants.all())
    assert node.page("a").timings.lease_ms == 55


def test_a_container_that_starts_again_finds_empty_pages_in_the_same_files(node: Node) -> None:
    one = grant("a", ("GPU-0", 1000, 20))
    node.let_in(one)
    activity = node.isolation.pages.path(ACTIVITY, "a")
    inode = activity.stat().st_ino
    activity.write_bytes(b"x" * ACTIVITY.size)
    node.let_in(one)
    assert activity.read_bytes() == bytes(ACTIVITY.size)
    assert activity.stat().st_ino == inode
    assert node.peers("a") == []


def test_a_version_stays_while_a_container_may_run_with_it(node: Node, source: Path) -> None:
    one = grant("a", ("GPU-0", 1000, 20))
    node.let_in(one)
    old = node.isolation.library.folder
    source.write_bytes(ELF + b"newer")
    node.restart()
    node.let_in(one)  # started again, or only its record was written: not to be told apart
    node.isolation.drop_unused_versions()
    assert old.exists()
    node.grants.release("a")
    node.isolation.drop_unused_versions()
    assert not old.exists()
    assert node.isolation.library.folder.exists()


def test_no_version_goes_while_a_container_hides_which_it_uses(node: Node, source: Path) -> None:
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    notes = node.root / "containers" / "a" / "library-versions"
    old = node.isolation.library.folder
    (old.parent / "unused").mkdir()
    notes.unlink()
    notes.mkdir()  # as good as one on which somebody holds a lease: it cannot be read
    node.isolation.drop_unused_versions()
    assert {path.name for path in old.parent.iterdir()} == {old.name, "unused"}
    notes.rmdir()
    node.isolation.drop_unused_versions()
    assert {path.name for path in old.parent.iterdir()} == {old.name}


def test_settings_reach_every_page(node: Node) -> None:
    node.let_in(grant("a", ("GPU-0", 1000, 20)))
    node.timings = Timings(lease_ms=77)
    node.isolation.refresh(node.grants.all())
    assert node.page("a").timings.lease_ms == 77


def test_lowered_memory_is_remembered(node: Node) -> None:
    before, after = grant("a", ("GPU-0", 1000, 20)), grant("a", ("GPU-0", 600, 20))
    node.let_in(before)
    node.isolation.lower(before, after)
    node.restart()
    assert node.isolation.ceilings("a") == {"GPU-0": 1000}
    node.isolation.lower(after, grant("a", ("GPU-0", 500, 20)))
    assert node.isolation.ceilings("a") == {"GPU-0": 1000}
    (node.root / "containers" / "a" / "lowered.json").write_text("[1]")
    assert node.isolation.ceilings("a") == {"GPU-0": 1000}  # whatever became of the file
    node.restart()
    assert node.isolation.ceilings("a") == {}
