"""What is read from an agent's metrics page."""

from stack.figures import Figures

PAGE = """\
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{UUID="GPU-1",gpu="0"} 300.0
DCGM_FI_DEV_FB_USED{UUID="GPU-2",gpu="1"} 0.0
# TYPE egpu_node_container_memory_used_mib gauge
egpu_node_container_memory_used_mib{container="a",pod="p",uuid="GPU-1"} 100.0
egpu_node_container_memory_used_mib{container="b",pod="p",uuid="GPU-1"} 200.0
# TYPE egpu_node_container_memory_managed_mib gauge
egpu_node_container_memory_managed_mib{container="a",pod="p",uuid="GPU-1"} 50.0
# TYPE something_else gauge
something_else{pod="q"} 7.0
"""


def test_figures_are_summed_by_card_and_by_pod() -> None:
    assert Figures.parse(PAGE) == Figures({"GPU-1": 300, "GPU-2": 0}, {"p": 300}, {"p": 50})
