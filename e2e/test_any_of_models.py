"""Gangs that take any of several models: the choice by wish, by cap and by room, on a real API server.

Simulated nodes of two models, and our processes beside the cluster with the rights of their own accounts.
Once with our Job controller, and with Volcano's under both of its configurations. With ours pods are there
before the choice, and are made again. Under Volcano's stock configuration the choice comes first.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from outcomes.workload import container, pod_spec
from rigs.choosing import NAMESPACE, UNDER_VOLCANO, Cards, Choosing, choosing, uids
from rigs.volcano_job import ONE_TRY, volcano_job
from stack.hostmode import HostOptions
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Request

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
Json = dict[str, Any]
CARDS: Final = {"h20": Cards(98304), "t4": Cards(16384)}


def models_of(pods: dict[str, Json]) -> set[str]:
    return {model_of(pod) for pod in pods.values()}


def model_of(pod: Json) -> str:
    """The one model whose cards a pod asks for, by its annotation; its requests say the same."""
    request = Request.decode(pod["metadata"]["annotations"][names.REQUEST])
    (model,) = {ask.model for ask in request.containers.values()}
    assert request.choice == model
    (one,) = pod["spec"]["containers"]
    assert names.shared_resource(model) in one["resources"]["requests"]
    assert names.ANY_MODEL not in one["resources"]["limits"]
    assert pod["spec"]["nodeName"].endswith(model)
    return model


def template(models: str, memory_percent: int, **annotations: str) -> Json:
    limits = {names.ANY_MODEL: 1, names.LIMIT_MEMORY_PERCENTAGE: memory_percent, names.LIMIT_CORES: 50}
    metadata = {"annotations": {names.USE_MODELS: models, **annotations}}
    return {"metadata": metadata, "spec": pod_spec(container(limits=limits))}


def job(name: str, members: int, models: str, queue: str, memory_percent: int = 90) -> Json:
    pods = template(models, memory_percent)
    pods["spec"]["restartPolicy"] = "Never"
    return volcano_job(name, queue, members, pods, **ONE_TRY)


@pytest.fixture(
    scope="module",
    params=["ours", *(pytest.param(conf, marks=pytest.mark.volcano) for conf in ("own", "stock"))],
)
def models(request: pytest.FixtureRequest) -> Iterator[Choosing]:
    """Under our Job controller, and under Volcano's with both of its scheduler's configurations."""
    if request.param == "ours":
        with choosing("models", CARDS, HostOptions(), None, "own") as found:
            yield found
        return
    options = HostOptions(processes=UNDER_VOLCANO, overlay="volcano", scheduler=names.SCHEDULER_VOLCANO)
    with choosing("models", CARDS, options, request.getfixturevalue("volcano"), request.param) as found:
        yield found


def test_by_wish_by_room_and_by_cap(models: Choosing) -> None:
    models.queue("wish", {"h20": 8, "t4": 8})
    models.apply(job("first", 4, "t4,h20", "wish"))
    assert models_of(models.runs("first", 4)) == {"t4"}, "the wish of its user"
    models.apply(job("second", 2, "t4,h20", "wish"))
    assert models_of(models.runs("second", 2)) == {"h20"}, "no t4 has room"
    models.queue("capped", {"h20": 1, "t4": 8})
    models.apply(job("third", 2, "h20,t4", "capped", memory_percent=5))
    assert models_of(models.runs("third", 2)) == {"t4"}, "its queue may use one h20"
    assert [models.choice(name) for name in ("first", "second", "third")] == ["t4", "h20", "t4"]
    assert {models.tries(name) for name in ("first", "second", "third")} == {0}
    models.check()
    models.delete("first", "second", "third")


def test_a_cap_that_is_raised_while_it_waits_decides(models: Choosing) -> None:
    models.queue("late", {"h20": 2, "t4": 2})
    models.apply(job("holds", 2, "h20", "late", memory_percent=5))
    models.apply(job("held", 2, "t4", "late", memory_percent=5))
    models.runs("holds", 2)
    models.runs("held", 2)
    models.apply(job("waits", 2, "h20,t4", "late", memory_percent=5))
    sentence = models.waits("waits", "WaitingForQuota")
    assert "For h20 it asks for 2 shares of h20" in sentence
    assert "For t4 it asks for 2 shares of t4" in sentence
    models.cap("late", "t4", 4)
    assert models_of(models.runs("waits", 2)) == {"t4"}
    assert models.tries("waits") == 0
    models.check()
    models.delete("holds", "held", "waits")


def test_replicas_take_one_model_and_grow_with_it(models: Choosing) -> None:
    models.queue("web", {"h20": 8, "t4": 8})
    labels = {"app": "chat"}
    pods = template("t4,h20", 10, **{names.QUEUE_NAME: "web"})
    pods["metadata"]["labels"] = labels
    models.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": pods},
        }
    )
    before = models.runs("chat", 2)
    assert models_of(before) == {"t4"}
    models.stack.kit.kubectl("scale", "deployment", "chat", "-n", NAMESPACE, "--replicas=3")
    after = models.runs("chat", 3)
    assert uids(before) <= uids(after), "those that ran go on"
    assert models_of(after) == {"t4"}
    models.check()
    models.stack.kit.kubectl("delete", "deployment", "chat", "-n", NAMESPACE, "--wait=true")


def test_what_no_controller_makes_again_is_refused(models: Choosing) -> None:
    models.queue("bare", {"h20": 8, "t4": 8})
    pod = template("t4,h20", 10, **{names.QUEUE_NAME: "bare"})
    said = models.apply(
        {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "b", **pod["metadata"]}}
    )
    assert "made again once its model is chosen" in said
    forged = job("forged", 1, "h20,t4", "bare")
    forged["metadata"]["annotations"] = {names.CHOICE: "h20"}
    assert "written by the admission layer alone" in models.apply(forged)
