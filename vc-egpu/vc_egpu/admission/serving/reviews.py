"""Whose token it is, and what that user may do: the API server says both. Raises what it raises."""

from collections.abc import Mapping
from typing import Any

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS

Json = dict[str, Any]


def user_of(api: ApiConnection, token: str) -> Json | None:
    """The user as the API server describes one; None: it does not know the token."""
    review = {
        "apiVersion": TOKEN_REVIEWS.api_version,
        "kind": TOKEN_REVIEWS.kind,
        "spec": {"token": token},
    }
    status = api.create(TOKEN_REVIEWS, review).get("status") or {}
    return (status.get("user") or {}) if status.get("authenticated") else None


def is_allowed(api: ApiConnection, user: Json, attributes: Mapping[str, Json]) -> bool:
    """``attributes``: ``resourceAttributes`` or ``nonResourceAttributes`` with what is asked about."""
    access = {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {
            "user": user.get("username"),
            "uid": user.get("uid"),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            **attributes,
        },
    }
    status = api.create(SUBJECT_ACCESS_REVIEWS, access).get("status") or {}
    return bool(status.get("allowed"))
