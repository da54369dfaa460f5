"""Permission to give a queue more, and to command it."""

import copy

import pytest
from unit.webhook.world import (
    ALICE,
    NAMESPACE,
    OPERATOR,
    QUEUES,
    Json,
    Rbac,
    caps,
    context,
    create,
    queue,
    update,
)
from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.context import MAX_QUEUE_DEPTH, Context, Review
from vc_egpu.webhook.protocol.questions import Subject
from vc_egpu.webhook.reviews.commands import review_command
from vc_egpu.webhook.reviews.queues import review_queue

A = queue(
    "a",
    capability={**caps(8, 400_000), "cpu": "64"},
    deserved=caps(4),
    guarantee={"resource": caps(2)},
    priority=5,
    weight=3,
)


def edited(stored: Json, **spec: object) -> Json:
    obj = copy.deepcopy(stored)
    obj["spec"] |= spec
    return obj


def message(obj: Json, stored: Json | None = A, ctx: Context | None = None, subject: Subject = ALICE) -> str:
    review = update(obj, stored, subject) if stored is not None else create(obj, subject)
    return review_queue(review, ctx or context()).message


LOWERED: dict[str, Json] = {
    "a cap": {"capability": {**caps(7, 400_000), "cpu": "64"}},
    "a cap to nothing": {"capability": {**caps(0, 0), "cpu": "64"}},
    "a cap where there was none": {"capability": {**caps(8, 400_000), "cpu": "64", "memory": "1Ti"}},
    "a cap on cores where there was none": {
        "capability": {**caps(8, 400_000), "cpu": "64", "volcano.sh/vgpu-h20-cores": 400}
    },
    "a cap on bytes": {"capability": {**caps(8, 400_000), "cpu": "64", "memory": "9G"}},
    "a cap to a part of a cpu": {"capability": {**caps(8, 400_000), "cpu": "63500m"}},
    "the same cap written otherwise": {"capability": {**caps(8, 400_000), "cpu": "64000m"}},
    "deserved": {"deserved": caps(1)},
    "guarantee": {"guarantee": {"resource": caps(1)}},
    "priority": {"priority": 1},
    "weight": {"weight": 1},
    "reclaimable": {"reclaimable": False},
    "the parent spelt out": {"parent": "root"},
}
RAISED: dict[str, tuple[Json, tuple[str, ...]]] = {
    "a cap": (
        {"capability": {**caps(9, 400_000), "cpu": "64"}},
        ('capability["volcano.sh/vgpu-h20"]', "8 to 9"),
    ),
    "a cap of somebody else's resource": (
        {"capability": {**caps(8, 400_000), "cpu": "65"}},
        ('capability["cpu"]', "64 to 65"),
    ),
    "a key removed": ({"capability": caps(8, 400_000)}, ('capability["cpu"]', "64 to nothing")),
    "a model that was not named": (
        {"capability": {**caps(8, 400_000), "cpu": "64", **caps(1, model="v100-32g")}},
        ("v100-32g", "nothing to 1"),
    ),
    "deserved": ({"deserved": caps(5)}, ('deserved["volcano.sh/vgpu-h20"]', "4 to 5")),
    "deserved of what had none": ({"deserved": {**caps(4), "cpu": "1"}}, ('deserved["cpu"]', "nothing to 1")),
    "deserved removed": ({"deserved": {}}, ("4 to nothing",)),
    "guarantee": ({"guarantee": {"resource": caps(3)}}, ("guarantee", "2 to 3")),
    "weight": ({"weight": 4}, ("spec.weight", "3 to 4")),
    "priority": ({"priority": 6}, ("spec.priority", "5 to 6")),
    "the parent": ({"parent": "org"}, ("spec.parent", "'root' to 'org'")),
}


@pytest.mark.parametrize("story", LOWERED)
def test_lowering_needs_no_more_than_update(story: str) -> None:
    decision = review_queue(update(edited(A, **LOWERED[story]), A), context())
    assert (decision.message, decision.warnings) == ("", ())


@pytest.mark.parametrize("story", RAISED)
def test_raising_needs_set_cap(story: str) -> None:
    spec, words = RAISED[story]
    refused = message(edited(A, **spec))
    assert all(word in refused for word in (*words, "user 'alice'", '"set-cap"')), refused
    assert message(edited(A, **spec), subject=OPERATOR) == ""


def test_inside_an_operators_parent_children_share_what_it_has() -> None:
    inside = QUEUES["org-1"]
    lowered = edited(inside, capability=caps(6))
    tree = {**QUEUES, "org-1": lowered}
    assert message(edited(inside, capability=caps(8)), lowered, context(queues=tree)) == ""
    refused = message(edited(inside, capability=caps(9)), lowered, context(queues=tree))
    assert "would have 11 together, it has 10" in refused


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"capability": {**caps(8), **caps(1, model="t4")}}, ("t4", "does not name it")),
        ({"capability": {}}, ("8 to nothing", "caps it at 10")),
        ({"weight": 2}, ("spec.weight", "above the 1")),
        ({"priority": 1}, ("spec.priority", "above the 0")),
        ({"guarantee": {"resource": caps(1)}}, ("guarantee", "does not name it")),
        ({"parent": "root"}, ("spec.parent", "'org' to 'root'")),
    ],
)
def test_what_does_not_stay_inside_the_parent_is_refused(spec: Json, words: tuple[str, ...]) -> None:
    refused = message(edited(QUEUES["org-1"], **spec), QUEUES["org-1"])
    assert all(word in refused for word in words), refused


ROOMY = queue("org", capability={**caps(10), "memory": "9Gi"}, weight=3, priority=4)
CHILD = queue(
    "org-1", parent="org", capability={**caps(8), **caps(1, model="t4"), "cpu": "4", "memory": "1Gi"}
)


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"weight": 3}, ""),
        ({"weight": 4}, "above the 3"),
        ({"priority": 4}, ""),
        ({"priority": 5}, "above the 4"),
        ({"capability": {**CHILD["spec"]["capability"], "cpu": "8"}}, ""),
        ({"capability": {**CHILD["spec"]["capability"], "memory": "9Gi"}}, ""),
        ({"capability": {**CHILD["spec"]["capability"], "memory": "10Gi"}}, "together, it has 9Gi"),
        ({"capability": {key: n for key, n in CHILD["spec"]["capability"].items() if key != "cpu"}}, ""),
        ({"capability": {key: n for key, n in CHILD["spec"]["capability"].items() if "t4" not in key}}, ""),
        (
            {"capability": {key: n for key, n in CHILD["spec"]["capability"].items() if key != "memory"}},
            "caps it at 9Gi",
        ),
        ({"deserved": {"cpu": "1"}}, "does not name it"),
    ],
)
def test_what_an_operators_parent_does_not_limit_its_children_may_raise(spec: Json, refused: str) -> None:
    """What it does not name of cpu and memory is unlimited there; of models it is not allowed: one that is
    dropped is lowered."""
    beside = queue("org-2", parent="org")
    said = message(
        edited(CHILD, **spec), CHILD, context(queues={"org": ROOMY, "org-1": CHILD, "org-2": beside})
    )
    assert refused in said and bool(said) is bool(refused)


def test_a_parent_that_the_requester_may_update_is_no_fence() -> None:
    lowered = edited(QUEUES["org-1"], capability=caps(6))
    for verb in ("update", "patch"):
        ctx = context(f"alice {verb} queues org")
        assert "nor is its parent 'org' the operator's" in message(
            edited(lowered, capability=caps(7)), lowered, ctx
        )


def test_a_queue_on_its_way_out_is_raised_by_nobody_else_either() -> None:
    """A finalizer of its admin's own keeps it, and it goes on taking work."""
    going = copy.deepcopy(A)
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/mine"]}
    assert '"set-cap"' in message(edited(going, capability={**caps(9, 400_000), "cpu": "64"}), going)
    gone = copy.deepcopy(going)
    del gone["metadata"]["finalizers"]
    assert message(gone, going) == "", "what is going away must be able to go"


@pytest.mark.parametrize(("name", "parent"), [("a", "a"), ("org", "org-1")])
def test_a_circle_of_parents_is_refused(name: str, parent: str) -> None:
    """Nobody's cap would count in it: the operator is told, too."""
    stored = QUEUES[name]
    ctx = context(f"operator set-cap queues {name}")
    refused = message(edited(stored, parent=parent), stored, ctx, OPERATOR)
    assert refused.startswith("spec.parent:")
    assert "circle" in refused


def test_a_tree_that_is_too_deep_is_refused() -> None:
    """What is that deep already may be edited otherwise."""
    deep = {"q1": queue("q1", weight=2)}
    for level in range(2, MAX_QUEUE_DEPTH + 1):
        deep[f"q{level}"] = queue(f"q{level}", parent=f"q{level - 1}", weight=2)
    last = f"q{MAX_QUEUE_DEPTH}"
    ctx = context(f"operator set-cap queues {last}", queues={**deep, "a": A})
    below, at_it = edited(A, parent=last), edited(A, parent=f"q{MAX_QUEUE_DEPTH - 1}")
    refused = f"spec.parent: {last!r} is on level {MAX_QUEUE_DEPTH}, the limit is {MAX_QUEUE_DEPTH}"
    assert message(below, A, ctx, OPERATOR) == refused
    assert message(at_it, A, ctx, OPERATOR) == ""
    assert message(edited(below, weight=1), below, ctx) == ""


def test_a_circle_that_is_there_already_keeps_nobody_from_editing() -> None:
    used = {"status": {"allocated": {"volcano.sh/vgpu-h20": "3", "cpu": "2500m"}}}
    tree = {
        "x": {**queue("x", parent="y", capability={**caps(9), "cpu": "9"}), **used},
        "y": {**queue("y", parent="x", capability=caps(9)), **used},
    }
    lowered = edited(tree["x"], capability={**caps(2), "cpu": "2"})
    decision = review_queue(update(lowered, tree["x"]), context(queues=tree))
    assert [warning.partition(";")[0] for warning in decision.warnings] == [
        'spec.capability["volcano.sh/vgpu-h20"]: 2 is below the 3 in use',
        'spec.capability["cpu"]: 2 is below the 2.5 in use',
    ]


def test_the_root_of_all_queues_is_always_there() -> None:
    """Volcano's scheduler makes it; without Volcano nobody need."""
    inside = QUEUES["org-1"]
    ctx = context("operator set-cap queues org-1", queues={"org": QUEUES["org"], "org-1": inside})
    decision = review_queue(update(edited(inside, parent="root"), inside, OPERATOR), ctx)
    assert (decision.message, decision.warnings) == ("", ())


def test_a_parent_that_is_not_there_is_told_of() -> None:
    """One file may hold both, the child first."""
    decision = review_queue(update(edited(A, parent="orgg"), A, OPERATOR), context())
    assert decision.allowed
    assert any("'orgg' does not exist" in warning for warning in decision.warnings)


def test_new_queues() -> None:
    assert message(queue("default"), None) == message(queue("new"), None) == ""
    assert "nothing to 4" in message(queue("new", capability=caps(4)), None)
    child = queue("org-3", parent="org", capability=caps(0))
    assert "may not use queue 'org'" in message(child, None), "its parent would take no work any more"
    assert message(child, None, context("alice use queues org")) == ""
    tight = {**QUEUES, "org-2": queue("org-2", parent="org", capability=caps(1))}
    child = queue("org-3", parent="org", capability=caps(1))
    assert "may not use queue 'org'" in message(child, None, context(queues=tight))
    assert message(child, None, context("alice use queues org", queues=tight)) == ""
    child = queue("org-3", parent="org", capability=caps(2))
    assert "11 together" in message(child, None, context("alice use queues org", queues=tight))


def test_where_unnamed_models_are_unlimited_naming_one_lowers() -> None:
    ctx = context(unnamed_model_unlimited=True)
    stored = queue("a")
    assert message(edited(stored, capability=caps(4)), stored, ctx) == ""
    assert "unlimited" in message(queue("new"), None, ctx)
    assert message(queue("new", capability=caps(4)), None, ctx) == ""
    assert message(edited(stored, weight=0), stored, ctx) == "", "it had none before"
    assert message(queue("default"), None, ctx) == ""


@pytest.mark.parametrize(
    ("raw", "words"),
    [(-1, ("-1 is below 0",)), ("x", ("'x' is not a quantity",)), ("1e99", ("1e99",)), ("500m", ("whole",))],
)
def test_numbers_that_are_none(raw: object, words: tuple[str, ...]) -> None:
    refused = message(edited(A, capability={"volcano.sh/vgpu-h20": raw}), subject=OPERATOR)
    assert all(word in refused for word in ("volcano.sh/vgpu-h20", *words)), refused


def test_caps_on_what_counts_nothing_are_refused() -> None:
    refused = message(edited(A, capability={"volcano.sh/vgpu-memory": 4}), subject=OPERATOR)
    assert "vgpu-<model>-memory" in refused


@pytest.mark.parametrize("value", ["no", "False", "", 1])
def test_the_switch_on_a_queue_is_true_or_false(value: object) -> None:
    obj, key = copy.deepcopy(A), "egpu.volcano.sh/preempt-within-queue"
    obj["metadata"]["annotations"] = {key: value}
    assert message(obj) == f'metadata.annotations["{key}"]: {str(value)!r} is neither "true" nor "false"'
    assert not message(obj, obj), "it stood there before"
    obj["metadata"]["annotations"][key] = "false"
    assert not message(obj)


def test_a_change_of_labels_asks_nobody() -> None:
    obj = copy.deepcopy(A)
    obj["metadata"]["labels"] = {"x": "y"}
    assert message(obj) == ""
    old = edited(A, capability={"volcano.sh/vgpu-h20": "x"})
    assert message({**old, "metadata": obj["metadata"]}, old) == "", "whatever was stored before us"


# --- commands ----------------------------------------------------------------------------------------


def command(kind: str, name: str, group: str, action: str = "CloseQueue") -> Review:
    target = {"apiVersion": f"{group}/v1beta1", "kind": kind, "name": name}
    return create({"action": action, "target": target, "metadata": {"namespace": NAMESPACE}})


def test_closing_a_queue_needs_update_on_it() -> None:
    review = command("Queue", "a", "scheduling.volcano.sh")
    refused = review_command(review, context()).message
    assert all(word in refused for word in ("user 'alice'", "CloseQueue", "Queue 'a'", '"update"')), refused
    assert review_command(review, context("alice update queues a")).allowed


def test_suspending_a_job_needs_update_on_it() -> None:
    review = command("Job", "j", "batch.volcano.sh", "AbortJob")
    assert "jobs.batch.volcano.sh" in review_command(review, context()).message
    assert review_command(review, context("alice update jobs j")).allowed


def test_other_targets_are_refused() -> None:
    assert "target.kind" in review_command(command("Pod", "p", "v1"), context()).message
    assert "target.apiVersion" in review_command(command("Queue", "a", "evil.example"), context()).message
    assert "target.name" in review_command(command("Queue", "", "scheduling.volcano.sh"), context()).message


def test_a_command_that_goes_on_commanding_the_same_is_let_through() -> None:
    """A finalizer is taken off, a label changes: also of a Command from before our time."""
    stored = dict(command("Pod", "p", "v1").object)
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert review_command(update(labelled, stored), context()).allowed
    assert not review_command(update({**stored, "action": "OpenQueue"}, stored), context()).allowed
    other = dict(command("Queue", "a", "scheduling.volcano.sh").object)
    assert '"update"' in review_command(update(other, stored), context()).message


def test_nobody_is_asked_about_a_target_that_no_object_can_be() -> None:
    """Answers are remembered by name, thousands of them: as many megabytes would end the webhook."""
    ctx = context()
    decision = review_command(command("Job", "j" * 1_000_000, "batch.volcano.sh", "AbortJob"), ctx)
    assert decision.message == "target.name: 1000000 characters, the limit is 253"
    assert isinstance(ctx.answers, Rbac)
    assert not ctx.answers.asked


def test_a_cap_on_memory_in_bytes_is_refused() -> None:
    """10Gi would be ten thousand million MiB: no cap at all."""
    spec = {"capability": {**caps(8, 400_000), "cpu": "64", "volcano.sh/vgpu-h20-memory": "10Gi"}}
    refused = message(edited(A, **spec), subject=OPERATOR, ctx=context("operator set-cap queues a"))
    assert 'capability["volcano.sh/vgpu-h20-memory"]: 10Gi: the unit is MiB, did you mean 10240?' in refused
    stored = edited(A, **spec)
    assert message(edited(stored, weight=1), stored) == "", "what is stored already is not judged"


def test_a_cap_on_memory_that_reads_as_bytes_is_told_of() -> None:
    """As 10Gi; but a number with a decimal suffix means what it says."""
    for written, told in (("40G", True), ("40M", False), ("400k", False), ("400000", False)):
        spec = {"capability": {**caps(8), "cpu": "64", "volcano.sh/vgpu-h20-memory": written}}
        ctx = context("operator set-cap queues a")
        decision = review_queue(update(edited(A, **spec), A, OPERATOR), ctx)
        assert decision.allowed
        said = " ".join(decision.warnings)
        assert ("40G is 40000000000 MiB; if bytes are meant, write 38146" in said) is told, said
        stored = edited(A, **spec)
        assert review_queue(update(edited(stored, weight=1), stored), ctx).warnings == (), "it was told of"


@pytest.mark.parametrize(
    ("key", "guess"),
    [
        ("volcano.sh/vgpu-h2O", "model 'h2O' is not known, did you mean volcano.sh/vgpu-h20?"),
        ("volcano.sh/vgpu-h20-memroy", "did you mean volcano.sh/vgpu-h20-memory?"),
        ("volcano.sh/gpu-zz9", "known are a100-40g, h20, v100-32g"),
    ],
)
def test_a_cap_on_a_model_that_is_not_in_the_table_is_told_of(key: str, guess: str) -> None:
    """Not refused: the table may follow."""
    new = edited(A, capability={**caps(8, 400_000), "cpu": "64", key: 0})
    decision = review_queue(update(new, A), context())
    assert decision.allowed
    assert any(f'capability["{key}"]' in warning and guess in warning for warning in decision.warnings)
    assert not review_queue(update(edited(new, weight=1), new), context()).warnings


def test_a_thousand_unknown_models_cost_no_more_than_the_few_that_are_told_of(
    looked_for: list[str],
) -> None:
    """Looking for what is near takes long, and every review of the cluster waits meanwhile."""
    many = {f"volcano.sh/vgpu-x{number}-memory": 1 for number in range(1000)}
    decision = review_queue(update(edited(A, capability={**A["spec"]["capability"], **many}), A), context())
    assert decision.allowed
    assert len(decision.warnings) == 6
    assert len(looked_for) <= 6


def spared_for(span: object, stored: Json = A) -> Json:
    """The queue with this minimum run time."""
    annotations = {} if span is None else {names.MIN_RUNTIME: span}
    return {**copy.deepcopy(stored), "metadata": {**stored["metadata"], "annotations": annotations}}


@pytest.mark.parametrize("span", ["soon", "-1", "", "99999d"])
def test_a_minimum_run_time_that_is_none_is_refused(span: str) -> None:
    assert names.MIN_RUNTIME in message(spared_for(span))


@pytest.mark.parametrize(
    ("before", "after", "is_raised"),
    [
        (None, "30s", False),
        (None, "2m", False),
        (None, "3m", True),
        ("10m", "5m", False),
        ("10m", "1h", True),
        ("30s", None, True),
        ("soon", "soon", False),
    ],
)
def test_only_a_longer_minimum_run_time_needs_set_cap(
    before: str | None, after: str | None, is_raised: bool
) -> None:
    """Others get theirs back later: it gives the queue more."""
    said = message(spared_for(after), spared_for(before))
    assert (names.VERB_SET_CAP in said) is is_raised
    assert bool(said) is is_raised
