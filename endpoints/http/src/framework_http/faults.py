"""Errors as OpenAI's clients expect them: a status and {"error": {message, type, param, code}}."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from framework.errors import (
    EngineDeadError,
    EngineRestartingError,
    FrameworkError,
    InputError,
    OverdueError,
    OverloadedError,
    UnsupportedError,
)

_STATUS: tuple[tuple[type[FrameworkError], int, str], ...] = (
    (InputError, 400, "invalid_request_error"),
    (UnsupportedError, 400, "invalid_request_error"),
    (OverdueError, 503, "service_unavailable_error"),
    (OverloadedError, 429, "rate_limit_error"),
    (EngineDeadError, 503, "service_unavailable_error"),
)
_ELSEWHERE = "ask another server, or this one when it runs again"
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}


class Fault(BaseModel):
    """What an error says."""

    message: str
    type: str
    param: str | None
    code: int


class FaultBody(BaseModel):
    """The body of an error."""

    error: Fault


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": FaultBody, "description": "What is wrong with the request."},
    "5XX": {"model": FaultBody, "description": "The engine cannot serve it; 503: not now."},
}
"""Of every route, for the OpenAPI document."""


def error_body(message: str, kind: str, param: str | None, code: int) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def describe(error: FrameworkError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers of one of our errors; 500 for one that is nobody's fault."""
    status, kind = next(
        ((status, kind) for cls, status, kind in _STATUS if isinstance(error, cls)),
        (500, "internal_error"),
    )
    headers = {}
    if isinstance(error, OverloadedError | EngineRestartingError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    param = error.parameter if isinstance(error, InputError) else None
    return status, error_body(told(error), kind, param, status), headers


def told(error: FrameworkError) -> str:
    """What a client is told of one of our errors.  An engine that has ended is mended by whoever
    runs the server, and their log says how; whoever asked can only go elsewhere."""
    if not isinstance(error, EngineDeadError) or isinstance(error, EngineRestartingError):
        return str(error)
    found = EngineDeadError(
        error.message, expected=error.expected, found=error.found, mend=_ELSEWHERE
    )
    return str(found)


def respond(error: FrameworkError) -> JSONResponse:
    """One of our errors as a response."""
    status, body, headers = describe(error)
    return JSONResponse(body, status, headers)


def refusal(message: str, kind: str, code: int) -> dict[str, Any]:
    """The body of an error of no endpoint's, in a shape that every client understands."""
    return {"type": "error", **error_body(message, kind, None, code)}


def _place(loc: Sequence[str | int]) -> list[str]:
    """Where in the body a fault is; an offset into text that is no JSON is no field."""
    inner = [part for part in loc if part != "body"]
    return [] if inner and isinstance(inner[0], int) else [str(part) for part in inner]


def _words(message: str) -> str:
    """What a check of our own said, without pydantic's name for it."""
    return message.removeprefix("Value error, ")


def describe_invalid(error: RequestValidationError, request: Request) -> tuple[int, dict[str, Any]]:
    """Status and body for a request that its model refuses."""
    kind = request.headers.get("content-type", "")
    if _unread(error) and not is_json(kind):
        message = f"the body must be JSON, with content-type: application/json; found {kind!r:.80}"
        return 415, error_body(message, _KINDS[400], None, 415)
    faults = [(_place(fault["loc"]), _words(fault["msg"])) for fault in error.errors()[:5]]
    lines = "; ".join(f"{'.'.join(place) or 'body'}: {text}" for place, text in faults)
    param = faults[0][0][0] if faults and faults[0][0] else None
    return 400, error_body(lines, _KINDS[400], param, 400)


def _unread(error: RequestValidationError) -> bool:
    """Whether there is a body, and it was taken for something else than JSON."""
    first = error.errors()[0]
    return tuple(first["loc"]) == ("body",) and first["type"] != "missing"


def is_json(content_type: str) -> bool:
    """Whether the body is taken for JSON."""
    main, _, sub = content_type.partition(";")[0].strip().lower().partition("/")
    return main == "application" and (sub == "json" or sub.endswith("+json"))


def install(app: FastAPI) -> None:
    """Teach an application to answer with these."""

    @app.exception_handler(FrameworkError)
    async def ours(request: Request, error: FrameworkError) -> JSONResponse:
        return respond(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        status, body = describe_invalid(error, request)
        return JSONResponse(body, status)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        kind = _KINDS.get(error.status_code, "invalid_request_error")
        body = refusal(detail_of(error, request), kind, error.status_code)
        return JSONResponse(body, error.status_code, error.headers)


def detail_of(error: HTTPException, request: Request) -> str:
    """What a router leaves unsaid: which route was asked for, and how it may be."""
    asked = f"{request.method:.20} {request.url.path:.200}"
    match error.status_code, error.detail:
        case 404, "Not Found":
            return f"there is no {asked}; /openapi.json has what there is"
        case 405, "Method Not Allowed":
            known = (error.headers or {}).get("Allow", "another method")
            return f"there is no {asked}; that path takes {known}"
        case 400, "There was an error parsing the body":
            coding = request.headers.get("content-encoding")
            why = f"; it has the content-encoding {coding!r:.40}, send it without" if coding else ""
            return f"the body is no JSON in UTF-8 that can be read{why}"
    return str(error.detail)
