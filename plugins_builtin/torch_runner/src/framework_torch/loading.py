"""From files to a model that is ready to be bound: the order in which things are chosen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from framework.contracts.kv_cache_spec import EncoderOnlySpec, KVCacheSpec
from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.model import AttentionLayer, Model
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import CacheBudget, DeviceFacts, Platform
from framework.contracts.step import RunnerInfo
from framework.errors import ConfigError, ModelError
from framework.plugins.blame import blaming, expect
from framework_torch.building import build, open_weights
from framework_torch.drafting.load import LoadedProposer, load_proposer
from framework_torch.kernels.choose import choose_kernels
from framework_torch.operations import CONTROL_OPS
from framework_torch.pooling.config import PoolingConfig, pooling_of
from framework_torch.pooling.told import class_labels, features_of, hidden_size
from framework_torch.ranking import ranked
from framework_torch.selecting import (
    AttentionChoice,
    choose_attention,
    choose_dtype,
    choose_platform,
    common_page_tokens,
    facts_of,
)

if TYPE_CHECKING:
    from framework.contracts.model_source import ModelFiles

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
    )
)
LOOP_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model with all that was chosen for it.  max_len: tokens of the longest request.
    pooling: how vectors are made, or None.  drafting: the proposer of drafts, or None."""

    model: Model
    layers: Mapping[str, AttentionLayer]
    attention: Mapping[KVCacheSpec, AttentionChoice]
    processors: tuple[LogitsProcessor, ...]
    platform: Platform
    facts: DeviceFacts
    dtype: str
    max_slots: int
    max_len: int
    logprobs_mode: str
    pooling: PoolingConfig | None
    drafting: LoadedProposer | None
    info: RunnerInfo


def load(context: RunnerContext) -> Loaded:
    """Choose, read and build.  Raises ModelError, SelectionError, ConfigError."""
    started = time.perf_counter()
    platform = choose_platform(context.registry, context.choices.get("platform"))
    facts = facts_of(platform)
    dtype = choose_dtype(context.dtype, facts)
    with blaming(platform, "preparing"):
        notes = [*platform.prepare()]
    weights = open_weights(context)
    opened = time.perf_counter()
    model, definition = build(context, weights, dtype, facts.device, platform)
    kernels = ranked(context, platform, "kernel")
    generates = getattr(model, "generates", True)
    labels = class_labels(model)
    pooling = pooling_of(context.model, context.pooling, needed=not generates and not labels)
    operators = getattr(model, "operators", dict)()
    kernel_notes = choose_kernels(context, operators, facts, dtype, kernels)
    drafting = load_proposer(
        context,
        model,
        dtype,
        facts.device,
        lambda files: _second(context, files, dtype, facts, platform),
    )
    layers = model.attention_layers(dtype)
    if drafting is not None:
        layers = drafting.with_layers(layers)
    ranking = ranked(context, platform, "attention_backend")
    attention = choose_attention(context, layers, facts, dtype, ranking)
    sizes = common_page_tokens(attention)
    able = _shorter(model.max_model_len, None if pooling is None else pooling.max_length)
    max_len = _longest(context, able)
    budget = _budget(context, platform, layers, sizes[0], max_len)
    built = time.perf_counter()
    notes += [
        f"model: {context.model.name} by {definition}, {dtype}",
        f"attention: {', '.join(sorted({c.name for c in attention.values()}))}, "
        f"pages of {sizes[0]} tokens",
        *dict.fromkeys(line for c in attention.values() for line in c.left_out),
        *kernel_notes,
        *(() if drafting is None else drafting.notes),
        f"cache: {budget.reason}",
        f"loaded in {built - started:.2f} s (files {opened - started:.2f} s, "
        f"model {built - opened:.2f} s)",
    ]
    info = RunnerInfo(
        layers={name: layer.spec for name, layer in layers.items()},
        page_tokens=sizes,
        bytes_free=budget.bytes,
        vocab_size=model.vocab_size,
        features=FEATURES | features_of(pooling, labels),
        generates=generates,
        embedding_size=None if pooling is None else hidden_size(model),
        class_labels=labels,
        lookahead=context.max_drafts if drafting is not None and drafting.info.layers else 0,
        whole_prompts=any(isinstance(layer.spec, EncoderOnlySpec) for layer in layers.values()),
        max_loop_depth=LOOP_DEPTH,
        max_model_len=able,
        control_ops=CONTROL_OPS,
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
        max_len=max_len,
        logprobs_mode=context.logprobs_mode,
        pooling=pooling,
        drafting=drafting,
        info=info,
    )


def _second(
    context: RunnerContext, files: ModelFiles, dtype: str, facts: DeviceFacts, platform: Platform
) -> Model:
    """Another model beside the first one, made in the same way."""
    own = replace(context, model=files, choices={}, progress=False)
    model, _ = build(own, open_weights(own), dtype, facts.device, platform)
    kernels = ranked(context, platform, "kernel")
    choose_kernels(own, getattr(model, "operators", dict)(), facts, dtype, kernels)
    return model


def load_again(context: RunnerContext, before: RunnerInfo) -> Loaded:
    """The same model once more.  Raises ModelError where its files hold another one by now."""
    loaded = load(context)
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


def _shorter(one: int | None, other: int | None) -> int | None:
    """The smaller of two limits that may be none."""
    limits = [limit for limit in (one, other) if limit is not None]
    return min(limits, default=None)


def _longest(context: RunnerContext, able: int | None) -> int:
    asked = context.max_model_len
    if asked is not None and able is not None and asked > able:
        raise ConfigError(
            "max_model_len is longer than the model allows",
            expected=f"at most {able}",
            found=asked,
            mend="lower max_model_len, or scale the rotary embedding in config.json",
        )
    longest = asked if asked is not None else able
    if longest is None:
        raise ConfigError(
            "the model does not say how long a sequence may be",
            expected="max_model_len",
            found="nothing",
            mend="set max_model_len",
        )
    return longest


def _budget(
    context: RunnerContext,
    platform: Platform,
    layers: Mapping[str, AttentionLayer],
    page_tokens: int,
    max_len: int,
) -> CacheBudget:
    """Bytes for the cache.  More than all slots at full length, and the null page, is of no
    use.  Layers are counted as the core groups them: by spec, as many together as the rarest
    spec has, all with slabs as large as the largest."""
    counts = Counter(layer.spec for layer in layers.values())
    places = min(counts.values())
    slab = max(spec.page_bytes(page_tokens) for spec in counts)
    pages = sum(
        -(-count // places) * spec.max_pages(max_len, page_tokens, context.max_step_tokens)
        for spec, count in counts.items()
    )
    needed = places * slab * (1 + context.max_slots * pages)
    with blaming(platform, "choosing the size of the cache"):
        budget = platform.cache_budget(needed, context.cache_bytes)
    return expect(platform, "cache_budget", budget, CacheBudget)


def _processors(context: RunnerContext) -> tuple[LogitsProcessor, ...]:
    made: list[Any] = [
        context.registry.create("logits_processor", name, named=True)
        for name in context.logits_processors
    ]
    return tuple(made)
