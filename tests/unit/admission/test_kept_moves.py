"""Moves of gangs that have ended: kept in the ConfigMap, and counted by the next leader."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, added, deleted, group, node, queue
from unit.admission.stage import StageClock
from unit.kube.tiny_api import tiny_api
from vc_egpu.admission.intake.sources import Sources
from vc_egpu.admission.kept.moves import KEPT_S, MOST, decode, encode
from vc_egpu.admission.leader import SoleLeader
from vc_egpu.admission.loop import Loop
from vc_egpu.admission.parts import Others, Parts
from vc_egpu.admission.settings import parse
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import Move
from vc_egpu.core.moving.movable import left_in_budget
from vc_egpu.core.trial.trial import Trial
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.codec import gang_notes
from vc_egpu.volcano.words import names

MAP = "/api/v1/namespaces/vc-egpu-system/configmaps/vc-egpu-usual-work"
WORDS = ["--defrag=waiting", "--defrag-per-hour=3"]


def test_what_is_kept_is_what_counts() -> None:
    moves = {"uid-2": Move(20.0, whom="ns/large"), "uid-1": Move(10.0).give_up(15.0), "uid-3": Move(30.0)}
    assert decode(encode(moves)) == moves
    assert list(decode(encode(moves))) == ["uid-1", "uid-2", "uid-3"], "oldest first"
    many = {f"uid-{number}": Move(float(number)) for number in range(MOST + 5)}
    assert next(iter(decode(encode(many)))) == "uid-5"


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "null", "7", "[" * 100_000,
        '{"version":1}', '{"version":true,"moves":{}}', '{"version":2,"moves":{}}',
    ],
)  # fmt: skip
def test_a_damaged_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_damaged_entries_are_left_out() -> None:
    moves = {"a": {"at": 5.0}, "b": {"at": -1}, "c": 7, "d" * 300: {"at": 5.0}, "e": {"at": 1e300}}
    assert decode(json.dumps({"version": 1, "moves": moves})) == {"a": Move(5.0)}


class Listed(Sources):
    """Watches whose first lists are complete."""

    def missing(self) -> list[str]:
        return []


class Leader:
    """One leadership on a server. It finds one node, one queue and these PodGroups."""

    def __init__(self, parts: Parts, loop: Loop, clock: StageClock) -> None:
        self.parts, self.loop, self.clock = parts, loop, clock

    def left(self) -> int:
        """How many more gangs may move within the hour."""
        trial = Trial(index_of(self.parts.mirror.snapshot()), self.parts.decisions.policy, time.time())
        found = left_in_budget(trial)
        trial.close()
        return found

    def turn(self) -> None:
        self.clock.passes(10)
        self.loop.turn(wait_s=0.0)

    def writes(self) -> None:
        """It has had the time to write what it keeps."""
        self.turn()
        while not self.parts.moves.rests():
            pass


@contextmanager
def leader(
    folder: Path, api: ApiConnection, groups: list[dict[str, object]], words: list[str]
) -> Iterator[Leader]:
    settings = replace(parse([*words, "--identity=test"]), models=folder)
    clock = StageClock()
    leadership = SoleLeader(epoch=5)
    parts = Parts.of(api, TABLE, settings, leadership, others=Others(sources=Listed, clock=clock))
    loop = Loop(parts, settings, leadership, threading.Event())
    documents = [("nodes", node()), ("queues", queue()), *(("podgroups", one) for one in groups)]
    for plural, document in documents:
        parts.inbox.put((plural, added(document)))
    loop.take_over()
    yield Leader(parts, loop, clock)
    parts.stop()


def moved(name: str, ago_s: float) -> Json:
    """The PodGroup of a gang that was moved so long ago."""
    text = gang_notes.encode_move(Move(time.time() - ago_s), f"group-{name}", {})
    return group(name, members=1, annotations={names.MOVED: text})


def test_a_gang_that_has_ended_counts_for_the_next_leader(tmp_path: Path) -> None:
    with tiny_api() as server:
        server.put(MAP, {"metadata": {"name": "vc-egpu-usual-work", "namespace": "vc-egpu-system"}})
        api = ApiConnection.connect(server.kubeconfig(tmp_path), timeout_s=30)
        groups = [moved("a", 60), moved("b", 70)]
        with leader(tmp_path, api, groups, WORDS) as first:
            assert first.left() == 1
            first.writes()
            first.parts.inbox.put(("podgroups", deleted(groups[0])))
            first.turn()
            assert first.left() == 1, "it still counts"
        assert set(decode(server.objects[MAP]["data"]["moves.json"])) == {"group-a", "group-b"}
        with leader(tmp_path, api, [], WORDS) as second:
            assert second.left() == 1, "both ended while no leader looked"
        with leader(tmp_path, api, groups[1:], WORDS) as third:
            assert third.left() == 1, "none counts twice"
        with leader(tmp_path, api, [], []) as fourth:
            assert not fourth.parts.mirror.snapshot().moves_of_gone, "nothing moves, so nothing is read"
        api.close()


def test_nothing_is_written_where_nothing_moved(tmp_path: Path) -> None:
    with tiny_api() as server:
        server.put(MAP, {"metadata": {"name": "vc-egpu-usual-work", "namespace": "vc-egpu-system"}})
        api = ApiConnection.connect(server.kubeconfig(tmp_path), timeout_s=30)
        with leader(tmp_path, api, [moved("old", KEPT_S + 60)], WORDS) as one:
            one.writes()
        assert "data" not in server.objects[MAP]
        api.close()
