"""``GET /v1/view?namespaces=a,b``: who asks, what that reader may see, and how often.

The namespaces that the query names are asked about. Without any it is that of a service account, then all
with work as far as the questions go. A reader that may list neither nodes nor the pods of one of them gets
nothing.
"""

import gzip
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs

from vc_egpu.admission.serving.callers import (
    ANYWHERE,
    MOST_REVIEWS,
    BusyError,
    Callers,
    Reader,
)
from vc_egpu.admission.serving.foresight.budget import LIMIT_S, Budget, Rests
from vc_egpu.admission.serving.redacted.document import Eyes, document
from vc_egpu.admission.serving.redacted.held import HeldCards
from vc_egpu.admission.serving.turns import Turns
from vc_egpu.admission.view import View
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.kube.resources import NODES, QUEUES
from vc_egpu.kube.server import Answer, Request
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.report import snapshot_codec
from vc_egpu.volcano.api.paths import problem_of

PATH: Final = "/v1/view"
MOST_NAMESPACES: Final = MOST_REVIEWS - 1
"""One more question of a reader is about all namespaces."""
_VIEWS_PER_S: Final = 2.0
_VIEWS_AT_ONCE: Final = 10
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_LONGEST_NAME: Final = 253

_NOT_LEADING: Final = Answer(503, b"this replica does not lead\n")


class BadQueryError(ValueError):
    """The query names no namespaces; the text says why."""


class ViewEdge:
    """One view at a time."""

    def __init__(
        self,
        callers: Callers,
        view: Callable[[], View | None],
        *,
        views: TokenBucket | None = None,
        rests: Rests = lambda _timeout_s: True,
        limit_s: float = LIMIT_S,
    ) -> None:
        """``rests``: see :class:`~vc_egpu.admission.serving.foresight.budget.Budget`. ``limit_s``: the time
        for one view."""
        self._view, self._rests, self._limit_s = view, rests, limit_s
        limit = views if views is not None else TokenBucket(_VIEWS_PER_S, _VIEWS_AT_ONCE)
        self._turns = Turns(
            callers, limit, page=PATH, questions="views", an_answer="the view", limit_s=limit_s
        )
        self._held = HeldCards()
        self._epoch = -1

    def answer(self, request: Request) -> Answer:
        """What a GET gets."""
        try:
            wished = namespaces_of(request.query)
        except BadQueryError as error:
            return Answer(400, f"{error}\n".encode())
        found = self._turns.answer(request, lambda reader: self._told(reader, wished))
        if request.takes_gzip and found.status == 200:
            return found._replace(body=gzip.compress(found.body, 1), encoding="gzip")
        return found

    def _told(self, reader: Reader, wished: tuple[str, ...]) -> Answer:
        view = self._view()
        if view is None:
            self._held = HeldCards()
            return _NOT_LEADING
        eyes, is_cut_short = _eyes(reader, wished, view.snapshot)
        if not (eyes.everything or eyes.nodes or eyes.namespaces):
            text = "you may list neither nodes nor the pods of these namespaces: name yours by ?namespaces="
            return Answer(403, f"{text}\n".encode())
        if view.epoch != self._epoch:
            self._held, self._epoch = HeldCards(), view.epoch
        step = Budget(self._rests, self._limit_s).step
        self._held.follow(view.snapshot, step)
        found = document(view, self._held, eyes, step, is_cut_short=is_cut_short)
        return Answer(200, snapshot_codec.to_json(found), "application/json")


def namespaces_of(query: str) -> tuple[str, ...]:
    """The namespaces that a query names. Raises :class:`BadQueryError`."""
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=8)
    except ValueError:
        raise BadQueryError("the query has too many fields") from None
    if unknown := fields.keys() - {"namespaces"}:
        raise BadQueryError(f"{min(unknown)[:64]!r} is not known here; namespaces=A,B is")
    found = tuple(dict.fromkeys(filter(None, ",".join(fields.get("namespaces", ())).split(","))))
    if len(found) > MOST_NAMESPACES:
        raise BadQueryError(f"namespaces: at most {MOST_NAMESPACES}")
    for name in found:
        if problem := problem_of(name) or ("is too long" if len(name) > _LONGEST_NAME else ""):
            raise BadQueryError(f"namespaces: the name {problem}")
    return found


def _eyes(reader: Reader, wished: tuple[str, ...], snapshot: Snapshot) -> tuple[Eyes, bool]:
    """What the reader may see, and whether not all namespaces could be asked about."""
    if reader.sees(ANYWHERE):
        return Eyes(everything=True, namespaces=frozenset(), nodes=True, queues=True), False
    asked = wished or _likely(reader.name, snapshot)
    seen = frozenset(name for name in asked[:MOST_NAMESPACES] if reader.sees(name))
    if wished and reader.is_short:
        raise BusyError  # what counts as hidden for lack of an answer would count as of others
    eyes = Eyes(everything=False, namespaces=seen, nodes=reader.lists(NODES), queues=reader.lists(QUEUES))
    return eyes, reader.is_short or len(asked) > MOST_NAMESPACES


def _likely(name: str, snapshot: Snapshot) -> tuple[str, ...]:
    """That of a service account first, then all that have work."""
    own = name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0] if name.startswith(_SERVICE_ACCOUNT) else ""
    work = {pod.namespace for pod in snapshot.pods.values()}
    return tuple(filter(None, dict.fromkeys((own, *sorted(work)))))
