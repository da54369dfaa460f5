"""A snapshot that was written and read again is the same one, and the same decision follows from it."""

import dataclasses
import math
import random
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Literal, NewType

import pytest
import seeds
from hypothesis import given
from hypothesis import strategies as st
from property import generate
from property.test_world import Life
from vc_egpu.core.decide import decide
from vc_egpu.core.layouts.table import Layout, Place, Template
from vc_egpu.core.model.cluster import Card, CardAsk, Snapshot
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.report import snapshot_codec, values_codec
from vc_egpu.report.snapshot_codec import DamagedSnapshotError, OtherFormatError
from vc_egpu.report.values_codec import DamagedError

NOW = 1000.0


def again(snapshot: Snapshot) -> Snapshot:
    """Written to a file and read from it."""
    return snapshot_codec.from_json(snapshot_codec.to_json(snapshot_codec.encode(snapshot)))


# --- whatever the types allow --------------------------------------------------------------------


LAYOUTS = (
    Layout("halves", {"slices": 2}, (Template("half", 512, 50, {"slices": 1}),), whole=False),
    Layout(
        "placed",
        {"slices": 4},
        (
            Template("small", 100, 25, {"slices": 1}, (Place(0, 1), Place(1, 1), Place(2, 1))),
            Template("large", 200, 50, {"slices": 2}, (Place(0, 2), Place(2, 2))),
        ),
    ),
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, by the types of its fields: also of fields that do not exist yet."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return of_hint(kind)
    if kind is Layout:  # it refuses what contradicts itself
        return st.sampled_from(LAYOUTS)
    hints = typing.get_type_hints(kind)
    fields = {one.name: of_hint(hints[one.name]) for one in dataclasses.fields(kind) if one.compare}
    if kind is Card:
        fields |= {"memory_mib": st.integers(1, 1 << 70), "index": st.integers(0, 99)}
    if kind is CardAsk:
        few = st.integers(1, 9)
        fields |= {"cards": few, "memory_mib": few, "cores_percent": st.integers(0, 100)}
    return st.builds(kind, **fields)


def of_hint(kind: Any) -> st.SearchStrategy[Any]:
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    found: st.SearchStrategy[Any]
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        found = st.deferred(lambda: values_of(kind))
    elif kind is float:
        found = st.floats(allow_nan=False)
    elif origin is tuple and arguments[1:] == (...,):
        found = st.lists(of_hint(arguments[0]), max_size=2).map(tuple)
    elif origin is tuple:
        found = st.tuples(*map(of_hint, arguments))
    elif origin is frozenset:
        found = st.frozensets(of_hint(arguments[0]), max_size=3)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        found = st.dictionaries(of_hint(arguments[0]), of_hint(arguments[1]), max_size=2)
    elif arguments and origin is not Literal:
        found = st.one_of(*map(of_hint, arguments))
    else:
        found = st.from_type(kind)
    return found


def named(snapshot: Snapshot) -> Snapshot:
    """The same values, each under its own name."""
    return dataclasses.replace(
        snapshot,
        nodes={node.name: node for node in snapshot.nodes.values()},
        pods={pod.uid: pod for pod in snapshot.pods.values()},
        gangs={gang.key: gang for gang in snapshot.gangs.values()},
        queues={queue.name: queue for queue in snapshot.queues.values()},
        kept={pod.uid: pod for pod in snapshot.kept.values()},
    )


@given(values_of(Snapshot).map(named))
def test_nothing_is_lost(snapshot: Snapshot) -> None:
    assert again(snapshot) == snapshot


@pytest.mark.parametrize("kind", [Plan, Verdict, Policy])
@given(data=st.data())
def test_nothing_is_lost_of_what_stands_beside_it(kind: Any, data: st.DataObject) -> None:
    value = data.draw(values_of(kind))
    assert values_codec.decode(values_codec.encode(value, kind), kind) == value


# --- clusters ------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32))
def test_the_same_decision_follows(seed: int) -> None:
    snapshot = generate.case(seed).snapshot
    found = again(snapshot)
    assert found == snapshot
    assert decide(found, Policy(), NOW) == decide(snapshot, Policy(), NOW)


TWO_ALIKE = 347565909
"""Two nodes have equally little host memory, and their rows lie otherwise in a copy."""


@pytest.mark.parametrize("seed", [*seeds.fresh(12), TWO_ALIKE])
def test_the_same_decision_follows_all_along_a_life(seed: int) -> None:
    """With plans in force, suspended gangs, kept members and shares that only agents know of."""
    life = Life(seed)
    for _ in range(40):
        life.step()
        snapshot = life.world.snapshot()
        found = again(snapshot)
        assert found == snapshot
        assert decide(found, life.world.policy, life.world.now) == decide(
            snapshot, life.world.policy, life.world.now
        )


# --- documents that are none ---------------------------------------------------------------------


def document(seed: int = 3) -> dict[str, Any]:
    written: dict[str, Any] = snapshot_codec.encode(generate.case(seed).snapshot)
    return written


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.5])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(OtherFormatError, match="this program reads version 1"):
        snapshot_codec.decode({**document(), "version": version})


@pytest.mark.parametrize("other", [None, [], 5, {}, {"format": "vc-egpu-report", "version": 1}])
def test_something_else_is_refused(other: object) -> None:
    with pytest.raises(OtherFormatError, match="no snapshot"):
        snapshot_codec.decode(other)


def test_a_file_that_was_cut_off_is_refused() -> None:
    text = snapshot_codec.to_json(document())
    for length in (0, 1, len(text) // 2, len(text) - 1):
        with pytest.raises(DamagedSnapshotError, match="damaged"):
            snapshot_codec.from_json(text[:length])
    with pytest.raises(DamagedSnapshotError):
        snapshot_codec.from_json(b"\xff\xfe{")
    with pytest.raises(DamagedSnapshotError):
        snapshot_codec.from_json("[" * 100_000)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each value in a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in parts for place in places(one, (*path, key)))]


@pytest.mark.parametrize("seed", seeds.fresh(30))
def test_a_value_of_a_wrong_type_is_refused_by_its_place(seed: int) -> None:
    rng, damaged = random.Random(seed), document(seed % 3)["values"]
    path = rng.choice(places(damaged)[1:])
    holder = damaged
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = object
    with pytest.raises(DamagedSnapshotError) as caught:
        snapshot_codec.decode({"format": snapshot_codec.FORMAT, "version": 1, "values": damaged})
    assert ".".join(map(str, path)) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda v: v["pods"].pop("revision", None) or v.pop("revision"),
            "Snapshot lacks its field 'revision'",
        ),
        (lambda v: v.update(rubbish=1), "Snapshot has no field 'rubbish'"),
        (lambda v: v["nodes"]["n0"]["cards"][0].update(memory_mib=0), r"nodes\.n0\.cards\.0: card GPU-0-0"),
        (lambda v: v["nodes"]["n0"].update(mode="LOUD"), r"nodes\.n0\.mode: one of SHARED, NATIVE is wanted"),
        (lambda v: v["nodes"]["n0"].update(name="n1"), r"nodes\.n0: it calls itself 'n1'"),
        (lambda v: v["nodes"]["n0"].update(ready=1), r"nodes\.n0\.ready: bool is wanted, not 1"),
    ],
)
def test_damage_is_told(change: Any, words: str) -> None:
    damaged = document()
    change(damaged["values"])
    with pytest.raises(DamagedSnapshotError, match=words):
        snapshot_codec.decode(damaged)


def test_a_field_that_came_later_has_its_default() -> None:
    older = document()
    for node in older["values"]["nodes"].values():
        del node["max_sharers"]
    assert {node.max_sharers for node in snapshot_codec.decode(older).nodes.values()} == {100}


# --- types that the core may get -----------------------------------------------------------------


class Cause(IntEnum):
    PRIORITY = 1
    HEALTH = 2


class Word(Enum):
    A = "a"


@dataclass(frozen=True)
class Short:
    by: int


@dataclass(frozen=True)
class Closed:
    queue: str
    since: float = 0.0


@dataclass(frozen=True)
class Later:
    finding: Short | Closed
    perhaps: Short | Closed | None
    causes: Mapping[Cause, int]
    inner: "Later | None" = None
    words: frozenset[Word] = frozenset()
    kind: Literal["x", 1] = 1
    cache: dict[str, object] | None = dataclasses.field(default=None, compare=False)


def test_types_that_the_core_may_get_need_no_code() -> None:
    value = Later(Closed("q", math.inf), None, {Cause.HEALTH: 1 << 80}, words=frozenset({Word.A}), kind="x")
    value = Later(Short(2), Closed("r", -math.inf), {}, inner=value, cache={"not": "kept"})
    written = values_codec.encode(value, Later)
    assert values_codec.decode(written, Later) == value
    assert values_codec.decode(written, Later).cache is None
    assert (written["finding"], written["perhaps"]) == (
        {"class": "Short", "by": 2},
        {"class": "Closed", "queue": "r", "since": "-Infinity"},
    )
    written["inner"]["finding"]["class"] = "Long"
    with pytest.raises(DamagedError, match=r"inner\.finding: as class one of Short, Closed is wanted"):
        values_codec.decode(written, Later)


def test_equal_snapshots_give_equal_documents() -> None:
    one, other = (values_codec.encode(frozenset(words), frozenset[str]) for words in ("abcd", "dcba"))
    assert one == other == ["a", "b", "c", "d"]


@pytest.mark.parametrize("kind", [object, list[int], Mapping[float, int], int | Short])
def test_what_has_no_form_is_told_at_once(kind: Any) -> None:
    with pytest.raises(TypeError, match="has no form in JSON"):
        values_codec.encode(None, kind)
