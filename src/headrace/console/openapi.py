"""The API's description (OpenAPI 3.1), generated from the same table as its routes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from headrace import __version__
from headrace.console.api.session import SessionShown
from headrace.console.api.table import ENDPOINTS
from headrace.console.endpoints import ApiEndpoint, Done, Param
from headrace.console.visitors import LoginForm

ROOT = "/api/v1"
_REF = "#/components/schemas/{name}"


class ErrorShown(msgspec.Struct, frozen=True):
    """The error response of every endpoint."""

    error: str
    """One sentence."""
    code: str = ""
    """Kafka's name of the error, if it is one."""


@cache
def document() -> bytes:
    """The document as JSON."""
    types = {endpoint.answer for endpoint in ENDPOINTS} | {e.body for e in ENDPOINTS if e.body is not None}
    types |= {SessionShown, LoginForm, Done, ErrorShown}
    ordered = sorted(types, key=lambda one: one.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    refs = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(ROOT + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, refs)
    _add_special(paths, refs)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Headrace console",
                "version": __version__,
                "description": "The console's API. Changes need the header Content-Type: application/json.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "paths": paths,
            "components": {"schemas": components},
        }
    )


def _operation(endpoint: ApiEndpoint, refs: dict[type, Any]) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    parameters.extend(_param(param) for param in endpoint.params)
    words = [endpoint.method.lower(), *re.findall(r"\w+", endpoint.path)]
    operation: dict[str, Any] = {
        "operationId": words[0] + "".join(word.capitalize() for word in words[1:]),
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": _responses(refs[endpoint.answer], refs),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(refs[endpoint.body])}
    return operation


def _param(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": param.meaning,
        "schema": {"type": param.kind},
    }


def _responses(answer: Any, refs: dict[type, Any]) -> dict[str, Any]:
    return {
        "200": {"description": "Done.", "content": _json(answer)},
        "default": {"description": "An error, with its reason.", "content": _json(refs[ErrorShown])},
    }


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _add_special(paths: dict[str, dict[str, Any]], refs: dict[type, Any]) -> None:
    """Endpoints that are not in the table, because they do not call the cluster."""
    session = _responses(refs[SessionShown], refs)
    login = {"required": True, "content": _json(refs[LoginForm])}
    paths[f"{ROOT}/session"] = {
        "get": {"operationId": "getSession", "summary": "The visitor's identity.", "responses": session},
        "post": {"operationId": "logIn", "summary": "Log in.", "requestBody": login, "responses": session},
        "delete": {"operationId": "logOut", "summary": "Log out.", "responses": session},
    }
    stream = {"200": {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}}
    paths[f"{ROOT}/events"] = {
        "get": {
            "operationId": "getEvents",
            "summary": "Live values, as server-sent events named `overview`.",
            "responses": {**stream, "default": session["default"]},
        }
    }
    file = {"200": {"description": "A file.", "content": {"application/octet-stream": {}}}}
    parameters = [
        {"name": "topic", "in": "path", "required": True, "schema": {"type": "string"}},
        _param(Param("partition", "integer", "Partition of the message.", required=True)),
        _param(Param("offset", "integer", "Offset of the message.", required=True)),
        _param(Param("part", "string", "key or value (default).")),
    ]
    paths[f"{ROOT}/topics/{{topic}}/download"] = {
        "get": {
            "operationId": "download",
            "summary": "A message's value or key as a file.",
            "parameters": parameters,
            "responses": {**file, "default": session["default"]},
        }
    }
