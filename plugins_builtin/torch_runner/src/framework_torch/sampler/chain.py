"""The chain itself: which stage comes when.  No stage keeps anything between steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.step import I32, AdmittedRequest, Logprobs, empty_i32
from framework.errors import InputError, IntegrityError, ModelError
from framework_torch.sampler import filters, masks
from framework_torch.sampler.history import History, TokenTable
from framework_torch.sampler.logprobs import LogprobsStage, gather_logprobs
from framework_torch.sampler.parameters import SlotParameters
from framework_torch.sampler.penalties import apply_penalties
from framework_torch.sampler.pick import F32, draw, largest
from framework_torch.sampler.processors import ProcessorChain
from framework_torch.sampler.rows import I64, on_device, take, which


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOutput:
    """token_ids: int32 [N]; 0 in a row with an error, where it means nothing.

    logprobs: entries of the rows in logprob_rows (int32, ascending), or None if no row asked.
    errors: row -> sentence; the others are not affected.
    """

    token_ids: I32
    logprobs: Logprobs | None = None
    logprob_rows: I32 = field(default_factory=empty_i32)
    errors: Mapping[int, str] = field(default_factory=dict)


class Sampler:
    """Logits to tokens, by the parameters of the requests in the slots.

    The only state is what `admit` was told: a row's token depends on its logits, parameters,
    seed, position and history, never on the rows beside it.

        raw log-probabilities | allowed ids | grammar | bad words | min_tokens | logit_bias |
        processors | penalties | greedy, or temperature, min_p, top-k, top-p, draw |
        processed log-probabilities
    """

    def __init__(
        self,
        vocab_size: int,
        max_slots: int,
        logprobs_mode: str = "raw_logprobs",
        processors: Sequence[LogitsProcessor] = (),
    ) -> None:
        """vocab_size: V, the width of the logits.  logprobs_mode: a `LogprobsMode`; an unknown
        one raises ConfigError.  processors: the operator's, in their order."""
        self._params = SlotParameters(vocab_size, max_slots)
        self._processors = ProcessorChain(processors)
        self._logprobs = LogprobsStage(logprobs_mode)
        self._refused: dict[int, str] = {}

    def admit(self, request: AdmittedRequest) -> None:
        """Take over `request.slot`.  Never raises for what a request or a processor did wrong:
        `sample` then reports an error for its rows."""
        self._refused.pop(request.slot, None)
        try:
            self._params.admit(request)
        except InputError as error:
            self._refused[request.slot] = str(error)
            return
        refusal = self._processors.admit(request) if request.sampling is not None else None
        if refusal is not None:
            self._refused[request.slot] = refusal

    def drop(self, slot: int) -> None:
        """Forget the slot."""
        self._refused.pop(slot, None)
        self._params.drop(slot)
        self._processors.drop(slot)

    def sample(
        self,
        logits: torch.Tensor,
        slots: I32,
        positions: I64,
        table: TokenTable,
        *,
        bitmask: torch.Tensor | npt.NDArray[np.integer] | None = None,
        bitmask_rows: I32 | None = None,
        extra_history: Sequence[I32] | None = None,
    ) -> SamplerOutput:
        """One token for each row.

        logits: [N, V]; float32 is changed in place.  slots: int32 [N], a slot may occur more
        than once (drafts).  positions: int64 [N], the index the new token will have.
        bitmask: 32-bit words [B, ceil(V / 32)] of the rows in bitmask_rows [B].
        extra_history: per row, draft ids before the position that count as output.
        Raises IntegrityError for a slot that was never admitted.
        """
        if not len(slots):
            return SamplerOutput(token_ids=np.zeros(0, np.int32))
        logits = logits.float()
        if bitmask is None and not len(self._processors) and self._params.plain[slots].all():
            return _greedy(logits)
        self._check(slots)
        asked = which(self._params.wants_logprobs[slots])
        saved = self._logprobs.before(logits, asked)
        history = History(table, slots, positions, extra_history)
        errors = {row: self._refused[int(slots[row])] for row in self._refused_rows(slots)}
        errors |= self._change(logits, slots, history, bitmask, bitmask_rows)

        tokens, maxima = largest(logits)
        for row in which(~np.isfinite(maxima)).tolist():
            errors.setdefault(row, _why(float(maxima[row])))
        sound = np.ones(len(slots), np.bool_)
        sound[list(errors)] = False
        drawn = which(sound & ~self._params.greedy[slots])
        z = self._draw(logits, maxima, drawn, slots, positions, tokens)

        if saved is None and len(asked):
            origin = maxima / self._params.temperature[slots].astype(np.float64)
            saved = self._logprobs.after(logits, z, asked, drawn, origin)
        entries, rows = self._entries(saved, asked, tokens, slots, errors)
        tokens[list(errors)] = 0
        return SamplerOutput(
            token_ids=tokens.astype(np.int32), logprobs=entries, logprob_rows=rows, errors=errors
        )

    @torch.inference_mode()
    def prompt_logprobs(self, logits: torch.Tensor, targets: I64, k: int) -> Logprobs:
        """Entries of T prompt tokens: `targets` int64 [T] under the raw logits [T, V].

        k: how many of the best beside each, -1 for all.  A prompt is not sampled, so a
        processed mode means the same as its raw one.  Raises ModelError if there is NaN.
        """
        values, sound = self._logprobs.values(logits.float())
        if not sound.all():
            raise ModelError(_why(float("nan")))
        best = np.full(len(targets), self._params.best(k), np.int64)
        return gather_logprobs(values, targets, best)

    def _check(self, slots: I32) -> None:
        idle = slots[~self._params.live[slots]].tolist()
        unknown = [slot for slot in idle if slot not in self._refused]
        if unknown:
            raise IntegrityError("slots without sampling parameters were sampled", found=unknown)

    def _refused_rows(self, slots: I32) -> list[int]:
        if not self._refused:
            return []
        return [row for row, slot in enumerate(slots.tolist()) if slot in self._refused]

    def _change(
        self,
        logits: torch.Tensor,
        slots: I32,
        history: History,
        bitmask: torch.Tensor | npt.NDArray[np.integer] | None,
        bitmask_rows: I32 | None,
    ) -> dict[int, str]:
        """Everything that may change the greedy pick, in place."""
        params = self._params
        masks.allow_only(logits, params, slots)
        if bitmask is not None and bitmask_rows is not None and len(bitmask_rows):
            masks.apply_bitmask(logits, bitmask, bitmask_rows)
        masks.ban_words(logits, params, slots, history)
        masks.delay_stop(logits, params, slots, history)
        masks.add_bias(logits, params, slots)
        failures = self._processors.apply(logits, slots, history, params.greedy[slots])
        apply_penalties(logits, params, slots, history)
        return failures

    def _draw(
        self,
        logits: torch.Tensor,
        best: F32,
        drawn: I64,
        slots: I32,
        positions: I64,
        tokens: I64,
    ) -> torch.Tensor | None:
        """Draw the tokens of the rows in `drawn`; returns the logits they were drawn from,
        relative to `best` over the temperature, float32 [M, V]."""
        if not len(drawn):
            return None
        params, own = self._params, slots[drawn]
        z = filters.scale(
            take(logits, drawn), on_device(best[drawn], logits), params.temperature[own]
        )
        mass = filters.weigh(z)
        filters.keep_min_p(mass, params.min_p[own])
        filters.keep_best(mass, params.top_k[own], params.top_p[own])
        tokens[drawn] = draw(mass, params.seed[own], positions[drawn]).cpu().numpy()
        if self._logprobs.processed:
            filters.hide_dropped(z, mass, params.is_filtered(own))
        return z

    def _entries(
        self,
        saved: torch.Tensor | None,
        asked: I64,
        tokens: I64,
        slots: I32,
        errors: dict[int, str],
    ) -> tuple[Logprobs | None, I32]:
        """Entries of the asked rows without an error; NaN makes one more error."""
        if saved is None:
            return None, empty_i32()
        values, sound = self._logprobs.values(saved)
        for row in asked[~sound].tolist():
            errors.setdefault(row, _why(float("nan")))
        kept = which(np.array([row not in errors for row in asked.tolist()], np.bool_))
        rows = asked[kept]
        best = self._params.num_logprobs[slots[rows]]
        return gather_logprobs(take(values, kept), tokens[rows], best), rows.astype(np.int32)


def _greedy(logits: torch.Tensor) -> SamplerOutput:
    """Of rows that want nothing else: no stage of the chain has anything to do."""
    tokens, maxima = largest(logits)
    tokens = tokens.astype(np.int32)
    sound = np.isfinite(maxima)
    if sound.all():
        return SamplerOutput(token_ids=tokens)
    errors = {row: _why(float(maxima[row])) for row in which(~sound).tolist()}
    tokens[list(errors)] = 0
    return SamplerOutput(token_ids=tokens, errors=errors)


def _why(maximum: float) -> str:
    """Why a row with this largest logit has no token."""
    if maximum == float("-inf"):
        return (
            "no token is left to choose: allowed_token_ids, the grammar, the end of reasoning that "
            "thinking_token_budget demands, bad_words and min_tokens together forbid all of them"
        )
    return "the model's logits are not numbers (NaN or inf)"
