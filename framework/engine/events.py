"""What the hooks hear of an engine; what no plugin listens to costs one comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput
    from framework.engine.output_processor import Ended
    from framework.plugins.hooks import Hooks


class Events:
    """Tells the hooks.  A hook that fails is reported by `Hooks` and disturbs nobody."""

    def __init__(self, hooks: Hooks) -> None:
        self._start = hooks.caller("engine_started")
        self._add = hooks.caller("request_added")
        self._first = hooks.caller("request_first_token")
        self._finish = hooks.caller("request_finished")
        self._close = hooks.caller("engine_closed")

    def started(self, notes: tuple[str, ...]) -> None:
        """The engine is ready.  notes: its start-up lines."""
        if self._start is not None:
            self._start(notes=notes)

    def added(self, inputs: Sequence[EngineInput]) -> None:
        """The core has accepted these."""
        if self._add is not None:
            for request in inputs:
                self._add(request=request)

    def first_tokens(self, request_ids: Iterable[str]) -> None:
        """The first token of these has come."""
        if self._first is not None:
            for request_id in request_ids:
                self._first(request_id=request_id)

    def ended(self, ended: Iterable[Ended]) -> None:
        """These outputs ended."""
        if self._finish is not None:
            for end in ended:
                self._finish(
                    request_id=end.request_id,
                    reason=end.reason,
                    num_output_tokens=end.num_output_tokens,
                )

    def closed(self) -> None:
        """The engine was shut down."""
        if self._close is not None:
            self._close()
