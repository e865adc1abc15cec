"""One step from plan to result: tables, forward pass, sampling, prompt scores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from framework.contracts.model import Model
from framework.contracts.step import F32, I32, LateInputs, PromptLogprobs, StepPlan, StepResult
from framework_torch.batch import Batch
from framework_torch.cache import KvCache
from framework_torch.drafting.drafting import NO_DRAFTS, Drafting, Drafts
from framework_torch.forward import Forward
from framework_torch.prepare import Points, prepare, sample_points
from framework_torch.prompt_scores import score_prompts
from framework_torch.sampling import Sampled, sample

if TYPE_CHECKING:
    from framework_torch.adapters.bank import AdapterBank
    from framework_torch.embeds import PromptEmbeds
    from framework_torch.pooling.pooler import Pooler
    from framework_torch.sampler import Sampler


class StepComputer:
    """Everything that a bound runner needs to compute steps, in the order of their plans."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        cache: KvCache,
        sampler: Sampler,
        pooler: Pooler | None,
        device: str,
        embeds: PromptEmbeds,
        forward: Forward,
        drafting: Drafting | None = None,
        adapters: AdapterBank | None = None,
    ) -> None:
        self.model, self.batch, self.cache, self.pooler = model, batch, cache, pooler
        self.embeds, self.drafting, self.adapters = embeds, drafting, adapters
        self.sampler, self.device, self.forward = sampler, device, forward

    @torch.inference_mode()
    def run(self, plan: StepPlan, late: LateInputs) -> StepResult:
        """Compute `plan`; all effects of the plans before it have taken place."""
        started = time.perf_counter()
        self.batch.apply(plan)
        self.cache.apply(plan.kv_ops)
        inputs, errors = prepare(plan, self.batch)
        if not len(inputs.rows):
            return _result(plan, Sampled.nothing(), (), errors, {})
        self.forward.prepare(inputs)
        if self.adapters is not None:
            self.adapters.begin(inputs)
        ids = self._tensor(inputs.tokens)
        prepared = time.perf_counter()
        embedded = self.model.embed(ids)
        self.embeds.put(embedded, inputs)
        hidden, taps = self.forward.run(inputs, embedded)
        forwarded = time.perf_counter()
        parts, failed = score_prompts(inputs, self.batch, self.sampler, self.model, hidden)
        vectors: dict[int, F32] = {}
        if self.pooler is not None:
            vectors, without = self.pooler.pool(plan, inputs, hidden)
            failed = {**failed, **without}
        points = sample_points(plan, inputs, self.batch)
        scored = time.perf_counter()
        logits = self._logits(hidden, points) if len(points) else None
        computed = time.perf_counter()
        sampled = Sampled.nothing()
        if logits is not None:
            sampled = sample(points, inputs, late, self.batch, self.sampler, logits)
        ended = time.perf_counter()
        timings = {
            "prepare": prepared - started,
            "forward": forwarded - prepared,
            "logits": computed - scored,
            "sample": ended - computed + scored - forwarded,
        }
        drafts = NO_DRAFTS
        if self.drafting is not None:
            drafts = self.drafting.propose(plan, inputs, sampled, hidden, taps, ended - prepared)
            timings["propose"] = time.perf_counter() - ended
        return _result(plan, sampled, parts, {**errors, **failed}, timings, vectors, drafts)

    def _logits(self, hidden: torch.Tensor, points: Points) -> torch.Tensor:
        """Of the points only: float32 [N, V]."""
        at = points.at
        if len(at) == len(hidden) and at[0] == 0:  # ascending: all of them
            return self.model.logits(hidden)
        return self.model.logits(hidden[self._tensor(at)])

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _result(
    plan: StepPlan,
    sampled: Sampled,
    parts: tuple[PromptLogprobs, ...],
    errors: dict[int, str],
    timings: dict[str, float],
    pooled: Mapping[int, F32] = {},
    drafts: Drafts = NO_DRAFTS,
) -> StepResult:
    """Rows of the plan in its order; a row with an error brings no token."""
    counts = np.bincount(sampled.rows, minlength=plan.num_rows).astype(np.int32)
    accepted = np.maximum(counts - 1, 0)
    offsets: I32 = np.zeros(plan.num_rows + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return StepResult(
        step_id=plan.step_id,
        slots=plan.slots,
        generations=plan.generations,
        token_offsets=offsets,
        token_ids=sampled.token_ids,
        accepted=accepted,
        draft_offsets=drafts.offsets,
        draft_ids=drafts.ids,
        logprobs=sampled.logprobs,
        logprob_tokens=sampled.logprob_tokens,
        prompt_logprobs=parts,
        pooled=pooled,
        errors={**errors, **sampled.errors},
        timings=timings,
    )
