"""The rules of plain language that a program can check: short sentences, plain openers, no foreign idiom.

Pure: text in, findings out. Markdown and docstrings are read alike: code is no prose, a list item and a table
cell are texts of their own, and a link counts by its words.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

MOST_WORDS: Final = 25
"""In one sentence."""
OPENERS: Final = ("Who", "Whoever", "Of", "So did", "So was")
"""No sentence begins with one of these, unless it is a question."""
PHRASES: Final = ("anew", "for good", "in vain", "beside")
"""Not English as our readers know it: again, for ever, without success, next to."""

_FENCE: Final = re.compile(r"\s*(```|~~~)")
_ITEM: Final = re.compile(r"(\s*)(?:[-*+]|\d+[.)])\s+(.*)")
_HEADING: Final = re.compile(r"#{1,6}\s+(.*)")
_RULER: Final = re.compile(r"[-=|:\s]+")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_NO_END: Final = re.compile(r"(?:\.\.|\b(?:e\.g|i\.e|etc|vs|cf|approx))\.[\"')\]]*\s*$", re.IGNORECASE)
_OPENER: Final = re.compile(rf"\W*({'|'.join(OPENERS)})\s+\w", re.IGNORECASE)
_PHRASE: Final = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)
_DIRECTIVE: Final = re.compile(r"#\s*(?:!|-{3}|={3}|type:|noqa|fmt:|ruff:|mypy:|pragma)")
_SHOWN: Final = 90


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence that breaks a rule."""

    line: int
    """The first line of the paragraph, list item or table row that it stands in."""
    rule: str
    sentence: str

    def __str__(self) -> str:
        cut = self.sentence if len(self.sentence) <= _SHOWN else f"{self.sentence[:_SHOWN]}..."
        return f"{self.line}: {self.rule}: {cut}"


@dataclass(frozen=True, slots=True)
class _Block:
    """A text of its own: a paragraph, a heading, a list item, a table cell."""

    line: int
    text: str
    heading: bool = False


def findings(text: str) -> list[Finding]:
    """What breaks a rule in a Markdown page, a docstring, a comment or a message."""
    return [found for block in _blocks(text) for found in _in_block(block)]


def prose_of_python(source: str) -> list[tuple[int, str]]:
    """(first line, text) of each docstring and comment of a module, in their order."""
    return sorted([*_docstrings(source), *_comments(source)])


# --- rules ---------------------------------------------------------------------------------------


def _in_block(block: _Block) -> Iterator[Finding]:
    for sentence in sentences(block.text):
        for phrase in _PHRASE.findall(sentence):
            yield Finding(block.line, f'"{phrase}"', sentence)
        if block.heading:  # a name, not a sentence
            continue
        words = sum(1 for word in sentence.split() if any(letter.isalnum() for letter in word))
        if words > MOST_WORDS:
            yield Finding(block.line, f"{words} words", sentence)
        if (opener := _OPENER.match(sentence)) and not sentence.endswith("?"):
            yield Finding(block.line, f'begins with "{opener[1]}"', sentence)


def sentences(text: str) -> list[str]:
    """The sentences of one block; inline code is one word, a link its text."""
    plain = " ".join(_plain(text).split())
    found, start = [], 0
    for end in _SENTENCE_END.finditer(plain):
        if not _NO_END.search(plain[start : end.end()]):
            found.append(plain[start : end.start()])
            start = end.end()
    return [sentence for sentence in (*found, plain[start:]) if sentence]


def _plain(text: str) -> str:
    text = _CODE.sub("CODE", text)
    for _ in range(2):  # an image may be the text of a link
        text = _LINK.sub(r"\1", text)
    return text.replace("**", "").replace("*", "")


# --- Markdown ------------------------------------------------------------------------------------


def _blocks(text: str) -> Iterator[_Block]:
    """Paragraphs, headings, list items and table cells; code and comments are left out."""
    kept: list[str] = []
    first, in_list, after_blank = 1, False, True
    for number, line in _lines_without_fences(_COMMENT.sub(_blank_lines, text)):
        stripped = line.strip().removeprefix("> ").removeprefix(">")
        item, heading = _ITEM.match(line), _HEADING.match(line)
        table = stripped.startswith("|")
        if after_blank and not in_list and line.startswith("    ") and stripped:
            continue  # indented code
        if not stripped or item or heading or table:
            if kept:
                yield _Block(first, "\n".join(kept))
            kept = []
        if item:
            in_list = True
        elif stripped and not line.startswith(" ") and after_blank:
            in_list = False
        after_blank = not stripped
        if heading:
            yield _Block(number, heading[1], heading=True)
        elif table:
            yield from (_Block(number, cell) for cell in _cells(stripped))
        elif stripped:
            first = first if kept else number
            kept.append(item[2] if item else stripped)
    if kept:
        yield _Block(first, "\n".join(kept))


def _lines_without_fences(text: str) -> Iterator[tuple[int, str]]:
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
            yield number, ""
        elif not fence:
            yield number, line


def _blank_lines(comment: re.Match[str]) -> str:
    return "\n" * comment[0].count("\n")


def _cells(row: str) -> list[str]:
    if _RULER.fullmatch(row):
        return []
    escaped = _CODE.sub(lambda code: code[0].replace("|", ""), row).replace(r"\|", "")
    return [cell.strip() for cell in escaped.strip("|").split("|") if cell.strip()]


# --- Python --------------------------------------------------------------------------------------


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Strings that stand by themselves: of modules, classes, functions, attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(value := node.value, ast.Constant):
            text = value.value
            yield from [(node.lineno, inspect.cleandoc(text))] if isinstance(text, str) else []


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments; lines of one below the other are one text."""
    first, last, column, kept = 0, -1, -1, list[str]()
    for token in _comment_tokens(source):
        alone = not token.line[: token.start[1]].strip()
        goes_on = alone and token.start == (last + 1, column)
        if kept and not goes_on:
            yield first, " ".join(kept)
        if not goes_on:
            first, kept = token.start[0], []
        kept.append(token.string.lstrip("#: ").rstrip())
        last, column = token.start[0], token.start[1] if alone else -1
    if kept:
        yield first, " ".join(kept)


def _comment_tokens(source: str) -> Iterable[tokenize.TokenInfo]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return (t for t in tokens if t.type == tokenize.COMMENT and not _DIRECTIVE.match(t.string))
