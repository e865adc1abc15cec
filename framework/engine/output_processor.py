"""EngineOutputs to RequestOutputs: text, stop strings, log-probabilities, merged outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from framework.engine.output_state import RequestState
from framework.engine.outputs import Logprob, LogprobsAt, RequestOutput

if TYPE_CHECKING:
    from framework.contracts.messages import EngineOutputs, PromptPart
    from framework.contracts.step import Logprobs
    from framework.contracts.tokenizer import Tokenizer
    from framework.engine.prepared import PreparedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One output that ended; request_id is the internal one."""

    request_id: str
    reason: str
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """outputs: by our own id of the request, at most one for each.  abort: internal ids that a
    stop string ended and that the engine core must be told to end.  first: those whose first
    token has come, with the seconds until they first had a slot.  ended: all that ended in this
    step."""

    outputs: dict[str, RequestOutput]
    first: dict[str, float]
    abort: list[str]
    ended: list[Ended]


class OutputProcessor:
    """Keeps every request of the front end until all of its outputs ended."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._states: dict[str, RequestState] = {}
        self._by_internal: dict[str, RequestState] = {}
        self._ending: set[str] = set()
        self.num_generated = 0

    def add(self, request: PreparedRequest) -> None:
        """Expect outputs of `request`."""
        state = RequestState(request, self._tokenizer)
        self._states[request.request_id] = state
        for internal in state.completions:
            self._by_internal[internal] = state

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._states

    @property
    def num_requests(self) -> int:
        return len(self._states)

    @property
    def settled(self) -> bool:
        """The engine core has confirmed the end of everything that was aborted."""
        return not self._ending

    def forget(self, request_ids: Iterable[str]) -> list[Ended]:
        """Drop requests without an output; returns what must be aborted in the core."""
        dropped = []
        for request_id in request_ids:
            state = self._states.pop(request_id, None)
            for internal, completion in state.completions.items() if state else ():
                if self._by_internal.pop(internal, None) is not None:
                    count = completion.num_tokens
                    dropped.append(
                        Ended(request_id=internal, reason="abort", num_output_tokens=count)
                    )
        self.expect_end(end.request_id for end in dropped)
        return dropped

    def internal_ids(self, request_ids: Iterable[str]) -> list[str]:
        """Ids in the engine core of the outputs of these requests that still run."""
        states = (self._states[name] for name in request_ids if name in self._states)
        return [name for state in states for name in state.completions if name in self._by_internal]

    def expect_end(self, internal_ids: Iterable[str]) -> None:
        """These were aborted in the engine core; it will confirm their end."""
        self._ending.update(internal_ids)

    def process(self, step: EngineOutputs) -> Processed:
        """Take in one step."""
        ends = {end.row: end for end in step.finished}
        touched: dict[str, RequestState] = {}
        first: dict[str, float] = {}
        abort: list[str] = []
        ended: list[Ended] = []
        for part in step.prompt_logprobs:
            self._take_prompt(step, part)
        for vector in step.pooled:
            owner = self._by_internal.get(step.request_ids[vector.row])
            if owner is not None:
                owner.pooled = vector.vector.copy()
        offsets, ids = step.token_offsets.tolist(), step.token_ids.tolist()
        for row, internal in enumerate(step.request_ids):
            end = ends.get(row)
            if end is not None:
                self._ending.discard(internal)
            state = self._by_internal.get(internal)
            if state is None:
                continue
            low, high = offsets[row], offsets[row + 1]
            completion = state.completions[internal]
            # Siblings may hit what the first one computed; after a preemption a request
            # hits its own pages.  Neither is what the user asks for.
            if completion.index == 0 and state.num_cached is None and len(step.cached):
                state.num_cached = int(step.cached[row])
            if high > low and not completion.num_tokens:
                first[internal] = float(step.waited[row]) if row < len(step.waited) else 0.0
            asked = completion.logprobs is not None
            stopped = state.take(
                completion,
                ids[low:high],
                self._logprobs(step, low, high) if asked else [],
                end,
            )
            if completion.finish_reason is not None:
                del self._by_internal[internal]
                reason, count = completion.finish_reason, completion.num_tokens
                ended.append(Ended(request_id=internal, reason=reason, num_output_tokens=count))
            if stopped and end is None:
                abort.append(internal)
            self.num_generated += high - low
            touched[state.request.request_id] = state
        self._ending.update(abort)
        outputs = self._outputs(touched)
        return Processed(outputs=outputs, first=first, abort=abort, ended=ended)

    def _outputs(self, touched: dict[str, RequestState]) -> dict[str, RequestOutput]:
        outputs = {}
        for request_id, state in touched.items():
            output = state.output()
            if output is not None:
                outputs[request_id] = output
            if state.finished:
                del self._states[request_id]
        return outputs

    def _take_prompt(self, step: EngineOutputs, part: PromptPart) -> None:
        internal = step.request_ids[part.row]
        state = self._by_internal.get(internal)
        if state is None or state.prompt_logprobs is None:
            return
        if state.completions[internal].index == 0:
            state.take_prompt(part.start, logprob_entries(part.logprobs, self._tokenizer))

    def _logprobs(self, step: EngineOutputs, low: int, high: int) -> list[LogprobsAt]:
        if step.logprobs is None:
            return []
        first, last = np.searchsorted(step.logprob_tokens, [low, high])
        return logprob_entries(step.logprobs, self._tokenizer, int(first), int(last))


def logprob_entries(
    logprobs: Logprobs, tokenizer: Tokenizer, start: int = 0, stop: int | None = None
) -> list[LogprobsAt]:
    """Per token in [start, stop) a mapping, the token itself first."""
    entries = []
    for token in range(start, len(logprobs) if stop is None else stop):
        low, high = int(logprobs.offsets[token]), int(logprobs.offsets[token + 1])
        ids = logprobs.ids[low:high].tolist()
        values = logprobs.values[low:high].tolist()
        entry: LogprobsAt = {}
        for place, (candidate, value) in enumerate(zip(ids, values, strict=True)):
            if candidate not in entry:
                rank = int(logprobs.ranks[token]) if place == 0 else place
                entry[candidate] = _logprob(candidate, value, rank, tokenizer)
        entries.append(entry)
    return entries


def _logprob(token: int, value: float, rank: int, tokenizer: Tokenizer) -> Logprob:
    exact = tokenizer.token_bytes(token)
    return Logprob(value, rank, exact.decode("utf-8", "replace"), exact)
