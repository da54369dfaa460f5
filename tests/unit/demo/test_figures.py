"""What is read from an agent's metrics page."""

from stack.figures import Figures

PAGE = """\
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{UUID="GPU-1",gpu="0"} 300.0
DCGM_FI_DEV_FB_USED{UUID="GPU-2",gpu="1"} 0.0
# TYPE egpu_node_container_memory_used_bytes gauge
egpu_node_container_memory_used_bytes{container="a",pod="p",uuid="GPU-1"} 104857600.0
egpu_node_container_memory_used_bytes{container="b",pod="p",uuid="GPU-1"} 209715200.0
# TYPE egpu_node_container_memory_managed_bytes gauge
egpu_node_container_memory_managed_bytes{container="a",pod="p",uuid="GPU-1"} 52428800.0
# TYPE something_else gauge
something_else{pod="q"} 7.0
"""


def test_figures_are_summed_by_card_and_by_pod() -> None:
    assert Figures.parse(PAGE) == Figures({"GPU-1": 300, "GPU-2": 0}, {"p": 300}, {"p": 50})
