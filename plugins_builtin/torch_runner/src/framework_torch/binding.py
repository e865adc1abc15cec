"""Cache, tables and sampler for a loaded model, as the cache plan says."""

from __future__ import annotations

from framework.contracts.step import CachePlan
from framework_torch.batch import Batch, PageTables, TokenTable
from framework_torch.cache import KvCache
from framework_torch.loading import Loaded
from framework_torch.sampler import Sampler
from framework_torch.step import StepComputer


def bind(loaded: Loaded, plan: CachePlan) -> StepComputer:
    """Allocate; raises SelectionError if a backend cannot serve the agreed page size."""
    for group in plan.groups:
        loaded.attention[group.spec].agree(group)
    backends = {spec: choice.backend for spec, choice in loaded.attention.items()}
    cache = KvCache(plan, loaded.layers, backends, loaded.facts.device)
    sampler = Sampler(
        loaded.model.vocab_size, loaded.max_slots, loaded.logprobs_mode, loaded.processors
    )
    # The core may have planned for less than the model could do, never for more.
    room = plan.max_pages_per_request * min(group.page_tokens for group in plan.groups)
    batch = Batch(
        TokenTable(loaded.max_slots, min(loaded.max_len, room)),
        PageTables(len(plan.groups), loaded.max_slots, plan.max_pages_per_request),
        loaded.model.vocab_size,
        sampler.admit,
        sampler.drop,
    )
    return StepComputer(loaded.model, batch, cache, sampler, loaded.facts.device)
