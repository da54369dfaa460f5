"""A typed client::

jobs = JobsClient("https://jobs.example", token)
made = jobs.submit(JobRequest(name="tune", namespace="lab", queue="lab", model="h20", image="reg/tune"))
jobs.read(made.namespace, made.name).state
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from pydantic import BaseModel, ValidationError

from vc_egpu.jobsapi.answers import ErrorAnswer, JobAnswer, Refusal
from vc_egpu.jobsapi.catalogue import Catalogue
from vc_egpu.jobsapi.request import JobRequest
from vc_egpu.jobsapi.what_if.documents import Question, WhatIfAnswer
from vc_egpu.jobsapi.what_if.view import ViewAnswer

_Answer = TypeVar("_Answer", bound=BaseModel)
_NO_BODY: Final = b""


class JobsApiError(Exception):
    """A request was refused or failed. ``status`` is 0 where there was no answer."""

    def __init__(self, status: int, refusal: Refusal) -> None:
        what = f"{refusal.field}: " if refusal.field else ""
        limit = f" ({refusal.limit})" if refusal.limit else ""
        super().__init__(f"{what}{refusal.message}{limit}")
        self.status = status
        self.refusal = refusal

    @property
    def may_have_happened(self) -> bool:
        """Whether a write may have been done all the same: read the Job before the next try."""
        return self.status in {0, 502, 504}


class JobsClient:
    """Thread-safe. ``token`` is a bearer token of the Kubernetes API. Nothing is sent twice."""

    def __init__(
        self, url: str, token: str, *, ca_file: str | Path | None = None, timeout_s: float = 30.0
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        more: dict[str, Any] = {"ca_certs": str(ca_file)} if ca_file is not None else {}
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout_s, **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up idle connections."""
        self._pool.clear()

    def submit(self, request: JobRequest, *, dry_run: bool = False) -> JobAnswer:
        """Make a Job. Raises :class:`JobsApiError`."""
        body = request.model_dump_json(exclude_unset=True).encode()
        return _read(JobAnswer, self._send("POST", f"/v1/jobs{'?dry_run=true' if dry_run else ''}", body))

    def read(self, namespace: str, name: str) -> JobAnswer:
        """Where a Job stands. Raises :class:`JobsApiError`."""
        return _read(JobAnswer, self._send("GET", _path(namespace, name)))

    def delete(self, namespace: str, name: str) -> None:
        """Delete a Job with its pods. Raises :class:`JobsApiError`."""
        self._send("DELETE", _path(namespace, name))

    def models(self) -> Catalogue:
        """The catalogue. Raises :class:`JobsApiError`."""
        return _read(Catalogue, self._send("GET", "/v1/models"))

    def what_if(self, question: Question) -> WhatIfAnswer:
        """What would happen to a Job; nothing is made. Raises :class:`JobsApiError`."""
        body = question.model_dump_json(exclude_unset=True).encode()
        return _read(WhatIfAnswer, self._send("POST", "/v1/what-if", body))

    def view(self, namespaces: Sequence[str] = ()) -> ViewAnswer:
        """What you may see of cards and queues; others as numbers. Raises :class:`JobsApiError`.

        ``namespaces`` are those of yours; empty: that of a service account's token, and some with work.
        """
        query = f"?{urlencode({'namespaces': ','.join(namespaces)})}" if namespaces else ""
        return _read(ViewAnswer, self._send("GET", f"/v1/view{query}"))

    def _send(self, method: str, path: str, body: bytes = _NO_BODY) -> bytes:
        headers: Mapping[str, str] = {**self._headers, "Content-Type": "application/json"}
        try:
            answer = self._pool.request(
                method, self._url + path, body=body or None, headers=dict(headers), redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise JobsApiError(0, Refusal(message=f"{method} {path}: no answer: {error}")) from error
        if 200 <= answer.status < 300:
            return bytes(answer.data)
        try:
            refusal = ErrorAnswer.model_validate_json(answer.data).error
        except ValidationError:
            refusal = Refusal(message=f"{method} {path}: HTTP status {answer.status}")
        raise JobsApiError(answer.status, refusal)


def _path(namespace: str, name: str) -> str:
    return f"/v1/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}"


def _read(kind: type[_Answer], body: bytes) -> _Answer:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise JobsApiError(0, Refusal(message="the answer is none of ours")) from error
