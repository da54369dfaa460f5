"""The only code that talks to the API server.

Objects are plain JSON documents (``Json = dict[str, Any]``) that orjson reads and writes. The official
`kubernetes` package loads the configuration (kubeconfig, contexts, exec plugins, in-cluster tokens) and
builds the TLS pools. Everything here is synchronous and thread-safe.

Calls of ``ApiConnection``, which ``ApiConnection.connect(kubeconfig=None, context=None, pool_size=32,
timeout_s=30, user_agent=..., qps=None, burst=None, patience_s=0)`` makes:

- ``.fenced(fence)``: the same connection, with writes held back once the fence is down
- ``.get(resource, name, namespace)``: one object
- ``.list(resource, namespace, label_selector, field_selector)``: ``ObjectList(items, resource_version)``;
  namespace None: all
- ``.create(resource, body, namespace)``: also ``subresource=(name, "binding")``, ``dry_run``
- ``.update(resource, body)``: conditional when ``metadata.resourceVersion`` is set
- ``.update_status``, ``.patch_status``: the same on the status subresource
- ``.patch(resource, name, body, namespace, kind="merge", subresource, field_manager)``: kind is ``merge``,
  ``json``, ``strategic`` or ``apply`` (apply needs ``field_manager``)
- ``.delete(resource, name, namespace, uid)``: conditional on ``uid``, ``resource_version``; also ``dry_run``
- ``.delete_collection(resource, namespace)``: by label and field selector
- ``.evict(name, namespace, uid, dry_run)``: the Eviction API; ``BudgetExhausted`` when a budget says no
- ``.request(method, path, body)``: anything else

Around it:

- ``Reflector(api, resource, on_change, namespace, label_selector, field_selector)``: a live copy.
  ``.start() .stop() .synced .wait_synced(s) .get(name, ns) .objects() .silent_s()``; ``on_change(Change)``
- ``LeaderLease(api, namespace, name, identity, times, on_started, on_stopped)``: is itself a fence for
  ``ApiConnection``. ``.start() .stop() .epoch .is_leader() .may_write_until() .led_epoch() .remaining_s()``
- ``EventRecorder(api, component, instance)``: ``.event(about, "Normal"|"Warning", reason, note)``
- ``signals.when_told_to_end(tell)``: calls ``tell(number)`` on a thread, for SIGTERM and SIGINT
- ``WorkQueue()``: ``add add_after retry forget get done close``
- ``wire.errors``: ``Temporary`` (again later), ``Stale`` (read again), ``Refused`` (do not repeat),
  ``LeaseLost``

Resources are constants of :mod:`vc_egpu.kube.resources` (``PODS``, ``POD_GROUPS``, ...).
"""

from vc_egpu.kube.backoff import Backoff
from vc_egpu.kube.connection import ApiConnection, ObjectList
from vc_egpu.kube.events import EventRecorder
from vc_egpu.kube.lease import LeaderLease, LeaseTimes
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.watch import Change, ChangeKind, Key, Reflector, drop_managed_fields, key_of
from vc_egpu.kube.wire.config import ConfigError
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.kube.wire.transport import Fence, Json
from vc_egpu.kube.workqueue import WorkQueue

__all__ = [
    "ApiConnection",
    "Backoff",
    "Change",
    "ChangeKind",
    "ConfigError",
    "EventRecorder",
    "Fence",
    "Json",
    "Key",
    "LeaderLease",
    "LeaseTimes",
    "ObjectList",
    "Reflector",
    "Resource",
    "TokenBucket",
    "WorkQueue",
    "drop_managed_fields",
    "key_of",
]
