"""``egpu.volcano.sh/alternatives``: what is read, what is refused, and what a pod becomes."""

import json
from typing import Any

import pytest
from vc_egpu.volcano.codec import options
from vc_egpu.volcano.codec.alternatives import MAX_BYTES, applied, decode
from vc_egpu.volcano.codec.request import AskError
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError
from vc_egpu.volcano.words.model_table import ModelTable

TABLE = ModelTable.from_yaml(
    """
models:
  - {name: h20, memoryMiB: 98304, cardsPerNode: 8}
  - {name: l20, memoryMiB: 49152, cardsPerNode: 4}
"""
)
TWO: list[dict[str, Any]] = [
    {"name": "h20", "memory": 24576, "cores": 30, "image": {"main": "reg/qwen:cu124"}},
    {
        "name": "small",
        "model": "l20",
        "memory": "50%",
        "count": 2,
        "image": {"main": "reg/qwen:cu118"},
        "env": {"main": {"MODE": "two", "NEW": "1"}},
        "args": {"main": ["--cards", "2"]},
        "command": {"main": ["serve"]},
    },
]
SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "image": "reg/qwen:any",
            "env": [{"name": "MODE", "value": "one"}, {"name": "KEPT", "value": "x"}],
            "resources": {
                "limits": {"volcano.sh/vgpu": 1, "volcano.sh/vgpu-memory": 1000, "cpu": 4},
                "requests": {"volcano.sh/vgpu": 1, "cpu": 4},
            },
        },
        {"name": "log", "image": "log"},
    ]
}


def text(*changes: tuple[int, str, Any]) -> str:
    entries = json.loads(json.dumps(TWO))
    for index, key, value in changes:
        entries[index][key] = value
    return json.dumps(entries)


def test_a_pod_becomes_what_the_alternative_says_and_nothing_else_changes() -> None:
    one, two = (applied(SPEC, each) for each in decode(text()).values())
    main, log = one["containers"]
    assert (main["image"], log) == ("reg/qwen:cu124", SPEC["containers"][1])
    assert main["resources"]["limits"] == {
        "volcano.sh/vgpu-h20": 1,
        "volcano.sh/vgpu-memory": 24576,
        "volcano.sh/vgpu-cores": 30,
        "cpu": 4,
    }
    main = two["containers"][0]
    assert main["resources"]["limits"] == {
        "volcano.sh/vgpu-l20": 2,
        "volcano.sh/vgpu-memory-percentage": "50",
        "cpu": 4,
    }
    assert main["resources"]["requests"] == {"cpu": 4}
    assert main["env"] == [
        {"name": "KEPT", "value": "x"},
        {"name": "MODE", "value": "two"},
        {"name": "NEW", "value": "1"},
    ]
    assert (main["command"], main["args"]) == (["serve"], ["--cards", "2"])
    assert SPEC["containers"][0]["image"] == "reg/qwen:any", "the template is not touched"


def test_each_is_an_option_of_the_pod() -> None:
    ask = options.read(SPEC, {names.ALTERNATIVES: text()}, TABLE)
    assert [(name, dict(way.sums())) for name, way in ask.options.items()] == [
        (
            "h20",
            {"volcano.sh/vgpu-h20": 1, "volcano.sh/vgpu-h20-memory": 24576, "volcano.sh/vgpu-h20-cores": 30},
        ),
        ("small", {"volcano.sh/vgpu-l20": 2, "volcano.sh/vgpu-l20-memory": 49152}),
    ]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "is no JSON"),
        ("{}", "is no list"),
        ("null", "is no list"),
        ("[]", "at least 1"),
        ("[1]", "0"),
        ('["h20"]', "0"),
        ("[" * 5000, "is no JSON"),
        (
            json.dumps([{"name": "h20", "env": {"main": {"A": "x" * MAX_BYTES}}}]),
            "bytes long, the limit is 16384",
        ),
        (json.dumps([{"name": f"a{i}", "model": "h20"} for i in range(9)]), "at most 8"),
        (json.dumps([{"name": "h20"}, {"name": "h20"}]), "two alternatives are called h20"),
        (json.dumps([{"model": "h20"}]), "0.name"),
        (text((0, "name", "H20!")), "0.name"),
        (text((0, "name", 5)), "0.name"),
        (text((1, "model", "")), "1.model"),
        (text((0, "memory", 0)), "0.memory"),
        (text((0, "memory", -1)), "0.memory"),
        (text((0, "memory", 1.5)), "0.memory"),
        (text((0, "memory", "0%")), "0.memory"),
        (text((0, "memory", "101%")), "0.memory"),
        (text((0, "memory", "4Gi")), "0.memory"),
        (text((0, "cores", 101)), "0.cores"),
        (text((0, "cores", "30")), "0.cores"),
        (text((0, "count", 0)), "0.count"),
        (text((0, "count", 65)), "0.count"),
        (text((0, "count", True)), "0.count"),
        (text((0, "image", "reg/x")), "0.image"),
        (text((0, "image", {"main": ""})), "0.image.main"),
        (text((0, "env", {"main": {"1 A": "x"}})), "0.env.main"),
        (text((0, "env", {"main": {"A": 1}})), "0.env.main.A"),
        (text((0, "args", {"main": "x"})), "0.args.main"),
        (text((0, "args", {"main": ["x"] * 65})), "0.args.main"),
        (text((0, "volumes", [])), "0.volumes"),
        (text((0, "securityContext", {})), "0.securityContext"),
        (text((0, "kind", "ascend")), "0.kind: is not there yet"),
        (text((1, "needs", "x" * 513)), "1.needs: String should have at most 512 characters"),
        (text((1, "slice", "vir10_3c_32g")), "1.slice: is not there yet"),
    ],
)
def test_what_is_refused_names_its_place(written: str, said: str) -> None:
    with pytest.raises(AnnotationError) as refused:
        decode(written)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({names.ALTERNATIVES: text((0, "image", {"other": "x"}))}, "there is no container 'other'"),
        ({names.ALTERNATIVES: text((1, "model", "l40"))}, "(alternative small of"),
        ({names.ALTERNATIVES: text((1, "count", 5))}, "5 is above 4"),
        ({names.ALTERNATIVES: text((0, "memory", 98305))}, "98305 is above 98304"),
        ({names.ALTERNATIVES: text(), names.USE_MODELS: "h20"}, "leave one of them out"),
        ({names.ALTERNATIVES: text(), names.MIX_MODELS: "true"}, "leave one of them out"),
    ],
)
def test_one_bad_alternative_refuses_all_and_is_named(annotations: dict[str, str], said: str) -> None:
    with pytest.raises(AskError) as refused:
        options.read(SPEC, annotations, TABLE)
    assert said in str(refused.value)
