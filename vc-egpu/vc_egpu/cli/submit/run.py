"""The command ``kubectl egpu submit``: ask all clusters, choose one, send the Job there."""

import argparse
import copy
import math
import uuid
from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_NO_CLUSTER, EXIT_OK, explain
from vc_egpu.cli.foresight import asking, reading
from vc_egpu.cli.foresight.flags import CannotForeseeError
from vc_egpu.cli.foresight.run import foresee
from vc_egpu.cli.sites.catalogue import Catalogue, Site
from vc_egpu.cli.sites.fan_out import Heard, ask
from vc_egpu.cli.submit.flags import ASK_TIMEOUT_S, CannotSubmitError
from vc_egpu.cli.submit.ranking import Offer, offered, ranked
from vc_egpu.cli.submit.sending import SUBMIT_ID, Sent, look, send
from vc_egpu.cli.submit.shown import Submitted
from vc_egpu.jobsapi import check
from vc_egpu.jobsapi.catalogue import CatalogueError
from vc_egpu.jobsapi.request import RequestError
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import VOLCANO_JOBS
from vc_egpu.kube.wire.config import ConfigError
from vc_egpu.kube.wire.errors import KubeError, Refused, Unauthorized
from vc_egpu.volcano.words import names
from vc_egpu.whatif.answers import Answer

DATA_AT: Final = f"{names.DOMAIN}/data-at"
"""Annotation of a Job: the cluster that has its data."""

_WITH_MODEL: Final = ("queue", "name", "members", "catalogue")
"""Flags that say what a file would."""

Json = dict[str, Any]


def run(catalogue: Catalogue, options: argparse.Namespace) -> tuple[Submitted, int]:
    """What was done, and the exit status. Raises :class:`CannotSubmitError`."""
    job = _job(options)
    sites = {site.name: site for site in catalogue.clusters}
    if (cluster := _tried_in(options)) is not None:
        if cluster not in sites:
            raise CannotSubmitError(f"--submit-id names {cluster!r}, which is not among the clusters")
        return _again(sites[cluster], job, options)
    if found := _earlier(catalogue, job, options):
        return found, EXIT_OK if found.state == "was there" else EXIT_NO_CLUSTER
    offers = ranked(_offers(catalogue, job, options))
    if options.dry_run:
        return _done(job, "not sent", offers, why="--dry-run"), EXIT_OK
    return _to_the_first(sites, job, offers, options)


def _to_the_first(
    sites: Mapping[str, Site], job: Json, offers: tuple[Offer, ...], options: argparse.Namespace
) -> tuple[Submitted, int]:
    """Send it to the first that takes it. One that refuses it after all lets the next be tried."""
    refused: list[str] = []
    for offer in offers:
        if not offer.takes_it:
            continue
        sent = _sent(sites[offer.cluster], job, options)
        if sent.state == "none":  # the cluster said so itself: another one may have it
            refused.append(f"{offer.cluster}: {sent.why}")
            continue
        if sent.state == "there":
            return _done(job, "sent", offers, offer.cluster), EXIT_OK
        if sent.state == "another":
            return _done(job, "not sent", offers, offer.cluster, sent.why), EXIT_FOUND
        return _unclear(job, offers, offer.cluster, sent.why), EXIT_NO_CLUSTER
    return _done(job, "not sent", offers, why="; ".join(refused) or "no cluster takes it"), EXIT_FOUND


def _tried_in(options: argparse.Namespace) -> str | None:
    """The cluster that an earlier try was sent to, where the user names it."""
    cluster, slash, _ = options.submit_id.rpartition("/")
    return cluster if slash else None


def _again(site: Site, job: Json, options: argparse.Namespace) -> tuple[Submitted, int]:
    """Go on with a try that was sent to this cluster. The create may still be on its way there.

    A name can be there only once. So to send it there again makes no second one, and in another cluster it
    would.
    """
    (heard,) = ask((site,), lambda site: look(_connected(site), job), options.cluster_timeout)
    seen = heard.answer or Sent("unclear", _trouble(heard.error)[1])
    sent = _sent(site, job, options) if seen.state == "none" else seen
    match sent.state:
        case "there":
            state = "was there" if seen.state == "there" else "sent"
            return _done(job, state, (), site.name), EXIT_OK
        case "unclear":
            return _unclear(job, (), site.name, sent.why), EXIT_NO_CLUSTER
        case _:
            return _done(job, "not sent", (), site.name, sent.why), EXIT_FOUND


def _unclear(job: Json, offers: tuple[Offer, ...], cluster: str, why: str) -> Submitted:
    again = f"--submit-id {cluster}/{job['metadata']['annotations'][SUBMIT_ID]}"
    return _done(job, "unclear", offers, cluster, f"{why}. Nothing else was tried. Ask again with {again}")


def _job(options: argparse.Namespace) -> Json:
    """The Job with the mark of this try."""
    try:
        job = _of_catalogue(options) if options.model else copy.deepcopy(asking.read(options.file))
    except CannotForeseeError as error:
        raise CannotSubmitError(str(error)) from error
    if not options.model and (alone := [flag for flag in _WITH_MODEL if getattr(options, flag) is not None]):
        raise CannotSubmitError(f"--{alone[0]} belongs to --model; a file says it itself")
    metadata = job["metadata"]
    if not asking.is_volcano_job(job) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise CannotSubmitError("only a Volcano Job with a name of its own (metadata.name) can be submitted")
    metadata["namespace"] = metadata.get("namespace") or options.namespace or "default"
    marks = dict(metadata.get("annotations") or {})
    marks[SUBMIT_ID] = options.submit_id.rpartition("/")[2] or str(uuid.uuid4())
    metadata["annotations"] = marks
    return job


def _of_catalogue(options: argparse.Namespace) -> Json:
    """The Job of an entry of the catalogue. Raises :class:`CannotSubmitError`."""
    if not options.queue:
        raise CannotSubmitError("--model needs --queue: the queue that the Job counts in")
    try:
        adapted = check.read(options.catalogue)
    except (OSError, UnicodeDecodeError, CatalogueError) as error:
        raise CannotSubmitError(f"{options.catalogue}: {error}") from error
    namespace = options.namespace or "default"
    more = {"name": options.name, "members": options.members}
    try:
        return check.expanded(adapted, options.model, options.queue, namespace, **more)
    except RequestError as error:
        raise CannotSubmitError(f"{error} ({error.limit})" if error.limit else str(error)) from error


def _connected(site: Site) -> ApiConnection:
    return ApiConnection.connect(site.kubeconfig, site.context, timeout_s=ASK_TIMEOUT_S)


def _earlier(catalogue: Catalogue, job: Json, options: argparse.Namespace) -> Submitted | None:
    """Where an earlier try of the same id has put it. Another Job of that name is refused."""
    heard = ask(catalogue.clusters, lambda site: look(_connected(site), job), options.cluster_timeout)
    for one in heard:
        if one.answer is not None and one.answer.state == "there":
            return _done(job, "was there", (), one.site.name)
    for one in heard:
        if one.answer is not None and one.answer.state == "another":
            raise CannotSubmitError(f"{one.site.name}: {one.answer.why}")
    silent = [one.site.name for one in heard if one.answer is None or one.answer.state == "unclear"]
    if silent and options.submit_id:
        why = "it does not answer, so that an earlier try may have put it there"
        return _done(job, "unclear", (), ", ".join(silent), why)
    return None


def _offers(catalogue: Catalogue, job: Json, options: argparse.Namespace) -> list[Offer]:
    data_at = str(job["metadata"]["annotations"].get(DATA_AT) or "")
    if data_at and data_at not in {site.name for site in catalogue.clusters}:
        raise CannotSubmitError(f"{DATA_AT} names {data_at!r}, which is not among the clusters")

    def question(site: Site) -> tuple[Answer, float]:
        api = _connected(site)
        document = api.create(VOLCANO_JOBS, job, job["metadata"]["namespace"], dry_run=True)
        seen = reading.from_cluster(api)
        found = foresee(seen, document, job["metadata"]["namespace"], [])
        if found.answer is None:
            raise CannotSubmitError("no answer")
        return found.answer, seen.now

    heard = ask(catalogue.clusters, question, max(options.cluster_timeout, ASK_TIMEOUT_S))
    return [_offer(place, one, catalogue, data_at) for place, one in enumerate(heard)]


def _offer(place: int, heard: Heard[tuple[Answer, float]], catalogue: Catalogue, data_at: str) -> Offer:
    site = heard.site
    near = math.inf if site.name == data_at else float(catalogue.mbit_per_s(site.name, data_at) or 0)
    if heard.answer is None:
        chance, why = _trouble(heard.error)
        return Offer(site.name, site.city, place, chance, mbit_per_s=near, why=why)  # type: ignore[arg-type]
    answer, now = heard.answer
    return offered(site.name, answer, now, city=site.city, place=place, mbit_per_s=near)


def _trouble(error: Exception | None) -> tuple[str, str]:
    match error:
        case None:
            return "cannot tell", "no answer in time"
        case Unauthorized():  # it has not looked at the Job
            return "cannot tell", explain(error)[0]
        case Refused():
            return "refused", error.message
        case KubeError():
            return "cannot tell", explain(error)[0]
        case CannotForeseeError() | ConfigError():
            return "cannot tell", str(error)
        case _:
            return "cannot tell", f"{type(error).__name__}: {error}"


def _sent(site: Site, job: Mapping[str, Any], options: argparse.Namespace) -> Sent:
    try:
        return send(_connected(site), dict(job), options.unclear_timeout)
    except ConfigError as error:
        return Sent("none", str(error))


def _done(job: Json, state: str, offers: tuple[Offer, ...], cluster: str = "", why: str = "") -> Submitted:
    metadata = job["metadata"]
    key, mark = f"{metadata['namespace']}/{metadata['name']}", metadata["annotations"][SUBMIT_ID]
    return Submitted(key, mark, cluster, state, why, offers)
