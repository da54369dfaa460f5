"""What nodes tell of themselves: agents, labels of others, and how users see it."""

from typing import Any

from rich.console import Console
from vc_egpu.cli.views import nodes
from vc_egpu.core.model.cluster import Node, NodeName, PodShape, Resources
from vc_egpu.report import values_codec
from vc_egpu.volcano.codec.cluster_codec import node as decode_node
from vc_egpu.volcano.needs.pods import needs_of
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards, NodeLayout, NodeTemplate
from vc_egpu.volcano.words.model_table import ModelTable

TABLE = ModelTable.from_yaml("models: [{name: h20, memoryMiB: 98304}, {name: t4, memoryMiB: 15360}]")
GFD = {
    "nvidia.com/cuda.driver-version.full": "535.104.05",
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "2",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "9",
}


def document(name: str = "n1", *capabilities: str, labels: dict[str, str] | None = None, **said: Any) -> Any:
    cards = tuple(
        NodeCard(
            uuid=f"GPU-{name}-{index}", index=index, model="h20", memory_mib=98304, compute_capability=each
        )
        for index, each in enumerate(capabilities)
    )
    inventory = NodeCards(cards=cards, **said)
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/arch": "amd64", **(labels or {})},
            "annotations": {"egpu.volcano.sh/node-cards": inventory.encode()},
        },
        "status": {"allocatable": {"cpu": "8"}},
    }


def facts(found: Any) -> dict[str, tuple[str, ...]]:
    return dict(decode_node(found, TABLE).environment)


def test_what_the_agent_tells() -> None:
    found = document("n1", "9.0", "9.0", driver_version="550.54.14", cuda_version="12.4")
    assert facts(found) == {
        "arch": ("amd64",),
        "capability": ("9.0",),
        "cuda": ("12.4",),
        "driver": ("550.54.14",),
        "isolation": ("library",),
        "compute": ("library",),
        "kind": ("nvidia",),
    }


def test_the_agents_word_beats_labels_of_others() -> None:
    told = facts(document("n1", "9.0", labels=GFD, driver_version="550.54.14"))
    assert (told["driver"], told["capability"]) == (("550.54.14",), ("9.0",))
    assert told["cuda"] == ("12.2",)  # the agent does not tell


def test_labels_are_read_where_there_is_no_agent() -> None:
    told = decode_node({"metadata": {"name": "n", "labels": GFD}, "status": {}}, TABLE).environment
    assert dict(told) == {"capability": ("8.9",), "cuda": ("12.2",), "driver": ("535.104.05",)}


def test_cards_of_two_kinds_and_cards_that_do_not_tell() -> None:
    assert facts(document("n1", "9.0", "7.5"))["capability"] == ("7.5", "9.0")
    assert "capability" not in facts(document("n1", "9.0", ""))


def test_drivers_of_other_vendors_have_their_own_names() -> None:
    told = facts(document("n1", "", vendor="ascend", driver_version="25.3.RC1"))
    assert told["hdk"] == ("25.3.RC1",)
    assert "driver" not in told


def test_a_long_label_is_left_out() -> None:
    assert "network" not in facts(document(labels={"egpu.volcano.sh/network": "x" * 65}))
    assert facts(document(labels={"egpu.volcano.sh/network": "rdma"}))["network"] == ("rdma",)


def test_a_snapshot_keeps_facts_and_needs() -> None:
    node = Node(NodeName("n"), Resources(), environment=(("capability", ("7.5", "9.0")), ("cuda", ("12.4",))))
    assert values_codec.decode(values_codec.encode(node, Node), Node) == node
    shape = PodShape(needs=needs_of("cuda>=12.4", ("cuda>=12.4,driver in 550|570",), presumed=False))
    assert values_codec.decode(values_codec.encode(shape, PodShape), PodShape) == shape


def test_users_see_it() -> None:
    found = nodes.report(
        [
            document("n2", "9.0", driver_version="550.54.14", cuda_version="12.4"),
            document("n1", ""),
            document("n0"),
        ]
    )
    console = Console(width=100, record=True)
    console.print(nodes.shown(found))
    assert console.export_text().splitlines() == [
        "NODE  MODEL  CARDS  DRIVER     CUDA  CAPABILITY  NETWORK  HELD BY  PARTS",
        "n1    h20        1  -          -     -           -        library  any size",
        "n2    h20        1  550.54.14  12.4  9.0         -        library  any size",
    ]
    console.print(nodes.shown(nodes.report([])))
    assert console.export_text().strip() == "no node has cards that an agent of the stack tells of"


def layout(*templates: tuple[str, int, int], whole: bool = True) -> NodeLayout:
    rows = tuple(NodeTemplate(name=name, memory_mib=mib, cores=cores) for name, mib, cores in templates)
    return NodeLayout(totals={}, templates=rows, whole=whole, made=True)


def cut(name: str, *layouts: NodeLayout | None, model: str = "910b3", **said: Any) -> Any:
    """A node whose cards do not stack; each has one of the layouts."""
    cards = tuple(
        NodeCard(uuid=f"{name}-{index}", index=index, model=model, memory_mib=65536, layout=one, stack=False)
        for index, one in enumerate(layouts)
    )
    return document(name) | {
        "metadata": {
            "name": name,
            "annotations": {"egpu.volcano.sh/node-cards": NodeCards(cards=cards, **said).encode()},
        }
    }


def test_users_see_in_which_steps_cards_are_given_out() -> None:
    npus = layout(("vir10_3c_32g", 32768, 50), ("vir05_1c_16g", 16384, 25))
    some = cut("mig", layout(("1g.10gb", 9152, 14), whole=False), None, model="h100", mode="mig")
    found = nodes.report([cut("npu", npus), some, cut("whole", None, mode="native")])
    console = Console(width=120, record=True)
    console.print(nodes.shown(found))
    assert [line[65:].rstrip() for line in console.export_text().splitlines()] == [
        "PARTS",
        "slices",
        "1g.10gb: 9152 MiB, 14 cores",
        "slices|whole",
        "vir05_1c_16g: 16384 MiB, 25 cores",
        "vir10_3c_32g: 32768 MiB, 50 cores",
        "whole",
    ]


def test_cards_that_are_of_no_model_or_not_given_out_have_no_steps() -> None:
    found = nodes.report([cut("a", None, model="unknown"), cut("b", None)])
    assert [(row.parts, row.steps) for row in found.nodes] == [("", ()), ("", ())]


def test_a_node_with_many_sizes_does_not_fill_the_table() -> None:
    odd = [layout(*((f"s{card}-{size}", 1024, 1) for size in range(16))) for card in range(8)]
    (row,) = nodes.report([cut("odd", *odd)]).nodes
    assert len(row.steps) == 16
