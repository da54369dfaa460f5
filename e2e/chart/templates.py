"""Templates of objects: each variant of an object stands under the values that decide it. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml

from chart.options import OPTIONS, Choice
from chart.renders import Json, Key

IMAGE: Final = "egpu.volcano.sh/vc-egpu:0.1.0"
_IMAGE_VALUE: Final = "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
_TABLES: Final = {
    ("vc-egpu-models", "models.yaml"): "models",
    ("vc-egpu-node-policy", "policy.yaml"): "nodePolicy",
    ("vc-egpu-placement", "placement.yaml"): "placement",
    ("vc-egpu-node-groups", "groups.yaml"): "nodeGroups",
    ("vc-egpu-catalogue", "catalogue.yaml"): "catalogue",
}
"""Key of a ConfigMap to the value that replaces its text."""
KEEP: Final = {"helm.sh/resource-policy": "keep"}
"""Helm would take the CRDs, and with them all Jobs of all tenants."""
_ORDER: Final = ("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount", "ConfigMap")


def file_of(key: Key) -> str:
    """The template that an object stands in."""
    kind, _, name = key
    return f"{kind.lower()}-{name.lower().replace(':', '-')}.yaml"


def template(variants: Sequence[tuple[Choice, Json]], choices: Sequence[Choice]) -> str:
    """One object: ``variants`` are what it is, by choice; ``choices`` are all that there are."""
    texts: dict[str, list[Choice]] = {}
    for choice, document in variants:
        texts.setdefault(_text(document), []).append(choice)
    having = {_frozen(choice): text for text, chosen in texts.items() for choice in chosen}
    deciding = _deciding(having, choices)
    if not deciding:
        return next(iter(texts))
    asked = " ".join(f"(toString .Values.{path})" for path in deciding)
    parts = []
    for text, chosen in texts.items():
        cases = sorted({"/".join(_shown(choice[path]) for path in deciding) for choice in chosen})
        listed = " ".join(json.dumps(case) for case in cases)
        parts.append(f'{{{{- if has (join "/" (list {asked})) (list {listed}) }}}}\n{text}{{{{- end }}}}\n')
    return "".join(parts)


def _deciding(having: Mapping[Any, str], choices: Sequence[Choice]) -> list[str]:
    """The fewest values, from left to right, that say which variant it is."""
    deciding = [option.path for option in OPTIONS]
    for path in list(deciding):
        fewer = [other for other in deciding if other != path]
        seen: dict[tuple[object, ...], str | None] = {}
        if all(
            seen.setdefault(tuple(choice[one] for one in fewer), having.get(_frozen(choice)))
            == having.get(_frozen(choice))
            for choice in choices
        ):
            deciding = fewer
    return deciding


def _frozen(choice: Choice) -> frozenset[tuple[str, bool | str]]:
    return frozenset(choice.items())


def _shown(value: bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _text(document: Json) -> str:
    """The object as a template: the image is a value, and so are the tables."""
    if document["kind"] == "CustomResourceDefinition":
        metadata = document["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **KEEP}
        document = {**document, "metadata": {**metadata, "annotations": annotations}}
    tables = {}
    if document["kind"] == "ConfigMap":
        for key in document.get("data") or {}:
            value = _TABLES.get((document["metadata"]["name"], key))
            if value:
                tables[f"@{value}@"] = value
                document = {**document, "data": {**document["data"], key: f"@{value}@"}}
    text = yaml.safe_dump(document, sort_keys=False, width=10**6)
    text = text.replace("{{", '{{ "{{" }}').replace(IMAGE, _IMAGE_VALUE)
    for mark, value in tables.items():
        source = f'(.Values.{value} | default (.Files.Get "files/{value}.yaml"))'
        text = text.replace(f"'{mark}'", f"|\n{{{{- {source} | nindent 4 }}}}")
    return f"---\n{text}"


def values_yaml() -> str:
    """The chart's ``values.yaml``."""
    lines = [
        "# What the chart installs. Each value is one of the components that docs/operator.md names.",
        "image:",
    ]
    repository, tag = IMAGE.split(":")
    lines += [f"  repository: {repository}", f"  tag: {tag}"]
    for option in OPTIONS:
        lines += [f"# {option.about}", f"{option.path}: {_shown(option.choices[0])}"]
    lines += [
        "# The table of GPU models, as text. Default: files/models.yaml of the chart.",
        'models: ""',
        "# How nodes offer their cards, as text. Default: files/nodePolicy.yaml of the chart.",
        'nodePolicy: ""',
        "# Which work is placed otherwise, as text. Default: no rules (files/placement.yaml).",
        'placement: ""',
        "# Which groups of nodes may grow, as text. Default: none (files/nodeGroups.yaml). With nodeGrowth.",
        'nodeGroups: ""',
        "# Models of the jobs API, as text. Default: files/catalogue.yaml of the chart. With jobsApi.",
        'catalogue: ""',
    ]
    return "\n".join(lines) + "\n"


def schema() -> str:
    """The chart's ``values.schema.json``: a misspelt value is refused."""
    properties: Json = {
        "image": {
            "type": "object",
            "additionalProperties": False,
            "properties": {key: {"type": "string", "minLength": 1} for key in ("repository", "tag")},
        },
        "global": {"type": "object"},
    }
    for option in OPTIONS:
        boolean = isinstance(option.choices[0], bool)
        kind: Json = {"type": "boolean"} if boolean else {"enum": list(option.choices)}
        properties[option.path] = {**kind, "description": option.about}
    for table in _TABLES.values():
        properties[table] = {"type": "string"}
    needs = (("suspension", "isolation", True), ("otherVendors", "driver", "root"))
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "allOf": [
            {
                "if": {"properties": {one: {"const": True}}, "required": [one]},
                "then": {"properties": {other: {"const": wanted}}},
            }
            for one, other, wanted in needs
        ],
    }
    return json.dumps(whole, indent=2) + "\n"


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Namespaces and CRDs first; by kind and name."""
    return sorted(keys, key=lambda key: (_ORDER.index(key[0]) if key[0] in _ORDER else len(_ORDER), key))
