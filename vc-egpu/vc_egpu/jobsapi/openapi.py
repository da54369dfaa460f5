"""The OpenAPI document, made of the same models that read requests and write answers. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from vc_egpu import __version__
from vc_egpu.jobsapi.answers import ErrorAnswer, JobAnswer
from vc_egpu.jobsapi.catalogue import Catalogue
from vc_egpu.jobsapi.request import MOST_BODY_BYTES, JobRequest
from vc_egpu.jobsapi.what_if.documents import Question, WhatIfAnswer
from vc_egpu.jobsapi.what_if.view import ViewAnswer

Json = dict[str, Any]
_SCHEMAS: Final = "#/components/schemas/{model}"
_REFUSALS: Final[Mapping[int, str]] = {
    400: "The request cannot be read; the answer names the field and its limit",
    401: "No token, or one that the API server does not take",
    403: "You may not do this in that namespace, or with that queue",
    404: "There is no such Job, namespace or queue",
    409: "A Job of that name is there already",
    413: f"A body of more than {MOST_BODY_BYTES} bytes",
    415: "The body is no application/json",
    422: "The cluster refuses the Job; the message says why",
    429: "The API server wants to be asked later",
    502: "The API server was not reached; a Job may have been made: read it",
    503: "Too many requests are under way",
    504: "The API server did not answer in time; a Job may have been made: read it",
}
_READING: Final = (401, 403, 404, 429, 502, 503, 504)
_EXAMPLE: Final = {
    "name": "qwen-tune",
    "namespace": "research",
    "queue": "research",
    "model": "h20",
    "count": 1,
    "memory": 24576,
    "cores": 30,
    "image": "registry.example/qwen:cu124",
    "command": ["python", "tune.py"],
    "needs": "cuda>=12.4",
}

_MODELS: Final = (
    *((one, "validation") for one in (JobRequest, Question)),
    *((one, "serialization") for one in (JobAnswer, ErrorAnswer, WhatIfAnswer, ViewAnswer, Catalogue)),
)


def document() -> Json:
    """OpenAPI 3.1."""
    _, schemas = models_json_schema(_MODELS, ref_template=_SCHEMAS)  # type: ignore[arg-type]
    one_job = [_in_path("namespace", "of the Job"), _in_path("name", "of the Job")]
    dry_run = {
        "name": "dry_run",
        "in": "query",
        "required": False,
        "schema": {"type": "boolean", "default": False},
        "description": "ask the cluster, and make nothing",
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vc-egpu jobs",
            "version": __version__,
            "description": "Volcano Jobs on shared cards. Every request goes on with its own bearer token.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": {
            "/v1/jobs": {
                "post": {
                    "operationId": "submitJob",
                    "summary": "Make a Job",
                    "parameters": [dry_run],
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": _ref("JobRequest"), "example": dict(_EXAMPLE)}
                        },
                    },
                    "responses": {
                        "201": _answer("The Job is made", "JobAnswer"),
                        **_refusals(*_REFUSALS),
                    },
                }
            },
            "/v1/jobs/{namespace}/{name}": {
                "parameters": one_job,
                "get": {
                    "operationId": "readJob",
                    "summary": "Where a Job stands, and why it waits",
                    "responses": {"200": _answer("The Job", "JobAnswer"), **_refusals(*_READING)},
                },
                "delete": {
                    "operationId": "deleteJob",
                    "summary": "End a Job and delete it with its pods",
                    "responses": {"204": {"description": "It is being deleted"}, **_refusals(*_READING)},
                },
            },
            "/v1/what-if": _what_if(),
            "/v1/view": _view(),
            "/v1/models": {
                "get": {
                    "operationId": "listModels",
                    "summary": "The catalogue of adapted models",
                    "responses": {"200": _answer("The catalogue", "Catalogue"), **_refusals(*_READING)},
                }
            },
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "a token of the Kubernetes API"}
            },
        },
    }


def _what_if() -> Json:
    return {
        "post": {
            "operationId": "whatIf",
            "summary": "Would a Job start, where, at whose cost, and when; nothing is made",
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": _ref("Question"),
                        "example": {"request": dict(_EXAMPLE)},
                    }
                },
            },
            "responses": {
                "200": _answer("What would happen", "WhatIfAnswer"),
                **_refusals(*_REFUSALS),
            },
        }
    }


def _view() -> Json:
    wished = {
        "name": "namespaces",
        "in": "query",
        "required": False,
        "schema": {"type": "string"},
        "description": "yours, with commas between; absent: that of a service account's token, and more",
    }
    return {
        "get": {
            "operationId": "view",
            "summary": "Cards, queues and what waits; work of others as numbers without names",
            "parameters": [wished],
            "responses": {"200": _answer("What you may see", "ViewAnswer"), **_refusals(400, *_READING)},
        }
    }


def _ref(model: str) -> Json:
    return {"$ref": _SCHEMAS.format(model=model)}


def _in_path(name: str, of: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": of}


def _answer(text: str, model: str) -> Json:
    return {"description": text, "content": {"application/json": {"schema": _ref(model)}}}


def _refusals(*statuses: int) -> Json:
    return {str(status): _answer(_REFUSALS[status], "ErrorAnswer") for status in statuses}
