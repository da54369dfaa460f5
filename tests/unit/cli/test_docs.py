"""Every command and flag of ours that users type stands in the pages for them."""

import argparse
import re
import shlex
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from vc_egpu.admission import settings
from vc_egpu.admission.execution.operations import OPERATIONS
from vc_egpu.cli import parser
from vc_egpu.cli.main import PROCESSES
from vc_egpu.core.model.reasons import Reason
from vc_egpu.jobs import main as jobs
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu.webhook.serving.options import SettingsFile

DOCS = Path(__file__).resolve().parents[3] / "docs"
SOURCES = ("vc-egpu/vc_egpu/admission", "vc-egpu/vc_egpu/jobs", "device-plugin/vc_egpu_node")
EVENTS = (
    r'"(?:Warning|Normal)",\s*"([A-Z]\w+)"',
    r'\.event\(pod, "([A-Z]\w+)"',
    r'\.(?:_event|_notices\.event)\(\s*[^\n]*?"([A-Z]\w+)"(?:, "([A-Z]\w+)")?\s*\)',
    r'reason="([A-Z]\w+)", text',
    r'^[A-Z_]+: Final = "((?:Suspend|Resum|Restore|NotSusp|Limits|Pages)\w+)"$',
)
"""How the reasons of events stand in our source."""
OPERATOR = (
    "operator.md", "operator-isolation.md", "operator-day-two.md", "operator-with-other-plugins.md",
    "many-clusters.md", "placement.md",
)  # fmt: skip
PAGES = ("ml-team.md", "tenant-admin.md", *OPERATOR)
REFERENCE = tuple(sorted(f"reference/{page.name}" for page in (DOCS / "reference").glob("*.md")))


def pages() -> str:
    return "\n".join((DOCS / page).read_text() for page in PAGES)


def commands() -> dict[str, argparse.ArgumentParser]:
    return parser.commands()


def test_every_command_is_in_the_docs() -> None:
    for name in commands():
        assert f"kubectl egpu {name}" in pages(), name


def test_every_command_that_pages_show_is_one() -> None:
    root = DOCS.parent
    found = [
        root / "README.md",
        root / "queues/README.md",
        *DOCS.rglob("*.md"),
        *root.glob("manifests/**/*.md"),
    ]
    shown = {
        line.rstrip(" .,;:)")
        for page in found
        for line in re.findall(r"kubectl egpu ([a-z-]+ [^`\n#|]*)", page.read_text())
    }
    assert len(shown) > 20
    for line in shown:
        if line not in commands():  # a command by its name alone
            parser.parser().parse_args(shlex.split(line))


@pytest.mark.parametrize("flag", ["--undo", "--removal", "--node", "-o json"])
def test_flags_that_change_what_happens_are_in_the_docs(flag: str) -> None:
    assert flag in pages()


def test_every_reason_is_explained_to_ml_teams() -> None:
    text = (DOCS / "ml-team.md").read_text()
    for reason in Reason:
        if reason is not Reason.ADMITTED:
            assert f"`{reason.value}`" in text, reason


def test_every_process_is_explained_to_operators() -> None:
    text = (DOCS / "operator.md").read_text()
    for name in PROCESSES:
        if name not in {
            "catalogue",
            "environments",
            "idle-events",
            "kubectl",
            "node-clean",
            "node-images",
            "placement",
            "sim",
        }:
            assert f"vc-egpu-{name}" in text, name


def defaults(page: str) -> dict[str, str]:
    """Setting or flag to its default, of the table rows that begin with one or several of them."""
    found: dict[str, str] = {}
    for keys, values in re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| ([^|]*) \|", page, re.MULTILINE):
        named, told = re.findall(r"`([\w-]+)`", keys), [value.strip("` ") for value in values.split(",")]
        found |= dict(zip(named, told, strict=True)) if len(named) == len(told) else {}
    return found


@pytest.mark.parametrize(
    ("names", "model", "least"), [(OPERATOR, Policy, 11), (("webhook.md",), SettingsFile, 11)]
)
def test_settings_are_in_the_docs_with_their_defaults(
    names: tuple[str, ...], model: type[BaseModel], least: int
) -> None:
    """All of them on the first page, which leads to those that say more."""
    first, *others = ((DOCS / name).read_text() for name in names)
    told, compared = defaults("\n".join((first, *others))), 0
    for field in model.model_fields.values():
        assert f"`{field.alias}" in first, field.alias
        default = str(field.default).lower()
        if (said := told.get(str(field.alias), "")) and re.fullmatch(r"[\d.]+|true|false", said):
            assert said in {default, default.removesuffix(".0")}, field.alias
            compared += 1
    assert compared >= least


@pytest.mark.parametrize(("name", "flags"), [("admission.md", settings.parser()), ("jobs.md", jobs.parser())])
def test_flags_of_controllers_are_in_the_docs_with_their_defaults(
    name: str, flags: argparse.ArgumentParser
) -> None:
    page = (DOCS / name).read_text()
    told = defaults(page)
    given = vars(flags.parse_args([]))
    _, *shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", flags.format_help(), re.MULTILINE)  # but --help
    assert len(shown) == len(given), "each has a long name"
    for flag in shown:
        assert f"`{flag}`" in page, flag
        if re.fullmatch(r"-?\d+(\.\d+)?", said := told.get(flag, "")):
            assert float(said) == given[flag.removeprefix("--").replace("-", "_")], flag


def test_every_operation_that_is_counted_is_in_the_docs() -> None:
    page = (DOCS / "admission.md").read_text()
    assert [name for name in OPERATIONS if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", [*PAGES, *REFERENCE])
def test_paths_that_the_docs_name_exist(page: str) -> None:
    root = DOCS.parent
    text = (DOCS / page).read_text()
    for path in re.findall(r"\b((?:manifests|queues|docs|e2e)/[A-Za-z0-9_./-]+)", text):
        if "<" not in path and "vision" not in path:
            assert (root / path.rstrip("./")).exists(), path


def known_to_kubectl() -> set[str]:
    """Names of resources: the CRDs', and those of Kubernetes that our pages use."""
    known = {
        "pods",
        "events",
        "node",
        "nodes",
        "endpoints",
        "namespace",
        "configmap",
        "deployment",
        "priorityclass",
    }
    for path in (DOCS.parent / "manifests/crds").glob("*.yaml"):
        for crd in yaml.safe_load_all(path.read_text()):
            if crd["kind"] == "CustomResourceDefinition":
                names = crd["spec"]["names"]
                known |= {names["plural"], names["singular"], *names.get("shortNames", ())}
    return known


def test_resources_that_pages_and_the_demo_ask_for_are_called_so() -> None:
    root = DOCS.parent
    pages = [*DOCS.rglob("*.md"), *root.glob("manifests/**/README.md"), root / "e2e/demo/__main__.py"]
    text = "\n".join(path.read_text() for path in (*pages, root / "README.md", root / "queues/README.md"))
    asked = re.findall(r"kubectl (?:get|edit|delete|annotate|label) ([a-z][a-z,.]*)[ `\n/]", text)
    named = {name for words in asked for name in words.split(",")}
    assert {"podgroups", "events"} <= named
    assert sorted(named - known_to_kubectl()) == []


def reasons_of_events() -> set[str]:
    files = (path for folder in SOURCES for path in sorted((DOCS.parent / folder).rglob("*.py")))
    source = "\n".join(path.read_text() for path in files)
    found = {
        word
        for form in EVENTS
        for found in re.finditer(form, source, re.MULTILINE)
        for word in found.groups()
    }
    return {word for word in found if word} - {"Warning", "Normal"}


def test_every_event_is_explained_to_operators() -> None:
    page = (DOCS / "operator-day-two.md").read_text()
    text = page.partition("\n## Events\n")[2].partition("\n## ")[0]
    reasons = reasons_of_events()
    assert {"RolledBack", "CardNotOffered", "BackOnCards", "Suspended", "LimitsNotApplied"} <= reasons
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in text] == []


def test_pages_and_sections_that_the_source_names_are_there() -> None:
    """What the doctor tells people to read, and what else source and tests lead to."""
    root = DOCS.parent
    folders = ("vc-egpu", "device-plugin/vc_egpu_node", "e2e", "tests", "manifests")
    files = [path for folder in folders for path in sorted((root / folder).rglob("*")) if path.is_file()]
    text = "\n".join(path.read_text(errors="replace") for path in files if path.suffix in {".py", ".yaml"})
    named = set(re.findall(r"docs/([\w-]+\.md)", text))
    assert {"operator.md", "operator-with-other-plugins.md"} <= named
    assert [page for page in sorted(named) if not (DOCS / page).exists()] == []
    title_of = r"['\"]([A-Z][^'\"]+)['\"]"
    sections = re.findall(rf"docs/([\w-]+\.md), {title_of}", text)
    sections += [(page, title) for title, page in re.findall(rf"{title_of} in docs/([\w-]+\.md)", text)]
    assert {title for _, title in sections} >= {"Runtimes and kubelets", "From another plugin"}
    for page, title in sections:
        assert re.search(rf"^#+ {re.escape(title)}$", (DOCS / page).read_text(), re.MULTILINE), (page, title)
