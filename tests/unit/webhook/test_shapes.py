"""Whatever stands in an object, wherever: the webhook decides. A fault of its own would raise an alert.

The API server does not look into the templates of Jobs; what is in a pod it does look at, mostly.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
import pytest
from unit.webhook.world import Json, container, context, create, job, pod, task, update
from vc_egpu.webhook.protocol.context import Context, Review
from vc_egpu.webhook.protocol.decision import Decision
from vc_egpu.webhook.reviews.jobs.review import review_final_job, review_job
from vc_egpu.webhook.reviews.pods import review_pod

Place = tuple[str | int, ...]
Function = Callable[[Review, Context], Decision]


def _nested(levels: int) -> Json:
    found: Json = {}
    for _ in range(levels):
        found = {"a": found}
    return found


VALUES: Final[tuple[Any, ...]] = (
    *(None, "", "x", -1, 1.5, True, 2**63),
    *([], {}, [None], ["x"], {"x": {"y": []}}, _nested(240)),
)
REST: Final[Json] = {
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
            }
        }
    },
    "schedulingGates": [{"name": "g"}],
    "initContainers": [container("i")],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "overhead": {"cpu": "1"},
    "securityContext": {"runAsUser": 1},
    "schedulerName": "volcano",
}
LOW: Final = {"egpu.volcano.sh/priority": "low"}
POD: Final = pod(container(vgpu_h20=1, vgpu_memory=4096), labels={"a": "b"}, annotations=LOW, **REST)


def _job() -> Json:
    restart = [{"event": "PodFailed", "action": "RestartJob"}]
    first = task("w", 2, container(vgpu_h20=1, vgpu_memory=4096), annotations=LOW, policies=restart)
    first |= {"dependsOn": {"name": ["v"]}, "minAvailable": 1}
    first["template"]["spec"].update(copy.deepcopy(REST))
    return job(first, task("v", 1, container()), plugins={"svc": []}, policies=restart, minAvailable=3)


def _places(value: Any, place: Place = ()) -> Iterator[Place]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*place, key)
        yield from _places(part, (*place, key))


def _changed(whole: Json, place: Place, value: Any) -> Json:
    found = copy.deepcopy(whole)
    part: Any = found
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return found


@pytest.mark.parametrize(
    ("function", "good"),
    [(review_job, _job()), (review_final_job, _job()), (review_pod, POD)],
    ids=lambda _: "",
)
def test_anything_anywhere_is_decided_on(function: Function, good: Json) -> None:
    for place in _places(good):
        for value in VALUES:
            bad = _changed(good, place, value)
            for review in (create(bad), update(bad, good), update(good, bad)):
                try:
                    orjson.dumps(list(function(review, context()).patch))
                except ValueError as error:  # what cannot be read is said to who sent it
                    assert str(error), (place, value)
                except Exception as error:
                    raise AssertionError(f"{place} = {str(value)[:40]}: {error!r}") from error
