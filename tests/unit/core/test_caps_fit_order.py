"""Caps, node fit and order: one sentence each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.core.books import fit
from vc_egpu.core.model.cluster import (
    PodShape,
    Queue,
    QueueName,
    Requirement,
    ShareClass,
    Taint,
    Toleration,
)
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.queues import caps
from vc_egpu.core.queues.order import PriorityOf, Resumes, ShareOf, turns

SHARES = "volcano.sh/vgpu-h20"
RESUMES = "suspended gangs"


def keys(views: Iterable[GangView], priority: PriorityOf, share: ShareOf) -> list[str]:
    """The order of turns; suspended gangs have one."""
    order = turns(views, priority, share)
    return [RESUMES if isinstance(turn, Resumes) else turn.gang.key for turn in order]


@dataclass
class Tree:
    queues: dict[QueueName, Queue]
    use: dict[str, dict[str, int]] = field(default_factory=dict)

    def chain(self, queue: QueueName) -> Iterator[QueueName]:
        current: QueueName | None = queue
        while current is not None:
            yield current
            current = self.queues[current].parent if current in self.queues else None

    def use_of(self, queue: QueueName) -> Mapping[str, int]:
        return self.use.get(queue, {})


def tree(*queues: Queue, **use: dict[str, int]) -> Tree:
    return Tree({queue.name: queue for queue in queues}, use)


def q(name: str, parent: str | None = None, **caps_by_name: int) -> Queue:
    capability = {key.replace("_", "-"): value for key, value in caps_by_name.items()}
    capability = {f"volcano.sh/{k}" if "gpu" in k else k: v for k, v in capability.items()}
    return Queue(QueueName(name), QueueName(parent) if parent else None, capability=capability)


@pytest.mark.parametrize(
    ("queues", "ask", "blocked_by"),
    [
        (tree(q("a", vgpu_h20=4)), {SHARES: 4}, None),
        (tree(q("a", vgpu_h20=4), a={SHARES: 1}), {SHARES: 4}, ("a", SHARES, False)),
        (tree(q("a", vgpu_h20=3)), {SHARES: 4}, ("a", SHARES, True)),
        (tree(q("a")), {SHARES: 1}, ("a", SHARES, True)),
        (tree(q("a", vgpu_h20=4)), {SHARES + "-memory": 10**9, "cpu": 5}, None),
        (tree(q("a", vgpu_h20=4, cpu=4)), {"cpu": 5}, ("a", "cpu", True)),
        (tree(q("p", vgpu_h20=2), q("a", "p", vgpu_h20=4), p={SHARES: 2}), {SHARES: 1}, ("p", SHARES, False)),
        (tree(q("p"), q("a", "p", vgpu_h20=4)), {SHARES: 4}, None),
        (tree(q("p", vgpu_t4=1), q("a", "p", vgpu_h20=4)), {SHARES: 1}, ("p", SHARES, True)),
        (tree(q("a", vgpu_h20=4)), {"volcano.sh/gpu-h20": 1}, ("a", "volcano.sh/gpu-h20", True)),
        (tree(q("a", vgpu_h20=4, cpu=4), a={"cpu": 5}), {SHARES: 1, "cpu": 0}, None),
        (tree(q("a", "gone", vgpu_h20=4)), {SHARES: 4}, None),
        (
            tree(q("p", vgpu_h20=2), q("a", "p", vgpu_h20=4), a={SHARES: 4}),
            {SHARES: 3},
            ("p", SHARES, True),
        ),
        (
            tree(q("p", vgpu_h20=2), q("a", "p", vgpu_h20=2), p={SHARES: 2}, a={SHARES: 2}),
            {SHARES: 1},
            ("a", SHARES, False),
        ),
    ],
    ids=[
        "up to the cap", "above what is left", "above the cap itself", "an unnamed model is not allowed",
        "keys that are absent are unlimited", "cpu is capped like the rest", "a parent's cap counts",
        "a parent that names no model has no say", "a parent that names another model",
        "shares do not allow native cards", "who asks for none may come where its cap was lowered",
        "a parent that is not there has no say",
        "what can never be is said before what has to wait", "of two the nearer is said",
    ],
)  # fmt: skip
def test_caps(queues: Tree, ask: dict[str, int], blocked_by: tuple[str, str, bool] | None) -> None:
    limit = caps.check(queues, QueueName("a"), ask, unnamed_unlimited=False)
    assert (limit and (limit.queue, limit.resource, limit.never)) == blocked_by


def test_a_model_that_a_queue_does_not_name_is_told_from_one_of_which_it_allows_none() -> None:
    def named(**caps_by_name: int) -> bool | None:
        queue = tree(q("a", None, **caps_by_name))
        limit = caps.check(queue, QueueName("a"), {SHARES: 1}, unnamed_unlimited=False)
        return limit.named if limit is not None else None

    assert named(vgpu_t4=1) is False
    assert named(vgpu_h20=0) is True


def test_unnamed_models_may_be_unlimited_as_in_volcano() -> None:
    assert caps.check(tree(q("a")), QueueName("a"), {SHARES: 9}, unnamed_unlimited=True) is None


@pytest.mark.parametrize(
    ("deserved", "use", "share"),
    [
        ({SHARES: 4}, {SHARES: 1}, 0.25),
        ({SHARES: 1}, {SHARES: 2}, 2.0),
        ({SHARES: 4, "cpu": 10}, {SHARES: 1, "cpu": 5}, 0.5),
        ({SHARES: 4, "cpu": 0}, {SHARES: 1}, 0.25),
        ({SHARES: 4, "cpu": 0}, {SHARES: 1, "cpu": 1}, 1.0),
        ({}, {SHARES: 1}, 1.0),
        ({}, {}, 1.0),
    ],
    ids=[
        "a part", "above what it deserves", "the largest counts", "none deserved, none used",
        "used without being deserved", "a queue that deserves nothing", "and uses nothing",
    ],
)  # fmt: skip
def test_share_of_what_a_queue_deserves(deserved: dict[str, int], use: dict[str, int], share: float) -> None:
    assert caps.share(Queue(QueueName("a"), deserved=deserved), use) == share


TAINT = Taint("dedicated", "gpu", "NoSchedule")


@pytest.mark.parametrize(
    ("node", "shape", "takes"),
    [
        ({}, {}, True),
        ({"ready": False}, {}, False),
        ({"lost": True}, {}, False),
        ({"unschedulable": True}, {}, False),
        ({"unschedulable": True}, {"tolerations": (Toleration("", "Exists"),)}, True),
        ({"taints": (TAINT,)}, {}, False),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration("dedicated", "Equal", "gpu"),)}, True),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration("dedicated", "Equal", "cpu"),)}, False),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration("dedicated", "Exists", "", "NoExecute"),)}, False),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration("dedicated", "Exists", "", "NoSchedule"),)}, True),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration("other", "Exists"),)}, False),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration("", "Equal", "gpu"),)}, False),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration("dedicated", "Gt", "gpu"),)}, False),
        ({"taints": (Taint("x", "", "PreferNoSchedule"),)}, {}, True),
        ({"labels": {"zone": "a"}}, {"node_selector": (("zone", "a"),)}, True),
        ({"labels": {"zone": "a"}}, {"node_selector": (("zone", "b"),)}, False),
        ({"labels": {"zone": "a"}}, {"affinity_terms": ((Requirement("zone", "NotIn", ("a",)),),)}, False),
        ({}, {"affinity_terms": ((Requirement("zone", "NotIn", ("a",)),),)}, True),
        ({"labels": {"zone": "a"}}, {"affinity_terms": ((Requirement("zone", "NotIn", ("b",)),),)}, True),
        ({"labels": {"zone": "a"}}, {"affinity_terms": ((Requirement("zone", "In", ("a", "b")),),)}, True),
        ({"labels": {"zone": "a"}}, {"affinity_terms": ((Requirement("zone", "In", ("b",)),),)}, False),
        ({}, {"affinity_terms": ((Requirement("zone", "In", ("a",)),),)}, False),
        (
            {},
            {"affinity_terms": ((Requirement("zone", "Exists"),), (Requirement("rack", "DoesNotExist"),))},
            True,
        ),
        (
            {},
            {"affinity_terms": ((Requirement("zone", "Exists"), Requirement("rack", "DoesNotExist")),)},
            False,
        ),
        ({"labels": {"zone": ""}}, {"affinity_terms": ((Requirement("zone", "Exists"),),)}, True),
        ({"labels": {"zone": ""}}, {"affinity_terms": ((Requirement("zone", "DoesNotExist"),),)}, False),
        ({"labels": {"zone": "a"}}, {"affinity_terms": ((Requirement("zone", "Newer", ("a",)),),)}, False),
        ({"labels": {"gen": "7"}}, {"affinity_terms": ((Requirement("gen", "Gt", ("6",)),),)}, True),
        ({"labels": {"gen": "7"}}, {"affinity_terms": ((Requirement("gen", "Gt", ("7",)),),)}, False),
        ({"labels": {"gen": "7"}}, {"affinity_terms": ((Requirement("gen", "Lt", ("8",)),),)}, True),
        ({"labels": {"gen": "7"}}, {"affinity_terms": ((Requirement("gen", "Lt", ("7",)),),)}, False),
        ({}, {"affinity_terms": ((Requirement("gen", "Gt", ("-1",)),),)}, False),
        ({"labels": {"gen": "x"}}, {"affinity_terms": ((Requirement("gen", "Gt", ("6",)),),)}, False),
        ({"labels": {"gen": "1_0"}}, {"affinity_terms": ((Requirement("gen", "Gt", ("6",)),),)}, False),
        ({"labels": {"gen": "9"}}, {"affinity_terms": ((Requirement("gen", "Lt", ("1_0",)),),)}, False),
        ({"labels": {"gen": "9"}}, {"affinity_terms": ((Requirement("gen", "Gt", ("6", "7")),),)}, False),
        ({"labels": {"gen": "9"}}, {"affinity_terms": ((Requirement("gen", "Gt", ()),),)}, False),
        (
            {"labels": {"gen": f"{2**63 - 1}"}},
            {"affinity_terms": ((Requirement("gen", "Gt", ("6",)),),)},
            True,
        ),
        ({"labels": {"gen": f"{2**63}"}}, {"affinity_terms": ((Requirement("gen", "Gt", ("6",)),),)}, False),
        ({"labels": {"gen": "9" * 63}}, {"affinity_terms": ((Requirement("gen", "Gt", ("6",)),),)}, False),
        ({"labels": {"gen": "6"}}, {"affinity_terms": ((Requirement("gen", "Lt", (f"{2**63}",)),),)}, False),
        ({"labels": {"gen": "0"}}, {"affinity_terms": ((Requirement("gen", "Gt", (f"-{2**63}",)),),)}, True),
        ({}, {"affinity_terms": ((Requirement("metadata.name", "In", ("n1",), on_field=True),),)}, True),
        ({}, {"affinity_terms": ((Requirement("metadata.name", "In", ("n2",), on_field=True),),)}, False),
        ({}, {"affinity_terms": ((),)}, False),
    ],
)
def test_node_fit(node: dict[str, Any], shape: dict[str, Any], takes: bool) -> None:
    assert fit.accepts(make.node("n1", **node), PodShape(**shape)) is takes


@pytest.mark.parametrize(
    ("node", "shape", "word"),
    [
        ({"unschedulable": True}, {}, "cordoned"),
        ({"taints": (Taint("x", "", "PreferNoSchedule"), TAINT)}, {}, "taint dedicated"),
        ({"labels": {"zone": "a"}}, {"node_selector": (("zone", "b"),)}, "node selector zone=b"),
        ({}, {"affinity_terms": ((Requirement("zone", "Exists"),),)}, "node affinity"),
        ({}, {}, ""),
    ],
)
def test_users_read_which_rule_keeps_them_off_a_node(
    node: dict[str, Any], shape: dict[str, Any], word: str
) -> None:
    assert fit.why_not(make.node("n1", **node), PodShape(**shape)) == word


def test_who_asks_first() -> None:
    def view(key: str, queue: str, **more: Any) -> GangView:
        placed = more.pop("placed", ())
        return GangView(make.gang(key, queue=queue, **more), placed=placed)

    runs = tuple(make.pods("heals", 1, make.shape(1024, 0)))
    views = [
        view("old-low", "idle", share_class=ShareClass.LOW, created=0.0),
        view("young", "busy", created=9.0),
        view("old", "busy", created=1.0),
        view("late-of-idle", "idle", created=10.0),
        view("heals", "busy", share_class=ShareClass.LOW, created=20.0, least=2, placed=runs),
        view("high", "busy", share_class=ShareClass.HIGH, created=30.0),
    ]
    share = {"idle": 0.1, "busy": 0.9}
    order = keys(views, lambda _: 0, lambda queue: share[queue])
    assert order == ["heals", "high", RESUMES, "late-of-idle", "old", "young", "old-low"]


def test_within_a_class_the_higher_value_asks_first_then_the_queue_of_higher_priority() -> None:
    def view(key: str, queue: str, value: int) -> GangView:
        return GangView(replace(make.gang(key, queue=queue), priority_value=value))

    views = [view("a", "plain", 0), view("b", "plain", 7), view("c", "urgent", 0), view("d", "later", 0)]
    priority = {"plain": 0, "urgent": 5, "later": -5}
    order = keys(views, lambda queue: priority[queue], lambda _: 0.0)
    assert order == [RESUMES, "b", "c", "a", "d"], "a value counts for more than any queue"


def test_of_two_that_came_at_once_the_name_decides() -> None:
    for came in (("a", "b"), ("b", "a")):
        views = [GangView(make.gang(key)) for key in came]
        assert keys(views, lambda _: 0, lambda _: 0.0) == [RESUMES, "a", "b"]


@pytest.mark.parametrize("share_class", [None, *ShareClass])
def test_suspended_gangs_have_one_turn_after_those_of_high_priority(share_class: ShareClass | None) -> None:
    gangs = [] if share_class is None else [make.gang("g", share_class=share_class)]
    order = keys([GangView(gang) for gang in gangs], lambda _: 0, lambda _: 0.0)
    first = share_class is ShareClass.HIGH
    assert order == [*(["g"] if first else []), RESUMES, *(["g"] if gangs and not first else [])]


def test_queues_take_turns_as_their_shares_grow() -> None:
    use = {"a": 0.0, "b": 0.0}
    views = [
        GangView(make.gang(f"{queue}-{i}", queue=queue, created=float(i))) for queue in "ab" for i in range(3)
    ]
    order = []
    for view in turns(views, lambda _: 0, lambda queue: use[queue]):
        if isinstance(view, Resumes):
            continue
        order.append(view.gang.key)
        use[view.gang.queue] += 1.0
    assert order == ["a-0", "b-0", "a-1", "b-1", "a-2", "b-2"]
