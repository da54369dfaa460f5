"""A Volcano Job of one task, for stories that submit many."""

from typing import Any

from vc_egpu.kube.resources import VOLCANO_JOBS

Json = dict[str, Any]


def volcano_job(name: str, queue: str, members: int, template: Json, **spec: Any) -> Json:
    """All members have to start. ``spec``: what else the Job says."""
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "queue": queue,
            "minAvailable": members,
            **spec,
            "tasks": [{"name": "w", "replicas": members, "template": template}],
        },
    }


ONE_TRY: Any = {"maxRetry": 1, "policies": [{"event": "PodEvicted", "action": "RestartJob"}]}
"""Spec of a Job that would try again once, if an eviction counted."""
