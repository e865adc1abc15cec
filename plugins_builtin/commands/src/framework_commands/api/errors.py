"""What can go wrong with a server, as one error with a kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from framework.errors import FrameworkError

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "FRAMEWORK_API_KEY"
UNREACHABLE, BROKEN, TIMEOUT, TOLD = "unreachable", "broken stream", "timeout", "error in stream"
_TOO_LONG = ("too long", "context length", "maximum context", "context_length")


class ApiError(FrameworkError):
    """A request failed.  failure: in two words, for counting; "status 429" for a status.
    status: None where no answer came, or after one began."""

    def __init__(
        self,
        message: str,
        *,
        failure: str,
        status: int | None = None,
        expected: object = None,
        found: object = None,
        mend: str | None = None,
    ) -> None:
        super().__init__(message, expected=expected, found=found, mend=mend)
        self.failure = failure
        self.status = status

    @property
    def too_long(self) -> bool:
        """The server says that the prompt does not fit the model."""
        return self.status == 400 and any(word in self.message.lower() for word in _TOO_LONG)


def of_transport(error: httpx.HTTPError, url: str, *, begun: bool) -> ApiError:
    """Of an error below HTTP.  begun: an answer had begun."""
    import httpx

    found = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return ApiError(f"{url} takes too long to answer", failure=TIMEOUT, found=found)
    if begun:
        return ApiError(f"the answer of {url} broke off", failure=BROKEN, found=found)
    return ApiError(
        f"no server answers at {url}",
        failure=UNREACHABLE,
        expected="a server that speaks OpenAI's API",
        found=found,
        mend="start one with `framework serve`, or correct --url",
    )


def of_status(status: int, body: bytes, url: str) -> ApiError:
    """Of an answer that is no success."""
    said = _message(body) or "no reason"
    failure = f"status {status}"
    if status in (401, 403):
        return ApiError(
            f"{url} does not accept the API key: {said}",
            failure=failure,
            status=status,
            mend=f"set {KEY_VARIABLE} to a key of that server",
        )
    return ApiError(f"{url} answers {status}: {said}", failure=failure, status=status)


def of_event(event: dict[str, Any], url: str) -> ApiError:
    """Of an error that comes as an event of a stream."""
    error = event.get("error")
    said = error.get("message") if isinstance(error, dict) else error
    return ApiError(f"{url} ends the answer with an error: {said}", failure=TOLD)


def cut_short(url: str, reason: str) -> ApiError:
    """Of a stream that ends before it is over."""
    return ApiError(
        f"the answer of {url} broke off: {reason}", failure=BROKEN, expected="data: [DONE]"
    )


def _message(body: bytes) -> str:
    """The sentence in the body of an error, whatever its form; at most 300 characters."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except ValueError:
        return text[:300]
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    return (value if isinstance(value, str) else json.dumps(value))[:300]
