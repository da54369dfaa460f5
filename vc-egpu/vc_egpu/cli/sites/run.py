"""A command of ``kubectl egpu`` on many clusters."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Group

from vc_egpu.cli.live.top import BETWEEN_S
from vc_egpu.cli.sites import last_answers, overview
from vc_egpu.cli.sites.catalogue import Catalogue, Site
from vc_egpu.cli.sites.fan_out import ask
from vc_egpu.cli.sites.together import Part, Said, together
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire.config import default_namespace

Question = Callable[[ApiConnection, str, argparse.Namespace], Part]
"""Takes a cluster, the user's namespace there and the flags."""


def run(
    catalogue: Catalogue,
    question: Question | None,
    options: argparse.Namespace,
    *,
    absent: tuple[type[Exception], ...] = (),
    place: Path | None = None,
) -> Said:
    """Ask all clusters what ``question`` asks; None: what they have, in short.

    ``place``: the folder for what is remembered of them. ``absent``: see :func:`.together.together`.
    """
    place = last_answers.folder() if place is None else place
    within_s = options.cluster_timeout + (BETWEEN_S if options.command == "top" else 0.0)

    def one(site: Site) -> Part:
        api = ApiConnection.connect(site.kubeconfig, site.context, timeout_s=within_s)
        try:
            namespace = options.namespace or default_namespace(site.kubeconfig, site.context)
            if question is None:
                found = overview.read(api, namespace)
                return Part(found, overview.shown(found, site.city))
            return question(api, namespace, options)
        finally:
            api.close()

    known = last_answers.read(place)
    heard = ask(catalogue.clusters, one, within_s)
    last_answers.keep(place, [each.site.name for each in heard if each.answer is not None], time.time())
    said = together(heard, within_s, lambda name: last_answers.since(known, name), absent)
    if question is not None:
        return said
    reports = [each.answer.document for each in heard if each.answer is not None]
    line = overview.sums(reports, said.document.answered, said.document.asked)
    return Said(said.document, Group(said.shown, line), said.status)
