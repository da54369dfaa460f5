"""Which cards and models a pod wants or avoids: our annotations, Volcano's and HAMi's mean the same."""

from typing import Any

import pytest
from vc_egpu.volcano.codec.pod_codec import pod
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest, Request
from vc_egpu.volcano.words.model_table import ModelTable

TABLE = ModelTable.from_yaml(
    """
models:
  - {name: h20, products: [NVIDIA H20], memoryMiB: 98304}
  - {name: a100-40g, products: [NVIDIA A100-SXM4-40GB], memoryMiB: 40960}
  - {name: a100-80g, products: [NVIDIA A100-SXM4-80GB, NVIDIA A100 80GB PCIe], memoryMiB: 81920}
"""
)


def shape(**annotations: str) -> Any:
    """Of a pod with these annotations: dots and slashes of their names are given as in ``names``."""
    request = Request(
        containers={"main": ContainerRequest(model="h20", cards=1, memory_mib=1, cores_percent=0)}
    )
    document = {
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "uid-p", "resourceVersion": "1",
            "annotations": {names.REQUEST: request.encode(), **annotations},
            "labels": {names.MANAGED_LABEL: "true"},
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {},
    }  # fmt: skip
    return pod(document, TABLE).pod.shape


@pytest.mark.parametrize(
    ("use", "avoid"),
    [
        ("egpu.volcano.sh/use-cards", "egpu.volcano.sh/avoid-cards"),
        ("volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"),
        ("nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"),
    ],
)
def test_cards_by_their_uuids(use: str, avoid: str) -> None:
    found = shape(**{use: "GPU-1, GPU-2", avoid: "GPU-3"})
    assert (found.use_cards, found.avoid_cards) == ({"GPU-1", "GPU-2"}, {"GPU-3"})
    assert (found.use_models, found.avoid_models) == (set(), set())


def test_models_by_their_names() -> None:
    found = shape(
        **{"egpu.volcano.sh/use-models": "h20", "egpu.volcano.sh/avoid-models": "a100-40g,a100-80g"}
    )
    assert (found.use_models, found.avoid_models) == ({"h20"}, {"a100-40g", "a100-80g"})


def test_models_by_parts_of_their_products_as_hami_names_them() -> None:
    found = shape(**{"nvidia.com/use-gputype": "h20,a100-sxm4", "nvidia.com/nouse-gputype": "40GB"})
    assert (found.use_models, found.avoid_models) == ({"h20", "a100-40g", "a100-80g"}, {"a100-40g"})
    assert shape(**{"nvidia.com/use-gputype": "tesla"}).use_models == set()


def test_all_spellings_add_up() -> None:
    found = shape(
        **{
            "egpu.volcano.sh/avoid-cards": "GPU-1",
            "volcano.sh/vgpu-nouse-gpuuuid": "GPU-2",
            "nvidia.com/nouse-gpuuuid": "GPU-3,GPU-1",
        }
    )
    assert found.avoid_cards == {"GPU-1", "GPU-2", "GPU-3"}
