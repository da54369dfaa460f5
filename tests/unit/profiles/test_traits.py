"""What the mirror knows of gangs for rules of placement, and the loop that reads the table."""

from dataclasses import replace
from pathlib import Path

from unit.admission import build
from unit.admission.build import TABLE, added, deleted, group, node, pod, queue
from unit.admission.stage import KEY, LoopStage, loop_on
from vc_egpu.admission.kept import usual_work
from vc_egpu.admission.loop import REVIEW_S
from vc_egpu.admission.settings import Settings, parse
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.profiles.table import MOST_LABELS, NO_TRAITS, Traits
from vc_egpu.metrics.text import text_of
from vc_egpu.volcano.profiles.table import table_of

RULES = """
rules:
- {name: notebooks, when: {labels: {kind: notebook}}, nodes: spread}
- {name: services, when: {owner: Deployment}, nodes: spread}
"""


def mirror_with(rules: str) -> Mirror:
    mirror = Mirror(TABLE)
    mirror.take_profiles(table_of(rules).wants)
    mirror.apply("queues", added(queue()))
    mirror.apply("nodes", added(node()))
    return mirror


def traits(mirror: Mirror, key: str = KEY) -> Traits:
    gang = mirror.state.gang(key)
    assert gang is not None
    return gang.traits


def labelled(name: str, index: int, **labels: str) -> build.Json:
    made = pod(name, index=index)
    made["metadata"]["labels"] |= labels
    return made


def test_a_gang_has_the_labels_that_rules_ask_for_and_no_others() -> None:
    mirror = mirror_with(RULES)
    mirror.apply("pods", added(labelled("g-w-0", 0, kind="notebook", team="a")))
    mirror.apply("podgroups", added(group(members=3)))
    assert traits(mirror) == Traits("VolcanoJob", (("kind", "notebook"),))
    mirror.apply("pods", added(labelled("g-w-1", 1)))
    mirror.apply("pods", added(labelled("g-w-2", 2, kind="server")))
    assert traits(mirror).labels == (("kind", "notebook"), ("kind", "server"))
    for index in range(100):
        mirror.apply("pods", added(labelled(f"m{index}", 3 + index, kind=f"k{index}")))
    assert len(traits(mirror).labels) <= MOST_LABELS


def test_a_label_may_come_with_a_later_member() -> None:
    mirror = mirror_with(RULES)
    mirror.apply("podgroups", added(group(members=4)))
    mirror.apply("pods", added(labelled("g-w-0", 0)))
    mirror.apply("pods", added(labelled("g-w-1", 1, kind="notebook")))
    assert traits(mirror).labels == (("kind", "notebook"),)


def test_what_makes_the_pods() -> None:
    mirror = mirror_with(RULES)
    owners = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-5f", "uid": "r", "controller": True}
    ]
    document = pod("chat-1", gang="podgroup-r", owners=owners)
    document["metadata"]["labels"]["pod-template-hash"] = "5f"
    theirs = group("podgroup-r", members=1)
    theirs["metadata"]["ownerReferences"] = owners
    mirror.apply("podgroups", added(theirs))
    mirror.apply("pods", added(document))
    assert traits(mirror, "default/podgroup-r") == Traits("Deployment")


def test_gangs_differ_in_nothing_that_no_rule_asks_for() -> None:
    mirror = mirror_with("rules: [{name: low, when: {class: low}, nodes: spread}]")
    mirror.apply("pods", added(labelled("g-w-0", 0, kind="notebook")))
    mirror.apply("podgroups", added(group()))
    assert traits(mirror) is NO_TRAITS
    mirror.take_profiles(table_of(RULES).wants)
    assert traits(mirror) == Traits("VolcanoJob", (("kind", "notebook"),))
    mirror.take_profiles(table_of("").wants)
    assert traits(mirror) is NO_TRAITS


def test_the_verdict_names_the_rule() -> None:
    mirror = mirror_with(RULES)
    for index in range(2):
        mirror.apply("pods", added(labelled(f"g-w-{index}", index, kind="notebook")))
    mirror.apply("podgroups", added(group()))
    plan = decide(mirror.snapshot(), Policy(profiles=table_of(RULES)), 5.0)
    assert plan.verdicts[KEY].message == "2 members placed, by the placement rule notebooks"
    assert [admission.rule for admission in plan.admissions] == ["notebooks"]
    mirror.apply("pods", deleted(labelled("g-w-1", 1)))


def broken(stage: LoopStage) -> str:
    lines = text_of(stage.view().figures.registry.collect()).decode().splitlines()
    return next(line for line in lines if line.startswith("egpu_admission_placement_broken"))


def review(stage: LoopStage) -> None:
    stage.later(REVIEW_S + 1)
    stage.idle_turn()


def test_the_table_is_read_again_while_the_controller_runs(tmp_path: Path) -> None:
    file = tmp_path / "placement.yaml"
    file.write_text(RULES)
    fullest = Policy(binpack="fullest")
    settings = Settings(models=tmp_path, identity="test", placement=file, policy=fullest)
    with loop_on(tmp_path, settings=settings) as stage:
        review(stage)
        decisions = stage.parts.decisions
        assert [rule.name for rule in decisions.policy.profiles.rules] == ["notebooks", "services"]
        file.write_text("rules: [{name: a, nodes: tightest}]")
        review(stage)
        assert len(decisions.policy.profiles.rules) == 2, "the last good one stays"
        assert broken(stage).endswith(" 1.0")
        file.write_text("rules: [{name: all, nodes: ours, when: {earlier: short}}]")
        review(stage)
        assert broken(stage).endswith(" 0.0")
        assert stage.mirror.usual.learns, "a rule places by what usual work is"
        assert stage.mirror.around.runs.wanted
        file.write_text("")
        review(stage)
        assert not stage.mirror.usual.learns
        assert decisions.policy.profiles.rules == ()


def test_the_flag_says_which_file() -> None:
    assert str(parse([]).placement) == "/etc/vc-egpu-placement/placement.yaml"
    assert str(parse(["--placement-rules", "/x.yaml"]).placement) == "/x.yaml"


def test_a_rule_may_be_why_something_is_learned() -> None:
    fullest = Policy(binpack="fullest")
    by_rule = replace(fullest, profiles=table_of("rules: [{name: a, cards: fgd}]"))
    assert [usual_work.learns(policy) for policy in (fullest, by_rule, Policy(binpack="ours"))] == [
        False,
        True,
        True,
    ]
