"""Requests that other pages, other hosts and other users of the machine cause are not answered."""

import pytest
from vc_egpu.page.serving import guard

HOME = guard.address_of("http://127.0.0.1:8001", "http://localhost:8001")
HOST = {"Host": "127.0.0.1:8001"}


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {}),
        ("GET", "/", {"Host": "evil.example"}),
        ("GET", "/api/state", {"Host": "127.0.0.1:8002"}),
        ("GET", "/api/state", {**HOST, "Origin": "http://evil.example"}),
        ("GET", "/api/state", {**HOST, "Origin": "null"}),
        ("GET", "/api/state", {**HOST, "Sec-Fetch-Site": "cross-site"}),
        ("GET", "/api/state", {**HOST, "Sec-Fetch-Site": "same-site"}),
        ("POST", "/api/sign-in", HOST),
        ("POST", "/api/sign-in", {**HOST, "Origin": "http://127.0.0.1:9"}),
    ],
)
def test_refused(method: str, path: str, headers: dict[str, str]) -> None:
    assert guard.refusal(HOME, method, path, headers)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", HOST),
        ("GET", "/", {**HOST, "Sec-Fetch-Site": "cross-site"}),
        ("GET", "/", {"Host": "LOCALHOST:8001"}),
        ("GET", "/api/state", {**HOST, "Sec-Fetch-Site": "same-origin"}),
        ("POST", "/api/sign-in", {**HOST, "Origin": "http://localhost:8001"}),
    ],
)
def test_looked_at(method: str, path: str, headers: dict[str, str]) -> None:
    assert guard.refusal(HOME, method, path, headers) == ""


def test_nothing_of_the_page_comes_from_elsewhere() -> None:
    rules = dict(part.split(" ", 1) for part in guard.POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in guard.POLICY
