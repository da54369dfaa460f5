"""The table of placement as people write it."""

import re
from pathlib import Path

import pytest
from vc_egpu.core.profiles.table import ANY_AMOUNT, Moment, Range, Traits, Work
from vc_egpu.volcano.profiles.main import main
from vc_egpu.volcano.profiles.table import MOST_RULES, ProfilesError, never_reached, range_of, table_of

EXAMPLE = Path(__file__).parents[3] / "manifests" / "components" / "placement-rules" / "placement.yaml"
NOON = Moment(12.0, lambda _: 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [{", "no YAML"),
        ("rule: []", "rule: Extra"),
        ("[]", "valid dictionary"),
        ("rules: [{nodes: spread}]", "rules.0.name: Field required"),
        ("rules: [{name: Two Words}]", "rules.0.name"),
        ("rules: [{name: a}, {name: a}]", "rules.1.name: a stands in the table twice"),
        ("rules: [{name: a, nodes: tightest}]", "is none of binpack, spread, topology, fullest"),
        ("rules: [{name: a, when: {colour: red}}]", "rules.0.when.colour"),
        ("rules: [{name: a, when: {class: middle}}]", "rules.0.when.class.0"),
        ("rules: [{name: a, when: {cards: 8-2}}]", "rules.0.when.cards"),
        ("rules: [{name: a, when: {cards: -1}}]", "no amount"),
        ("rules: [{name: a, when: {cards: yes}}]", "no amount"),
        ("rules: [{name: a, when: {cards: 1.5}}]", "no amount"),
        ("rules: [{name: a, when: {cards: '٣'}}]", "no amount"),
        (f"rules: [{{name: a, when: {{cards: {'9' * 40}}}}}]", "rules.0.when.cards"),
        ("rules: [{name: a, when: {allocation: 101}}]", "between 0 and 100"),
        ("rules: [{name: a, when: {hours: 25-3}}]", "no hours of a day"),
        ("rules: [{name: a, when: {hours: 8-8}}]", "no hours of a day"),
        ("rules: [{name: a, when: {hours: 8}}]", "not FROM-TO"),
        ("rules: [{name: a, when: {earlier: busy-ish}}]", "rules.0.when.earlier"),
        (f"rules: [{', '.join(f'{{name: r{i}}}' for i in range(MOST_RULES + 1))}]", "rules: Tuple should"),
    ],
)
def test_what_means_nothing_is_refused_by_its_place(text: str, said: str) -> None:
    with pytest.raises(ProfilesError, match=re.escape(said)):
        table_of(text)


def test_amounts() -> None:
    assert [range_of(text) for text in (8, "8", "2-8", "8+", 0)] == [
        Range(8, 8),
        Range(8, 8),
        Range(2, 8),
        Range(8),
        Range(0, 0),
    ]
    assert table_of("").rules == ()
    (rule,) = table_of("rules: [{name: a}]").rules
    assert (rule.members, rule.nodes, rule.cards) == (ANY_AMOUNT, "", "")


@pytest.mark.parametrize(
    ("work", "hour", "full", "rule"),
    [
        (Work("high", 1, 1, 30, ("h20",), Traits("Deployment")), 12, 50, "services-while-there-is-room"),
        (Work("high", 1, 1, 30, ("h20",), Traits("Deployment")), 12, 85, "services-when-full"),
        (
            Work("low", 1, 1, 25, ("h20",), Traits("Pod", (("app.kubernetes.io/component", "notebook"),))),
            12,
            50,
            "notebooks",
        ),
        (
            Work(cards=1, part_percent=100, models=("t4",), traits=Traits("VolcanoJob")),
            3,
            0,
            "single-card-training",
        ),
        (
            Work(cards=1, models=("t4",), traits=Traits("VolcanoJob", earlier=("short",))),
            9,
            0,
            "short-runs-by-day",
        ),
        (
            Work(members=4, cards=32, part_percent=100, models=("h20",), traits=Traits("VolcanoJob")),
            3,
            0,
            "large-gangs",
        ),
        (Work(members=2, cards=4, part_percent=100, models=("h20",), traits=Traits("VolcanoJob")), 3, 0, ""),
    ],
)
def test_the_example_is_what_its_page_says(work: Work, hour: int, full: int, rule: str) -> None:
    table = table_of(EXAMPLE.read_text())
    assert never_reached(table) == {}
    assert table.first(work, Moment(hour, lambda _: full)).rule == rule


def test_check_names_the_rule_that_nothing_reaches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "placement.yaml"
    file.write_text("rules: [{name: all, nodes: spread}, {name: low, when: {class: low}}]")
    assert main(["check", str(file)]) == 1
    assert "low: nothing reaches it, since all" in capsys.readouterr().out
    assert main(["check", str(EXAMPLE)]) == 0
    file.write_text("rules: [{")
    assert main(["check", str(file)]) == 1
    assert "no YAML" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.yaml")]) == 1


def test_which_says_the_rule_for_such_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["which", str(EXAMPLE), "--class", "high", "--owner", "Deployment", "--allocation", "90"]) == 0
    )
    assert capsys.readouterr().out == "services-when-full: nodes binpack, cards binpack\n"
    assert (
        main(["which", str(EXAMPLE), "--label", "app.kubernetes.io/component=notebook", "--share", "20"]) == 0
    )
    assert capsys.readouterr().out.startswith("notebooks:")
    assert main(["which", str(EXAMPLE), "--cards", "2", "--members", "2"]) == 0
    assert "no rule" in capsys.readouterr().out


def test_work_without_cards_is_of_no_model() -> None:
    table = table_of("rules: [{name: empty, when: {allocation: 0-50}, nodes: spread}]")
    assert table.first(Work(), NOON).rule == ""
    assert table.first(Work(models=("t4",)), NOON).rule == "empty"
