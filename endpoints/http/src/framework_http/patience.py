"""How long a client may take to say what it wants."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_COMING = (h11.IDLE, h11.SEND_BODY)


class PatientProtocol(H11Protocol):
    """Ends a connection whose request does not arrive within `seconds`: from when it was made, or
    from the first byte of a later request.  uvicorn waits for ever, so that clients that say
    nothing, or a byte a minute, could hold all connections."""

    seconds: ClassVar[float]
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        self._calm()

    def _look(self) -> None:
        if self.conn.their_state not in _COMING or self.transport.is_closing():
            self._calm()
        elif self._patience is None:
            self._patience = self.loop.call_later(self.seconds, self.transport.close)

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def patient(seconds: float) -> type[PatientProtocol]:
    """The protocol with that patience."""
    return type("Patient", (PatientProtocol,), {"seconds": seconds})
