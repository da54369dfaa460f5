"""The Helm chart is what the kustomize manifests are, object by object, for each choice of values."""

import json
from pathlib import Path

import pytest
from chart.options import APART, OPTIONS, Choice, choices, default, is_allowed
from chart.renders import CannotRenderError, Key, of_helm, of_kustomize
from chart.templates import KEEP, template
from chart.write import CHART, files
from localcluster import toolchain
from localcluster.errors import LocalClusterError

EVERY = list(choices())
SHOWN = [
    default(),
    {**default(), "volcano": True},
    {**default(), "suspension": True, "driver": "root", "cudaProbe": True},
    {**default(), "isolation": False},
    {**default(), "driver": "root", "otherVendors": True},
    {**default(), "volcano": True, "closedRuntimeClass": True, "criticalQuota": True, "cudaProbe": True},
    {**default(), "nodeEmptying": True},
    {**default(), "nodeGrowth": True, "ui": True},
    {**default(), "isolation": True, "nodeEmptying": True, "nodeGrowth": True, "jobsApi": True},
]
"""Each value at least once; the others are long."""


def built(program: str) -> None:
    try:
        toolchain.program(program)
    except LocalClusterError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def helm() -> None:
    built("helm")
    built("kubectl")


def ids(choice: Choice) -> str:
    return (
        ",".join(f"{path}={value}" for path, value in choice.items() if value != default()[path]) or "default"
    )


def compare(choice: Choice) -> None:
    wanted, found = of_kustomize(choice), of_helm(CHART, choice)
    assert sorted(found) == sorted(wanted)
    for key, document in wanted.items():
        if document["kind"] == "CustomResourceDefinition":
            annotations = found[key]["metadata"]["annotations"]
            assert KEEP.items() <= annotations.items(), "Helm would take all Jobs of all tenants"
            for name in KEEP:
                del annotations[name]
            if not annotations and "annotations" not in document["metadata"]:
                del found[key]["metadata"]["annotations"]
        assert found[key] == document, key


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("choice", SHOWN, ids=ids)
def test_helm_makes_what_kustomize_makes(choice: Choice) -> None:
    compare(choice)


@pytest.mark.long
@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("choice", [one for one in EVERY if one not in SHOWN], ids=ids)
def test_helm_makes_what_kustomize_makes_for_all_other_choices(choice: Choice) -> None:
    compare(choice)


def test_what_a_group_changes_no_other_value_changes() -> None:
    """So its values need not be rendered with all others."""
    built("kubectl")
    plain = of_kustomize(default())

    def changed(**values: bool | str) -> set[Key]:
        found = of_kustomize({**default(), **values})
        return {key for key in plain.keys() | found.keys() if plain.get(key) != found.get(key)}

    together = changed(volcano=True, isolation=True, suspension=True, driver="root", otherVendors=True)
    seen = together | changed(cudaProbe=True)
    for group in APART:
        own = changed(**dict.fromkeys(group, True))
        assert own, group
        assert not own & seen, group
        seen |= own


@pytest.mark.long
def test_the_chart_is_as_it_is_written() -> None:
    """Run `python -m chart` after a change of a manifest."""
    built("kubectl")
    there = {str(path.relative_to(CHART)): path.read_text() for path in CHART.rglob("*") if path.is_file()}
    assert there == files()


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--set=isolatoin=true", "isolatoin"),
        ("--set=driver=magic", "driver"),
        ("--set=volcano=maybe", "volcano"),
        ("--set=suspension=true,isolation=false", "isolation"),
        ("--set=otherVendors=true", "driver"),
        ("--set=image.tag=", "image"),
    ],
)
def test_bad_values_are_refused_by_name(flag: str, said: str) -> None:
    with pytest.raises(CannotRenderError, match=said):
        of_helm(CHART, {}, flag)


@pytest.mark.usefixtures("helm")
def test_image_and_tables_are_values(tmp_path: Path) -> None:
    table = tmp_path / "models.yaml"
    table.write_text("models:\n  - {name: h20, memoryMiB: 97871}\n")
    flags = (
        "--set=image.repository=registry.example/egpu",
        "--set=image.tag=9.1-a",
        f"--set-file=models={table}",
    )
    found = of_helm(CHART, {}, *flags)
    models = found["ConfigMap", "vc-egpu-system", "vc-egpu-models"]["data"]["models.yaml"]
    assert models == table.read_text()
    groups = tmp_path / "groups.yaml"
    groups.write_text("groups:\n  - {model: h20, podTemplate: vc-egpu-node-h20, mostNodes: 4}\n")
    grown = of_helm(CHART, {**default(), "nodeGrowth": True}, f"--set-file=nodeGroups={groups}")
    named = grown["ConfigMap", "vc-egpu-system", "vc-egpu-node-groups"]["data"]["groups.yaml"]
    assert named == groups.read_text()
    pods = [
        one["spec"]["template"]["spec"] for key, one in found.items() if key[0] in {"Deployment", "DaemonSet"}
    ]
    images = {container["image"] for pod in pods for container in pod["containers"]}
    assert images == {"registry.example/egpu:9.1-a"}


def test_each_choice_is_allowed_by_the_schema_and_named_in_the_values() -> None:
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]
    values = (CHART / "values.yaml").read_text()
    assert all(map(is_allowed, EVERY))
    for option in OPTIONS:
        assert option.path in properties
        assert f"\n{option.path}: " in values


def test_a_variant_stands_under_the_values_that_decide_it() -> None:
    """Two values decide here; the third, which changes nothing, is not asked."""

    def made(choice: Choice) -> dict[str, object]:
        extra = {"probe": "yes"} if choice["cudaProbe"] else {}
        return {"kind": "X", "metadata": {"name": "x"}, "spec": {"driver": choice["driver"], **extra}}

    some = [{**default(), "cudaProbe": p, "driver": d, "volcano": v}
            for p in (False, True) for d in ("runtime", "root") for v in (False, True)]  # fmt: skip
    text = template([(choice, made(choice)) for choice in some], some)
    assert text.count("{{- if has") == 4
    assert "(list (toString .Values.driver) (toString .Values.cudaProbe))" in text
    assert "volcano" not in text
    only = template([(some[0], made(some[0]))], some[:1])
    assert "{{- if" not in only


def test_helm_is_where_the_tests_look_for_it() -> None:
    assert any("helm" in extra.programs for extra in toolchain.EXTRAS)
