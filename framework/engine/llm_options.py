"""The options of `LLM`: a flat list of the fields of all configuration sections."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from framework.config.resolve import Resolved


class LLMOptions(TypedDict, total=False):
    """Options of `LLM` beside the model; framework/config/sections.py has their meaning."""

    tokenizer: str | os.PathLike[str] | None
    dtype: str
    seed: int
    max_model_len: int | None
    revision: str | None
    token: str | None
    trust_remote_code: bool
    chat_template: str | None
    served_model_names: Sequence[str]
    load_format: str
    quantization: str | None
    pooling: str | None
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_memory_bytes: int | None
    num_pages: int | None
    page_size: int | None
    kv_cache_dtype: str
    enable_prefix_caching: bool
    prefix_hash: str
    enable_kv_events: bool
    enable_chunked_prefill: bool
    scheduling_policy: str
    max_num_active: int | None
    long_prefill_threshold: int | str | None
    watermark: float
    whole_sequence_must_fit: bool
    max_queued_requests: int | None
    max_queued_tokens: int | None
    queue_timeout: float | None
    participant_timeout: float | None
    loop_depth: int
    executor: str
    model_runner: str | None
    platform: str | None
    attention_backend: str | None
    structured_output: str | None
    kernels: Mapping[str, str]
    optimization_level: int
    kernel_set: str
    compile_layers: bool
    compiler: str | None
    tensor_parallel_size: int
    enforce_eager: bool
    logprobs_mode: str
    tokenizer_threads: int
    max_logprobs: int
    on_core_death: str
    max_core_restarts: int
    core_restart_window: float
    step_timeout: float | None
    load_timeout: float | None
    speculative_proposer: str | None
    num_speculative_tokens: int
    speculative_model: str | os.PathLike[str] | None
    speculative_config: Mapping[str, Any]
    enable_lora: bool
    max_loras: int
    max_lora_rank: int
    max_cpu_loras: int | None
    lora_modules: Mapping[str, str]
    plugins: Mapping[str, str]
    plugin_options: Mapping[str, Any]
    logits_processors: Sequence[str]
    scheduler_participants: Sequence[str]
    io_processors: Sequence[str]
    stat_loggers: Sequence[str]
    tool_parser: str | None
    reasoning_parser: str | None
    endpoint_prefixes: Mapping[str, str]
    no_plugins: bool
    plugin_error_limit: int | None
    frozen: bool
    slow_import: float
    lock_file: str


def resolve_options(model: str | os.PathLike[str], options: dict[str, Any]) -> Resolved:
    """The configuration of keywords and environment.  Raises ConfigError."""
    from framework.plugins.undecodable import readable_for_all

    readable_for_all()
    from framework.config.resolve import resolve

    options["model"] = model
    for name in ("model", "tokenizer"):
        if isinstance(options.get(name), os.PathLike):
            options[name] = os.fspath(options[name])
    if not isinstance(options.get("dtype", ""), str):
        options["dtype"] = str(options["dtype"]).removeprefix("torch.")
    return resolve(options, env=os.environ)
