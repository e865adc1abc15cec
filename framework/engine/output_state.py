"""What the front end remembers of a request while it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from framework.contracts.sampling import OutputKind
from framework.engine.detokenizer import Detokenizer, continues
from framework.engine.outputs import (
    CompletionOutput,
    FinishReason,
    LogprobsAt,
    RequestMetrics,
    RequestOutput,
)

if TYPE_CHECKING:
    from framework.contracts.messages import Finished
    from framework.contracts.step import F32
    from framework.contracts.tokenizer import Tokenizer
    from framework.engine.prepared import PreparedRequest


@dataclass(slots=True, kw_only=True)
class CompletionState:
    """One output.  sent_*: how much of it a DELTA stream has got.  news: since then.
    at_end: its text is wanted when it has ended, and has no say in when that is; so that no step
    waits for it to be made."""

    index: int
    detokenizer: Detokenizer | None
    eos_ids: frozenset[int]
    at_end: bool = False
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[LogprobsAt] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    timed_out: bool = False
    refused: bool = False
    cumulative: float = 0.0
    sent_text: int = 0
    sent_tokens: int = 0
    news: bool = False

    def take(self, ids: Sequence[int], logprobs: list[LogprobsAt], end: Finished | None) -> bool:
        """Add what a step brought; True when a stop string ended the output here."""
        detokenizer = self.detokenizer
        stopped = False
        if detokenizer is not None and (end is not None or not self.at_end):
            if self.at_end:
                detokenizer.push(self.token_ids)
            stopped = detokenizer.push(ids) or (end is not None and detokenizer.finish())
            self.text += detokenizer.take()
            ids = ids[: detokenizer.num_tokens - len(self.token_ids)]
        self.token_ids.extend(ids)
        if self.logprobs is not None:
            kept = logprobs[: len(ids)]
            self.logprobs.extend(kept)
            self.cumulative += sum(
                entry[token].logprob for token, entry in zip(ids, kept, strict=False)
            )
        if stopped and detokenizer is not None:
            self.finish_reason, self.stop_reason = "stop", detokenizer.stop
        elif end is not None:
            self._end(end)
        self.news = self.news or bool(ids) or self.finish_reason is not None
        return stopped

    def due(self, interval: int) -> bool:
        """Whether a stream is told: of the first token, of every `interval` more, of the end."""
        if self.finish_reason is not None or not self.sent_tokens:
            return self.news
        return len(self.token_ids) - self.sent_tokens >= interval

    def _end(self, end: Finished) -> None:
        self.finish_reason = end.reason
        if end.reason == "error":
            self.stop_reason = end.error
            self.timed_out, self.refused = end.timed_out, end.refused
        elif end.reason == "stop" and end.stop is not None and end.stop not in self.eos_ids:
            self.stop_reason = end.stop

    def output(self, kind: OutputKind) -> CompletionOutput:
        """A copy of all of it, or of the news."""
        delta = kind is OutputKind.DELTA
        text, tokens = (self.sent_text, self.sent_tokens) if delta else (0, 0)
        self.sent_text, self.sent_tokens, self.news = len(self.text), len(self.token_ids), False
        asked = self.logprobs is not None
        return CompletionOutput(
            index=self.index,
            text=self.text[text:],
            token_ids=self.token_ids[tokens:],
            cumulative_logprob=self.cumulative if asked else None,
            logprobs=[dict(at) for at in self.logprobs[tokens:]]
            if self.logprobs
            else ([] if asked else None),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            timed_out=self.timed_out,
            refused=self.refused,
        )


class RequestState:
    """A request and its outputs.

    completions: by internal request id, in order of index.  num_running: those that have not
    ended; whoever ends one counts it down.
    """

    def __init__(self, request: PreparedRequest, tokenizer: Tokenizer) -> None:
        self.request = request
        self.kind = OutputKind(request.sampling.output_kind)
        self._interval = request.sampling.stream_interval
        self.completions = {
            engine_input.request_id: self._completion(index, tokenizer)
            for index, engine_input in enumerate(request.inputs)
        }
        self.num_running = len(self.completions)
        wanted = request.sampling.prompt_logprobs is not None
        self.prompt_logprobs: list[LogprobsAt | None] | None = (
            [None] * len(request.prompt_token_ids) if wanted else None
        )
        self._prompt_logprobs_sent = False
        self.num_cached: int | None = None
        self.pooled: F32 | None = None
        self.first_token_time: float | None = None
        self.finished_time: float | None = None

    def _completion(self, index: int, tokenizer: Tokenizer) -> CompletionState:
        sampling = self.request.sampling
        detokenizer = None
        if sampling.detokenize:
            detokenizer = Detokenizer(
                tokenizer,
                stops=sampling.stop_strings,
                min_tokens=sampling.min_tokens,
                include_stop=sampling.include_stop_str_in_output,
                skip_special=sampling.skip_special_tokens,
                hidden_ids=self.request.eos_ids,
                at_start=not continues(
                    tokenizer,
                    self.request.prompt_token_ids,
                    skip_special=sampling.skip_special_tokens,
                ),
            )
        return CompletionState(
            index=index,
            detokenizer=detokenizer,
            eos_ids=self.request.eos_ids,
            at_end=self.kind is OutputKind.FINAL_ONLY and not sampling.stop_strings,
            logprobs=None if sampling.logprobs is None else [],
        )

    @property
    def finished(self) -> bool:
        return self.num_running == 0

    def tick(self, tokens: int) -> None:
        """Note the times of the first token and of the end."""
        if tokens and self.first_token_time is None:
            self.first_token_time = time.time()
        if self.finished_time is None and self.finished:
            self.finished_time = time.time()

    def output(self) -> RequestOutput | None:
        """The next output of this request, or None when there is nothing to tell."""
        finished = self.finished
        if self.kind is OutputKind.FINAL_ONLY and not finished:
            return None
        states = list(self.completions.values())
        due = [state for state in states if state.due(self._interval)]
        if not due:
            return None
        if self.kind is OutputKind.DELTA:
            states = due
        elif not finished:
            states = [state for state in states if state.token_ids or state.news]
        return RequestOutput(
            request_id=self.request.client_id,
            prompt=self.request.prompt,
            prompt_token_ids=list(self.request.prompt_token_ids),
            prompt_logprobs=self._prompt_logprobs(),
            outputs=[state.output(self.kind) for state in states],
            finished=finished,
            num_cached_tokens=self.num_cached or 0,
            pooled=self.pooled,
            metrics=RequestMetrics(
                arrival_time=self.request.arrival_time,
                first_token_time=self.first_token_time,
                finished_time=self.finished_time,
            ),
        )

    def _prompt_logprobs(self) -> list[LogprobsAt | None] | None:
        if self.prompt_logprobs is None:
            return None
        if self.kind is OutputKind.DELTA:
            # Another output may speak before the prompt is computed again after a preemption.
            lacking = not self.finished and None in self.prompt_logprobs[1:]
            if self._prompt_logprobs_sent or lacking:
                return None
        self._prompt_logprobs_sent = True
        return [None if at is None else dict(at) for at in self.prompt_logprobs]
