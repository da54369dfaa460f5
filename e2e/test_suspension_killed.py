"""The admission controller is killed in the middle of a suspension, with real agents and the fake driver.

Wherever it is hit: inference gets its cards, training leaves them once and comes back with all that it had.
"""

from collections.abc import Callable, Iterator

import pytest
from rigs.suspension import TEAM, Here, Json, suspending
from stack.install import NAMESPACE
from stack.kit import running
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.volcano.codec.suspension import NodeSuspension
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    with suspending("killed") as found:
        yield found


def _state(here: Here, uid: str, *states: str) -> None:
    """Wait until the node says one of these; it goes from one to the next without waiting for us."""

    def there(nodes: dict[str, Json]) -> bool | None:
        text = (nodes[here.node]["metadata"].get("annotations") or {}).get(names.NODE_SUSPENSION)
        found = NodeSuspension.decode(text).pods.get(uid) if text else None
        return (found is not None and found.state in states) or None

    here.kit.until(f"it is {states[0]}", NODES, there, timeout_s=90)


def _order(here: Here, *, stands: bool) -> None:
    def there(pods: dict[str, Json]) -> bool | None:
        return (names.SUSPEND in pods["train-0"]["metadata"]["annotations"]) is stands or None

    here.kit.pods_until(f"the order {'stands' if stands else 'is off'}", TEAM, there)


Point = Callable[[Here, str], None]
LEAVING: dict[str, Point] = {
    "ordered": lambda here, _: _order(here, stands=True),
    "standing still": lambda here, uid: _state(here, uid, "suspending", "suspended"),
    "away": lambda here, uid: _state(here, uid, "suspended"),
}
COMING_BACK: dict[str, Point] = {
    "inference gone": lambda *_: None,
    "called back": lambda here, _: _order(here, stands=False),
    "on its way": lambda here, uid: _state(here, uid, "resuming", "running"),
}


def _kill(here: Here) -> None:
    """Without warning. The kubelet starts it again."""
    here.stack.cluster.nodes[0].run(["pkill", "-KILL", "-f", "vc-egpu admission"])

    def again(pods: dict[str, Json]) -> bool | None:
        own = {name: one for name, one in pods.items() if name.startswith("vc-egpu-admission")}
        restarts = [s["restartCount"] for one in own.values() for s in one["status"]["containerStatuses"]]
        return (restarts == [1] and len(running(own)) == 1) or None

    here.kit.pods_until("the controller runs again", NAMESPACE, again, timeout_s=120)


@pytest.mark.parametrize("point", [*LEAVING, *COMING_BACK])
def test_training_leaves_and_comes_back_although_the_controller_is_killed(here: Here, point: str) -> None:
    here.controllers(0)
    here.controllers(1)  # one that was never started again: the kubelet takes its time with those that were
    uid = here.train_on_both_cards()
    here.ask_for_inference()
    if point in LEAVING:
        LEAVING[point](here, uid)
        _kill(here)
    here.until_inference_runs(timeout_s=120)
    _state(here, uid, "suspended")
    here.stack.check_invariants()
    stood = here.steps("train-0")
    here.kit.api.delete(PODS, "infer", TEAM, grace_period_s=0)
    if point in COMING_BACK:
        COMING_BACK[point](here, uid)
        _kill(here)
    here.until(uid, "running", timeout_s=120)
    assert here.steps_after("train-0", stood[-1])[: len(stood)] == stood
    train = here.kit.api.get(PODS, "train-0", TEAM)
    assert train["metadata"]["uid"] == uid
    assert [one["restartCount"] for one in train["status"]["containerStatuses"]] == [0]
    here.stack.check_invariants()
    here.end_training()
