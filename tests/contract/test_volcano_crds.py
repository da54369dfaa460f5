"""Our models and CRDs against Volcano's own, where a folder with them is named.

``VOLCANO_CRD_DIR``: Volcano's CRD files. ``VOLCANO_EXAMPLE_DIR``: its examples. Without them these tests
skip; those on the committed files always run.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from vc_egpu.volcano.api import crds
from vc_egpu.volcano.api.command import Command
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.api.meta import ApiObject, ModelError
from vc_egpu.volcano.api.podgroup import PodGroup
from vc_egpu.volcano.api.queue import Queue

ROOT = Path(__file__).resolve().parents[2]
MODELS: dict[tuple[str, str], type[ApiObject]] = {
    (f"{model.GROUP}/{model.VERSION}", model.__name__): model for model in (Job, PodGroup, Queue, Command)
}
OPAQUE = ("template.spec", "template.metadata", "volumeClaim")
"""Parts whose fields belong to Kubernetes: our CRDs keep them whole."""


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return Path(value)


def test_committed_crds_are_the_generated_ones() -> None:
    folder = ROOT / "manifests/crds"
    for name, content in crds.files().items():
        assert (folder / name).read_text() == content, (
            f"{name}: run python -m vc_egpu.volcano.api.crds manifests/crds"
        )


def test_committed_field_table_is_the_generated_one() -> None:
    assert (ROOT / "docs/volcano-fields.md").read_text() == crds.field_table()


def test_crds_are_structural() -> None:
    for content in crds.files().values():
        for version in yaml.safe_load(content)["spec"]["versions"]:
            _assert_structural(version["schema"]["openAPIV3Schema"], "")


def _assert_structural(schema: dict[str, Any], path: str) -> None:
    assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
    assert not ("properties" in schema and "additionalProperties" in schema), path
    for name, inner in (schema.get("properties") or {}).items():
        _assert_structural(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            _assert_structural(schema[key], f"{path}[{key}]")
    if schema.get("type") == "array":
        assert "items" in schema, path


def test_pod_groups_have_no_status_subresource() -> None:
    """Clients move a PodGroup to Inqueue by a plain update, as with Volcano's CRD."""
    version = crds.crd(PodGroup)["spec"]["versions"][0]
    assert version["subresources"] == {}
    assert crds.crd(Job)["spec"]["versions"][0]["subresources"] == {"status": {}}
    assert "subresources" not in crds.crd(Command)["spec"]["versions"][0]


def test_every_field_of_volcanos_crds_is_in_ours() -> None:
    folder = _folder("VOLCANO_CRD_DIR")
    compared = 0
    for model in crds.TRAITS:
        theirs = yaml.safe_load((folder / f"{model.GROUP}_{model.PLURAL}.yaml").read_text())["spec"]
        ours = crds.crd(model)["spec"]
        assert ours["names"] == theirs["names"]
        assert (ours["group"], ours["scope"]) == (theirs["group"], theirs["scope"])
        their_version, our_version = theirs["versions"][0], ours["versions"][0]
        for key in ("name", "subresources", "served", "storage"):
            assert our_version.get(key) == their_version.get(key), (model, key)
        assert _sorted_columns(our_version) == _sorted_columns(their_version)
        their_root = their_version["schema"]["openAPIV3Schema"]
        compared += _compare(our_version["schema"]["openAPIV3Schema"], their_root, model.__name__)
    print(f"\n{compared} fields of Volcano's CRDs compared, none missing")
    assert compared > 150


def _sorted_columns(version: dict[str, Any]) -> list[Any]:
    columns = version.get("additionalPrinterColumns") or []
    return sorted(tuple(sorted(column.items())) for column in columns)


def _compare(ours: dict[str, Any], theirs: dict[str, Any], path: str) -> int:
    """Same fields, types, defaults and bounds; returns how many fields were compared."""
    assert ours.get("type") == theirs.get("type"), path
    if path.endswith(OPAQUE):
        return 1
    # Ours may be narrower where Volcano's webhook refuses the rest anyway (enum of actions, durations).
    for key in ("default", "minimum", "maximum", "minLength", "maxLength", "minItems", "format"):
        assert ours.get(key) == theirs.get(key), (path, key)
    if "enum" in theirs:
        assert set(ours["enum"]) == set(theirs["enum"]), path
    assert set(ours.get("required") or ()) == set(theirs.get("required") or ()), path
    count = 1
    for name, inner in (theirs.get("properties") or {}).items():
        assert name in (ours.get("properties") or {}), f"{path}.{name} is missing in our model"
        count += _compare(ours["properties"][name], inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(theirs.get(key), dict):
            count += _compare(ours[key], theirs[key], path)
    return count


def test_volcanos_examples_load() -> None:
    folder = _folder("VOLCANO_EXAMPLE_DIR")
    loaded, refused, other = 0, [], 0
    for path in sorted(folder.rglob("*.yaml")):
        for document in _documents(path):
            model = MODELS.get((str(document.get("apiVersion")), str(document.get("kind"))))
            if model is None:
                other += 1
                continue
            try:
                value = model.parse(document)
            except ModelError as error:
                refused.append(f"{path.relative_to(folder)}: {error}")
                continue
            loaded += 1
            assert value.document() == _without_nulls(document), path
    print(f"\nVolcano's examples: {loaded} loaded, {len(refused)} refused, {other} of other kinds")
    for line in refused:
        print("  refused:", line)
    assert loaded > 0
    expected = [line for line in refused if not line.startswith("invalid_jobs/")]
    assert not expected, "examples outside of invalid_jobs were refused"


def _documents(path: Path) -> list[dict[str, Any]]:
    try:
        return [value for value in yaml.safe_load_all(path.read_text()) if isinstance(value, dict)]
    except yaml.YAMLError:
        return []  # templates of other tools


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
