"""Prometheus' HTTP API: one range query, asked again where that may help, its answer checked.

Source: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import urllib3
from urllib3.util import parse_url

STEP_S: Final = 60
_TRIES: Final = 4
_FIRST_WAIT_S: Final = 1.0
_LARGEST_ANSWER: Final = 64 << 20
"""In bytes. As objects of Python it is some six times as large."""
_TOO_MUCH: Final = ("too many samples", "exceeded maximum resolution", "timed out", "timeout", "canceled")
_SHOWN: Final = 200
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

Points = Sequence[tuple[float, str]]


class PrometheusError(Exception):
    """Prometheus did not answer, or its answer is none; the text is for the user."""


class Unreachable(PrometheusError):  # noqa: N818 - says what it is
    """Nothing answers at the address, so that asking for other hours is of no use."""


class TooMuch(PrometheusError):  # noqa: N818 - the caller asks for less, so it is no end
    """The query covers more than Prometheus answers at once: ask for fewer hours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The series of one range query, and what Prometheus warned of."""

    series: tuple[tuple[Mapping[str, str], Points], ...]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Prometheus:
    """One server.

    ``url``: its address, with the path that a proxy puts before ``/api``. ``headers``: sent with each
    request. ``ca_file``: the authority of its certificate; empty for those of the machine. ``sleep``: in
    seconds.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: str = ""
    timeout_s: float = 120.0
    sleep: Callable[[float], None] = time.sleep
    _pool: urllib3.PoolManager = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            address = parse_url(self.url)
        except urllib3.exceptions.HTTPError as error:
            raise PrometheusError(f"{self.url!r} is no address of a Prometheus: {error}") from None
        if address.scheme not in {"http", "https"} or not address.host:
            raise PrometheusError(
                f"{self.url!r} is no address of a Prometheus, such as http://prometheus:9090"
            )
        timeout = urllib3.Timeout(connect=10, read=self.timeout_s)
        trusted: dict[str, Any] = {"ca_certs": self.ca_file} if self.ca_file else {}
        headers = dict(self.headers)
        if address.auth:
            headers |= urllib3.make_headers(basic_auth=address.auth)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False, headers=headers, **trusted)
        self.url = address._replace(auth=None, query=None, fragment=None).url.rstrip("/")

    def ping(self) -> None:
        """One small query, asked once. Raises :class:`PrometheusError` that says why there is no answer."""
        fields = {"query": "vector(1)", "start": "0", "end": "0", "step": str(STEP_S)}
        _answer_of(self._ask(fields, tries=1))

    def minutes(self, query: str, first_end_s: int, last_end_s: int) -> Answer:
        """The values of a query at the end of each minute, both ends in seconds since 1970 and included."""
        fields = {"query": query, "start": str(first_end_s), "end": str(last_end_s), "step": str(STEP_S)}
        return _answer_of(self._ask(fields))

    def _ask(self, fields: Mapping[str, str], tries: int = _TRIES) -> bytes:
        error: PrometheusError = PrometheusError(self.url)
        for turn in range(tries):
            if turn:
                self.sleep(_FIRST_WAIT_S * 2 ** (turn - 1))
            try:
                answer = self._pool.request(
                    "POST",
                    f"{self.url}/api/v1/query_range",
                    fields=dict(fields),
                    encode_multipart=False,
                    preload_content=False,
                    redirect=False,
                )
                body = answer.read(_LARGEST_ANSWER + 1, decode_content=True)
                answer.release_conn()
            except urllib3.exceptions.ReadTimeoutError:
                raise TooMuch(f"{self.url} gave no answer within {self.timeout_s:.0f} s") from None
            except urllib3.exceptions.HTTPError as reason:
                error = Unreachable(f"{self.url} does not answer: {reason}")
                continue
            if len(body) > _LARGEST_ANSWER:
                raise TooMuch(f"{self.url} answers with more than {_LARGEST_ANSWER >> 20} MiB")
            if answer.status == 200:
                return body
            said = f"{self.url} answers with {answer.status}: {_reason(body)}"
            if any(sign in said for sign in _TOO_MUCH):
                raise TooMuch(said)
            error = PrometheusError(said)
            if answer.status not in _TEMPORARY:
                break
        raise error


def _reason(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"])[:_SHOWN]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return " ".join(body[:_SHOWN].decode(errors="replace").split()) or "no text"


def _answer_of(body: bytes) -> Answer:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        shown = " ".join(body[:_SHOWN].decode(errors="replace").split())
        raise PrometheusError(f"the answer is no JSON ({error}): {shown}") from None
    try:
        if document["status"] != "success" or document["data"]["resultType"] != "matrix":
            raise PrometheusError(f"the answer is no range: {_reason(body)}")
        series = tuple(_series_of(entry) for entry in document["data"]["result"])
        warnings = (*document.get("warnings", ()), *document.get("infos", ()))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise PrometheusError(f"the answer is not in Prometheus' form: {error!r}") from None
    return Answer(series, tuple(str(text) for text in warnings))


def _series_of(entry: Any) -> tuple[dict[str, str], Points]:
    labels, points = entry["metric"], entry["values"]
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError("a label is no text")
    first, last = points[0], points[-1]
    float(first[0]), float(first[1]), float(last[0]), float(last[1])
    return labels, points
