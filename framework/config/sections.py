"""The configuration of an engine, in sections.  Field names are unique over all sections,
so that keywords and flags name a field without its section."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from framework.contracts.kernel_sets import KernelSet
from framework.contracts.pooling import Pooling
from framework.errors import ConfigError
from framework.shown import shown


class Section(BaseModel):
    """Frozen; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ModelConfig(Section):
    """model: alias, folder, file or hub id.  tokenizer: the same, None: the model's own.
    dtype: "auto" or a name such as "float32".  seed: of the engine; requests without their
    own seed get one derived from it.  max_model_len: longest sequence in tokens, None: what
    model and cache allow.  token: for the hub.  chat_template: its text or a file.
    served_model_names: what clients of a server may call the model; none: `model`.
    load_format: "auto", "dummy" for weights made up from the seed, or a loader's name.
    pooling: how a prompt becomes a vector; None: as the model's files say, which for most
    generative models is not at all."""

    model: str = Field(min_length=1)
    tokenizer: str | None = Field(default=None, min_length=1)
    dtype: str = Field(default="auto", min_length=1, examples=["auto", "float32"])
    seed: int = Field(default=0, ge=-(2**63), lt=2**63)
    max_model_len: int | None = Field(default=None, ge=1)
    revision: str | None = None
    token: SecretStr | None = None
    trust_remote_code: bool = False
    chat_template: str | None = None
    served_model_names: tuple[str, ...] = ()
    load_format: str = "auto"
    quantization: str | None = None
    pooling: Pooling | None = None

    def template_text(self) -> str | None:
        """The chat template itself, read from its file if a file is meant."""
        template = self.chat_template
        if template is None or "\n" in template or "{" in template:
            return template
        try:
            return Path(template).read_text("utf-8")
        except (OSError, ValueError) as error:  # of the path, or no UTF-8
            # Its text would repeat a name of any length.
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"chat_template cannot be read: {why}",
                expected="a Jinja template, or the path of a file that holds one",
                found=shown(template),
            ) from error


class CacheConfig(Section):
    """kv_cache_memory_bytes: None leaves it to the platform.  num_pages: pages of the cache,
    one of them the null page, as long as memory holds them; None: what the platform gives.
    page_size: tokens per page, None leaves it to the attention backend.  kv_cache_dtype: type of
    K and V in the cache, a name such as "float16", or "auto": the model's, or where dtype is
    "auto" and kernel_set "best" a narrower one that the attention backend prefers.
    prefix_hash: sha256, or xxhash where tenants trust each other.  enable_kv_events: see
    EngineCore.take_kv_events."""

    kv_cache_memory_bytes: int | None = Field(default=None, ge=1)
    num_pages: int | None = Field(default=None, ge=2, le=2**24)
    page_size: int | None = Field(default=None, ge=1)
    kv_cache_dtype: str = Field(default="auto", min_length=1, examples=["auto", "float16"])
    enable_prefix_caching: bool = True
    prefix_hash: Literal["sha256", "xxhash"] = "sha256"
    enable_kv_events: bool = False


class SchedulerConfig(Section):
    """max_num_seqs: most requests that are in the cache at one time.  max_num_active: most of
    one step, None: all.  max_num_batched_tokens: most tokens of one step.  scheduling_policy:
    name of a plugin.  loop_depth: steps in flight.

    long_prefill_threshold: most tokens per step of a request while others want some too, or
    "auto" for equal shares.  watermark: share of the pages that stays free when a request is
    admitted.  whole_sequence_must_fit: admit only what will never be preempted.
    max_queued_requests: more are refused (OverloadedError).  max_queued_tokens: the same for the
    tokens of the prompts that wait; a longer one may wait alone.  queue_timeout: seconds after
    which a request that has never run ends with an error.  participant_timeout: seconds after
    which requests that a participant holds back, while nothing else can run, end with an error."""

    max_num_seqs: int = Field(default=256, ge=1, le=2**20)
    max_num_active: int | None = Field(default=None, ge=1)
    long_prefill_threshold: int | Literal["auto"] | None = None
    watermark: float = Field(default=0.0, ge=0, lt=1)
    whole_sequence_must_fit: bool = False
    max_queued_requests: int | None = Field(default=None, ge=1)
    max_queued_tokens: int | None = Field(default=None, ge=1)
    queue_timeout: float | None = Field(default=None, ge=0)
    participant_timeout: float | None = Field(default=60.0, ge=0)
    max_num_batched_tokens: int = Field(default=2048, ge=1, le=2**30)
    enable_chunked_prefill: bool = True
    scheduling_policy: str = "fcfs"
    loop_depth: int = Field(default=1, ge=1, le=2)


class ExecutionConfig(Section):
    """executor, model_runner, platform, attention_backend, structured_output: names of plugins;
    None lets selection choose.  kernels: operator -> name of the kernel plugin that shall compute
    it, such as {"linear": "fp16_packed"}; selection chooses for the others.
    optimization_level: a set of defaults (`levels.py`).  kernel_set: which kernels and attention
    backends the platform may prefer: "plain" ones, also "fused" ones, or whatever is "best", also
    where it computes with rounded weights; what is named is used all the same.  compile_layers:
    the layers of the model are compiled, by the plugin `compiler` or, with None, by the first that
    can; one that is named does so all the same.  enforce_eager: nothing is
    compiled, and no work of a device is captured as a graph.
    logprobs_mode: what log-probabilities are taken of.  tokenizer_threads: of a server, each with
    a tokenizer of its own.  max_logprobs: of a server, the most logprobs and prompt_logprobs that
    a request may ask for; -1: any number, although one request for those of the whole vocabulary
    can take all memory.

    on_core_death: of a server whose engine core dies: "exit", or "restart" it, at most
    max_core_restarts times in core_restart_window seconds, tries that fail included.
    step_timeout: of a server, the seconds that one step may take; a core that makes one for longer
    hangs, and is ended.  None: any.  The default is far more than a long prompt needs on a slow
    machine, since a core that is at work must never be ended.  load_timeout: of a server, the
    seconds in which a core, also one that is started anew, has to load its model; one that takes
    longer hangs, too, and is ended.  None: any."""

    executor: str = "in_process"
    model_runner: str | None = None
    platform: str | None = None
    attention_backend: str | None = None
    structured_output: str | None = None
    kernels: dict[str, str] = Field(default_factory=dict)
    optimization_level: int = Field(default=2, ge=0, le=3)
    kernel_set: KernelSet = "best"
    compile_layers: bool = False
    compiler: str | None = None
    tokenizer_threads: int = Field(default=1, ge=1, le=64)
    max_logprobs: int = Field(default=20, ge=-1)
    on_core_death: Literal["exit", "restart"] = "exit"
    max_core_restarts: int = Field(default=3, ge=1)
    core_restart_window: float = Field(default=600.0, gt=0)
    step_timeout: float | None = Field(default=600.0, gt=0)
    load_timeout: float | None = Field(default=1800.0, gt=0)
    tensor_parallel_size: int = Field(default=1, ge=1)
    enforce_eager: bool = False
    logprobs_mode: Literal[
        "raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"
    ] = "raw_logprobs"


class SpeculationConfig(Section):
    """speculative_proposer: name of the plugin that guesses the next tokens; None: nobody does.
    num_speculative_tokens: most guesses per request and step.  speculative_model: what a proposer
    reads that has a model of its own: alias, folder, file or hub id.
    speculative_config: all of it in one mapping, {"method": PROPOSER, "model": ...,
    "num_speculative_tokens": ..., and the options of the proposer}."""

    speculative_proposer: str | None = None
    num_speculative_tokens: int = Field(default=5, ge=1, le=64)
    speculative_model: str | None = Field(default=None, min_length=1)
    speculative_config: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.speculative_model is not None and self.speculative_proposer is None:
            raise ValueError(
                "speculative_model needs speculative_proposer, such as draft_model; in "
                "speculative_config, model needs method"
            )
        return self


class AdapterConfig(Section):
    """enable_lora: requests may name LoRA adapters.  max_loras: different ones in one step.
    max_lora_rank: of an adapter, the most.  max_cpu_loras: adapters in memory at one time; None:
    16, or max_loras if that is more.  lora_modules: name -> folder, adapters that are loaded at
    the start."""

    enable_lora: bool = False
    max_loras: int = Field(default=4, ge=1, le=4096)
    max_lora_rank: int = Field(default=64, ge=1, le=4096)
    max_cpu_loras: int | None = Field(default=None, ge=1)
    lora_modules: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise ValueError(
                f"max_cpu_loras must be max_loras or more, {self.max_loras}, as those of a step "
                "are in memory"
            )
        if self.lora_modules and not self.enable_lora:
            raise ValueError("lora_modules needs enable_lora")
        return self


class PluginConfig(Section):
    """plugins: {"kind:name": "module:attr"}, plugins without a distribution.
    plugin_options: {"kind.name.key": value} or {kind: {name: {key: value}}}.
    logits_processors, scheduler_participants, io_processors, stat_loggers: names of plugins to
    activate, in order.  tool_parser, reasoning_parser: of a server; None: none.
    endpoint_prefixes: endpoint -> where its routes lie, "" is the root; a third party's lie under
    /plugins/NAME otherwise.
    no_plugins: only first-party plugins.  frozen: refuse to start unless the plugins are those of
    lock_file, which `framework plugins lock` writes.
    slow_import: seconds after which the import of a plugin is named as slow."""

    plugins: dict[str, str] = Field(default_factory=dict)
    plugin_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    logits_processors: tuple[str, ...] = ()
    scheduler_participants: tuple[str, ...] = ()
    io_processors: tuple[str, ...] = ()
    stat_loggers: tuple[str, ...] = ()
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    endpoint_prefixes: dict[str, str] = Field(default_factory=dict)
    no_plugins: bool = False
    plugin_error_limit: int | None = Field(default=5, ge=1)
    frozen: bool = False
    slow_import: float = Field(default=10.0, gt=0)
    lock_file: str = Field(default="framework-plugins.lock", min_length=1)


# What a plugin may not propose (see framework.config.proposals): which model it is and whom it
# trusts.  The section of plugins is closed as well.
NOT_FOR_PLUGINS = frozenset(
    (
        "model",
        "tokenizer",
        "revision",
        "token",
        "trust_remote_code",
        "chat_template",
        "load_format",
        "speculative_model",
        "speculative_config",
    )
)

# Names beside FRAMEWORK_<SECTION>__<FIELD>, in a row with the other variables of plugins.
ENV_ALIASES = {"FRAMEWORK_PLUGINS_FROZEN": "frozen"}


class EngineConfig(Section):
    """All sections."""

    model: ModelConfig
    cache: CacheConfig = Field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = Field(default_factory=SchedulerConfig)
    execution: ExecutionConfig = Field(default_factory=ExecutionConfig)
    speculation: SpeculationConfig = Field(default_factory=SpeculationConfig)
    adapters: AdapterConfig = Field(default_factory=AdapterConfig)
    plugin: PluginConfig = Field(default_factory=PluginConfig)
