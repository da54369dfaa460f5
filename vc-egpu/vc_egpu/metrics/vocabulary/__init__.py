"""All families of all processes."""

from typing import Final

from vc_egpu.metrics.family import Family
from vc_egpu.metrics.vocabulary import admission, dcgm, jobs, jobs_api, node, traces, webhook
from vc_egpu.metrics.vocabulary.build import BUILD_INFO

ALL: Final[tuple[Family, ...]] = (
    BUILD_INFO,
    *admission.PROCESS,
    *admission.QUEUES,
    *admission.CARDS,
    *admission.SHARES,
    *webhook.FAMILIES,
    *jobs.FAMILIES,
    *jobs_api.FAMILIES,
    *traces.FAMILIES,
    *node.AGENT,
    *node.CARDS,
    *node.CONTAINERS,
    *dcgm.FAMILIES,
)
"""In the order of ``docs/metrics.md``."""
