"""What stands before every endpoint: keys, sizes, request ids.  Plain ASGI, so that streams and
disconnects pass through untouched."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse

from framework.errors import ConfigError
from framework_http.faults import is_json, refusal
from framework_http.places import route_path
from framework_http.weight import BRANCH, ESCAPES, Weight

if TYPE_CHECKING:
    from pydantic import SecretStr
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
_LONGEST_ID = 128


class Keys:
    """Which keys may enter, and whose they are.  Keys are kept as hashes."""

    def __init__(self, keys: Sequence[SecretStr]) -> None:
        self._tenants: dict[bytes, str] = {}
        for secret in keys:
            tenant, colon, key = secret.get_secret_value().rpartition(":")
            if not key or (colon and not tenant):
                raise ConfigError(
                    "an API key of front_end:http is not understood",
                    expected='"key" or "tenant:key"',
                    found="an empty part",
                )
            check_sendable(key, "an API key of front_end:http")
            known = self._tenants.setdefault(_hash(key), tenant)
            if known != tenant:
                raise ConfigError(
                    "an API key of front_end:http is given to two tenants",
                    expected="a key of its own for each",
                    found=f"one for {known!r} and {tenant!r}",
                )
        self.any = bool(self._tenants)

    def tenant(self, header: str) -> str | None:
        """The tenant of an Authorization header, "" without a name; None if it may not enter.

        All keys are compared, in constant time each.
        """
        scheme, _, key = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self._of(key.strip())

    def holds(self, key: str) -> bool:
        """Whether it is a client's."""
        return self._of(key) is not None

    def _of(self, key: str) -> str | None:
        given, found = _hash(key), None
        for known, tenant in self._tenants.items():
            if hmac.compare_digest(known, given):
                found = tenant
        return found


def check_sendable(key: str, what: str) -> None:
    """Raises ConfigError for a key that no client could send in a header: nobody would get in.
    what: whose it is."""
    if not key.isascii() or not key.isprintable():
        found = "others"
    elif key != key.strip():
        found = "a space at its start or end, which a header does not keep"
    else:
        return
    raise ConfigError(
        f"{what} cannot be sent in a header", expected="printable ASCII characters", found=found
    )


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _header(scope: Scope, name: str) -> str:
    wanted = name.encode()
    values = (value for key, value in scope["headers"] if key == wanted)
    return next(values, b"").decode("latin-1")


def _credential(scope: Scope) -> str:
    """The header Authorization, or the key of Anthropic's clients as if it stood there."""
    given, key = _header(scope, "authorization"), _header(scope, "x-api-key")
    return given if given or not key else f"Bearer {key}"


class KeyGuard:
    """Answers 401 unless a key is given, but for paths that `is_public`; notes the tenant in
    the scope's state."""

    def __init__(self, app: ASGIApp, keys: Keys, is_public: Callable[[str], bool]) -> None:
        self._app = app
        self._keys = keys
        self._is_public = is_public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or not self._keys.any or self._is_public(route_path(scope)):
            await self._app(scope, receive, send)
            return
        tenant = self._keys.tenant(_credential(scope))
        if tenant is None:
            body = refusal("a valid API key is needed", "authentication_error", 401)
            headers = {"www-authenticate": "Bearer"}
            await JSONResponse(body, 401, headers)(scope, receive, send)
            return
        scope.setdefault("state", {})["tenant"] = tenant
        await self._app(scope, receive, send)


LINGER_SECONDS = 10.0
"""How long the rest of a body is taken after the answer, and thrown away."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a body is not read, and the status that says so."""

    status: int
    message: str


_NOT_UTF_8 = _Fault(400, "the body is no JSON in UTF-8: it has bytes of 0, as UTF-16 and UTF-32 do")


class _Body:
    """What comes of a request.  size: bytes so far.  whole: nothing more comes.  fault: what is
    wrong with it, or too much, once that is known."""

    def __init__(self, scope: Scope, receive: Receive, most: Most) -> None:
        self._receive, self._most = receive, most
        self._weight = Weight() if is_json(_header(scope, "content-type")) else None
        self.size = 0
        self.fault: _Fault | None = None
        length, chunked = _header(scope, "content-length"), _header(scope, "transfer-encoding")
        # Who waits to be told to go on has sent nothing, and is not told.
        waits = bool(_header(scope, "expect"))
        self.whole = waits or (length in ("", "0") and not chunked)
        self._judge(int(length) if length.isdecimal() else 0)

    async def receive(self) -> Message:
        """ASGI."""
        message = await self._taken()
        data = message.get("body", b"")
        self.size += len(data)
        if self._weight is not None and self.fault is None:
            self._weight.add(data)
            if b"\0" in data:
                # Whoever reads JSON takes it for UTF-16 then, whose bytes the weight says
                # nothing of; in UTF-8 it can have none.
                self.fault = _NOT_UTF_8
        self._judge(self.size)
        return message

    async def _taken(self) -> Message:
        message = await self._receive()
        self.whole = not message.get("more_body", False)
        return message

    def _judge(self, size: int) -> None:
        most = self._most
        if size > most.bytes:
            self.fault = _Fault(413, f"the body is larger than {most.bytes} bytes")
        elif self._weight is not None and self._weight.total > most.values:
            self.fault = _Fault(
                413,
                f"the body has more than {most.values} values, of which each list, each object "
                f"and each field counts as {BRANCH}, and {ESCAPES} escaped characters as one; send "
                "several requests",
            )

    async def drain(self) -> None:
        """Take the rest, or as much as comes in a while; nobody reads it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.whole:
                    await self._taken()


@dataclass(frozen=True, slots=True)
class Most:
    """Of a body: bytes, and values as `Weight` counts them."""

    bytes: int
    values: int


class BodyGuard:
    """Answers 413 for a body over a limit, whatever its headers say, before it is read; 400 for
    one that calls itself JSON and is not in UTF-8.

    Where an answer, of whomever, comes before the body was read, the rest is taken all the same:
    a connection that is closed on unread data is reset, and its client never sees the answer.
    """

    def __init__(self, app: ASGIApp, most: Most) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, self._most)

        async def bounded() -> Message:
            message = await body.receive()
            if body.fault is not None:
                raise ValueError(body.fault.message)
            return message

        async def draining(message: Message) -> None:
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if not last or body.whole:
                await send(message)
                return
            await send({**message, "more_body": True})
            await body.drain()
            await send({"type": "http.response.body", "body": b""})

        async def unless_refused(message: Message) -> None:
            # What the application makes of the error above is not what the client is told.
            if body.fault is None:
                await draining(message)

        if body.fault is None:
            await self._app(scope, bounded, unless_refused)
        if body.fault is not None:
            fault = body.fault
            told = refusal(fault.message, "invalid_request_error", fault.status)
            answer = JSONResponse(told, fault.status, {"connection": "close"})
            await answer(scope, receive, draining)


class RequestIds:
    """Gives every request an id, the client's if it sent a usable one, and sends it back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = _header(scope, REQUEST_ID)
        usable = 0 < len(given) <= _LONGEST_ID and given.isascii() and given.isprintable()
        name = given if usable else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = name

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), (REQUEST_ID.encode(), name.encode())]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, named)
