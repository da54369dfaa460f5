"""Texts of needs and versions: any text is read or refused, and the order is an order."""

from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.core.environments.needs import Atom, Needs, holds, lacking
from vc_egpu.core.environments.versions import Version, VersionError, parse
from vc_egpu.volcano.needs import nvidia, text
from vc_egpu.volcano.needs.compile import compiled
from vc_egpu.volcano.needs.table import shipped

NUMBERS = st.lists(st.integers(0, 999), min_size=1, max_size=4)
STAGE = st.sampled_from(["", "rc1", ".RC2", ".post3", "a1", ".dev4", "-beta2"])
BUILD = st.sampled_from(["", "+cu124", "+cpu"])


@st.composite
def versions(draw: st.DrawFn) -> str:
    return ".".join(map(str, draw(NUMBERS))) + draw(STAGE) + draw(BUILD)


ATOMS = st.builds(
    Atom,
    st.sampled_from(text.NODE_FACTS[:5]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "="]),
    versions(),
)


@given(versions(), versions(), versions())
def test_versions_have_one_order(one: str, two: str, three: str) -> None:
    a, b, c = parse(one), parse(two), parse(three)
    assert (a.key < b.key) + (a.key > b.key) + (a.key == b.key) == 1
    if a.key <= b.key <= c.key:
        assert a.key <= c.key
    assert holds(a, ">=", two) is not holds(a, "<", two)
    assert holds(a, "<=", two) is not holds(a, ">", two)
    assert holds(a, "==", two) is not holds(a, "!=", two)


@given(NUMBERS, BUILD)
def test_a_candidate_is_before_its_release_and_a_post_after_it(numbers: list[int], build: str) -> None:
    release = ".".join(map(str, numbers))
    before, after = parse(f"{release}.RC1{build}"), parse(f"{release}.post1{build}")
    assert before.key < parse(release).key < after.key
    assert parse(f"{release}.0").key == parse(release).key
    for each in (before, after, parse(f"{release}.1")):
        assert parse(release).is_line_of(each)


@given(st.text(max_size=80))
def test_any_text_is_a_version_or_none(written: str) -> None:
    try:
        found = parse(written)
    except VersionError:
        return
    assert isinstance(found, Version)
    assert found.numbers


@given(st.lists(ATOMS, min_size=1, max_size=8))
def test_what_is_written_is_read(atoms: list[Atom]) -> None:
    written = ", ".join(map(str, atoms))
    if len(written) <= text.LONGEST:
        assert list(text.read(written)) == atoms
    assert text.way(",".join(map(str, atoms))) == tuple(atoms)


@given(st.text(max_size=600) | st.text("cudaor>=<!.,1245 in|+t_", max_size=600))
def test_any_text_is_read_or_refused(written: str) -> None:
    try:
        ways = compiled(written, shipped())
    except text.NeedsError as error:
        assert len(str(error)) < 1500
        return
    assert len(written) <= text.LONGEST
    assert 0 < len(ways) <= 64
    for way in ways:
        assert text.way(",".join(map(str, way))) == way


@given(st.text("cudarive>=<!.,0123456789 bn", max_size=300))
def test_any_value_of_an_image_is_read(value: str) -> None:
    ways, _ = nvidia.terms(value)
    assert len(ways) <= nvidia.MOST_WAYS


WAYS = st.lists(st.lists(ATOMS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)


@given(WAYS, versions())
def test_a_need_is_met_where_one_way_is(ways: tuple[tuple[Atom, ...], ...], value: str) -> None:
    """Against a dumb reading of it; a node that tells nothing meets what is presumed, and nothing else."""
    facts = tuple((name, (value,)) for name in sorted(text.NODE_FACTS[:5]))
    met = any(all(holds(parse(value), atom.op, atom.value) for atom in way) for way in ways)
    assert (not lacking(Needs("", ways), facts)) is met
    assert lacking(Needs("", ways), ())
    assert not lacking(Needs("", ways, presumed=True), ())


def test_the_longest_text() -> None:
    longest = "cuda>=" + "1" * 9
    written = longest + " " * (text.LONGEST - len(longest))
    assert text.read(written)
    try:
        text.read(written + " ")
    except text.NeedsError as error:
        assert str(error) == "is 513 characters long, the limit is 512"
    else:
        raise AssertionError("it is too long")
