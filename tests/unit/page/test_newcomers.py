"""A newcomer's questions: one command answers each, and so does one look at the page (test_browser)."""

from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.page.cluster_api import ClusterApi
from unit.page.questions import QUESTIONS
from vc_egpu.cli import kubectl

PAGE = Path(__file__).resolve().parents[3] / "docs" / "page.md"


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_newcomers_question_is_answered_by_one_command(
    api: ClusterApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], question: str
) -> None:
    answers = QUESTIONS[question]
    api.put("queues", docs.queue("serving", state="Closed", h20=8))
    kubectl.main([*answers.command.split(), "--kubeconfig", str(api.kubeconfig(tmp_path))])
    assert answers.says in capsys.readouterr().out


def test_at_least_ten_are_asked() -> None:
    assert len(QUESTIONS) >= 10


def test_the_page_has_them_all() -> None:
    """docs/page.md says where each answer is."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    told = {row[0]: row[1] for row in rows if len(row) == 3}
    for question, answers in QUESTIONS.items():
        command = answers.command.replace(" -n ml", "")
        for job in ("big", "train"):
            command = command.replace(f" {job}", " JOB")
        assert told[question.replace("card 0 of n1", "card 3 of node-1")] == f"`kubectl egpu {command}`"
