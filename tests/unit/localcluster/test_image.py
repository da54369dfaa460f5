"""The product image's archives: what one checkout builds leaves those of others alone."""

import os
from pathlib import Path

import pytest
from image.build import forget_old

NOW_S = 1_000_000.0
HOUR_S = 3600.0


def archives(folder: Path, *ages_s: float) -> list[Path]:
    """One for each, last used so long ago."""
    made = []
    for number, age_s in enumerate(ages_s):
        path = folder / f"vc-egpu-0.1.0-{number:016x}.tar"
        path.write_bytes(b"")
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))
        made.append(path)
    return made


@pytest.mark.parametrize(
    ("ages_s", "left"),
    [
        ((0, 2 * HOUR_S, 3 * HOUR_S), {0, 1, 2}),
        ((0, 5 * HOUR_S, 4 * HOUR_S, 3 * HOUR_S, 2 * HOUR_S), {0, 3, 4}),
        ((0, 10, 20, 30, 40), {0, 1, 2, 3, 4}),
        ((9 * HOUR_S, 4 * HOUR_S, 3 * HOUR_S, 2 * HOUR_S), {0, 1, 2, 3}),
    ],
)
def test_archives_that_were_used_last_stay(tmp_path: Path, ages_s: tuple[float, ...], left: set[int]) -> None:
    """The first is the one just built: it stays whatever its age says."""
    made = archives(tmp_path, *ages_s)
    other = tmp_path / "busybox-1-0.tar"
    other.write_bytes(b"")
    os.utime(other, (0, 0))
    forget_old(made[0], NOW_S)
    assert {number for number, path in enumerate(made) if path.exists()} == left
    assert other.exists(), "an image of another name is none of its business"
