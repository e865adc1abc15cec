"""What is no HTTP request that can be read, answered as an API does."""

from __future__ import annotations

import asyncio
import http
import json
import sys

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from framework_http.faults import refusal
from framework_http.guards import LINGER_SECONDS

_MAY_ANSWER = (h11.IDLE, h11.SEND_RESPONSE)


class RefusingProtocol(H11Protocol):
    """Says what is wrong with bytes that are no request.  uvicorn answers all of them with one line
    of plain text, which is lost where more comes than it reads, and raises where an answer to the
    beginning of the request is on its way already."""

    _lingering: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol.  What comes behind a refused request is thrown away."""
        if self._lingering is None:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        if self._lingering is not None:
            self._lingering.cancel()

    def shutdown(self) -> None:
        """See uvicorn's protocol; a refused client is not waited for."""
        if self._lingering is None:
            super().shutdown()
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Called while the error of the parser is handled."""
        if self.cycle is not None and not self.cycle.response_complete:
            # Whoever reads this body, or answers it, has nobody to do that for any more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _MAY_ANSWER:
            self._write(*self._refusal(sys.exception()))
        # To close on unread data is to reset the connection, and the client never sees the answer.
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._lingering = self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    def _refusal(self, error: BaseException | None) -> tuple[int, str]:
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        if status == http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            most = self.config.h11_max_incomplete_event_size
            return status, f"the request line and headers are larger than {most} bytes; send less"
        return status, f"this is no request of HTTP/1.1 that can be read: {error}"

    def _write(self, status: int, message: str) -> None:
        body = json.dumps(refusal(message, "invalid_request_error", status)).encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        reason = http.HTTPStatus(status).phrase.encode()
        for event in (
            h11.Response(status_code=status, headers=list(headers.items()), reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
