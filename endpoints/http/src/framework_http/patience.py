"""How long a client may take to say what it wants, and to take what it gets."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11

from framework_http.refusing import RefusingProtocol

_COMING = (h11.IDLE, h11.SEND_BODY)


class PatientProtocol(RefusingProtocol):
    """Ends a connection whose request does not arrive within `read_seconds`: from when it was made,
    or from the first byte of a later request; and one whose client takes nothing of an answer that
    waits for it for `write_seconds`.  uvicorn waits for ever, so that clients that say nothing, or
    a byte a minute, or never read, could hold all connections."""

    read_seconds: ClassVar[float]
    write_seconds: ClassVar[float]
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

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
        self._stop_watching()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        self._watch()

    def on_response_complete(self) -> None:
        """Also a connection that is closed by now stays until its last byte is taken."""
        super().on_response_complete()
        self._watch()

    def _unsupported_upgrade_warning(self) -> None:
        """No line for each: what asks for another protocol is answered in this one, and what
        uvicorn would have installed for it changes nothing."""

    def _look(self) -> None:
        if self.conn.their_state not in _COMING or self.transport.is_closing():
            self._calm()
        elif self._reading is None:
            self._reading = self.loop.call_later(self.read_seconds, self._give_up_reading)

    def _give_up_reading(self) -> None:
        self.transport.close()
        self._watch()

    def _calm(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch(self) -> None:
        """From now on look whether less waits to be taken after a while.  Called whenever more may
        have come to wait, so that a look never mistakes that for nothing taken."""
        self._stop_watching()
        waiting = self.transport.get_write_buffer_size()
        if waiting:
            self._writing = self.loop.call_later(self.write_seconds, self._push, waiting)

    def _stop_watching(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _push(self, before: int) -> None:
        self._writing = None
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._watch()


def patient(read_seconds: float, write_seconds: float) -> type[PatientProtocol]:
    """The protocol with that patience."""
    patience = {"read_seconds": read_seconds, "write_seconds": write_seconds}
    return type("Patient", (PatientProtocol,), patience)
