"""``kubectl egpu report`` hands its flags to the report, and asks no cluster."""

import types
from typing import Any

import pytest
from vc_egpu.cli import kubectl
from vc_egpu.usage.flags import parser


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    seen: list[list[str]] = []

    def main(argv: list[str]) -> int:
        seen.append(argv)
        return 3

    def load(name: str) -> Any:
        assert name == "vc_egpu.cli.sites.usage"
        return types.SimpleNamespace(main=main)

    monkeypatch.setattr(kubectl, "importlib", types.SimpleNamespace(import_module=load))
    monkeypatch.setattr(kubectl, "connect", lambda _options: pytest.fail("a report needs no cluster"))
    return seen


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["report", "--prometheus", "http://p:9090"], ("http://p:9090", None, None, "8d", "", "table")),
        (["report", "--folder", "x", "--since", "2d", "-o", "json"], (None, "x", None, "2d", "", "json")),
        (
            ["-o", "json", "report", "--folder", "x", "--tenant", "lab"],
            (None, "x", None, "8d", "lab", "json"),
        ),
        (["report", "--clusters", ""], (None, None, "", "8d", "", "table")),
    ],
)
def test_flags_and_exit_status_are_the_reports_own(
    asked: list[list[str]], argv: list[str], expected: tuple[str | None, ...]
) -> None:
    assert kubectl.main(argv) == 3
    options = parser().parse_args(asked[0])
    assert (
        options.prometheus, options.folder, options.clusters, options.since, options.tenant, options.format,
    ) == expected  # fmt: skip


def test_a_report_needs_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kubectl.main(["report"])
    assert ended.value.code == 2
    assert "--prometheus" in capsys.readouterr().err
