"""A gang whose victims are on a silent node says so wherever its user looks."""

from typing import Any

from unit.admission.build import TABLE, Json, added, group, let_go, node, pod, queue
from unit.admission.test_conduct import plan
from vc_egpu.admission.mirror import Mirror
from vc_egpu.admission.reports import NUMBERS_EVERY_S, Reports
from vc_egpu.cli import why_view
from vc_egpu.core.cluster import OUT_OF_SERVICE, PodUid
from vc_egpu.core.decide import decide
from vc_egpu.core.policy import Policy
from vc_egpu.volcano import names

KEY = "default/g"
WAITS = "waits until 1 pod of default/low is gone; it holds 1 card"
SILENT = f"; n2 is silent: who is there is gone once it is back, is deleted, or is tainted {OUT_OF_SERVICE}"


class Told:
    """Executor and event recorder in one: the last condition on the PodGroup, and those on its pods."""

    def __init__(self) -> None:
        self.group: Json = {}
        self.pods: dict[str, Json] = {}

    def group_condition(self, _key: str, _group: Any, condition: Json) -> None:
        self.group = condition

    def pod_condition(self, _key: str, member: Any, condition: Json) -> None:
        self.pods[member.pod.name] = condition

    def event(self, *_args: Any) -> None:
        """Nobody reads it here."""


def members() -> list[Json]:
    return [pod(f"g-w-{i}", index=i, uid=f"pod-{i}", annotations={names.PRIORITY: "high"}) for i in range(2)]


def waiting() -> Mirror:
    """High waits for a pod of low that was told to go from n2."""
    mirror = Mirror(TABLE)
    for name in ("n1", "n2"):
        mirror.apply("nodes", added(node(name)))
    mirror.apply("queues", added(queue()))
    going = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    low = pod("low-w-0", "low", uid="victim", annotations={names.PRIORITY: "low"}, metadata=going)
    mirror.apply("podgroups", added(group("low", 1)))
    mirror.apply("pods", added(let_go(low, "4-1", card="GPU-n2-0", bound=True, phase="Running")))
    for member in members():
        mirror.apply("pods", added(member))
    text = plan(mirror, state="waiting", victims=frozenset({PodUid("victim")}))
    mirror.apply("podgroups", added(group(annotations={names.PLAN: text})))
    return mirror


def test_conditions_and_why_name_the_silent_node_and_what_frees_it() -> None:
    told: Any = Told()
    mirror, reports = waiting(), Reports(told, told)

    def decided(clock: float) -> str:
        reports.note(decide(mirror.snapshot(), Policy(), 1e9).verdicts, clock)
        reports.work(mirror, clock + 1.0, 1e9)
        return str(told.group["message"])

    assert decided(0.0) == WAITS
    mirror.apply("nodes", added(node("n2", conditions=[{"type": "Ready", "status": "Unknown"}])))
    assert mirror.freed, "that is decided on at once"
    assert decided(1.0) == WAITS, "words change under a reason no more often than numbers"
    assert decided(NUMBERS_EVERY_S + 1.0) == WAITS + SILENT
    assert {said["message"] for said in told.pods.values()} == {WAITS + SILENT}
    assert set(told.pods) == {"g-w-0", "g-w-1"}

    pods = [pod | {"status": {"conditions": [told.pods[pod["metadata"]["name"]]]}} for pod in members()]
    (story,) = why_view.stories(
        "g", "default", groups=[group(conditions=[told.group])], pods=pods, queues={"team": queue()}
    )
    assert (story.reason, story.message) == ("WaitingForEviction", WAITS + SILENT)
