"""The core's end: takes requests from a link, steps the core, sends what it brings."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from framework.contracts.messages import EngineStats, KVEvent
from framework.core.engine_core import EngineCore
from framework.engine.remote.messages import (
    Abort,
    Add,
    Answer,
    Call,
    Died,
    Outputs,
    Reply,
    Request,
    Stop,
    Unreadable,
    WireError,
)
from framework.engine.remote.pulse import Pulse
from framework.errors import EngineDeadError, FrameworkError, UnsupportedError
from framework.plugins.blame import told

log = logging.getLogger("framework.requests")
IDLE_WAIT = 0.5
"""Seconds that an idle core waits for a message before it looks around."""


class ServerLink(Protocol):
    """The core's end of a link."""

    def receive(self, timeout: float) -> Sequence[Request | Unreadable]:
        """All that has come; waits up to `timeout` seconds for the first.  0: no wait.
        Raises EOFError when the other end is gone."""
        ...

    def send(self, answer: Answer) -> None:
        """Never waits for the other end.  Raises whatever the encoder raises for a value that
        cannot be sent."""
        ...


_EVENT = tuple(field.name for field in dataclasses.fields(KVEvent))


def _stats(core: EngineCore) -> dict[str, Any]:
    return dataclasses.asdict(core.stats)


def _as_dict(event: KVEvent) -> dict[str, Any]:
    """As `asdict`, which looks into each token: there may be tens of thousands of events, and no
    step is made meanwhile."""
    return {name: getattr(event, name) for name in _EVENT}


METHODS: dict[str, Callable[..., Any]] = {
    "stats": _stats,
    "check_integrity": EngineCore.check_integrity,
    "reset_prefix_cache": EngineCore.reset_prefix_cache,
    "sleep": EngineCore.sleep,
    "wake_up": EngineCore.wake_up,
    "sleeping": lambda core: core.sleeping,
    "start_profile": lambda core: core.profiling.start(),
    "stop_profile": lambda core: core.profiling.stop(),
    "control": lambda core, name, op, arguments: core.operated.control(name, op, arguments),
    "pause": EngineCore.pause,
    "resume": EngineCore.resume,
    "pin_prefix": EngineCore.pin_prefix,
    "unpin_prefix": EngineCore.unpin_prefix,
    "take_kv_events": lambda core: [_as_dict(event) for event in core.take_kv_events()],
}
"""What a Call may call."""


class CoreServer:
    """Serves one core until it is told to stop, or the core or the other end dies.

    pulse: is told of each step.
    """

    def __init__(self, core: EngineCore, link: ServerLink, pulse: Pulse) -> None:
        self._core = core
        self._link = link
        self._pulse = pulse
        self._stopping = False
        self._live: set[str] = set()
        self._told = EngineStats()

    def run(self) -> None:
        """Returns after a Stop, when all that is to be served has been; closes the core."""
        try:
            self._loop()
        except EOFError:  # nobody is left to serve
            pass
        except Exception as error:
            self._link.send(Died(error=WireError.of(_fatal(error))))
        finally:
            self._core.close()

    def _loop(self) -> None:
        core = self._core
        while not (self._stopping and not core.has_work()):
            idle = not core.has_work() or core.paused
            for request in self._link.receive(IDLE_WAIT if idle else 0.0):
                self._handle(request)
            if core.has_work():
                self._step()

    def _step(self) -> None:
        self._pulse.begin()
        outputs = self._core.step()
        self._pulse.end()
        for end in outputs.finished:
            request_id = outputs.request_ids[end.row]
            log.debug("request %s ended: %s", request_id, end.reason)
            self._live.discard(request_id)
        # A step that only waits for a participant has nothing to tell.
        if outputs.request_ids or outputs.stats != self._told:
            self._told = outputs.stats
            self._link.send(Outputs(outputs=outputs))

    def _handle(self, request: Request | Unreadable) -> None:
        match request:
            case Add():
                self._answer(request.number, lambda: self._add(request))
            case Abort():
                self._core.abort(request.request_ids)
            case Call():
                self._answer(request.number, lambda: self._call(request))
            case Unreadable():
                self._refuse(request)
            case Stop():
                self._stopping = True
                if not request.drain:
                    self._core.abort(tuple(self._live))
                elif self._core.has_work():
                    self._core.wake_up()
                self._core.resume()

    def _answer(self, number: int, work: Callable[[], Any]) -> None:
        try:
            reply = Reply(number=number, value=work())
        except EngineDeadError:
            raise
        except FrameworkError as error:
            reply = Reply(number=number, error=WireError.of(error))
        try:
            self._link.send(reply)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            unsent = FrameworkError(
                "what the engine core answered cannot be sent", found=told(error)
            )
            self._link.send(Reply(number=number, error=WireError.of(unsent)))

    def _refuse(self, request: Unreadable) -> None:
        log.error("%s", request.error)
        if request.number is not None:
            self._link.send(Reply(number=request.number, error=WireError.of(request.error)))

    def _add(self, request: Add) -> None:
        if self._stopping:
            raise EngineDeadError("the engine is shutting down", mend="ask another engine")
        added: list[str] = []
        try:
            for entry in request.inputs:
                self._core.add(entry)  # first: inside one process a value is of any type until then
                added.append(entry.request_id)
                log.debug("request %s: %d tokens", entry.request_id, entry.tokens.size)
        except FrameworkError:
            self._core.abort(added)
            raise
        finally:
            self._live.update(added)

    def _call(self, request: Call) -> Any:
        method = METHODS.get(request.method)
        if method is None:
            raise UnsupportedError(
                f"the engine core has no method {request.method!r}",
                expected=f"one of {', '.join(METHODS)}",
                found=request.method,
            )
        try:
            inspect.signature(method).bind(self._core, **request.arguments)
        except TypeError as error:
            raise UnsupportedError(
                f"the method {request.method!r} of the engine core is called otherwise",
                expected=f"{request.method}{inspect.signature(method)}",
                found=told(error),
            ) from None
        return method(self._core, **request.arguments)


def _fatal(error: Exception) -> EngineDeadError:
    if isinstance(error, EngineDeadError):
        return error
    return EngineDeadError(
        "the engine stopped after a fault",
        found=told(error),
        mend="start the engine anew; its log has the fault",
    )
