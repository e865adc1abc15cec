"""Errors as Anthropic's clients expect them: {"type": "error", "error": {type, message}}."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.responses import Response

from framework.errors import FrameworkError
from framework_http.faults import describe, describe_invalid, detail_of, told

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_item(message: str, status: int) -> dict[str, Any]:
    """The body of an error, which is an event of a stream too."""
    kind = _KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def fault_item(error: FrameworkError) -> dict[str, Any]:
    """The same for one of our errors."""
    return error_item(told(error), describe(error)[0])


class AnthropicRoute(APIRoute):
    """A route whose errors have this shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See APIRoute."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except FrameworkError as error:
                status, _, headers = describe(error)
                return JSONResponse(error_item(told(error), status), status, headers)
            except RequestValidationError as error:
                status, body = describe_invalid(error, request)
                return JSONResponse(error_item(body["error"]["message"], status), status)
            except HTTPException as error:
                body = error_item(detail_of(error, request), error.status_code)
                return JSONResponse(body, error.status_code, error.headers)

        return handler
