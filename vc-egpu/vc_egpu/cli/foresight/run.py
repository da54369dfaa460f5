"""The command ``kubectl egpu what-if``: what it reads and asks."""

import argparse

from vc_egpu.cli import jobs_api
from vc_egpu.cli.foresight import asking, reading, told
from vc_egpu.cli.foresight.flags import CannotForeseeError, NotAllowedError, Wanted
from vc_egpu.cli.foresight.reading import Seen
from vc_egpu.cli.foresight.shown import Foreseen
from vc_egpu.core.model.cluster import NodeName
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import VOLCANO_JOBS
from vc_egpu.kube.wire.errors import Forbidden, KubeError, NotFound, Refused
from vc_egpu.whatif import answers, changes
from vc_egpu.whatif.changes import BadChangeError, Change, Drain, End
from vc_egpu.whatif.hypothesis import UnknownThingError


def _change(wanted: Wanted) -> Change:
    kind, text = wanted
    match kind:
        case "add-nodes":
            return changes.add_nodes(text)
        case "cap":
            return changes.set_cap(text)
        case "drain":
            return Drain(NodeName(text))
        case _:
            return End(text)


def run(api: ApiConnection | None, namespace: str, options: argparse.Namespace) -> Foreseen:
    """The answers. ``api`` None: a saved snapshot is asked about. Raises :class:`CannotForeseeError`."""
    try:
        wanted = [_change(one) for one in options.changes or ()]
    except BadChangeError as error:
        raise CannotForeseeError(str(error)) from error
    if options.file is None and not wanted:
        raise CannotForeseeError("name a manifest (-f) or a change, for example --add-nodes n1=4")
    document = asking.read(options.file) if options.file is not None else None
    notes: list[str] = []
    if api is None:
        return foresee(reading.from_file(options.snapshot), document, namespace, wanted)
    try:
        seen = reading.from_cluster(api)
    except NotAllowedError as error:
        if document is None or not asking.is_volcano_job(document):
            raise
        metadata = {"namespace": namespace, **document["metadata"]}
        return _told(api, {**document, "metadata": metadata}, wanted, options, str(error))
    if document is not None and asking.is_volcano_job(document):
        document = _at_the_door(api, document, namespace, notes)
    return foresee(seen, document, namespace, wanted, tuple(notes))


def foresee(
    seen: Seen,
    document: dict[str, object] | None,
    namespace: str,
    wanted: list[Change],
    notes: tuple[str, ...] = (),
) -> Foreseen:
    """The same of what was read."""
    answer = None
    try:
        if document is not None:
            asked = asking.asked(document, namespace, seen)
            if asked.gang.key in seen.snapshot.gangs:
                raise CannotForeseeError(f"{asked.gang.key} is there already: `kubectl egpu why` tells of it")
            answer = answers.would_start(seen.snapshot, seen.policy, seen.now, asked, wanted)
        effect = answers.effect(seen.snapshot, seen.policy, seen.now, wanted) if wanted else None
    except UnknownThingError as error:
        raise CannotForeseeError(str(error.args[0])) from error
    return Foreseen(answer, effect, (*notes, *seen.notes))


def _told(
    api: ApiConnection, job: Json, wanted: list[Change], options: argparse.Namespace, why: str
) -> Foreseen:
    """The leader's answer through the jobs API, which asks the door first."""
    url = jobs_api.url_of(options)
    if not url:
        raise CannotForeseeError(
            f"{why}. Name your cluster's jobs API (--jobs-api, ${jobs_api.VARIABLE}), "
            "or have your operator ask"
        )
    return Foreseen(None, None, (), told=told.ask(api, url, options.jobs_api_ca, job, wanted).model_dump())


def _at_the_door(
    api: ApiConnection, document: dict[str, object], namespace: str, notes: list[str]
) -> dict[str, object]:
    """The Job as the webhooks would leave it: what they refuse is refused here, too. Nothing is kept."""
    metadata = document["metadata"]
    place = str(metadata.get("namespace") or namespace) if isinstance(metadata, dict) else namespace
    try:
        return api.create(VOLCANO_JOBS, document, place, dry_run=True)
    except (Forbidden, NotFound):
        notes.append("you may not create this Job: whether the door would take it was not asked")
        return document
    except Refused as error:
        raise CannotForeseeError(f"it would be refused: {error.message}") from error
    except KubeError as error:
        notes.append(f"whether the door would take it is not known: {error.message}")
        return document
