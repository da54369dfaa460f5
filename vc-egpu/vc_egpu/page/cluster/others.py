"""What pods hold that the user may not see: asked of the admission controller, with the user's own token.

It comes in numbers without names. Where no answer comes, the page says "at least", as it does without this.
"""

import logging
from collections.abc import Callable, Sequence

from vc_egpu.cli.views.others import held_by_others
from vc_egpu.jobsapi.client import JobsApiError, JobsClient
from vc_egpu.jobsapi.what_if.leader import Leader, LeaderError
from vc_egpu.jobsapi.what_if.view import ViewAnswer
from vc_egpu.page.cluster.pieces import OfOthers

AskOthers = Callable[[Sequence[str]], OfOthers]
"""Takes the namespaces that the user sees; nothing is known where the answer is empty."""

logger = logging.getLogger(__name__)


def by_jobs_api(jobs: JobsClient) -> AskOthers:
    """Through the jobs API, for a page on the user's machine."""
    return lambda namespaces: _told(lambda: jobs.view(namespaces), namespaces)


def by_leader(leader: Leader, token: str) -> AskOthers:
    """From a page in the cluster."""
    return lambda namespaces: _told(lambda: leader.view(token, namespaces), namespaces)


def _told(ask: Callable[[], ViewAnswer], namespaces: Sequence[str]) -> OfOthers:
    try:
        return held_by_others(ask(), namespaces)
    except (JobsApiError, LeaderError) as error:
        logger.info("what others hold is not known: %s", error)
        return {}
