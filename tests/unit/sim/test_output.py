"""``vc-egpu sim`` from tables to files."""

import base64
import csv
import importlib.util
import io
import random
import re
from pathlib import Path

import pytest
from unit.sim.test_openb import folder_of
from vc_egpu.report.snapshot_codec import encode, to_json
from vc_egpu.sim.curves import COLUMNS
from vc_egpu.sim.main import EXIT_INPUT, main
from vc_egpu.sim.output import FORMATS, ExtraMissingError, as_png, write
from vc_egpu.sim.world import World

PNG_MAGIC = b"\x89PNG"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = folder_of(tmp_path_factory.mktemp("tables"), random.Random(8), nodes=6, pods=80)
    return ["--nodes", str(folder / "nodes.csv.gz"), "--pods", str(folder / "pods-tiny.csv.gz")]


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_curves_of_all_policies_and_seeds(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--policies", "fullest,ours", "--seeds", "1,2", "--looks", "10", "--drawn"]
    assert main([*tables, *flags, "--lifetime-s", "20", "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "curves.csv")
    assert tuple(rows[0]) == COLUMNS
    assert {(row["policy"], row["seed"]) for row in rows} == {
        (policy, seed) for policy in ("fullest", "ours") for seed in ("1", "2")
    }
    curves = {row["curve"] for row in rows}
    assert {"allocation", "fragmentation", "waiting", "waiting_gpus", "evicted", "finished"} <= curves
    finished = [float(row["value"]) for row in rows if (row["curve"], row["key"]) == ("finished", "gangs")]
    assert max(finished) > 70
    assert {"T4", "all"} <= {row["key"] for row in rows if row["curve"] == "allocation"}
    assert str(tmp_path / "curves.csv") in capsys.readouterr().out


def test_it_takes_the_rules_of_the_live_controller(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "placement.yaml"
    rules.write_text("rules: [{name: all, nodes: spread}]")
    flags = [*tables, "--policies", "fullest", "--drop", "--looks", "20", "--out"]
    assert main([*flags, str(tmp_path / "plain")]) == 0
    assert main([*flags, str(tmp_path / "ruled"), "--placement-rules", str(rules)]) == 0
    plain, ruled = ((tmp_path / name / "curves.csv").read_text() for name in ("plain", "ruled"))
    assert plain != ruled
    rules.write_text("rules: [{name: all, nodes: tightest}]")
    assert main([*flags, str(tmp_path / "bad"), "--placement-rules", str(rules)]) == EXIT_INPUT
    assert "rules.0.nodes" in capsys.readouterr().err


def test_a_picture_and_a_page_with_nothing_outside_it(tables: list[str], tmp_path: Path) -> None:
    flags = ["--policies", "fullest", "--drop", "--looks", "5", "--format", "png,html"]
    assert main([*tables, *flags, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(PNG_MAGIC)
    page = (tmp_path / "curves.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]{1,40})', page)
    assert sources and all(source.startswith("data:") for source in sources)
    picture = re.search(r"data:image/png;base64,([^\"]+)", page)
    assert picture is not None and base64.b64decode(picture[1]).startswith(PNG_MAGIC)
    assert "fullest" in page


def test_parquet_or_the_word_what_it_needs(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        with pytest.raises(ExtraMissingError, match=r"parquet needs pyarrow: pip install 'vc-egpu\[sim\]'"):
            write(tmp_path, ["parquet"], [], [], "nothing")
        return
    (path,) = write(tmp_path, ["parquet"], [], [], "nothing")
    assert path.read_bytes().startswith(b"PAR1")


def test_no_points_make_an_empty_picture() -> None:
    assert as_png([], "nothing").startswith(PNG_MAGIC)
    assert FORMATS == ("csv", "parquet", "png", "html")


def test_from_a_snapshot_alone(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(to_json(encode(World().snapshot())))
    assert main(["--snapshot", str(path), "--policies", "fullest"]) == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "name --nodes, a --snapshot or what was --recorded"),
        (["--nodes", "/no/such.csv"], "/no/such.csv"),
        (["--snapshot", __file__], "the snapshot is damaged"),
    ],
)
def test_what_is_wrong_is_one_line(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == EXIT_INPUT
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("vc-egpu sim: ") and says in error


@pytest.mark.parametrize(
    "flags", [["--policies", "best"], ["--policies", ""], ["--seeds", "x"], ["--format", "pdf"]]
)
def test_unknown_words_are_refused_with_those_there_are(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(flags)
    assert "is not made of" in capsys.readouterr().err
