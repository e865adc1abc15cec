"""The requests of an asynchronous engine between acceptance and last output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from framework.contracts.messages import EngineStats
from framework.contracts.sampling import OutputKind
from framework.engine.output_processor import OutputProcessor
from framework.engine.remote.client import AsyncCore, closed
from framework.engine.streams import OutputStream, Streams, together

if TYPE_CHECKING:
    from framework.contracts.messages import EngineOutputs
    from framework.contracts.tokenizer import Tokenizer
    from framework.engine.events import Events
    from framework.engine.output_processor import Ended
    from framework.engine.outputs import RequestOutput
    from framework.engine.prepared import PreparedRequest
    from framework.engine.remote.links import ClientLink
    from framework.errors import EngineDeadError

log = logging.getLogger("framework.requests")


class InFlight:
    """Gives requests to the core, and what it brings to the streams of those who wait.

    core: at the other end of `link`.  stats: of the last step that was heard of.  on_death:
    called once, after those who wait were told, when nothing more can come.
    """

    def __init__(
        self,
        link: ClientLink,
        tokenizer: Tokenizer,
        events: Events,
        on_death: Callable[[], None],
    ) -> None:
        self._outputs = OutputProcessor(tokenizer)
        self._streams = Streams()
        self._events = events
        self._on_death = on_death
        self.stats = EngineStats()
        self.core = AsyncCore(link, on_outputs=self._absorb, on_death=self._died)

    async def add(self, request: PreparedRequest) -> OutputStream:
        """Queue a request; its outputs come through the stream.  Raises what the core does."""
        request_id = request.request_id
        log.info("request %s: %d tokens", request_id, len(request.prompt_token_ids))
        self._outputs.add(request)
        kind = OutputKind(request.sampling.output_kind)
        stream = self._streams.open(request_id, request.client_id, kind)
        try:
            await self.core.add(request.inputs, lambda: self._events.added(request.inputs))
        except BaseException:
            # Cancelled: the core may have it already.  Refused: aborting it changes nothing.
            self.drop(request_id)
            raise
        return stream

    async def finals(self, requests: Sequence[PreparedRequest]) -> list[RequestOutput]:
        """The outputs of requests for final ones, all run together.  The first error of one ends
        the others and is raised; so does cancelling whoever waits."""
        return await together([self._final(request) for request in requests])

    async def _final(self, request: PreparedRequest) -> RequestOutput:
        try:
            return await (await self.add(request)).take()
        finally:
            self.drop(request.request_id)

    def abort(self, client_id: str) -> bool:
        """End all requests that the client calls so, with a last output; False if there is
        none."""
        found = self._streams.of_client(client_id)
        self.core.abort(self._outputs.internal_ids(found))
        return bool(found)

    def drop(self, request_id: str) -> None:
        """Nobody waits for it any more: end what still runs of it."""
        self._streams.close(request_id)
        ended = self._outputs.forget([request_id])
        self.core.abort([end.request_id for end in ended])
        if self.core.dead is not None:
            ended = [replace(end, reason="error") for end in ended]
        self._end(ended)

    async def stop(self, *, drain: bool) -> None:
        """See AsyncCore.stop.  Without `drain` those who wait are told now: what the core makes
        of them meanwhile is no answer."""
        if not drain:
            self._streams.fail(closed())
        await self.core.stop(drain=drain)

    def _absorb(self, step: EngineOutputs) -> None:
        self.stats = step.stats
        self._events.stepped(step)
        processed = self._outputs.process(step)
        self.core.abort(processed.abort)
        for request_id, output in processed.outputs.items():
            self._streams.put(request_id, output)
        self._events.first_tokens(processed.first)
        self._end(processed.ended)

    def _end(self, ended: Sequence[Ended]) -> None:
        for end in ended:
            log.info(
                "request %s ended: %s, %d tokens",
                end.request_id,
                end.reason,
                end.num_output_tokens,
            )
        self._events.ended(ended)

    def _died(self, error: EngineDeadError) -> None:
        self.stats = EngineStats()
        self._events.core_ended()
        self._streams.fail(error)
        self._on_death()
