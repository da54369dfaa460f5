"""What a program said is not lost, however quick it was."""

import subprocess

from children import rest_of


def test_what_came_with_the_first_line_is_there() -> None:
    program = ["sh", "-c", "printf 'ready\\ndone 1\\n'; echo odd >&2; exit 3"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.wait()
        assert process.stdout.readline() == "ready\n"
        assert rest_of(process, 60) == (3, "done 1\n", "odd\n")


def test_one_that_does_not_end_is_ended() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(["sleep", "600"], stdout=pipe, stderr=pipe, text=True) as process:
        assert rest_of(process, 0.1)[0] < 0
