"""All files of the chart, by their path in it."""

from typing import Final

import yaml
from vc_egpu import __version__

from chart.options import choices
from chart.renders import REPOSITORY, by_choice
from chart.templates import file_of, in_order, schema, template, values_yaml

CHART: Final = REPOSITORY / "manifests" / "helm" / "vc-egpu"
_TABLES: Final = {
    "models": "base/config/models.yaml",
    "nodePolicy": "base/config/node-policy.yaml",
    "placement": "base/config/placement.yaml",
    "nodeGroups": "components/node-growth/groups.yaml",
    "catalogue": "components/jobs-api/catalogue.yaml",
}
"""What stands where a value is empty, below ``manifests``."""


def files() -> dict[str, str]:
    """Path to text. Renders every choice, which takes some ten seconds."""
    every = list(choices())
    found = by_choice(every)
    made = {f"templates/{file_of(key)}": template(found[key], every) for key in in_order(found)}
    if len(made) != len(found):
        raise ValueError("two objects would stand in one template")
    for value, name in _TABLES.items():
        made[f"files/{value}.yaml"] = (REPOSITORY / "manifests" / name).read_text()
    chart = {
        "apiVersion": "v2",
        "name": "vc-egpu",
        "description": "GPU sharing for batch clusters on Kubernetes and Volcano",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.30.0-0",
    }
    made["Chart.yaml"] = yaml.safe_dump(chart, sort_keys=False)
    made["values.yaml"] = values_yaml()
    made["values.schema.json"] = schema()
    return made
