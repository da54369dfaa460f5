"""Conditions in the status of an object. Pure, and light: commands that start quickly use it."""

from collections.abc import Mapping
from typing import Any


def condition_of(document: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The condition of this type, or None."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)
