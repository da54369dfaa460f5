"""Texts of the page: the same keys in each language, all reasons, and nothing from elsewhere."""

import json
import re
import shutil
import subprocess

import pytest
from unit.page.browser import npm_file
from vc_egpu.core.model.reasons import Reason
from vc_egpu.page.cluster.scope import KINDS
from vc_egpu.page.serving.server import STATIC

TEXTS = {path.stem: json.loads(path.read_text()) for path in (STATIC / "lang").glob("*.json")}
SCRIPTS = {path.name: path.read_text() for path in (STATIC / "js").glob("*.js")}
FIELD = re.compile(r"\{(\w+)\}")


def test_all_languages_have_the_same_keys() -> None:
    assert set(TEXTS) == {"en", "zh-Hans"}
    assert list(TEXTS["en"]) == list(TEXTS["zh-Hans"])


def test_a_translation_has_the_fields_of_the_text() -> None:
    for key, text in TEXTS["en"].items():
        assert set(FIELD.findall(TEXTS["zh-Hans"][key])) == set(FIELD.findall(text)), key


def test_every_text_is_translated() -> None:
    same = {key for key, text in TEXTS["en"].items() if text == TEXTS["zh-Hans"][key]}
    assert same == {"kind.groups", "column.pod"} & same


@pytest.mark.parametrize("language", TEXTS)
def test_every_reason_has_a_name_and_says_what_helps(language: str) -> None:
    for reason in Reason:
        assert TEXTS[language][f"reason.{reason.value}"]
        if reason is not Reason.ADMITTED:
            assert TEXTS[language][f"help.{reason.value}"]
    for kind in KINDS:
        assert TEXTS[language][f"kind.{kind}"]


def test_every_key_that_scripts_name_is_there() -> None:
    for name, script in SCRIPTS.items():
        for key in re.findall(r"""\bt\(["']([\w.]+)["'][,)]""", script):
            assert key in TEXTS["en"] or f"{key}.one" in TEXTS["en"], f"{name}: {key}"


@pytest.mark.parametrize(
    "word",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser"],
)
def test_no_script_makes_markup_of_text(word: str) -> None:
    assert [name for name, script in SCRIPTS.items() if word in script] == []


def test_nothing_comes_from_elsewhere() -> None:
    for path in STATIC.rglob("*.*"):
        assert not re.search(r"https?://(?!www\.w3\.org)|//[a-z]+\.[a-z]{2,}/", path.read_text()), path.name


def test_scripts_are_typed() -> None:
    """By their JSDoc, with the compiler of TypeScript; nothing is built."""
    compiler, node = npm_file("typescript/bin/tsc"), shutil.which("node")
    if node is None:
        pytest.skip("no Node here")
    flags = "--allowJs --checkJs --strict --noEmit --target esnext --module esnext --moduleResolution bundler"
    command = [node, str(compiler), *flags.split(), "--lib", "dom,dom.iterable,esnext"]
    files = [str(STATIC / "js" / name) for name in sorted(SCRIPTS)]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_page_has_no_script_and_no_style_in_it() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|<script(?![^>]*\ssrc=)|\son\w+=", page)
    named = re.findall(r'(?:src|href)="/static/([^"]+)"', page)
    assert {f"js/{name}" for name in SCRIPTS} | {"page.css"} == set(named)
    assert all((STATIC / name).is_file() for name in named)
