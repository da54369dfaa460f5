"""The dispatcher of the product image's processes."""

import importlib
import types

import pytest
from vc_egpu.cli import main as dispatcher


def test_without_a_process_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main([]) == dispatcher.EXIT_USAGE
    said = capsys.readouterr().err
    for name in ("admission", "webhook", "jobs", "node-agent"):
        assert name in said


def test_an_unknown_process_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main(["admision"]) == dispatcher.EXIT_USAGE
    assert "'admision'" in capsys.readouterr().err


def test_help_and_version_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main(["--help"]) == 0
    assert dispatcher.main(["--version"]) == 0
    said = capsys.readouterr()
    assert "usage: vc-egpu" in said.out
    assert said.err == ""


def test_flags_and_exit_status_are_the_process_s(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def fake_main(argv: list[str]) -> int:
        seen.append(argv)
        return 7

    module = types.SimpleNamespace(main=fake_main)
    monkeypatch.setattr(importlib, "import_module", lambda name: module)
    assert dispatcher.main(["jobs", "--help", "-v"]) == 7
    assert seen == [["--help", "-v"]]
