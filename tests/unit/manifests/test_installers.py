"""The examples for Terraform and Ansible call the chart as it is: its folder, its values, its namespace."""

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml
from chart.write import CHART

HELM: Final = CHART.parent
ROLE: Final = HELM / "ansible" / "vc_egpu"
TERRAFORM: Final = (HELM / "terraform" / "main.tf").read_text()
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text())["properties"]


def test_ansible_names_values_and_the_folder_of_the_chart() -> None:
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    assert set(defaults["vc_egpu_values"]) <= set(SCHEMA)
    folder = defaults["vc_egpu_chart"].replace("{{ role_path }}", str(ROLE))
    assert Path(folder).resolve() == CHART.resolve()


def test_ansible_s_release_lives_outside_the_namespace_that_the_chart_makes() -> None:
    (task,) = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    assert task["kubernetes.core.helm"]["release_namespace"] == "default"


def test_terraform_names_values_and_the_folder_of_the_chart() -> None:
    folders = re.findall(r'default\s+= "([./a-z-]+)"', TERRAFORM)
    assert [(HELM / "terraform" / folder).resolve() for folder in folders] == [CHART.resolve()]
    (values,) = re.findall(r"default\s+= \{ (.*) \}", TERRAFORM)
    assert {pair.split(" = ")[0] for pair in values.split(", ")} <= set(SCHEMA)
