"""``vc-egpu catalogue``: can this catalogue be used, and which Job does one of its entries make?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from vc_egpu.jobsapi.catalogue import Catalogue, CatalogueError, problems, shipped
from vc_egpu.jobsapi.job import Json, volcano_job
from vc_egpu.jobsapi.request import JobRequest, RequestError, checked
from vc_egpu.volcano.needs.table import EnvironmentTable, TableError
from vc_egpu.volcano.needs.table import shipped as shipped_environments
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

EXIT_OK: Final = 0
EXIT_FOUND: Final = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 for a catalogue that can be used, 1 for one that cannot."""
    options = parser().parse_args(argv)
    try:
        catalogue = read(options.file)
        if options.action == "expand":
            wanted = (options.model, options.queue, options.namespace)
            made = expanded(catalogue, *wanted, name=options.name, members=options.members)
            sys.stdout.write(yaml.safe_dump(made, sort_keys=False))
            return EXIT_OK
        models = ModelTable.from_yaml(options.models.read_text(encoding="utf-8")) if options.models else None
        environments = (
            EnvironmentTable.from_yaml(options.environments.read_text(encoding="utf-8"))
            if options.environments
            else shipped_environments()
        )
    except (OSError, UnicodeDecodeError, CatalogueError, RequestError, ModelTableError, TableError) as error:
        print(f"vc-egpu catalogue: {error}", file=sys.stderr)  # noqa: T201 - a command's answer
        return EXIT_FOUND
    found = problems(catalogue, models, environments)
    for text in found:
        print(text)  # noqa: T201 - a command's answer
    print(f"{len(catalogue.models)} models, {len(found)} problems")  # noqa: T201 - a command's answer
    return EXIT_FOUND if found else EXIT_OK


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="vc-egpu catalogue", description=__doc__)
    actions = flags.add_subparsers(dest="action", required=True)
    check = actions.add_parser("check", help="read a catalogue, and make the Job of each entry")
    check.add_argument("--models", type=Path, help="the model table: are all models in it?")
    check.add_argument("--environments", type=Path, help="the table of needs; default: the shipped one")
    expand = actions.add_parser("expand", help="print the Volcano Job of an entry")
    expand.add_argument("--model", required=True, metavar="NAME", help="the entry")
    expand.add_argument("--name", help="of the Job; default: the entry's, with - for .")
    expand.add_argument("--namespace", default="default")
    expand.add_argument("--queue", required=True)
    expand.add_argument("--members", type=int)
    for one in (check, expand):
        one.add_argument("file", type=Path, nargs="?", help="the catalogue (YAML); default: the examples")
    return flags


def read(file: Path | None) -> Catalogue:
    """The file, or the worked examples. Raises :class:`CatalogueError`, OSError or UnicodeDecodeError."""
    return shipped() if file is None else Catalogue.from_yaml(file.read_text(encoding="utf-8"))


def expanded(
    catalogue: Catalogue,
    model: str,
    queue: str,
    namespace: str,
    *,
    name: str | None = None,
    members: int | None = None,
) -> Json:
    """The Job of an entry; without a name it is called after the entry. Raises :class:`RequestError`."""
    wanted = {
        "name": name or model.replace(".", "-"),
        "namespace": namespace,
        "queue": queue,
        "catalogue": model,
        **({"members": members} if members is not None else {}),
    }
    return volcano_job(catalogue.expanded(checked(JobRequest, wanted)), namespace)
