"""``vc-egpu report`` with a file of clusters: where each has its Prometheus, and whether that answers now."""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

from vc_egpu.cli.sites.catalogue import CatalogueError, Site, chosen
from vc_egpu.cli.sites.fan_out import Heard, ask
from vc_egpu.usage import main as reports
from vc_egpu.usage.flags import UsageError
from vc_egpu.usage.loading import prometheus_of
from vc_egpu.usage.sources.several import Source


def main(argv: list[str] | None = None, sleep: Callable[[float], None] = time.sleep) -> int:
    """Make one report; returns the exit status."""
    return reports.main(argv, sleep, sources)


def sources(options: argparse.Namespace) -> list[Source]:
    """The clusters of the file that the flags name. All are asked at once for a small answer.

    Raises :class:`vc_egpu.usage.flags.UsageError`.
    """
    try:
        catalogue = chosen(options.clusters, None, all_contexts=False)
    except CatalogueError as error:
        raise UsageError(str(error)) from error
    sites = catalogue.clusters if catalogue is not None else ()
    if not any(site.prometheus for site in sites):
        raise UsageError("no cluster of the file names a Prometheus: `prometheus: {url: ...}` does")
    within_s = options.cluster_timeout

    def question(site: Site) -> Source:
        found = _source(site, options)
        if not found.trouble:
            prometheus_of(found, 2 * within_s).ping()  # all of them stop waiting before
        return found

    return [_heard(one, options) for one in ask(sites, question, within_s)]


def _source(site: Site, options: argparse.Namespace) -> Source:
    own = site.prometheus
    if own is None:
        return Source(site.name, "", trouble="the file names no Prometheus for it")
    return Source(site.name, own.url, own.token_file or options.token_file, own.ca_file or options.ca_file)


def _heard(heard: Heard[Source], options: argparse.Namespace) -> Source:
    if heard.answer is not None:
        return heard.answer
    reason = f"no answer within {options.cluster_timeout:g} s" if heard.error is None else str(heard.error)
    return replace(_source(heard.site, options), trouble=reason)
