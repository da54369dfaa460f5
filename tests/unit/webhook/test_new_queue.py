"""A Queue and its Job in one file: the Job's review comes before the cache has the Queue."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from unit.webhook.world import ALICE, context
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.webhook.protocol.context import QueueTree
from vc_egpu.webhook.protocol.decision import Refusal
from vc_egpu.webhook.protocol.questions import QueueLookup
from vc_egpu.webhook.reviews.access import check_queue
from vc_egpu.webhook.serving.oracle import AccessMemory, LayeredAnswers, Oracle


class OneQueue:
    """An API server with the Queue ``new``."""

    def get(self, resource: Any, name: str, namespace: str | None = None, timeout_s: float = 0) -> Any:
        if name != "new":
            raise NotFound(f"queues {name!r} not found", status=404)
        return {"metadata": {"name": "new"}, "spec": {"capability": {"volcano.sh/vgpu-h20": 4}}}


@pytest.mark.parametrize(("name", "there"), [("new", True), ("never", False)])
def test_what_the_cache_lacks_is_asked_for_once(name: str, there: bool) -> None:
    async def ask() -> LayeredAnswers:
        oracle = Oracle(OneQueue())  # type: ignore[arg-type]
        answers = LayeredAnswers(AccessMemory())
        assert not answers.looked_up(QueueLookup(name))
        await oracle.answer([QueueLookup(name)], answers)
        oracle.close()
        return answers

    answers = asyncio.run(ask())
    assert answers.looked_up(QueueLookup(name))
    tree = QueueTree({"old": {"metadata": {"name": "old"}}}).plus(answers.queues)
    assert (name in tree) is there
    assert "old" not in tree.plus({"old": None})
    same = tree.plus({"never": None, name: tree.get(name)})
    assert same is tree, "it is not made anew for each review that asks in vain"
    assert "old" in tree


@pytest.mark.parametrize("name", ["q" * 1_000_000, "new/status"])
def test_what_can_be_no_queue_is_not_asked_for(name: str) -> None:
    """The API server takes no such address, and its refusal was told as if it could not be asked now."""
    nothing_known = replace(context(queues={}), answers=LayeredAnswers(AccessMemory()))
    with pytest.raises(Refusal, match="does not exist"):
        check_queue(name, [ALICE], "team-a", nothing_known, "spec.queue")
