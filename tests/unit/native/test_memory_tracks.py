"""What the library keeps of each allocation, where a program has very many."""

import subprocess

from unit.native.time_building import compiled


def test_the_end_of_a_context_takes_as_long_as_it_has_allocations() -> None:
    program = compiled("many-tracks", "tests/many_tracks.c", "lib/usage/tracks.c")
    run = subprocess.run([program, "40000"], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 10_000  # ns for each; each looked for from the start took some 100,000
