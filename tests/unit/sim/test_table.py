"""Tables of nodes and pods: what stands in them, and what is wrong in them by file and line."""

import gzip
from pathlib import Path

import pytest
from vc_egpu.core.model.cluster import Requirement, ShareClass
from vc_egpu.sim.table import MODEL_LABEL, TableError, nodes_of, pods_of, renamed

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1024,2,T4\nn1,16000,2048,0,P100\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"


def written(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["nodes.csv", "nodes.csv.gz"])
def test_nodes_have_their_cards_and_model(tmp_path: Path, name: str) -> None:
    first, second = nodes_of(written(tmp_path, NODES, name))
    assert (first.name, len(first.cards), first.labels[MODEL_LABEL]) == ("n0", 2, "T4")
    assert (first.allocatable.cpu_milli, first.allocatable.memory_bytes) == (8000, 1024 << 20)
    assert second.cards == ()


def test_names_sort_as_the_order_says(tmp_path: Path) -> None:
    nodes = renamed(nodes_of(written(tmp_path, NODES)), [1, 0])
    assert [node.name.partition(".")[2] for node in sorted(nodes, key=lambda node: node.name)] == ["n1", "n0"]


def test_shares_whole_cards_and_pods_without_cards(tmp_path: Path) -> None:
    rows = "a,1000,10,1,810,,5,65\nb,2000,10,4,1000,T4|A10|T4,,\nc,3000,10,0,0,,,\n"
    share, whole, bare = pods_of(written(tmp_path, PODS + rows))
    (ask,) = share.shape.asks
    assert (ask.cards, ask.memory_mib, ask.cores_percent, ask.whole) == (1, 810, 0, False)
    assert (share.gpu_milli, share.arrival_s, share.lifetime_s) == (810, 5.0, 60.0)
    assert (whole.shape.asks[0].whole, whole.gpu_milli, whole.lifetime_s) == (True, 4000, None)
    assert whole.shape.affinity_terms == ((Requirement(MODEL_LABEL, "In", ("A10", "T4")),),)
    assert (bare.shape.asks, bare.gpu_milli) == ((), 0)


def test_columns_of_ours(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gang,queue,class,arrival_s,lifetime_s,gpu_memory_milli\n"
        "a,1000,10,1,500,g,team-a,high,3,7,250\n"
    )
    (pod,) = pods_of(written(tmp_path, text))
    assert (pod.gang, pod.queue, pod.share_class) == ("g", "team-a", ShareClass.HIGH)
    assert (pod.arrival_s, pod.lifetime_s) == (3.0, 7.0)
    assert (pod.shape.asks[0].memory_mib, pod.shape.asks[0].cores_percent) == (250, 50)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,x,10,1,810,,,", "cpu_milli 'x' is no number"),
        ("a,-5,10,1,810,,,", "cpu_milli '-5' is not between 0"),
        ("a,1,10,1,1810,,,", "gpu_milli '1810' is not between 0 and 1000"),
        ("a,nan,10,1,810,,,", "cpu_milli 'nan' is not between 0"),
        ("a,1,10,1,810,,9,3", "deletion_time '3' lies before creation_time"),
        ("a,1,10,1,810,,soon,9", "creation_time 'soon' is no number of seconds"),
        (",1,10,1,810,,,", "name '' is empty"),
        ("a,1,10", "not as many values"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, row: str, says: str) -> None:
    path = written(tmp_path, PODS + "ok,1,1,1,100,,,\n" + row + "\n")
    with pytest.raises(TableError) as caught:
        pods_of(path)
    assert f"{path}:3: {says}" in str(caught.value)


def test_owner_and_labels_for_rules_of_placement(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,owner,labels\n"
    first, second = pods_of(
        written(tmp_path, f"{text}a,1,1,1,500,Deployment,kind=chat;team=x\nb,1,1,1,500,,\n")
    )
    assert (first.owner, first.labels) == ("Deployment", {"kind": "chat", "team": "x"})
    assert (second.owner, second.labels) == ("", {})
    with pytest.raises(TableError, match="key=value"):
        pods_of(written(tmp_path, f"{text}a,1,1,1,500,,chat\n"))


def test_two_pods_of_one_name_and_missing_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="a is there twice"):
        pods_of(written(tmp_path, PODS + "a,1,1,0,0,,,\n" * 2))
    with pytest.raises(TableError, match="there is no column cpu_milli"):
        nodes_of(written(tmp_path, "sn,gpu\nn0,1\n"))
    with pytest.raises(TableError, match=r"no\.gz: Not a gzipped file"):
        nodes_of(written(tmp_path, NODES, "table.csv").rename(tmp_path / "no.gz"))
