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
    one, two = (applied(SPEC, each) for each in decode(text(), TABLE).values())
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
        (text((0, "kind", "ascend")), "0.kind: no model is of kind ascend; these are known: nvidia"),
        (text((0, "kind", "GPU")), "0.kind"),
        (text((1, "kind", "gpu")), "1: Value error, kind and model are given; leave one of them out"),
        (
            text((0, "slice", "vir10_3c_32g")),
            "0: Value error, a slice has a size; leave memory and cores out",
        ),
        (text((0, "slice", "")), "0.slice"),
        (
            json.dumps([{"name": "a" * 29, "kind": "gpu"}]),
            "0.name: with a model it has 33 characters, the limit is 32",
        ),
        (
            json.dumps([{"name": "any.l20", "model": "h20"}, {"name": "any", "kind": "gpu"}]),
            "1.name: two alternatives are called any.l20",
        ),
        (text((1, "needs", "x" * 513)), "1.needs: String should have at most 512 characters"),
    ],
)
def test_what_is_refused_names_its_place(written: str, said: str) -> None:
    with pytest.raises(AnnotationError) as refused:
        decode(written, TABLE)
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


KINDS = ModelTable.from_yaml(
    """
models:
  - {name: h20, memoryMiB: 98304, cardsPerNode: 8}
  - {name: l20, memoryMiB: 49152, cardsPerNode: 4}
  - {name: 910b3, vendor: ascend, memoryMiB: 65536, layout: b3, stack: false}
  - {name: 910b4, vendor: ascend, memoryMiB: 32768, layout: b4, stack: false}
layouts:
  b3: {totals: {aicore: 20}, templates: [
    {name: vir05_1c_16g, mib: 16384, cores: 25, parts: {aicore: 5}},
    {name: vir10_3c_32g, mib: 32768, cores: 50, parts: {aicore: 10}}]}
  b4: {totals: {aicore: 20}, templates: [{name: vir05_1c_8g, mib: 8192, cores: 25, parts: {aicore: 5}}]}
"""
)


def ways(*entries: dict[str, Any]) -> dict[str, dict[str, int]]:
    """By option what it counts, as the pod above asks for it."""
    found = options.read(SPEC, {names.ALTERNATIVES: json.dumps(entries)}, KINDS).options
    return {name: dict(way.sums()) for name, way in found.items()}


def counted(model: str, memory_mib: int, cores: int) -> dict[str, int]:
    sums = {f"volcano.sh/vgpu-{model}": 1, f"volcano.sh/vgpu-{model}-memory": memory_mib}
    return sums | ({f"volcano.sh/vgpu-{model}-cores": cores} if cores else {})


def test_a_kind_is_any_of_its_models_in_the_order_of_the_table() -> None:
    assert ways({"name": "any", "kind": "gpu", "memory": 24576}) == {
        "any.h20": counted("h20", 24576, 0),
        "any.l20": counted("l20", 24576, 0),
    }
    by_vendor = ways({"name": "npu", "kind": "ascend", "memory": 8000, "image": {"main": "cann"}})
    assert by_vendor == {
        "npu.910b3": counted("910b3", 16384, 25),
        "npu.910b4": counted("910b4", 8192, 25),
    }
    assert ways({"name": "npu", "kind": "npu", "memory": 8000}) == by_vendor


def test_models_of_a_kind_that_cannot_hold_it_are_left_out() -> None:
    assert list(ways({"name": "any", "kind": "gpu", "memory": 90000}, {"name": "l20"})) == ["any.h20", "l20"]
    with pytest.raises(AskError) as refused:
        ways({"name": "any", "kind": "gpu", "memory": 100_000})
    assert "above 98304" in str(refused.value)
    assert "no model of its kind can hold it" in str(refused.value)


def test_a_kind_of_more_models_than_a_gang_may_try_is_refused_by_number() -> None:
    rows = ", ".join(f"{{name: m{number}, memoryMiB: 98304}}" for number in range(9))
    many = ModelTable.from_yaml(f"models: [{rows}]")
    annotations = {names.ALTERNATIVES: json.dumps([{"name": "any", "kind": "gpu"}])}
    with pytest.raises(AskError, match="are 9 with all models of their kinds, the limit is 8; name models"):
        options.read(SPEC, annotations, many)


def test_a_slice_is_exactly_this_one_and_its_size_counts() -> None:
    """The template's own memory is of another kind of card."""
    assert ways({"name": "910b3", "slice": "vir10_3c_32g"}, {"name": "h20"}) == {
        "910b3": counted("910b3", 32768, 50),
        "h20": counted("h20", 1000, 0),
    }
    assert ways({"name": "npu", "kind": "npu", "slice": "vir05_1c_8g"}) == {
        "npu.910b4": counted("910b4", 8192, 25)
    }


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "910b3", "slice": "vir05_1c_8g"}, "is no slice of model 910b3; these are: vir05_1c_16g"),
        ({"name": "h20", "slice": "vir05_1c_8g"}, "cards of model h20 are not cut into slices"),
        ({"name": "910b3", "slice": "vir05_1c_16g", "count": 2}, "a container takes one slice"),
    ],
)
def test_a_slice_that_the_model_does_not_have_is_refused(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(AskError) as refused:
        ways(entry)
    assert said in str(refused.value)
    assert f"(alternative {entry['name']} of" in str(refused.value)


def test_a_pod_is_made_as_the_model_of_the_kind_that_was_chosen() -> None:
    written = json.dumps([{"name": "npu", "kind": "npu", "slice": "vir05_1c_8g", "image": {"main": "cann"}}])
    made = options.with_option(SPEC, {names.ALTERNATIVES: written}, "npu.910b4", KINDS)
    main = made["containers"][0]
    assert main["image"] == "cann"
    assert main["resources"]["limits"] == {"volcano.sh/vgpu-910b4": 1, "cpu": 4}
    with pytest.raises(AskError, match=r"there is no alternative npu\.h20"):
        options.with_option(SPEC, {names.ALTERNATIVES: written}, "npu.h20", KINDS)
