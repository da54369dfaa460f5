"""What is nested too deeply is left out, and nothing else."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.kube.wire.reading import MOST_LEVELS, read, without_depths

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='"\\[]{}, aé', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='"\\{]a', max_size=3), inner)
    ),
    max_leaves=20,
)


def cut(value: Any, levels: int) -> Any:
    """The same, slow and plain."""
    if isinstance(value, dict):
        return {k: cut(v, levels - 1) for k, v in value.items()} if levels else None
    if isinstance(value, list):
        return [cut(v, levels - 1) for v in value] if levels else None
    return value


@given(value=values, levels=st.integers(0, 5))
def test_it_is_json_still_and_no_deeper(value: Any, levels: int) -> None:
    text = json.dumps(value).encode()
    found = without_depths(text, levels)
    assert json.loads(found) == cut(value, levels)
    if cut(value, levels) == value:
        assert found is text


@pytest.mark.parametrize(("begin", "end"), [(b'{"a":', b"}"), (b"[", b"]"), (b'[{"a":0,"b":', b',"c":1}]')])
@pytest.mark.parametrize("levels", [300, 1000, 5000])
def test_one_deep_object_takes_no_other_with_it(
    begin: bytes, end: bytes, levels: int, caplog: pytest.LogCaptureFixture
) -> None:
    deep = begin * levels + b"1" + end * levels
    page = b'{"items":[{"n":"a"},{"n":"b","deep":' + deep + b'},{"n":"c"}]}'
    items = read(page, "GET /x")["items"]
    assert [item["n"] for item in items] == ["a", "b", "c"]
    assert "GET /x" in caplog.text
    assert items == read(page, "again")["items"], "Python compares it"
    assert repr(items)


@pytest.mark.parametrize("text", [b"", b"{", b"<html>", b'{"a":1}}', b'"\\', b"[" * 3000])
def test_what_is_no_json_is_none(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        read(text, "GET /x")


def test_what_can_be_read_is_read_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    deep = b"[" * (MOST_LEVELS + 1) + b"]" * (MOST_LEVELS + 1)
    assert json.dumps(read(deep, "GET /x")).encode() == deep
    assert not caplog.text
