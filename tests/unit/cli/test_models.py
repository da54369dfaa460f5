"""``kubectl egpu models``: unknown products become rows, whatever nodes report."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.cli import kubectl
from vc_egpu.cli.models import run
from vc_egpu.cli.models.found import MOST_ROWS, proposals
from vc_egpu.cli.models.table_text import CannotAddError, with_rows
from vc_egpu.kube import ApiConnection
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.volcano.words.model_table import ModelTable

TEXT = """# Ours.
models:  # by name
  - {name: h20, products: [NVIDIA H20], memoryMiB: 97871}  # the old one
  # and
  - {name: t4, memoryMiB: 15360}
layouts: {}
"""
TABLE = ModelTable.from_yaml(TEXT)
MAP = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.MODELS_CONFIG_MAP}"


def node(*products: str, mib: int = 20_000, model: str = names.UNKNOWN_MODEL) -> NodeCards:
    return NodeCards(
        cards=tuple(
            NodeCard(uuid=f"GPU-{i}", index=i, model=model, product=product, memory_mib=mib + i)
            for i, product in enumerate(products)
        )
    )


def test_a_product_of_several_nodes_is_one_row_with_the_least_memory() -> None:
    found = proposals({"a": node("NVIDIA B99", "nvidia b99 "), "b": node("NVIDIA B99", mib=19_000)}, TABLE)
    (one,) = found
    assert (one.name, one.memory_mib, one.cards, one.nodes) == ("b99", 19_000, 3, 2)
    assert ModelTable.from_yaml(with_rows(TEXT, [one.row])).of_product("NVIDIA B99") is not None


@pytest.mark.parametrize(
    ("product", "problem"),
    [
        ("", "no name that can be written"),
        ("\x1b[2J", "no name that can be written"),
        ("NVIDIA T4", "t4 is another model's name"),
        ("NVIDIA Memory", "memory cannot be a model's name"),
        ("NVIDIA X-cores", "x-cores cannot be a model's name"),
    ],
)
def test_what_a_node_may_not_call_a_model_becomes_no_row(product: str, problem: str) -> None:
    (one,) = proposals({"a": node(product)}, TABLE)
    assert (one.name, one.row) == ("", "")
    assert problem in one.problem


@pytest.mark.parametrize(
    "product", ['a"}]: {x: y', "b: [c", "*anchor", "#comment", "\N{SNOWMAN} 9", "%x", "y" * 128]
)
def test_any_name_is_written_so_that_the_table_is_read_again(product: str) -> None:
    (one,) = proposals({"a": node(product)}, TABLE)
    added = ModelTable.from_yaml(with_rows(TEXT, [one.row]))
    assert added.models[1:] == TABLE.models
    assert added.of_product(product) == added.models[0]


def test_two_products_do_not_share_a_name_and_a_node_cannot_fill_the_table() -> None:
    first, second = proposals({"a": node("NVIDIA B99", "Tesla B99")}, TABLE)
    assert (first.name, second.name) == ("b99", "")
    many = proposals({"a": node(*(f"card {n}" for n in range(40)))}, TABLE)
    assert sum(bool(one.row) for one in many) == MOST_ROWS


def test_cards_that_the_table_knows_by_now_are_left_out() -> None:
    assert proposals({"a": node("nvidia h20"), "b": node("NVIDIA B99", model="h20")}, TABLE) == ()


def test_the_rest_of_the_text_stays_as_it_is() -> None:
    new = with_rows(TEXT, ["{name: x, memoryMiB: 1}"])
    assert [line for line in new.splitlines() if "name: x" not in line] == TEXT.splitlines()


@pytest.mark.parametrize("text", ["models: []", "", "models: [{name: a, memoryMiB: 1}]", "layouts: {}"])
def test_a_table_of_another_form_is_left_to_its_owner(text: str) -> None:
    with pytest.raises(CannotAddError, match="by hand"):
        with_rows(text, ["{name: x, memoryMiB: 1}"])


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        metadata = {"name": names.MODELS_CONFIG_MAP, "namespace": names.SYSTEM_NAMESPACE}
        found.put(MAP, {"metadata": metadata, "data": {"models.yaml": TEXT}})
        annotations = {names.NODE_CARDS: node("NVIDIA B99", "Card 7").encode()}
        found.put("/api/v1/nodes/n1", {"metadata": {"name": "n1", "annotations": annotations}})
        yield found


@pytest.fixture
def kubeconfig(server: TinyApi, tmp_path: Path) -> str:
    return str(server.kubeconfig(tmp_path))


def test_rows_are_added_where_the_user_says_so(server: TinyApi, kubeconfig: str) -> None:
    api = ApiConnection.connect(kubeconfig)
    looked = run.run(api, argparse.Namespace(add=False, model=[]))
    assert ([one.name for one in looked.proposals], looked.added) == (["card-7", "b99"], ())
    assert server.objects[MAP]["data"]["models.yaml"] == TEXT
    added = run.run(api, argparse.Namespace(add=True, model=["b99"]))
    assert added.added == ("b99",)
    table = ModelTable.from_yaml(server.objects[MAP]["data"]["models.yaml"])
    assert [model.name for model in table.models] == ["b99", "h20", "t4"]
    assert [one.name for one in run.run(api, argparse.Namespace(add=False, model=[])).proposals] == ["card-7"]


def test_a_model_that_is_not_proposed_is_refused(
    server: TinyApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubectl.main(["models", "--add", "b98", "--kubeconfig", kubeconfig]) == 1
    assert "no row is proposed for b98" in capsys.readouterr().err
    assert kubectl.main(["models", "--kubeconfig", kubeconfig]) == 0
    assert '{name: b99, products: ["NVIDIA B99"], memoryMiB: 20000}' in capsys.readouterr().out
    assert server.objects[MAP]["data"]["models.yaml"] == TEXT
