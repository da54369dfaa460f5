"""``kubectl egpu what-if``: asks the leader through a port-forward, or looks at a saved snapshot itself."""

import argparse
import contextlib
import http.client
import json
import sys
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vc_egpu.admission.serving.asked_jobs import asked
from vc_egpu.admission.serving.what_if import PATH
from vc_egpu.cli.live.forms import FormError
from vc_egpu.core.model.policy import Policy
from vc_egpu.report.snapshot_codec import SnapshotError, from_json
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml
from vc_egpu.whatif.outlook import look
from vc_egpu.whatif.question import QuestionError
from vc_egpu.whatif.reading import question_of
from vc_egpu.whatif.telling import document, everything, sentence

Json = dict[str, Any]
WITHIN_S: Final = 30.0


class WhatIfError(FormError):
    """There is no answer; the text says why."""


def run(options: argparse.Namespace) -> Json:
    """The answer. Raises :class:`WhatIfError`."""
    try:
        asks = _question(options)
        told = _alone(asks, options) if options.snapshot else _ask(asks, options)
    except (QuestionError, SnapshotError, NotYamlError) as error:
        raise WhatIfError(str(error)) from None
    except (OSError, UnicodeDecodeError, http.client.HTTPException) as error:
        raise WhatIfError(f"{options.leader or options.snapshot}: {error}") from error
    return told


def shown(told: Json) -> RenderableType:
    """For people."""
    lines: list[RenderableType] = [Text(sentence(told))]
    if told["places"]:
        table = Table("MEMBER", "NODE", "CARDS", box=None)
        for place in told["places"]:
            cards = ", ".join(f"{card['card']} ({card['memoryMiB']} MiB)" for card in place["cards"])
            table.add_row(place["member"], place["node"], cards)
        lines.append(table)
    lines += [
        Text(f"{entry['gang']}: {len(entry['pods'])} pods are {entry['how']}") for entry in told["going"]
    ]
    if (others := told["goingOfOthers"])["pods"]:
        lines.append(Text(f"of others: {others['pods']} pods of {others['gangs']} gangs"))
    if told["more"]:
        least = "at least " if told["moreIsLeast"] else ""
        lines.append(Text(f"{least}{told['more']} more of it would fit"))
    return Group(*lines)


def _question(options: argparse.Namespace) -> Json:
    asks: Json = {"gang": options.gang} if options.gang else {"job": _job(options)}
    found: list[Json] = []
    for text in options.add_nodes:
        node, _, count = text.rpartition("=")
        found.append({"addNodes": {"like": node, "count": _whole(count, text)}})
    found += [{"drain": node} for node in options.drain]
    for text in options.cap:
        what, _, amount = text.rpartition("=")
        queue, _, resource = what.partition(":")
        to = _whole(amount, text) if amount else None
        found.append({"cap": {"queue": queue, "resource": resource, "to": to}})
    return {**asks, "changes": [*found, *({"end": gang} for gang in options.end)]}


def _job(options: argparse.Namespace) -> Json:
    job = read_yaml(sys.stdin.read() if options.file == "-" else Path(options.file).read_text("utf-8"))
    if not isinstance(job, dict):
        raise WhatIfError(f"{options.file}: this is no Volcano Job")
    if options.namespace:
        job.setdefault("metadata", {}).setdefault("namespace", options.namespace)
    return job


def _whole(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise WhatIfError(f"{whole!r} does not end in a whole number")
    return int(text)


def _alone(asks: Json, options: argparse.Namespace) -> Json:
    snapshot, now = from_json(Path(options.snapshot).read_bytes()), time.time()
    models = [{"name": name, "memoryMiB": mib} for name, mib in snapshot.models.items()]
    table = ModelTable.model_validate({"models": models})
    policy = Policy(unnamed_model_unlimited=options.unnamed_model_unlimited, binpack=options.binpack)
    question = question_of(asks, lambda job: asked(job, options.namespace or "default", table, now))
    return document(look(snapshot, policy, now, question), question, snapshot, now, everything)


def _ask(asks: Json, options: argparse.Namespace) -> Json:
    where = urlsplit(options.leader)
    if where.scheme not in {"http", "https"} or not where.hostname:
        raise WhatIfError(f"{options.leader!r} is no URL")
    secure = where.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    headers = {"Content-Type": "application/json"}
    if options.token_file:
        headers["Authorization"] = f"Bearer {Path(options.token_file).read_text('utf-8').strip()}"
    with contextlib.closing(kind(where.hostname, where.port, timeout=WITHIN_S)) as link:
        link.request("POST", PATH, json.dumps(asks), headers)
        answer = link.getresponse()
        body = answer.read()
    if answer.status != 200:
        raise WhatIfError(body.decode("utf-8", "replace").strip()[:500] or f"status {answer.status}")
    told: Json = json.loads(body)
    return told
