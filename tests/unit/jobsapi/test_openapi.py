"""The OpenAPI document: its structure by models of the specification, and its words by what is served."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from unit.jobsapi.stand_in import Caller
from vc_egpu.jobsapi.openapi import document
from vc_egpu.jobsapi.request import JobRequest


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Media(_Strict):
    schema_: dict[str, Any] = Field(alias="schema")
    example: Any = None


class Parameter(_Strict):
    name: str
    in_: str = Field(alias="in", pattern="^(path|query|header)$")
    required: bool = False
    description: str = ""
    schema_: dict[str, Any] = Field(alias="schema")


class Response(_Strict):
    description: str
    content: dict[str, Media] = {}


class Body(_Strict):
    required: bool
    content: dict[str, Media]


class Operation(_Strict):
    operationId: str  # noqa: N815 - as the specification spells it
    summary: str
    parameters: list[Parameter] = []
    requestBody: Body | None = None  # noqa: N815
    responses: dict[str, Response] = Field(min_length=1)


class PathItem(_Strict):
    parameters: list[Parameter] = []
    get: Operation | None = None
    post: Operation | None = None
    delete: Operation | None = None

    def operations(self) -> Iterator[tuple[str, Operation]]:
        for method in ("get", "post", "delete"):
            if (found := getattr(self, method)) is not None:
                yield method, found


class Licence(_Strict):
    name: str
    identifier: str


class Info(_Strict):
    title: str
    version: str
    description: str
    license: Licence


class Components(_Strict):
    schemas: dict[str, dict[str, Any]]
    securitySchemes: dict[str, dict[str, str]]  # noqa: N815


class Document(_Strict):
    openapi: str = Field(pattern=r"^3\.1\.\d+$")
    info: Info
    servers: list[dict[str, str]]
    security: list[dict[str, list[str]]]
    paths: dict[str, PathItem]
    components: Components


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


def test_it_has_the_form_of_the_specification() -> None:
    found = Document.model_validate(document())
    schemes = set(found.components.securitySchemes)
    assert all(set(one) <= schemes for one in found.security)
    operations = [op.operationId for item in found.paths.values() for _, op in item.operations()]
    assert len(set(operations)) == len(operations)
    for path, item in found.paths.items():
        named = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        for _, operation in item.operations():
            in_path = {one.name for one in (*item.parameters, *operation.parameters) if one.in_ == "path"}
            assert in_path == named, path
            assert all(code.isdecimal() and len(code) == 3 for code in operation.responses)


def test_each_reference_leads_somewhere_and_each_schema_is_used() -> None:
    whole = document()
    known = {f"#/components/schemas/{name}" for name in whole["components"]["schemas"]}
    assert set(refs(whole)) == known


def test_its_example_is_a_request_that_is_taken() -> None:
    body = document()["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    JobRequest.model_validate(body["example"])


def test_what_it_says_is_what_is_served(ann: Caller) -> None:
    answer = Caller(ann.url, "").send("GET", "/v1/openapi.json")
    assert json.loads(answer.data) == document()
    for path, item in Document.model_validate(document()).paths.items():
        for method, _ in item.operations():
            found = ann.send(method.upper(), path.format(namespace="lab", name="none"), b"{}")
            assert json.loads(found.data).get("error", {}).get("field") not in {"path", "method"}, path
