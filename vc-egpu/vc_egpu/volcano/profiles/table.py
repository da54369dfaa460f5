"""The table of placement as YAML: ``rules``, each with a ``name``, conditions under ``when``, and its answer.

All conditions of a rule hold together, and the first rule that matches counts. An amount is a number, or a
range: ``8``, ``2-8``, ``8+``. Hours are ``FROM-TO`` in UTC, and may go over midnight.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vc_egpu.core.model.policy import BINPACK_RULES, PLACEMENTS
from vc_egpu.core.profiles.runs import WORDS
from vc_egpu.core.profiles.table import ANY_AMOUNT, Range, Rule, Table
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

MOST_RULES: Final = 64
MOST_PERCENT: Final = 100
POLICIES: Final = (*PLACEMENTS, *BINPACK_RULES)
"""What a rule may name: what users may, and the meanings that binpack may have."""
_MOST_AMOUNT: Final = 1 << 20
_LONGEST_NAME: Final = 63
_LONGEST_LABEL: Final = 317
_LAST_HOUR: Final = 24


class ProfilesError(ValueError):
    """The table cannot be used; the text names the rule."""


def _named(text: str) -> str:
    if not (text.isascii() and text.replace("-", "a").isalnum() and text == text.lower()):
        raise ValueError("write small letters, digits and -")
    return text


def _is_policy(text: str) -> str:
    if text not in POLICIES:
        raise ValueError(f"is none of {', '.join(POLICIES)}")
    return text


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def range_of(value: object, most: int = _MOST_AMOUNT) -> Range:
    """An amount as people write it: 8, ``8``, ``2-8`` or ``8+``. Raises ``ValueError``."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    begin, sign, end = text.partition("-")
    if text.endswith("+"):
        begin, sign, end = text[:-1], "+", ""
    parts = (begin, end) if sign == "-" else (begin,)
    if len(text) > _LONGEST_NAME or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ValueError(f"{value!r} is no amount: write 8, 2-8 or 8+")
    least = int(begin)
    last = int(end) if sign == "-" else None if sign == "+" else least
    if least > most or (last is not None and not least <= last <= most):
        raise ValueError(f"{text} does not lie between 0 and {most}, the smaller one first")
    return Range(least, last)


def _percent(value: object) -> Range:
    return range_of(value, MOST_PERCENT)


def _hours(value: object) -> tuple[int, int]:
    text = value if isinstance(value, str) else ""
    begin, _, end = text.partition("-")
    is_short = text.isascii() and len(text) <= len("00-00")
    if not (is_short and begin.isdecimal() and end.isdecimal()):
        raise ValueError(f"{value!r} is not FROM-TO in hours, as 22-6")
    hours = int(begin), int(end)
    if hours[0] >= _LAST_HOUR or hours[1] > _LAST_HOUR or hours[0] == hours[1]:
        raise ValueError(f"{value} are no hours of a day")
    return hours


_Text = Annotated[str, Field(min_length=1, max_length=_LONGEST_LABEL)]
_Amount = Annotated[Range, BeforeValidator(range_of)]
_Percent = Annotated[Range, BeforeValidator(_percent)]
_Policy = Annotated[str, AfterValidator(_is_policy)]
_Name = Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME), AfterValidator(_named)]
_Class = Literal["high", "standard", "low"]


class When(BaseModel):
    """What a rule is for."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    share_class: Annotated[tuple[_Class, ...], BeforeValidator(_one_or_more)] = Field((), alias="class")
    owner: Annotated[tuple[_Text, ...], BeforeValidator(_one_or_more), Field(max_length=16)] = ()
    labels: Annotated[dict[_Text, Annotated[str, Field(max_length=63)]], Field(max_length=8)] = {}
    members: _Amount = ANY_AMOUNT
    cards: _Amount = ANY_AMOUNT
    share: _Percent = ANY_AMOUNT
    hours: Annotated[tuple[int, int], BeforeValidator(_hours)] | None = None
    allocation: _Percent = ANY_AMOUNT
    earlier: Annotated[tuple[_Text, ...], BeforeValidator(_one_or_more), Field(max_length=8)] = ()


class Row(BaseModel):
    """One rule."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Name
    when: When = Field(default_factory=lambda: When.model_validate({}))
    nodes: _Policy | None = None
    cards: _Policy | None = None

    @property
    def rule(self) -> Rule:
        """The value for the decision."""
        when = self.when
        return Rule(
            name=self.name,
            nodes=self.nodes or "",
            cards=self.cards or "",
            classes=frozenset(when.share_class),
            owners=frozenset(when.owner),
            labels=tuple(sorted(when.labels.items())),
            members=when.members,
            card_count=when.cards,
            part_percent=when.share,
            hours=when.hours,
            allocation_percent=when.allocation,
            earlier=frozenset(when.earlier),
        )


class Rows(BaseModel):
    """The document."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: Annotated[tuple[Row, ...], Field(max_length=MOST_RULES)] = ()


def table_of(text: str) -> Table:
    """The table in a text. Raises :class:`ProfilesError`."""
    try:
        written = read_yaml(text)
        rows = Rows.model_validate({} if written is None else written).rules
    except NotYamlError as error:
        raise ProfilesError(f"no YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"][:5])
        raise ProfilesError(f"{path or 'the table'}: {first['msg']}") from error
    seen: set[str] = set()
    for number, row in enumerate(rows):
        if row.name in seen:
            raise ProfilesError(f"rules.{number}.name: {row.name} stands in the table twice")
        seen.add(row.name)
        for word in row.when.earlier:
            if word not in WORDS:
                raise ProfilesError(f"rules.{number}.when.earlier: {word!r} is none of {', '.join(WORDS)}")
    return Table(tuple(row.rule for row in rows))


def never_reached(table: Table) -> dict[str, str]:
    """Rules that no work can come to: by name, the rule before them that takes all of it."""
    for number, rule in enumerate(table.rules):
        if rule == Rule(rule.name, rule.nodes, rule.cards):
            return {other.name: rule.name for other in table.rules[number + 1 :]}
    return {}
