"""What the front end remembers of a request while it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    """One output.  num_tokens: of all of it, num_told: those that were given out.  news: since
    then.  pieces of its text, token_ids, logprobs: all of it; for a stream of deltas what is new,
    so that each costs the same, however much came before.
    at_end: its text is wanted when it has ended, and has no say in when that is; so that no step
    waits for it to be made."""

    index: int
    detokenizer: Detokenizer | None
    eos_ids: frozenset[int]
    at_end: bool = False
    pieces: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[LogprobsAt] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    timed_out: bool = False
    refused: bool = False
    cumulative: float = 0.0
    num_tokens: int = 0
    num_told: int = 0
    news: bool = False

    def take(self, ids: Sequence[int], logprobs: list[LogprobsAt], end: Finished | None) -> bool:
        """Add what a step brought; True when a stop string ended the output here."""
        detokenizer = self.detokenizer
        stopped = False
        if detokenizer is not None and (end is not None or not self.at_end):
            if self.at_end:
                detokenizer.push(self.token_ids)
            stopped = detokenizer.push(ids) or (end is not None and detokenizer.finish())
            self.pieces.append(detokenizer.take())
            ids = ids[: detokenizer.num_tokens - self.num_tokens]
        self.token_ids.extend(ids)
        self.num_tokens += len(ids)
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
        if self.finish_reason is not None or not self.num_told:
            return self.news
        return self.num_tokens - self.num_told >= interval

    def _end(self, end: Finished) -> None:
        self.finish_reason = end.reason
        if end.reason == "error":
            self.stop_reason = end.error
            self.timed_out, self.refused = end.timed_out, end.refused
        elif end.reason == "stop" and end.stop is not None and end.stop not in self.eos_ids:
            self.stop_reason = end.stop

    def whole(self) -> CompletionOutput:
        """A copy of all of it."""
        self.num_told, self.news = self.num_tokens, False
        known = self.logprobs
        copies = None if known is None else [dict(at) for at in known]
        return self._told(list(self.token_ids), copies)

    def delta(self) -> CompletionOutput:
        """What is new of it, which is kept here no longer."""
        told = self._told(self.token_ids, self.logprobs)
        self.num_told, self.news = self.num_tokens, False
        self.pieces, self.token_ids = [], []
        self.logprobs = None if self.logprobs is None else []
        return told

    def _told(self, token_ids: list[int], logprobs: list[LogprobsAt] | None) -> CompletionOutput:
        text = "".join(self.pieces)
        self.pieces = [text]
        return CompletionOutput(
            index=self.index,
            text=text,
            token_ids=token_ids,
            cumulative_logprob=None if logprobs is None else self.cumulative,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            timed_out=self.timed_out,
            refused=self.refused,
        )


class RequestState:
    """A request and its outputs.

    completions: by internal request id, in order of index.  num_running: those that have not
    ended; whoever ends one counts it down.  What a step costs goes by the outputs that it brought
    something for, of a stream of deltas also what they have to tell.
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
        self._num_unscored = max(len(request.prompt_token_ids) - 1, 0)
        self._prompt_logprobs_sent = False
        # Of all outputs of a stream: a copy for each token would cost its length.
        self._prompt_token_ids = list(request.prompt_token_ids)
        self._touched: list[CompletionState] = []
        self.num_cached: int | None = None
        self.pooled: F32 | None = None
        self._metrics = RequestMetrics(arrival_time=request.arrival_time)

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
                at_start=not self._continues(tokenizer),
            )
        return CompletionState(
            index=index,
            detokenizer=detokenizer,
            eos_ids=self.request.eos_ids,
            at_end=self.kind is OutputKind.FINAL_ONLY and not sampling.stop_strings,
            logprobs=None if sampling.logprobs is None else [],
        )

    def _continues(self, tokenizer: Tokenizer) -> bool:
        request = self.request
        if request.held:  # embeddings, which are continued; their ids are 0 and say nothing
            return True
        special = request.sampling.skip_special_tokens
        return continues(tokenizer, request.prompt_token_ids, skip_special=special)

    @property
    def finished(self) -> bool:
        return self.num_running == 0

    def take(
        self,
        completion: CompletionState,
        ids: Sequence[int],
        logprobs: list[LogprobsAt],
        end: Finished | None,
    ) -> bool:
        """Add what a step brought for one output; True when a stop string ended that here."""
        stopped = completion.take(ids, logprobs, end)
        if completion.finish_reason is not None:
            self.num_running -= 1
        self._touched.append(completion)
        # Outputs share it: it is made anew when a time is known, not with each token.
        if ids and self._metrics.first_token_time is None:
            self._metrics = replace(self._metrics, first_token_time=time.time())
        if self.finished:
            self._metrics = replace(self._metrics, finished_time=time.time())
        return stopped

    def take_prompt(self, start: int, entries: Sequence[LogprobsAt]) -> None:
        """Keep by position: chunks may come in any cut, and again after a preemption."""
        if self.prompt_logprobs is None:
            return
        for position, entry in enumerate(entries, start):
            self._num_unscored -= self.prompt_logprobs[position] is None
            self.prompt_logprobs[position] = entry

    def output(self) -> RequestOutput | None:
        """The next output of this request, or None when there is nothing to tell."""
        touched, self._touched = self._touched, []
        if self.kind is OutputKind.FINAL_ONLY and not self.finished:
            return None
        # What was not touched has been told before, or was not due and is not now.
        due = [state for state in touched if state.due(self._interval)]
        due.sort(key=lambda state: state.index)
        if not due:
            return None
        return RequestOutput(
            request_id=self.request.client_id,
            prompt=self.request.prompt,
            prompt_token_ids=self._prompt_ids(),
            prompt_logprobs=self._prompt_logprobs(),
            outputs=self._outputs(due),
            finished=self.finished,
            num_cached_tokens=self.num_cached or 0,
            pooled=self.pooled,
            lora_request=self.request.adapter,
            metrics=self._metrics,
        )

    def _outputs(self, due: Sequence[CompletionState]) -> list[CompletionOutput]:
        if self.kind is OutputKind.DELTA:
            return [state.delta() for state in due]
        every = self.completions.values()
        return [state.whole() for state in every if self.finished or state.num_tokens or state.news]

    def _prompt_ids(self) -> list[int]:
        shared = self.kind is OutputKind.DELTA
        return self._prompt_token_ids if shared else list(self._prompt_token_ids)

    def _prompt_logprobs(self) -> list[LogprobsAt | None] | None:
        if self.prompt_logprobs is None:
            return None
        # Another output may speak before the prompt is computed again after a preemption.
        lacking = self._num_unscored and not self.finished
        if self.kind is OutputKind.DELTA and (lacking or self._prompt_logprobs_sent):
            return None
        self._prompt_logprobs_sent = True
        return [None if at is None else dict(at) for at in self.prompt_logprobs]
