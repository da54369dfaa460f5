"""Completion: the words of the parser, in each place, as kubectl and three shells ask for them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from vc_egpu.cli import completion, kubectl
from vc_egpu.cli.completion import FILES, NO_FILES, SCRIPTS, words
from vc_egpu.cli.parser import commands


def test_all_commands_come_first() -> None:
    found, _ = words([""])
    assert found == sorted(commands())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (["su"], ["suspend"]),
        (["tenant", ""], ["add", "apply", "diff", "remove", "render", "show"]),
        (["tenant", "re"], ["remove", "render"]),
        (["tenant", "remove", "--e"], ["--evict"]),
        (["tenant", "add", "--network", ""], ["isolated", "internet", "open"]),
        (["-o", ""], ["table", "wide", "json", "yaml", "name"]),
        (["queues", "-o", "j"], ["json"]),
        (["-n", "somewhere", "wh"], ["what-if", "why"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["cards", "nothing-like-it"], []),
        (["no-such-command", "x"], []),
        (["tenant", "apply", "--file", ""], []),
    ],
)
def test_each_place_has_its_words(line: list[str], found: list[str]) -> None:
    assert words(line)[0] == found


def test_hidden_flags_are_not_offered() -> None:
    assert "--timeout-s" not in words(["cards", "--"])[0]
    assert "--node" in words(["cards", "--"])[0]


def test_names_of_files_are_completed_where_a_flag_takes_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main(["tenant", "apply", "-f", ""]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == FILES
    assert kubectl.main([completion.ASKED, "tenant", "app"]) == 0
    assert capsys.readouterr().out.splitlines() == ["apply", NO_FILES]


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_the_script_of_each_shell_is_printed_and_read(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubectl.main(["completion", shell]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    assert path.read_text().strip() == SCRIPTS[shell].strip()
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here to read the script")
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_bash_completes_with_it(tmp_path: Path) -> None:
    program = tmp_path / "kubectl-egpu"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom vc_egpu.cli.kubectl import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    (tmp_path / "script").write_text(SCRIPTS["bash"])
    asked = "COMP_WORDS=(kubectl-egpu tenant re); COMP_CWORD=2; _kubectl_egpu; echo ${COMPREPLY[@]}"
    package = str(Path(kubectl.__file__).parents[2])
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": package}
    command = ["bash", "-c", f". {tmp_path}/script; {asked}"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split() == ["remove", "render"], done.stderr
