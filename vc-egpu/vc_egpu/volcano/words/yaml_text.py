"""YAML that people write, read safely."""

from typing import Any

import yaml


class NotYamlError(ValueError):
    """The text is no YAML."""


def read_yaml(text: str) -> Any:
    """The document; raises :class:`NotYamlError`.

    PyYAML raises more than YAMLError: 2024-13-45 is a date that does not exist. Where a template's value is
    missing, ``!!float`` stands before nothing.
    """
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise NotYamlError(str(error)) from error
