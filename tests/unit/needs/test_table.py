"""The shipped table against published facts, and tables that cannot be used.

Sources: NVIDIA's release notes of CUDA (drivers of a branch, capabilities), PyTorch's release notes and build
scripts (CUDA builds and the cards that wheels hold code for), Ascend's and MindSpore's tables of versions.
"""

from pathlib import Path

import pytest
from vc_egpu.core.environments.needs import Facts, Needs, lacking
from vc_egpu.volcano.needs import main
from vc_egpu.volcano.needs.compile import compiled
from vc_egpu.volcano.needs.table import EnvironmentTable, TableError, shipped
from vc_egpu.volcano.needs.text import NeedsError


def nvidia(capability: str, driver: str) -> Facts:
    return (("capability", (capability,)), ("driver", (driver,)))


def ascend(hdk: str) -> Facts:
    return (("hdk", (hdk,)),)


P100, V100, T4, A100, L4, H100 = "6.0", "7.0", "7.5", "8.0", "8.9", "9.0"
B200, B300, RTX50 = "10.0", "10.3", "12.0"
PAIRS: list[tuple[str, Facts, bool]] = [
    *(
        (needs, nvidia(capability, driver), fits)
        for needs, capability, driver, fits in [
            ("toolkit==13.0", T4, "580.65.06", True),
            ("toolkit==13.0", T4, "575.51.03", False),
            ("toolkit==13.0", V100, "580.65.06", False),
            ("toolkit==13.0", P100, "590.44.01", False),
            ("toolkit==13.2", H100, "580.65.06", True),
            ("toolkit==12.4", A100, "550.54.14", True),
            ("toolkit==12.4", A100, "525.60.13", True),
            ("toolkit==12.4", A100, "520.61.05", False),
            ("toolkit==12.9", A100, "535.54.03", True),
            ("toolkit==12.0", V100, "525.60.12", False),
            ("toolkit==11.8", V100, "450.80.02", True),
            ("toolkit==11.8", V100, "450.80.01", False),
            ("torch==2.5+cu118", V100, "450.80.02", True),
            ("torch==2.5+cu121", V100, "450.80.02", False),
            ("torch==2.5+cu121", H100, "535.104.05", True),
            ("torch==2.5", B200, "570.26", False),
            ("torch==2.6+cu124", A100, "535.104.05", True),
            ("torch==2.6+cu124", A100, "470.82.01", False),
            ("torch==2.6+cu124", L4, "550.54.14", True),
            ("torch==2.6+cu126", H100, "560.28.03", True),
            ("torch==2.6", RTX50, "570.26", False),
            ("torch==2.6", P100, "535.54.03", True),
            ("torch==2.7+cu126", P100, "560.28.03", True),
            ("torch==2.7+cu128", V100, "570.26", False),
            ("torch==2.7+cu128", B200, "570.26", True),
            ("torch==2.7+cu128", RTX50, "570.26", True),
            ("torch==2.7.1+cu128", T4, "570.26", True),
            ("torch==2.7+cu126", B200, "570.26", False),
            ("torch==2.8+cu126", V100, "560.28.03", True),
            ("torch==2.8+cu128", V100, "570.26", True),
            ("torch==2.8+cu128", P100, "570.26", False),
            ("torch==2.8+cu129", B300, "575.51.03", True),
            ("torch==2.8+cu129", L4, "575.51.03", True),
            ("torch==2.9+cu128", V100, "570.26", True),
            ("torch==2.9+cu130", V100, "580.65.06", False),
            ("torch==2.9+cu130", T4, "580.65.06", True),
            ("torch==2.9+cu130", T4, "570.26", False),
            ("torch==2.9+cu130", B300, "580.65.06", True),
            ("torch==2.10+cu126", P100, "560.28.03", True),
            ("torch==2.10+cu128", V100, "570.26", True),
            ("torch==2.11+cu128", V100, "570.26", False),
            ("torch==2.11+cu128", T4, "570.26", True),
            ("torch==2.11+cu126", V100, "560.28.03", True),
            ("torch==2.11+cu130", H100, "580.65.06", True),
            ("torch==2.12+cu126", V100, "560.28.03", True),
            ("torch==2.12+cu132", H100, "595.45.04", True),
            ("torch==2.12+cu132", V100, "595.45.04", False),
        ]
    ),
    ("torch_npu==2.12.0", ascend("26.1"), True),
    ("torch_npu==2.12.0", ascend("25.5"), False),
    ("torch_npu==2.7.1.post8", ascend("26.1"), True),
    ("torch_npu==2.7.1", ascend("25.3.RC1"), True),
    ("torch_npu==2.7.1", ascend("26.1"), False),
    ("torch_npu==2.9.0", ascend("25.2"), True),
    ("torch_npu==2.6.0", ascend("25.2"), True),
    ("torch_npu==2.5.1", ascend("25.0.RC1"), True),
    ("mindspore==2.7.2", ascend("25.5"), True),
    ("mindspore==2.7.1", ascend("25.3.RC1"), True),
    ("mindspore==2.6.0", ascend("25.0"), False),
    ("cann==8.5.0", ascend("25.3"), True),
    ("cann==8.0.RC1", ascend("24.1.RC1"), True),
    ("cann==8.1.RC1", ascend("25.2"), False),
]


def test_sixty_pairs() -> None:
    assert len(PAIRS) >= 60


@pytest.mark.parametrize(("text", "facts", "fits"), PAIRS)
def test_a_published_pair(text: str, facts: Facts, fits: bool) -> None:
    assert (not lacking(Needs(text, compiled(text, shipped())), facts)) is fits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trch==2.6", "did you mean torch?"),
        ("torch==2.99", "no row of the table for torch 2.99"),
        ("torch==2.11+cu124", "no row"),
        ("cann==9.0.0", "no row"),
        ("brand==tesla", "is unknown"),
    ],
)
def test_what_no_row_could_meet_is_refused(text: str, said: str) -> None:
    with pytest.raises(NeedsError, match=said):
        compiled(text, shipped())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows: [{when: 'torch>=2', needs: 'cuda>=12'}]", "rows.0"),
        ("rows: [{when: 'cuda==2', needs: 'driver>=12'}]", "is a fact of nodes"),
        ("rows: [{when: 'torch==2', needs: 'trch==1'}]", "no fact and no row's program"),
        ("rows: [{when: 'torch==2', needs: 'cuda'}]", "has no version"),
        ("rows: [{when: 'torch==x', needs: 'cuda>=1'}]", "is no version"),
        ("rows: [{when: 'a==1', needs: 'cuda>=1'}, {when: 'a==1', needs: 'cuda>=2'}]", "twice"),
        ("rows: [{when: 'a==1', needs: 'cuda>=1', more: 1}]", "rows.0.more"),
        ("rows: 3", "rows"),
        ("rows: [", "no YAML"),
    ],
)
def test_a_table_that_cannot_be_used_names_the_row(text: str, said: str) -> None:
    with pytest.raises(TableError, match=said):
        EnvironmentTable.from_yaml(text)


def test_rows_that_lead_in_a_circle_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "table.yaml"
    file.write_text("rows: [{when: 'a==1', needs: 'b==1'}, {when: 'b==1', needs: 'a==1'}]")
    assert main.main(["check", str(file)]) == 1
    assert "lead in a circle" in capsys.readouterr().out


def test_a_good_table_is_said_to_be_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "table.yaml"
    file.write_text("rows: [{when: 'hyper==1', needs: 'cuda>=12,capability>=8.0'}]")
    assert main.main(["check", str(file)]) == 0
    assert capsys.readouterr().out == "1 rows, programs: hyper\n"
    assert main.main(["show", "hyper==1.5", "--file", str(file)]) == 0
    assert capsys.readouterr().out == "cuda>=12, capability>=8.0\n"
    assert main.main(["check", str(tmp_path / "none")]) == 1


def test_the_first_row_of_a_build_counts() -> None:
    table = EnvironmentTable.from_yaml(
        "rows: [{when: 'a==1.2', build: x, needs: 'cuda>=12'}, {when: 'a==1', build: x, needs: 'cuda>=11'}]"
    )
    assert [str(atom) for way in compiled("a==1.2.3", table) for atom in way] == ["cuda>=12"]
    assert [str(atom) for way in compiled("a==1.1", table) for atom in way] == ["cuda>=11"]


IMAGES = """
images:
  - {image: "*/pytorch:2.6*-cuda12.4*", needs: "torch==2.6+cu124"}
  - {image: "*/pytorch:*", needs: "toolkit==11.8"}
"""


@pytest.mark.parametrize(
    ("image", "needs"),
    [
        ("reg.example/pytorch:2.6.0-cuda12.4-cudnn9-runtime", "torch==2.6+cu124"),
        ("reg.example/pytorch:2.1.0-cuda11.8", "toolkit==11.8"),
        ("reg.example/pytorch@sha256:00", ""),
        ("pytorch:2.6.0-cuda12.4", ""),
        ("", ""),
        ("a/pytorch:" + "x" * 1024, ""),
    ],
)
def test_the_first_row_of_an_image_counts(image: str, needs: str) -> None:
    table = EnvironmentTable.from_yaml("shipped: true" + IMAGES)
    wanted = (needs,) if needs else ()
    assert [table.needs_of_image(image) for _ in range(2)] == [wanted, wanted]


def test_a_table_may_go_on_with_the_rows_that_are_shipped() -> None:
    own = "rows: [{when: 'torch==2.6', build: cu124, needs: 'cuda>=12.9'}]"
    alone, more = EnvironmentTable.from_yaml(own), EnvironmentTable.from_yaml(f"shipped: true\n{own}")
    assert len(alone.rows) == 1
    assert len(more.rows) == len(shipped().rows)
    ways = compiled("torch==2.6+cu124", more)
    assert [[str(atom) for atom in way] for way in ways] == [["cuda>=12.9"]]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{image: "a", needs: "torhc==2"}', "images.0.needs: 'torhc' is no fact"),
        ('{image: "a", needs: ""}', "images.0.needs"),
        ('{image: "*********", needs: "cuda>=12"}', "at most 8 *"),
        ('{image: "[a]", needs: "cuda>=12"}', "no ["),
        ('{image: "a"}', "images.0.needs"),
    ],
)
def test_rows_of_images_that_cannot_be_used_are_named(row: str, said: str) -> None:
    with pytest.raises(TableError) as error:
        EnvironmentTable.from_yaml(f"shipped: true\nimages: [{row}]")
    assert said in str(error.value)


def test_the_command_names_rows_of_images_that_lead_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('shipped: true\nimages: [{image: "*/a:1", needs: "torch==2.99"}]')
    assert main.main(["check", str(file)]) == 1
    assert "image */a:1: no row of the table for torch 2.99" in capsys.readouterr().out
