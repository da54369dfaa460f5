"""Files that people edit: what was good last holds, also for the next agent; nothing takes a typo's place."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.main import main
from vc_egpu_node.settings.config import Settings
from vc_egpu_node.settings.last_good import NodeSettings

MODELS = "models: [{name: h20, products: [NVIDIA H20], memoryMiB: 97871}]"
KILL = "defaults: {secondWall: kill, coreRatio: 0.5}"
TYPO = "defaults: {secondWall: kil, coreRatio: 0.5}"


@dataclass
class Files:
    """The two files of a node, and its state."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "state").mkdir()
        self.policy.write_text(KILL)
        self.models.write_text(MODELS)

    @property
    def policy(self) -> Path:
        return self.folder / "policy.yaml"

    @property
    def models(self) -> Path:
        return self.folder / "models.yaml"

    def agent(self, *, policy: bool = True) -> NodeSettings:
        """What an agent that starts now goes by."""
        return NodeSettings(
            Settings(
                "n",
                models=self.models,
                policy=self.policy if policy else None,
                state_dir=self.folder / "state",
            )
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_file_that_turns_bad_leaves_the_last_good_one_and_names_the_field(files: Files) -> None:
    known = files.agent()
    assert (known.policy.second_wall, known.policy_problem, known.unknown) == ("kill", "", "")
    assert not known.refresh()
    files.policy.write_text(TYPO)
    files.models.write_text("models: [{name: h20, memoryMiB: 0}]")
    assert not known.refresh()
    assert known.policy.second_wall == "kill"
    assert "secondWall" in known.policy_problem
    assert known.policy_problem.endswith("'kil'; the last good one holds")
    assert [model.memory_mib for model in known.table.models] == [97871]
    assert "memoryMiB" in known.models_problem
    assert known.unknown == ""
    files.policy.write_text("defaults: {secondWall: report}")
    files.models.write_text(MODELS)
    assert known.refresh()
    assert (known.policy.second_wall, known.policy_problem, known.models_problem) == ("report", "", "")


@pytest.mark.parametrize("value", ["!!float", "!!int ''", "!!bool maybe", "!!timestamp soon", "2024-13-45"])
def test_a_value_that_is_not_of_its_tag_is_a_typo_like_any_other(files: Files, value: str) -> None:
    """As a template leaves it whose value is missing. PyYAML says so in any way but its own."""
    known = files.agent()
    files.policy.write_text(f"defaults: {{coreRatio: {value}}}")
    files.models.write_text(f"models: [{{name: h20, memoryMiB: {value}}}]")
    assert not known.refresh()
    assert known.policy_problem.endswith("the last good one holds")
    assert known.models_problem.endswith("the last good one holds")
    assert (known.policy.second_wall, known.unknown) == ("kill", "")


@pytest.mark.parametrize("spoil", ["typo", "missing", "binary", "folder"])
def test_the_next_agent_goes_on_with_what_was_good_last(files: Files, spoil: str) -> None:
    files.agent()
    for path in (files.policy, files.models):
        path.unlink()
        match spoil:
            case "typo":
                path.write_text("defaults: {secondWal: kill}\nmodel: []")
            case "binary":
                path.write_bytes(b"\xff\xfe")
            case "folder":
                path.mkdir()
    for _ in range(2):  # and the one after it
        known = files.agent()
        assert known.policy == Policy(second_wall="kill", core_ratio=0.5)
        assert known.table.get("h20") is not None
        assert known.policy_problem.endswith("the last good one holds")
        assert known.models_problem.endswith("the last good one holds")
        assert known.unknown == ""


def test_where_nothing_good_was_ever_seen_nothing_new_is_taken(files: Files) -> None:
    """Not the defaults: a wall that kills would become one that reports, a ratio of a half a whole one."""
    files.policy.write_text(TYPO)
    known = files.agent()
    assert "secondWall" in known.unknown
    assert known.unknown.endswith("which takes nothing new")
    files.models.write_text("models: [{")
    known.refresh()
    assert "model table" not in known.unknown  # it was good when this agent began
    assert "not YAML" in known.models_problem
    files.policy.write_text(KILL)
    assert known.refresh()
    assert (known.policy.second_wall, known.unknown) == ("kill", "")


def test_a_model_table_that_was_never_good_closes_the_node(files: Files) -> None:
    files.models.unlink()
    known = files.agent()
    assert known.table.models == ()
    assert "No such file" in known.unknown
    files.models.write_text(MODELS)
    known.refresh()
    assert known.unknown == ""


def test_a_node_without_a_policy_file_has_the_defaults(files: Files) -> None:
    files.policy.write_text(TYPO)
    known = files.agent(policy=False)
    assert (known.policy, known.policy_problem, known.unknown) == (Policy(), "", "")
    assert not known.refresh()


@pytest.mark.parametrize(
    "text",
    [
        "defaults: {recoveryS: 2024-13-45}",  # a date to YAML, and none
        "defaults: {slotsPerCard: " + "9" * 5_000 + "}",
        "[" * 5_000,
        "defaults: {coreRatio: [" + "x, " * 500 + "]}",
    ],
)
def test_whatever_stands_there_is_a_problem_and_no_fault(files: Files, text: str) -> None:
    known = files.agent()
    files.policy.write_text(text)
    assert not known.refresh()
    assert known.policy.second_wall == "kill"
    assert 0 < len(known.policy_problem) < 500
    assert "secondWall" not in known.policy_problem


def test_files_can_be_checked_before_any_node_has_them(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """All of them: what is written for another node is none of an agent's business."""
    flags = ["--action=check", f"--models={files.models}", f"--policy={files.policy}", "--node-name=n"]
    assert main(flags) == 0
    assert main(flags[:-2]) == 0
    files.policy.write_text("defaults: {}\nnodes: {a: {coreRatio: 2}, b: {coreRatio: two}}")
    assert files.agent().unknown == ""
    assert main(flags) == 1
    assert "coreRatio" in caplog.text
    files.models.write_text("models: [{name: number, memoryMiB: 1}]")
    caplog.clear()
    assert main(flags) == 1
    assert "reserved" in caplog.text
    assert "coreRatio" in caplog.text


def test_a_file_that_is_back_as_it_was_is_no_problem(files: Files) -> None:
    known = files.agent()
    files.policy.rename(files.folder / "aside")
    known.refresh()
    assert "No such file" in known.policy_problem
    (files.folder / "aside").rename(files.policy)
    known.refresh()
    assert known.policy_problem == ""


def test_what_could_not_be_kept_is_kept_later(files: Files) -> None:
    """A disk that is full when the file comes."""
    state = files.folder / "state"
    state.rmdir()
    state.write_text("in the way")
    known = files.agent()
    state.unlink()
    known.refresh()
    files.policy.write_text(TYPO)
    assert files.agent().policy.second_wall == "kill"


def test_a_kept_file_that_is_broken_is_none(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.agent()
    files.policy.write_text(TYPO)
    kept = files.folder / "state/last-good/policy.yaml"
    os.truncate(kept, 20)
    assert files.agent().unknown != ""
    assert str(kept) in caplog.text


POOLS = "pools: [{name: a, labels: {pool: a}, settings: {secondWall: kill}}]"


def test_labels_choose_the_pool_and_the_next_agent_knows_them(files: Files) -> None:
    files.policy.write_text(POOLS)
    known = files.agent()
    assert "labels of this node are not known" in known.unknown, "it takes nothing new until they are"
    assert known.refresh({"pool": "a"})
    assert (known.policy.second_wall, known.unknown) == ("kill", "")
    assert not known.refresh({"pool": "a"})
    assert not known.refresh(None), "the Node cannot be read for a while"
    following = files.agent()
    assert (following.policy.second_wall, following.unknown) == ("kill", "")
    assert following.refresh({"pool": "b"})
    assert following.policy.second_wall == "report"


def test_kept_labels_that_are_nonsense_count_as_none(files: Files) -> None:
    files.policy.write_text(POOLS)
    files.agent().refresh({"pool": "a"})
    (kept,) = (files.folder / "state").rglob("labels.json")
    kept.write_text("[]")
    assert "not known" in files.agent().policy_problem
