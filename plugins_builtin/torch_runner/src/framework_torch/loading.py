"""From files to a model that is ready to be bound: the order in which things are chosen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from framework.contracts.kv_cache_spec import EncoderOnlySpec, KVCacheSpec
from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.model import AttentionLayer, Model
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import DeviceFacts, Platform
from framework.contracts.step import RunnerInfo
from framework.errors import ModelError
from framework.plugins.blame import blaming
from framework_torch.adapters.load import adapter_linears, load_bank
from framework_torch.building import build, open_weights
from framework_torch.choosing_attention import AttentionChoice, common_page_tokens
from framework_torch.choosing_cache import choose_cache, kept_in
from framework_torch.compiling.apply import compile_operators
from framework_torch.drafting.load import LoadedProposer, load_proposer
from framework_torch.embeds import EMBEDS
from framework_torch.graphs.plan import GraphPlan, wish
from framework_torch.kernels.choose import choose_kernels
from framework_torch.memory import trim
from framework_torch.operations import ADAPTERS, CONTROL_OPS
from framework_torch.options import TorchOptions
from framework_torch.pooling.config import PoolingConfig, pooling_of
from framework_torch.pooling.told import (
    class_labels,
    embedding_size,
    features_of,
    hidden_size,
)
from framework_torch.ranking import ranked
from framework_torch.room import budget_of, longest_of, shorter
from framework_torch.selecting import choose_dtype, choose_platform, facts_of

if TYPE_CHECKING:
    from framework.contracts.model_source import ModelFiles
    from framework_torch.adapters.bank import AdapterBank

# What plans and requests may make use of.
FEATURES = frozenset(
    (
        "drafts",
        "proposer",
        "logprobs",
        "prompt_logprobs",
        "structured_outputs",
        "logits_processors",
        "quantization",
        "cache_dtype",
        "compiler",
        EMBEDS,
    )
)
LOOP_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model with all that was chosen for it.  max_len: tokens of the longest request.
    pooling: how vectors are made, or None.  drafting: the proposer of drafts, or None.
    adapters: what serves them, or None.  graphs: what is captured of steps."""

    model: Model
    layers: Mapping[str, AttentionLayer]
    attention: Mapping[KVCacheSpec, AttentionChoice]
    processors: tuple[LogitsProcessor, ...]
    platform: Platform
    facts: DeviceFacts
    dtype: str
    max_slots: int
    max_step_tokens: int
    max_len: int
    logprobs_mode: str
    pooling: PoolingConfig | None
    drafting: LoadedProposer | None
    adapters: AdapterBank | None
    graphs: GraphPlan
    info: RunnerInfo


def load(
    context: RunnerContext,
    adapters: AdapterBank | None = None,
    options: TorchOptions | None = None,
) -> Loaded:
    """Choose, read and build.  adapters: those that go on, after a sleep.  Raises ModelError,
    SelectionError, ConfigError, UnsupportedError."""
    started = time.perf_counter()
    platform = choose_platform(context.registry, context.choices.get("platform"))
    facts = facts_of(platform)
    dtype = choose_dtype(context.dtype, facts)
    options = options or TorchOptions()
    with blaming(platform, "preparing"):
        notes = [*platform.prepare()]
    wished = wish(context, platform, options)
    weights = open_weights(context)
    opened = time.perf_counter()
    model, definition = build(context, weights, dtype, facts.device, platform)
    kernels = ranked(context, platform, "kernel")
    generates = getattr(model, "generates", True)
    labels = class_labels(model)
    pooling = pooling_of(context.model, context.pooling, needed=not generates and not labels)
    operators = getattr(model, "operators", dict)()
    linears = adapter_linears(context, dtype, facts, kernels)
    compiled = compile_operators(context, operators, facts, dtype, options)
    kernel_notes = choose_kernels(
        context, operators, facts, dtype, kernels, linears, compiled.names, wished.mode
    )
    adapters, adapter_notes = load_bank(context, model, dtype, facts.device, linears, adapters)
    told: list[str] = []

    def second(files: ModelFiles) -> Model:
        made, lines = _second(context, files, dtype, facts, platform, options)
        told.extend(f"draft model: {line}" for line in lines)
        return made

    drafting = load_proposer(
        context,
        model,
        dtype,
        facts.device,
        second,
    )

    def layers_of(cache_dtype: str) -> Mapping[str, AttentionLayer]:
        layers = model.attention_layers(cache_dtype)
        return layers if drafting is None else drafting.with_layers(layers, dtype, cache_dtype)

    ranking = ranked(context, platform, "attention_backend")
    layers, attention = choose_cache(context, layers_of, facts, dtype, ranking)
    sizes = common_page_tokens(attention)
    graphs = wished.with_attention(attention, context, options)
    able = shorter(model.max_model_len, None if pooling is None else pooling.max_length)
    max_len = longest_of(context, able)
    budget = budget_of(context, platform, layers, sizes[0], max_len)
    if facts.device == "cpu":
        trim()
    built = time.perf_counter()
    notes += [
        f"model: {context.model.name} by {definition}, {dtype}",
        f"attention: {', '.join(sorted({c.name for c in attention.values()}))}, "
        f"pages of {sizes[0]} tokens",
        *dict.fromkeys(line for c in attention.values() for line in c.left_out),
        *compiled.notes,
        *kernel_notes,
        *adapter_notes,
        *(() if drafting is None else drafting.notes),
        *told,
        *graphs.notes,
        f"cache: {budget.reason}{kept_in(layers)}",
        f"loaded in {built - started:.2f} s (files {opened - started:.2f} s, "
        f"model {built - opened:.2f} s)",
    ]
    width = embedding_size(model, facts.device)
    info = RunnerInfo(
        layers={name: layer.spec for name, layer in layers.items()},
        page_tokens=sizes,
        bytes_free=budget.bytes,
        vocab_size=model.vocab_size,
        features=FEATURES
        | features_of(pooling, labels)
        | (frozenset() if adapters is None else {ADAPTERS}),
        generates=generates,
        embedding_size=None if pooling is None else hidden_size(model, width),
        class_labels=labels,
        prompt_embeds=width,
        lookahead=context.max_drafts if drafting is not None and drafting.info.layers else 0,
        whole_prompts=any(isinstance(layer.spec, EncoderOnlySpec) for layer in layers.values()),
        max_loop_depth=LOOP_DEPTH,
        max_model_len=able,
        control_ops=CONTROL_OPS.union(() if adapters is None else (ADAPTERS,)),
        notes=tuple(notes),
    )
    return Loaded(
        model=model,
        layers=layers,
        attention=attention,
        processors=_processors(context),
        platform=platform,
        facts=facts,
        dtype=dtype,
        max_slots=context.max_slots,
        max_step_tokens=context.max_step_tokens,
        max_len=max_len,
        logprobs_mode=context.logprobs_mode,
        pooling=pooling,
        drafting=drafting,
        adapters=adapters,
        graphs=graphs,
        info=info,
    )


def _second(
    context: RunnerContext,
    files: ModelFiles,
    dtype: str,
    facts: DeviceFacts,
    platform: Platform,
    options: TorchOptions,
) -> tuple[Model, tuple[str, ...]]:
    """Another model beside the first one, made in the same way, with its start-up lines."""
    own = replace(context, model=files, choices={}, progress=False, adapters=None)
    model, _ = build(own, open_weights(own), dtype, facts.device, platform)
    operators = getattr(model, "operators", dict)()
    compiled = compile_operators(own, operators, facts, dtype, options, needed=False)
    kernels = ranked(context, platform, "kernel")
    notes = choose_kernels(own, operators, facts, dtype, kernels, done=compiled.names)
    return model, (*compiled.notes, *notes)


def load_again(
    context: RunnerContext,
    before: RunnerInfo,
    adapters: AdapterBank | None,
    options: TorchOptions,
) -> Loaded:
    """The same model once more.  Raises ModelError where its files hold another one by now."""
    loaded = load(context, adapters, options)
    for name in ("layers", "page_tokens", "vocab_size", "max_model_len", "class_labels"):
        now, then = getattr(loaded.info, name), getattr(before, name)
        if now != then:
            raise ModelError(
                f"the files of {context.model.name!r} hold another model than before the sleep: "
                f"it differs in {name}",
                expected=f"{then!s:.200}",
                found=f"{now!s:.200}",
                mend="put the files back and wake it again, or start the engine anew",
            )
    return loaded


def _processors(context: RunnerContext) -> tuple[LogitsProcessor, ...]:
    made: list[Any] = [
        context.registry.create("logits_processor", name, named=True)
        for name in context.logits_processors
    ]
    return tuple(made)
