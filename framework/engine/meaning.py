"""What a configuration means to the engine core and to the model runner."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from framework.contracts.lora import AdapterLimits
from framework.contracts.model_runner import RunnerContext

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.model_source import ModelFiles
    from framework.core.config import CoreConfig
    from framework.engine.model_files import Files
    from framework.plugins.registry import PluginRegistry

USUALLY_KEPT = 16
"""Adapters in memory, where the operator does not say."""


def runner_context(
    config: EngineConfig,
    registry: PluginRegistry,
    files: Files,
    logits_processors: tuple[str, ...],
) -> RunnerContext:
    """What the runner may know before it loads."""
    choices = {
        "model_runner": config.execution.model_runner,
        "platform": config.execution.platform,
        "attention_backend": config.execution.attention_backend,
    }
    return RunnerContext(
        model=files.model,
        registry=registry,
        dtype=config.model.dtype,
        max_slots=config.scheduler.max_num_seqs,
        max_step_tokens=config.scheduler.max_num_batched_tokens,
        max_model_len=config.model.max_model_len,
        page_tokens=config.cache.page_size,
        cache_bytes=config.cache.kv_cache_memory_bytes,
        cache_dtype=config.cache.kv_cache_dtype,
        load_format=config.model.load_format,
        seed=config.model.seed,
        logprobs_mode=config.execution.logprobs_mode,
        choices={kind: name for kind, name in choices.items() if name is not None},
        kernels=config.execution.kernels,
        kernel_set=config.execution.kernel_set,
        compiler=compiler_of(config),
        enforce_eager=config.execution.enforce_eager,
        quantization=config.model.quantization,
        logits_processors=logits_processors,
        progress=sys.stderr.isatty(),
        pooling=config.model.pooling,
        proposer=config.speculation.speculative_proposer,
        max_drafts=most_drafts(config),
        draft_model=files.draft,
        adapters=adapter_limits(config),
    )


def compiler_of(config: EngineConfig) -> str | None:
    """As `RunnerContext.compiler`."""
    execution = config.execution
    if execution.enforce_eager:
        return None
    return execution.compiler or ("auto" if execution.compile_layers else None)


def adapter_limits(config: EngineConfig) -> AdapterLimits | None:
    """What the operator allows of adapters; None: nothing."""
    adapters = config.adapters
    if not adapters.enable_lora:
        return None
    kept = adapters.max_cpu_loras
    return AdapterLimits(
        in_step=adapters.max_loras,
        kept=max(USUALLY_KEPT, adapters.max_loras) if kept is None else kept,
        rank=adapters.max_lora_rank,
    )


def most_drafts(config: EngineConfig) -> int:
    """Of one request in one step."""
    speculation = config.speculation
    return speculation.num_speculative_tokens if speculation.speculative_proposer else 0


def core_config(config: EngineConfig, model: ModelFiles, lookahead: int = 0) -> CoreConfig:
    """The settings of the core.  lookahead: as the runner wants it."""
    from framework.core.config import CoreConfig

    return CoreConfig(
        max_num_seqs=config.scheduler.max_num_seqs,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        max_model_len=config.model.max_model_len,
        page_tokens=config.cache.page_size,
        num_pages=config.cache.num_pages,
        loop_depth=config.scheduler.loop_depth,
        max_drafts=most_drafts(config),
        lookahead=lookahead,
        max_num_active=config.scheduler.max_num_active,
        long_prefill_threshold=config.scheduler.long_prefill_threshold,
        watermark=config.scheduler.watermark,
        whole_sequence_must_fit=config.scheduler.whole_sequence_must_fit,
        max_queued_requests=config.scheduler.max_queued_requests,
        max_queued_tokens=config.scheduler.max_queued_tokens,
        queue_timeout=config.scheduler.queue_timeout,
        participant_timeout=config.scheduler.participant_timeout,
        enable_prefix_caching=config.cache.enable_prefix_caching,
        prefix_hash=config.cache.prefix_hash,
        enable_kv_events=config.cache.enable_kv_events,
        enable_chunked_prefill=config.scheduler.enable_chunked_prefill,
        identity=f"{model.identity}:{config.model.dtype}",
    )
