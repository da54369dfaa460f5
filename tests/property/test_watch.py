"""A live copy against the server's own books, whatever the server and the network do in between.

Whenever the server behaves again for long enough, the copy is what the server has, and so is what somebody
has who only heard of the changes.
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.kube.nasty_api import LIST_FAULTS, WATCH_FAULTS, Fault, NastyApi, identity, nasty_api
from vc_egpu.kube import ApiConnection, Backoff, Change, ChangeKind, Json, Reflector
from vc_egpu.kube.resources import CONFIG_MAPS

SOON_S: Final = 20.0
AWHILE_S: Final = 0.05
STANDING: Final = {"stand still", "half a line"}
"""Only silence tells of these. Nothing else may need it."""
Written = tuple[str, str, bool]
"""A name, its new value (empty: it is deleted), and whether it is another one of the same name."""


class Hearsay:
    """What one knows who hears of changes only; refuses what cannot be."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        self.known: dict[str, tuple[str, str]] = {}
        self.wrong: list[str] = []

    def hear(self, change: Change) -> None:
        name, (uid, version) = change.object["metadata"]["name"], identity(change.object)
        with self.turn:
            known = self.known.get(name)
            if (change.kind is ChangeKind.ADDED) != (known is None):
                self.wrong.append(f"{name} was {change.kind.value} and known as {known}")
            if known is not None and uid != known[0]:
                self.wrong.append(f"{name} was {change.kind.value} and is another one")
            if known is not None and change.kind is not ChangeKind.DELETED and int(version) <= int(known[1]):
                self.wrong.append(f"{name} went from {known[1]} to {version}")
            if change.kind is ChangeKind.DELETED:
                self.known.pop(name, None)
            else:
                self.known[name] = (uid, version)
            self.turn.notify_all()

    def catch_up(self, api: NastyApi, timeout_s: float) -> bool:
        with self.turn:
            return self.turn.wait_for(lambda: self.known == api.state(), timeout_s)


def small(document: Json) -> Json:
    """Keeps little, and fails on some objects."""
    value = document["data"]["v"]
    if value == "poison":
        raise ValueError("who would have thought of that")
    return {"metadata": document["metadata"], "data": {"v": value}}


@dataclass(frozen=True)
class Round:
    """What happens at once, as far as a client can see; it is looked at after a while."""

    changes: tuple[Written, ...]
    hang_up: bool = False
    compact: bool = False
    faults: tuple[Fault, ...] = ()

    def happen(self, api: NastyApi) -> None:
        with api.turn:
            if self.hang_up:
                api.hang_up()
            for name, value, anew in self.changes:
                if value:
                    api.put(name, value, anew=anew)
                else:
                    api.remove(name)
            if self.compact:
                api.compact()
            api.misbehave(*self.faults)


values = st.sampled_from(["1", "1", "1", "", "", "deep", "poison"])
changes = st.tuples(st.sampled_from("abcde"), values, st.booleans())
pieces = st.sampled_from([1, 7, 1 << 16])
faults = st.builds(Fault, st.sampled_from([*LIST_FAULTS, *WATCH_FAULTS]), st.integers(0, 2), pieces)
rounds = st.builds(
    Round,
    changes=st.lists(changes, min_size=1, max_size=4).map(tuple),
    hang_up=st.booleans(),
    compact=st.booleans(),
    faults=st.lists(faults, max_size=3).map(tuple),
)
ONE: Final = (("a", "1", False), ("b", "1", False))


@settings(max_examples=100, deadline=None)
@given(story=st.lists(rounds, min_size=1, max_size=6))
@example(story=[Round((("a", "deep", False), ("b", "poison", False), ("c", "1", False)))])
@example(story=[Round(ONE), Round((("b", "deep", False), ("c", "1", True)))])
@example(story=[Round(ONE), Round((("a", "", False), ("b", "1", True)), hang_up=True, compact=True)])
@example(story=[Round(ONE), Round(ONE, hang_up=True, faults=(Fault("garble"), Fault("refuse")))])
def test_the_copy_is_what_the_server_has(story: list[Round]) -> None:
    hearsay = Hearsay()
    with TemporaryDirectory() as folder, nasty_api() as server:
        api = ApiConnection.connect(_kubeconfig(Path(folder), server.url), pool_size=2, timeout_s=2.0)
        reflector = Reflector(
            api,
            CONFIG_MAPS,
            hearsay.hear,
            namespace="n",
            transform=small,
            idle_timeout_s=0.3 if any(f.what in STANDING for r in story for f in r.faults) else 60.0,
            backoff=Backoff(0.001, 0.01),
        )
        story[0].happen(server)
        reflector.start()
        try:
            hearsay.catch_up(server, AWHILE_S)
            for part in story[1:]:
                part.happen(server)
                hearsay.catch_up(server, AWHILE_S)
            server.behave()
            same = hearsay.catch_up(server, SOON_S)
            assert same, (hearsay.known, server.state(), server.lists, server.watches)
            assert not hearsay.wrong
            copy = {document["metadata"]["name"]: identity(document) for document in reflector.objects()}
            assert copy == server.state()
        finally:
            reflector.stop()
            api.close()


def _kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    named = {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}]}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    document = {"apiVersion": "v1", "kind": "Config", "contexts": [context], "current-context": "x", **named}
    path.write_text(yaml.safe_dump(document))
    return path
