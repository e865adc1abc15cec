"""Cache, tables and sampler for a loaded model, as the cache plan says."""

from __future__ import annotations

from framework.contracts.step import CachePlan
from framework.errors import ConfigError
from framework_torch.batch import Batch, Check, PageTables, TokenTable, Watcher
from framework_torch.cache import KvCache
from framework_torch.drafting.drafting import Drafting
from framework_torch.drafting.forward import OwnForward
from framework_torch.embeds import PromptEmbeds
from framework_torch.forward import EagerForward, Forward
from framework_torch.loading import Loaded
from framework_torch.memory import refuse_large_cache
from framework_torch.pooling.pooler import Pooler
from framework_torch.sampler import Sampler
from framework_torch.step import StepComputer


def bind(loaded: Loaded, plan: CachePlan) -> StepComputer:
    """Allocate; raises SelectionError if a backend cannot serve the agreed page size, and
    ConfigError if the memory is not there."""
    try:
        return _bind(loaded, plan)
    except MemoryError as error:
        raise ConfigError(
            "there is not enough memory for the cache and the tables of the requests",
            expected=f"room for {plan.num_pages} pages of {plan.page_bytes} bytes, and for tables "
            f"of {loaded.max_slots} requests of up to {loaded.max_len} tokens",
            found=error,
            mend="lower kv_cache_memory_bytes, max_model_len or max_num_seqs",
        ) from error


def make_forward(loaded: Loaded, cache: KvCache, batch: Batch, taps: tuple[int, ...]) -> Forward:
    """As the plan for graphs says; captures them."""
    model, device, plan = loaded.model, loaded.facts.device, loaded.graphs
    eager = EagerForward(model, cache, batch, device, taps)
    if plan.device is None:
        return eager
    from framework_torch.graphs.capture import GraphedForward

    dispatcher = plan.dispatcher(loaded.max_step_tokens, loaded.max_slots)
    bank = loaded.adapters
    graphed = GraphedForward(
        plan.device,
        dispatcher,
        eager,
        model,
        cache,
        batch,
        device,
        taps,
        (lambda inputs: False) if bank is None else bank.active,
    )
    graphed.capture()
    return graphed


def _bind(loaded: Loaded, plan: CachePlan) -> StepComputer:
    if loaded.facts.device == "cpu":
        refuse_large_cache(plan, loaded.platform)
    for group in plan.groups:
        loaded.attention[group.spec].agree(group, loaded.graphs.of_attention)
    backends = {spec: choice.backend for spec, choice in loaded.attention.items()}
    cache = KvCache(plan, loaded.layers, backends, loaded.facts.device)
    sampler = Sampler(
        loaded.model.vocab_size, loaded.max_slots, loaded.logprobs_mode, loaded.processors
    )
    pooler = None
    if "pooling" in loaded.info.features:
        pooler = Pooler(loaded.pooling, getattr(loaded.model, "classify", None))
    embeds = PromptEmbeds(loaded.info.prompt_embeds or 0)
    watchers: list[Watcher] = [(sampler.admit, sampler.drop), (embeds.admit, embeds.drop)]
    if pooler is not None:
        watchers.append((pooler.admit, pooler.drop))
    # The core may have planned for less than the model could do, never for more.
    room = plan.max_pages_per_request * min(group.page_tokens for group in plan.groups)
    checks: list[Check] = [embeds.problem]
    if loaded.adapters is not None:
        watchers.append((loaded.adapters.admit, loaded.adapters.drop))
        checks.append(loaded.adapters.problem)
    batch = Batch(
        TokenTable(loaded.max_slots, min(loaded.max_len, room)),
        PageTables(len(plan.groups), loaded.max_slots, plan.max_pages_per_request),
        loaded.model.vocab_size,
        watchers,
        checks,
    )
    drafting = None
    if loaded.drafting is not None:
        drafting = Drafting(
            loaded.drafting.proposer,
            batch.table,
            loaded.drafting.max_drafts,
            loaded.model.vocab_size,
            OwnForward(loaded.drafting.info.layers, cache, batch, sampler, loaded.facts.device),
            loaded.drafting.info.taps,
        )
        watchers.append((drafting.admit, drafting.drop))
    taps = () if drafting is None else drafting.taps
    return StepComputer(
        loaded.model,
        batch,
        cache,
        sampler,
        pooler,
        loaded.facts.device,
        embeds,
        make_forward(loaded, cache, batch, taps),
        drafting,
        loaded.adapters,
    )
