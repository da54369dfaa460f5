"""Rows are added to the text of a model table; what stands in it stays as it is. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

_HEAD: Final = re.compile(r"^models:[ \t]*(#.*)?$", re.MULTILINE)
_ITEM: Final = re.compile(r"^( *)- ", re.MULTILINE)


class CannotAddError(ValueError):
    """The rows are not added; the text says what to do."""


def with_rows(text: str, rows: Sequence[str]) -> str:
    """The table with these rows before its others. Raises :class:`CannotAddError`."""
    head = _HEAD.search(text)
    item = _ITEM.search(text, head.end()) if head is not None else None
    if head is None or item is None:
        raise CannotAddError("the table has no list of models, a line each: add the rows by hand")
    added = "".join(f"\n{item[1]}- {row}" for row in rows)
    new = text[: head.end()] + added + text[head.end() :]
    try:
        before, after = ModelTable.from_yaml(text), ModelTable.from_yaml(new)
    except ModelTableError as error:
        raise CannotAddError(f"the table would not be one: {error}") from error
    if after.models[len(rows) :] != before.models or after.layouts != before.layouts:
        raise CannotAddError("the table would change in other rows, too: add the rows by hand")
    return new
