"""What the Node says of suspension, whatever became of the writes: against a tiny API server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.words import names
from vc_egpu_node.api.node import OwnNode, Teller

NODE = "/api/v1/nodes/n1"


class Here:
    """An agent's view of its Node, and the Node."""

    def __init__(self, server: TinyApi, api: ApiConnection) -> None:
        self.server = server
        self._heard = threading.Condition()
        self.own = OwnNode(api, "n1", self._changed)

    def _changed(self) -> None:
        with self._heard:
            self._heard.notify_all()

    def says(self) -> str | None:
        """The Node itself."""
        return self._of(self.server.objects[NODE])

    def hears(self) -> str | None:
        """The Node as it is watched."""
        document = self.own.document()
        return self._of(document) if document is not None else None

    @staticmethod
    def _of(document: dict[str, Any]) -> str | None:
        text: str | None = (document["metadata"].get("annotations") or {}).get(names.NODE_SUSPENSION)
        return text

    def overwrite(self, text: str) -> None:
        """By somebody else."""
        metadata = {"name": "n1", "annotations": {names.NODE_SUSPENSION: text}}
        self.server.put(NODE, {"metadata": metadata, "status": {}})

    def until(self, true: Callable[[], bool]) -> None:
        with self._heard:
            assert self._heard.wait_for(true, timeout=60)

    def writes(self) -> int:
        return sum(method == "PATCH" for method, _, _ in self.server.requests)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with tiny_api() as server:
        server.put(NODE, {"metadata": {"name": "n1"}, "status": {}})
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        one = Here(server, api)
        one.own.start()
        one.until(lambda: one.own.document() is not None)
        server.wait_for_watch()
        yield one
        one.own.stop()
        api.close()


def test_a_write_that_was_carried_out_late(here: Here) -> None:
    here.own.say_suspension("second")
    here.overwrite("first")
    here.until(lambda: here.hears() == "first")
    here.own.say_suspension("second")
    assert here.says() == "second"


def test_said_once_while_the_watch_is_behind(here: Here) -> None:
    """What was answered counts until something is heard, also where the text is the one before again."""
    here.server.watches, kept = [], here.server.watches
    here.own.say_suspension("first")
    here.own.say_suspension("first")
    assert (here.hears(), here.writes()) == (None, 1)
    here.own.say_suspension(None)
    assert (here.says(), here.writes()) == (None, 2)
    here.server.watches = kept


def test_a_write_that_failed_is_no_answer(here: Here) -> None:
    here.server.script = [(403, status(403, "Forbidden"), {})]
    with pytest.raises(KubeError):
        here.own.say_suspension("first")
    here.own.say_suspension("first")
    assert here.says() == "first"


class Refusing:
    """A Node that takes nothing for as long as it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.refuses = True
        self.tries: list[str] = []
        self.teller = Teller(self._say, clock=lambda: self.now_s)

    def _say(self, text: str) -> None:
        self.tries.append(text)
        if self.refuses:
            raise KubeError("no")

    def say(self, text: str) -> None:
        """As at each look of the agent."""
        self.now_s += 2.0
        with suppress(KubeError):
            self.teller.say(text)


def test_what_is_refused_is_said_again_ever_more_seldom() -> None:
    node = Refusing()
    for _ in range(300):
        node.say("same")
    assert 15 < len(node.tries) < 45
    assert node.teller.unsaid_s() == 598.0
    node.refuses = False
    for _ in range(16):
        node.say("same")
    assert node.teller.unsaid_s() == 0.0


def test_what_is_new_is_said_at_once() -> None:
    node = Refusing()
    for _ in range(100):
        node.say("before")
    tried = len(node.tries)
    node.say("now")
    assert node.tries[tried:] == ["now"]
    node.refuses = False
    node.say("then")
    assert node.tries[-1] == "then"
