"""Promises outlive the process, and names are never given twice."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from vc_egpu_node.containers.allocations import AllocationStore
from vc_egpu_node.files import StateError, lock_folder

RES = "volcano.sh/vgpu-h20"


def test_the_latest_promise_for_the_same_slots_is_in_force_after_a_restart(tmp_path: Path) -> None:
    store = AllocationStore(tmp_path)
    first = store.promise(RES, ["s1", "s2"])
    second = store.promise(RES, ["s2", "s1"])
    other = store.promise("volcano.sh/gpu-h20", ["s1", "s2"])
    assert len({first.name, second.name, other.name}) == 3
    again = AllocationStore(tmp_path)
    assert again.in_force(RES, {"s1", "s2"}) == second
    assert again.in_force(RES, {"s1"}) is None
    assert again.ids_in_use(RES) == {"s1", "s2"}
    third = again.promise(RES, ["s3"])
    assert third.number > other.number
    again.forget(second.name)
    assert again.in_force(RES, {"s1", "s2"}) is None
    assert {one.name for one in AllocationStore(tmp_path).all()} == {first.name, other.name, third.name}


def test_the_later_promise_is_in_force_whatever_it_is_called_and_outlives_the_earlier(tmp_path: Path) -> None:
    """Files are read by name, and a container's earlier promise is dropped while it runs with the later."""
    store = AllocationStore(tmp_path)
    store.adopt("b-earlier", RES, ["s1"], 1.0)
    store.adopt("a-later", RES, ["s1"], 2.0)
    again = AllocationStore(tmp_path)
    for one in (store, again):
        later = one.in_force(RES, ["s1"])
        assert later is not None
        assert later.name == "a-later"
    again.adopt("b-earlier", RES, ["s1"], 3.0)
    assert again.in_force(RES, ["s1"]) == later, "it is known already: nothing is promised anew"
    again.forget("b-earlier")
    assert again.in_force(RES, ["s1"]) == later
    assert again.ids_in_use(RES) == {"s1"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "name": 3, "ids": 5}'])
def test_a_broken_file_is_set_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert AllocationStore(tmp_path).all() == []
    assert [path.name for path in tmp_path.iterdir()] == ["x.broken"]
    assert [AllocationStore(tmp_path).tells_of(name) for name in ("x", "y")] == [True, False]


def test_a_later_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"version": 2}))
    assert AllocationStore(tmp_path).all() == []
    assert (tmp_path / "x.json").exists()


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.json.1234.tmp").write_text("half")
    AllocationStore(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_agents_take_turns(tmp_path: Path) -> None:
    held = lock_folder(tmp_path, 0.1)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(_try_lock, (str(tmp_path),)) == "taken"
        held.close()
        assert pool.apply(_try_lock, (str(tmp_path),)) == "ours"


def _try_lock(folder: str) -> str:
    try:
        lock_folder(Path(folder), 0.2)
    except StateError:
        return "taken"
    return "ours"


def test_a_promise_that_cannot_be_kept_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = AllocationStore(tmp_path)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.promise(RES, ["s1"])
    assert store.in_force(RES, {"s1"}) is None
    assert list(tmp_path.iterdir()) == []
