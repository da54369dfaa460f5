"""What would happen, told by the jobs API: for users that may make a Job, and not read the whole cluster."""

import time
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from vc_egpu.cli import jobs_api
from vc_egpu.cli.foresight.flags import CannotForeseeError
from vc_egpu.cli.views.render import hanging
from vc_egpu.core.model.words import few
from vc_egpu.jobsapi.client import JobsApiError
from vc_egpu.jobsapi.what_if.documents import CapChange, Change, NodesChange, Question, WhatIfAnswer
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.whatif import changes as whatif


def ask(
    api: ApiConnection, url: str, ca_file: Path | None, job: Json, changes: list[whatif.Change]
) -> WhatIfAnswer:
    """The answer to this user's own token. Raises :class:`CannotForeseeError`."""
    try:
        with jobs_api.client(api, url, ca_file) as jobs:
            return jobs.what_if(Question(job=job, changes=[_change(one) for one in changes]))
    except jobs_api.CannotAskError as error:
        raise CannotForeseeError(str(error)) from error
    except JobsApiError as error:
        raise CannotForeseeError(f"the jobs API at {url}: {error}") from error


def _change(change: whatif.Change) -> Change:
    match change:
        case whatif.AddNodes(like, count):
            return Change(add_nodes=NodesChange(like=like, count=count))
        case whatif.Drain(node):
            return Change(drain=node)
        case whatif.SetCap(queue, resource, amount):
            return Change(cap=CapChange(queue=queue, resource=resource, to=amount))
        case whatif.End(gang):
            return Change(end=gang)


_WORDS = {"starts": "starts now", "makes room": "starts once others have gone", "waits": "waits"}
_STYLES = {"starts": "bold green", "makes room": "bold yellow", "waits": "bold yellow"}


def lines(answer: WhatIfAnswer) -> list[RenderableType]:
    """For people. Nodes, and work of others, have no names."""
    head = Text(f"{answer.gang}: ", style="bold")
    head.append(_WORDS[answer.outcome], style=_STYLES[answer.outcome])
    if answer.outcome == "waits":
        head.append(f" ({answer.reason})")
    said: list[RenderableType] = [head]
    for place in answer.places:
        where = place.node or "one node"
        said.append(Text(f"  {_many(place.members, 'member')} on {where}, {_many(place.card_count, 'card')}"))
    said += [Text(f"  {one.how}: {one.gang}, {_many(one.pods, 'pod')} ({one.cause})") for one in answer.going]
    if answer.going_of_others.gangs:
        gangs, pods = answer.going_of_others.gangs, answer.going_of_others.pods
        said.append(Text(f"  of others: {_many(gangs, 'gang')} with {_many(pods, 'pod')} would go"))
    if answer.outcome == "starts":
        least = "at least " if answer.more_is_least else ""
        said.append(Text(f"  {least}{answer.more} more of it would start too, without loss to others"))
    if answer.outcome == "waits":
        said += [Text(f"  {hanging(answer.message)}")] if answer.message else []
        said.append(Text(f"  {_when(answer)}"))
    return said


def _when(answer: WhatIfAnswer) -> str:
    forecast = answer.forecast
    if forecast is None:
        why = "no time was left to find out" if answer.is_cut_short else ""
        if not why and answer.unknown_ends:
            why = f"{_many(answer.unknown_ends, 'running gang')} without a known end"
        return f"when it starts is not known{': ' + why if why else ''}"
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(forecast.at))
    ends = [few(forecast.ends)] if forecast.ends else []
    if forecast.ends_of_others:
        ends.append(f"{_many(forecast.ends_of_others, 'gang')} of others")
    text = f"it starts at {at} at the earliest, after the end of {' and '.join(ends)}"
    return text + (
        f"; {forecast.waiting_before} gangs that wait now may be first" if forecast.waiting_before else ""
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
