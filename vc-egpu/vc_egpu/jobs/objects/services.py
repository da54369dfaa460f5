"""Services, host lists, network policies and claims of a Job: made before its pods, kept as wanted."""

import hashlib
import threading
from collections.abc import Sequence
from typing import Final

import orjson

from vc_egpu.jobs.objects.pods import build_claims, owner_reference
from vc_egpu.jobs.rules.plugins import Plugin
from vc_egpu.kube import ApiConnection, Json, Resource
from vc_egpu.kube.resources import CONFIG_MAPS, NETWORK_POLICIES, PERSISTENT_VOLUME_CLAIMS, SERVICES
from vc_egpu.kube.wire.errors import AlreadyExists, Unavailable
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.words.makers import controller_of

MADE: Final[dict[str, Resource]] = {
    resource.kind: resource
    for resource in (CONFIG_MAPS, SERVICES, NETWORK_POLICIES, PERSISTENT_VOLUME_CLAIMS)
}


class InTheWay(Unavailable):
    """Another owner has an object of this name. The rest of an earlier Job of this name goes soon."""

    def __init__(self, job: Job, present: Json) -> None:
        owner, metadata = controller_of(present), present["metadata"]
        whose = f"{owner['kind']} {owner['name']}" if owner else "no controller"
        if owner and (owner["kind"], owner["name"]) == (job.kind, job.metadata.name):
            whose = "an earlier Job of this name"
        what = f"{present['kind']} {metadata.get('namespace') or job.metadata.namespace}/{metadata['name']}"
        super().__init__(f"{what} is in the way: it belongs to {whose}")


class ObjectKeeper:
    """Remembers what it made for a Job, so that a look costs no request once all is there.

    Host lists are long, so it remembers a digest and not the objects.
    """

    def __init__(self, api: ApiConnection) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._done: dict[str, bytes] = {}

    def ensure(self, job: Job, plugins: Sequence[Plugin], *, look_again: bool = False) -> bool:
        """Make what is missing and update host lists after scaling; raises KubeError.

        ``look_again``: look at every object, because a user may have deleted one. Returns whether other
        objects are wanted than at the last time.
        """
        wanted = [*build_claims(job), *(thing for plugin in plugins for thing in plugin.objects())]
        digest = hashlib.blake2b(orjson.dumps(wanted), digest_size=16).digest()
        with self._lock:
            is_known = self._done.get(job.metadata.uid) == digest
        if is_known and not look_again:
            return False
        for thing in wanted:
            self._ensure_one(job, thing)
        with self._lock:
            self._done[job.metadata.uid] = digest
        return not is_known

    def forget(self, uid: str) -> None:
        """The Job is gone; the garbage collector takes its objects."""
        with self._lock:
            self._done.pop(uid, None)

    def forget_all(self) -> None:
        """Another process leads: we do not hear what it does to them."""
        with self._lock:
            self._done.clear()

    def _ensure_one(self, job: Job, thing: Json) -> None:
        resource = MADE[thing["kind"]]
        metadata = {**thing["metadata"], "ownerReferences": [owner_reference(job)]}
        try:
            self._api.create(resource, {**thing, "metadata": metadata})
            return
        except AlreadyExists:
            present = self._api.get(resource, metadata["name"], metadata["namespace"])
        if controller_of(present).get("uid") != job.metadata.uid:
            raise InTheWay(job, {**present, "kind": thing["kind"]})
        if "data" in thing and present.get("data") != thing["data"]:
            body: Json = {
                "metadata": {"resourceVersion": present["metadata"]["resourceVersion"]},
                "data": {**dict.fromkeys(present.get("data") or ()), **thing["data"]},
            }
            self._api.patch(resource, metadata["name"], body, metadata["namespace"])
